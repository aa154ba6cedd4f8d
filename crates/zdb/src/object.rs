//! Shows one object: its row, its contents by type, its blocks.

use super::ctx::{Ctx, Run};
use super::ranges::Range;
use super::text::{self, compact, fill, type_name};
use super::view::View;
use super::viewer;
use dmu::{Dnode, Extent};

use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE, Body};
use ondisk::dnode::{DNODE_MIN_SIZE, DnodeFlags};
use ondisk::{BlkId, Blkptr, ChecksumKind, CompressKind, DmuType, Level};
use zio::{Bookmark, ReadOptions, Zio};

/// Whether the column titles precede the next row.
#[derive(Debug)]
pub struct Header(bool);

impl Default for Header {
    fn default() -> Self {
        Self(true)
    }
}

impl Header {
    /// Prints the titles if they are due.
    pub fn show(&mut self, cx: &mut Ctx<'_>) {
        if std::mem::replace(&mut self.0, false) {
            writeln!(
                cx.out,
                "\n{:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {:>6}  type",
                "Object", "lvl", "iblk", "dblk", "dsize", "dnsize", "lsize", "%full"
            );
        }
    }
}

/// Shows an object if `range` accepts its type (`dump_object`).
pub fn show(
    cx: &mut Ctx<'_>,
    view: &mut View<'_>,
    dn: &Dnode,
    header: &mut Header,
    range: Option<&Range>,
) -> Run {
    header.show(cx);
    if range.is_some_and(|r| !r.wants(dn.kind())) {
        return Ok(());
    }
    let verbosity = cx.opts.count('d');
    row(cx, view, dn, verbosity);
    if verbosity >= 4 {
        flags(cx, dn);
        if view.locked && dn.bonus_kind().is_encrypted() {
            cx.out.put("\t\t(bonus encrypted)\n");
        } else {
            cx.part(|cx| viewer::bonus(cx, view, dn))?;
        }
        if view.locked && dn.kind().is_encrypted() {
            cx.out.put("\t\t(object encrypted)\n");
        } else {
            cx.part(|cx| viewer::contents(cx, view, dn))?;
        }
        *header = Header::default();
    }
    if verbosity >= 5 {
        if let Some(bp) = dn.phys().spill.filter(|_| dn.flags().has(DnodeFlags::SPILL)) {
            writeln!(cx.out, "\nSpill block: {}", compact(&bp, verbosity > 5, false));
        }
        cx.out.put("Indirect blocks:\n");
        cx.part(|cx| indirect(cx, view, dn))?;
        cx.out.put("\n");
        cx.part(|cx| segments(cx, dn))?;
    }
    Ok(())
}

fn row(cx: &mut Ctx<'_>, view: &View<'_>, dn: &Dnode, verbosity: u32) {
    let phys = dn.phys();
    let size = dn.max_size();
    let filled: u64 = phys.blkptrs.iter().fold(0, |n, bp| n.wrapping_add(fill(bp)));
    // The fill count of the meta-dnode counts dnodes, that of other objects blocks.
    let per_block = if dn.object().0 == 0 { 32.0 } else { 1.0 };
    let full = 100.0 * filled as f64 * dn.block_size() as f64 / per_block / size as f64;
    let iblk = if phys.indblkshift == 0 { 0 } else { 1 << phys.indblkshift };
    let dsize = (dn.used_bytes().saturating_add(256) >> 9) << 9;
    writeln!(
        cx.out,
        "{:10}  {:3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {full:>6.2}  {}{}",
        dn.object().0 as i64,
        phys.nlevels,
        cx.num(iblk),
        cx.num(dn.block_size()),
        cx.num(dsize),
        cx.num((phys.num_slots() * DNODE_MIN_SIZE) as u64),
        cx.num(size),
        type_name(dn.kind()),
        functions(view, dn, verbosity)
    );
    if dn.bonus_kind() != DmuType::NONE && verbosity > 3 {
        let bonus = cx.num(dn.bonus().len() as u64);
        writeln!(cx.out, "{:42}{bonus:>8}   bonus  {}", "", type_name(dn.bonus_kind()));
    }
}

/// The checksum and compression of an object that has its own; from `-dddddd` on of all.
fn functions(view: &View<'_>, dn: &Dnode, verbosity: u32) -> String {
    let mut out = String::new();
    let (checksum, compress) = (dn.phys().checksum, dn.phys().compress);
    if checksum != 0 || verbosity >= 6 {
        let name = ChecksumKind::from_disk(checksum).map_or("UNKNOWN", ChecksumKind::name);
        out += &format!(" (K={name})");
    }
    if compress == 0 && verbosity >= 6 {
        out += &format!(" (Z=inherit={})", view.compression);
    } else if compress != 0 {
        let name = CompressKind::from_disk(compress).map_or("UNKNOWN", CompressKind::name);
        out += &format!(" (Z={name})");
    }
    out
}

fn flags(cx: &mut Ctx<'_>, dn: &Dnode) {
    const NAMES: [(u8, &str); 4] = [
        (DnodeFlags::USED_BYTES, "USED_BYTES "),
        (DnodeFlags::USERUSED_ACCOUNTED, "USERUSED_ACCOUNTED "),
        (DnodeFlags::USEROBJUSED_ACCOUNTED, "USEROBJUSED_ACCOUNTED "),
        (DnodeFlags::SPILL, "SPILL_BLKPTR"),
    ];
    let set: String = NAMES.iter().filter(|(bit, _)| dn.flags().has(*bit)).map(|(_, n)| *n).collect();
    writeln!(cx.out, "\tdnode flags: {set}\n\tdnode maxblkid: {}", dn.max_blkid().0);
}

/// A pointer of an object's block tree, still to be shown.
struct Node {
    bp: Blkptr,
    level: Level,
    blkid: BlkId,
}

/// Shows the block tree in order, parents before children (`dump_indirect`).
///
/// At most one block of pointers per level waits.
fn indirect(cx: &mut Ctx<'_>, view: &View<'_>, dn: &Dnode) -> Run {
    let phys = dn.phys();
    let top = Level(phys.nlevels - 1);
    let zio = view.os.cache().zio();
    let all_copies = cx.opts.count('d') > 5;
    let mut steps = zio.walk_limit();
    let mut waiting: Vec<Node> = Vec::new();
    let roots = phys.blkptrs.iter().enumerate().rev();
    waiting.extend(roots.map(|(i, bp)| Node { bp: *bp, level: top, blkid: BlkId(i as u64) }));
    while let Some(Node { bp, level, blkid }) = waiting.pop() {
        if bp.birth.0 == 0 {
            continue;
        }
        let bookmark = Bookmark { objset: view.os.id(), object: dn.object(), level, blkid };
        let offset = blkid.0.wrapping_shl(phys.span_shift(level)).wrapping_mul(dn.block_size());
        let indent = usize::from(top.0 - level.0);
        let after = usize::from(level.0) + 1;
        let text = if cx.opts.count('b') >= 6 { text::blkptr(&bp) } else { compact(&bp, all_copies, false) };
        let header = if cx.opts.has('Z') { zstd_header(cx, zio, &bp, &bookmark) } else { String::new() };
        writeln!(cx.out, "{offset:16x} {:indent$}L{:x}{:after$}{text}{header}", "", level.0, "");
        if level.0 == 0 || bp.is_hole() {
            continue;
        }
        steps = steps.checked_sub(1).ok_or_else(|| {
            let why = "it has more blocks than the pool has sectors";
            dn.corrupt(ondisk::Corrupt::Shape { what: "block tree", why })
        })?;
        let block = match zio.read_undecrypted(&bp, &bookmark, &ReadOptions::demand()) {
            Ok(block) => block,
            Err(e) => {
                cx.report(&anyhow::Error::new(e));
                continue;
            }
        };
        let below = Level(level.0 - 1);
        let entries = block.len() >> BLKPTR_SHIFT;
        for i in (0..entries).rev() {
            let at = i << BLKPTR_SHIFT;
            let bp = Blkptr::decode(&block[at..at + BLKPTR_SIZE]).map_err(|e| dn.corrupt(e))?;
            let child = BlkId(blkid.0.wrapping_mul(entries as u64).wrapping_add(i as u64));
            waiting.push(Node { bp, level: below, blkid: child });
        }
    }
    Ok(())
}

/// Formats the zstd header of a block; empty for an encrypted block (`snprintf_zstd_header`).
fn zstd_header(cx: &mut Ctx<'_>, zio: &Zio, bp: &Blkptr, bookmark: &Bookmark) -> String {
    let (kind, place) = match &bp.body {
        Body::Stored(s) => (s.compress, "NORMAL"),
        Body::Embedded(e) => (e.compress, "EMBEDDED"),
        Body::Hole | Body::Redacted => return String::new(),
    };
    if kind != CompressKind::Zstd || bp.is_encrypted() {
        return String::new();
    }
    let raw = zio.read_raw(bp, bookmark, &ReadOptions::demand()).map_err(anyhow::Error::new);
    match raw.and_then(|raw| Ok(codec::compress::zstd_header(&raw)?)) {
        Ok(h) => format!(" ZSTD:size={}:version={}:level={}:{place}", h.size, h.version, h.level.to_disk()),
        Err(e) => {
            cx.report(&e);
            String::new()
        }
    }
}

/// Shows the ranges of an object that are no holes.
fn segments(cx: &mut Ctx<'_>, dn: &Dnode) -> Run {
    let mut start = 0;
    while let Some(from) = dn.next_offset(start, Extent::Data)? {
        let Some(end) = dn.next_offset(from, Extent::Hole)? else { break };
        let size = cx.num(end - from);
        writeln!(cx.out, "\t\tsegment [{from:016x}, {end:016x}) size {size:>5}");
        if end <= start {
            break;
        }
        start = end;
    }
    Ok(())
}
