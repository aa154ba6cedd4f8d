//! `zdb -R` and `-E`: a block by its place, or by the pointer that embeds it.
//!
//! # Theory
//! A place does not say how its block was compressed. So [`read`] tries every decompressor at every
//! size, the likely ones first. The first that fills the block exactly counts as right. There is no
//! checksum to verify either.
//!
//! # See
//! OpenZFS `zdb_read_block`, `zdb_embedded_block`.

use super::ctx::{Ctx, Run, Stop};
use super::opened::Opened;
use super::text;
use codec::compress::decompress;
use device::AlignedBuf;
use ondisk::blkptr::{BLKPTR_SIZE, Body};
use ondisk::label::LABEL_START_SIZE;
use ondisk::{
    Blkptr, ByteOrder, ChecksumKind, CompressKind, Psize, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, Txg,
    VdevConfig, VdevId,
};

/// The birth txg that such a block gets (`TXG_INITIAL`).
const TXG_INITIAL: Txg = Txg(4);
/// Size of a gang header in bytes (`SPA_GANGBLOCKSIZE`), and its number of pointers.
const GANG_HEADER: u64 = 512;
const GANG_POINTERS: u64 = 3;
/// The decompressors in the order of the attempts.
///
/// ZLE comes last of all, because it accepts nearly any input.
const GUESSES: [CompressKind; 4] =
    [CompressKind::Lz4, CompressKind::Lzjb, CompressKind::Gzip1, CompressKind::Zstd];
/// The checksums that `zdb -R :c` shows.
const SUMS: [ChecksumKind; 7] = [
    ChecksumKind::Fletcher2,
    ChecksumKind::Fletcher4,
    ChecksumKind::Sha256,
    ChecksumKind::Sha512,
    ChecksumKind::Skein,
    ChecksumKind::Edonr,
    ChecksumKind::Blake3,
];

/// The flags of one request.
#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    pointer: Option<u64>,
    checksum: bool,
    decompress: bool,
    swap: bool,
    gang: bool,
    indirect: bool,
    raw: bool,
    verbose: bool,
}

/// A request for a block by its place.
#[derive(Debug)]
struct Wanted<'a> {
    vdev: &'a str,
    offset: u64,
    lsize: u64,
    psize: u64,
    flags: Flags,
}

/// Parses a hexadecimal number as C does: up to the first other character; 0 without digits.
fn hex(s: &str) -> u64 {
    let s = s.strip_prefix("0x").unwrap_or(s);
    let end = s.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(s.len());
    u64::from_str_radix(&s[..end], 16).unwrap_or(0)
}

/// Parses `vdev:offset:size[/psize][:flags]`. Prints the fault and returns `None` if it is wrong.
fn parse<'a>(cx: &mut Ctx<'_>, thing: &'a str) -> Option<Wanted<'a>> {
    let mut parts = thing.split(':').filter(|p| !p.is_empty());
    let vdev = parts.next().unwrap_or_default();
    let offset = hex(parts.next().unwrap_or_default());
    let sizes = parts.next().unwrap_or_default();
    let (lsize, psize) = match sizes.split_once('/') {
        Some((l, p)) => (hex(l), hex(p)),
        None => (hex(sizes), hex(sizes)),
    };
    let sector = |n: u64| n.is_multiple_of(SPA_MINBLOCKSIZE);
    let wrong = if !sector(offset) {
        Some("offset must be a multiple of sector size")
    } else if !sector(lsize) || !sector(psize) {
        Some("size must be a multiple of sector size")
    } else if lsize < psize || psize == 0 || lsize > SPA_MAXBLOCKSIZE {
        Some("invalid size(s)")
    } else {
        None
    };
    if let Some(wrong) = wrong {
        writeln!(cx.out, "Invalid block specifier: {thing}  - {wrong}");
        return None;
    }
    let flags = parse_flags(cx, parts.next().unwrap_or_default())?;
    Some(Wanted { vdev, offset, lsize, psize, flags })
}

fn parse_flags(cx: &mut Ctx<'_>, letters: &str) -> Option<Flags> {
    let mut flags = Flags::default();
    let mut found = false;
    let mut rest = letters.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            'b' => {
                // The digits up to the next flag are the pointer's offset in the block.
                let mut digits = String::new();
                while let Some(d) = rest.next_if(|d| !"bcdegirv".contains(*d)) {
                    digits.push(d);
                }
                flags.pointer = Some(hex(&digits));
            }
            'c' => flags.checksum = true,
            'd' => flags.decompress = true,
            'e' => flags.swap = true,
            'g' => flags.gang = true,
            'i' => flags.indirect = true,
            'r' => flags.raw = true,
            'v' => flags.verbose = true,
            c => {
                writeln!(cx.out, "***Ignoring flag: {c}");
                continue;
            }
        }
        found = true;
    }
    if !found && !letters.is_empty() {
        writeln!(cx.out, "Invalid flag arg: '{letters}'");
        return None;
    }
    if let Some(at) = flags.pointer.filter(|at| !at.is_multiple_of(BLKPTR_SIZE as u64)) {
        writeln!(cx.out, "Block pointer offset {at:#x} must be divisible by {BLKPTR_SIZE:#x}");
        return None;
    }
    Some(flags)
}

/// Finds a vdev, with the number of its top-level vdev (`zdb_vdev_lookup`).
///
/// `name` is a number, a path of numbers with dots (`0.1`), or the name of a device.
fn find<'a>(root: &'a VdevConfig, name: &str) -> Option<(u64, &'a VdevConfig)> {
    let numbers: Option<Vec<usize>> = name.split('.').map(|n| n.parse().ok()).collect();
    if let Some(numbers) = numbers {
        let mut vdev = root;
        for n in &numbers {
            vdev = vdev.children.get(*n)?;
        }
        return Some((*numbers.first()? as u64, vdev));
    }
    let named = |leaf: &&VdevConfig| {
        let path = leaf.path.as_deref().map(text::lossy).unwrap_or_default();
        path == name || path.rsplit('/').next() == Some(name)
    };
    let tops = root.children.iter().enumerate();
    tops.filter_map(|(i, top)| Some((i as u64, top.leaves().find(named)?))).next()
}

/// Reads stored bytes from a top-level vdev at a block's offset, or from a child at that very
/// offset.
fn fetch(pool: &Opened, top: u64, vdev: &VdevConfig, offset: u64, size: u64) -> anyhow::Result<AlignedBuf> {
    let tree = pool.spa.tree();
    let id = VdevId(u32::try_from(top)?);
    if tree.top_spec(id)?.guid == vdev.guid {
        let request = zio::Request::new(zio::Priority::SyncRead);
        let mut attempts = tree.attempts(id, offset, Psize(size), TXG_INITIAL, &request)?;
        let first = attempts.next();
        let failure = attempts.let_be();
        return first.ok_or_else(|| match failure.io {
            Some(e) => e.into(),
            None => anyhow::anyhow!("no device of it can be read"),
        });
    }
    let mut why = anyhow::anyhow!("no device of it can be read");
    for leaf in vdev.leaves() {
        let Some((_, device)) = tree.devices().find(|(guid, _)| *guid == leaf.guid) else { continue };
        let mut buf = AlignedBuf::zeroed(size as usize);
        match device.read_at(&mut buf, offset.saturating_add(LABEL_START_SIZE)) {
            Ok(()) => return Ok(buf),
            Err(e) => why = e.into(),
        }
    }
    Err(why)
}

/// Decompresses a block by trying everything (`zdb_decompress_block`).
fn unpack(cx: &mut Ctx<'_>, raw: &[u8], wanted: &Wanted<'_>) -> Option<AlignedBuf> {
    let (first, last) = if wanted.lsize == wanted.psize {
        (wanted.lsize + SPA_MINBLOCKSIZE, SPA_MAXBLOCKSIZE)
    } else {
        (wanted.lsize, wanted.lsize)
    };
    let attempt = |cx: &mut Ctx<'_>, size: u64, kind: CompressKind| {
        if wanted.flags.verbose {
            writeln!(cx.err, "Trying {:05x} -> {size:05x} ({})", wanted.psize, kind.name());
        }
        let mut out = AlignedBuf::zeroed(size as usize);
        decompress(kind, raw, &mut out).is_ok().then_some(out)
    };
    for size in (first..=last).step_by(SPA_MINBLOCKSIZE as usize) {
        for kind in GUESSES {
            if let Some(out) = attempt(cx, size, kind) {
                return Some(out);
            }
        }
    }
    if std::env::var_os("ZDB_NO_ZLE").is_some() {
        return None;
    }
    for size in (wanted.lsize..=last).step_by(SPA_MINBLOCKSIZE as usize) {
        if let Some(out) = attempt(cx, size, CompressKind::Zle) {
            cx.out.put(
                "\nZLE decompression was selected. If you suspect the results are wrong,\n\
                 try avoiding ZLE by setting and exporting ZDB_NO_ZLE=\"true\"\n",
            );
            return Some(out);
        }
    }
    None
}

/// Shows one block, or prints the fault of the request (`zdb_read_block`).
pub fn read(cx: &mut Ctx<'_>, pool: &Opened, thing: &str) -> Run {
    let Some(wanted) = parse(cx, thing) else { return Ok(()) };
    let flags = wanted.flags;
    let config = pool.spa.tree().config().clone();
    let Some((top, vdev)) = find(&config, wanted.vdev) else {
        writeln!(cx.out, "***Invalid vdev: {}", wanted.vdev);
        return Ok(());
    };
    match &vdev.path {
        Some(path) => writeln!(cx.err, "Found vdev: {}", text::lossy(path)),
        None => writeln!(cx.err, "Found vdev type: {}", vdev.kind.name()),
    }
    let size = if flags.gang { wanted.psize.max(GANG_HEADER) } else { wanted.psize };
    let raw = match fetch(pool, top, vdev, wanted.offset, size) {
        Ok(raw) => raw,
        Err(e) => {
            writeln!(cx.out, "Read of {thing} failed, error: {e:#}");
            return Ok(());
        }
    };
    let mut unpacked = None;
    if flags.decompress {
        unpacked = unpack(cx, &raw, &wanted);
        if unpacked.is_none() {
            writeln!(cx.out, "Decompress of {thing} failed");
            return Ok(());
        }
    } else if flags.pointer.is_some() || flags.indirect {
        // If the bytes are no pointer, they may be a compressed block.
        let at = flags.pointer.unwrap_or(0);
        if pointer(pool, &raw, at).is_none() {
            unpacked = unpack(cx, &raw, &wanted).filter(|block| pointer(pool, block, at).is_some());
            if unpacked.is_none() {
                cx.out.put("invalid block pointer at this DVA\n");
                return Ok(());
            }
        }
    }
    let block: &[u8] = unpacked.as_deref().unwrap_or(&raw);
    if let Some(at) = flags.pointer {
        show_pointers(cx, block, at, 1, flags.swap);
    } else if flags.raw {
        dump_raw(cx, block, flags.swap);
    } else if flags.indirect {
        show_pointers(cx, block, 0, wanted.lsize / BLKPTR_SIZE as u64, flags.swap);
    } else if flags.gang {
        show_pointers(cx, block, 0, GANG_POINTERS, flags.swap);
    } else {
        dump(cx, thing, block, flags.swap);
    }
    if flags.checksum && !flags.raw && !flags.gang {
        cx.out.put("\n");
        let sums = pool.spa.cache().zio().checksums();
        for kind in SUMS {
            let sum = sums.compute(kind, ByteOrder::Little, &raw).map_err(anyhow::Error::new);
            let [a, b, c, d] = sum.map_err(Stop::Failed)?.0;
            writeln!(cx.out, "{:>12}\tcksum={a:016x}:{b:016x}:{c:016x}:{d:016x}", kind.name());
        }
    }
    Ok(())
}

/// The pointer at an offset of a block, if its copies lie on existing vdevs (`zfs_blkptr_verify`).
fn pointer(pool: &Opened, block: &[u8], at: u64) -> Option<Blkptr> {
    let bp = Blkptr::decode(block.get(usize::try_from(at).ok()?..)?).ok()?;
    let tree = pool.spa.tree();
    let inside = |d: &ondisk::Dva| {
        let spec = tree.top_spec(d.vdev).ok();
        spec.is_some_and(|s| s.asize.is_none_or(|n| d.offset.0.saturating_add(d.asize.0) <= n))
    };
    match &bp.body {
        Body::Stored(s) if !s.copies().all(inside) => None,
        _ => Some(bp),
    }
}

/// Shows consecutive pointers, one a line; anything else is marked as invalid
/// (`zdb_dump_indirect`).
fn show_pointers(cx: &mut Ctx<'_>, block: &[u8], at: u64, count: u64, swap: bool) {
    for i in 0..count {
        let from = (at + i * BLKPTR_SIZE as u64) as usize;
        let Some(raw) = block.get(from..from + BLKPTR_SIZE) else { break };
        let mut raw = raw.to_vec();
        if swap {
            swap_words(&mut raw);
        }
        match Blkptr::decode(&raw) {
            Ok(bp) => writeln!(cx.out, "{}", text::blkptr(&bp)),
            Err(e) => writeln!(cx.out, "no block pointer: {e}"),
        }
    }
}

fn swap_words(bytes: &mut [u8]) {
    bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
}

fn dump_raw(cx: &mut Ctx<'_>, block: &[u8], swap: bool) {
    if swap {
        let mut block = block.to_vec();
        swap_words(&mut block);
        cx.out.put_raw(&block);
    } else {
        cx.out.put_raw(block);
    }
}

/// Dumps a block as words and characters (`zdb_dump_block`).
fn dump(cx: &mut Ctx<'_>, label: &str, block: &[u8], swap: bool) {
    let heads =
        if swap { " 7 6 5 4 3 2 1 0   f e d c b a 9 8" } else { " 0 1 2 3 4 5 6 7   8 9 a b c d e f" };
    writeln!(cx.out, "\n{label}\n{:>6}   {heads}  0123456789abcdef", "");
    for (i, line) in block.as_chunks::<16>().0.iter().enumerate() {
        let word = |at: usize| {
            let word = *line[at..].first_chunk::<8>().expect("a line has two words");
            if swap { u64::from_le_bytes(word) } else { u64::from_be_bytes(word) }
        };
        let shown = |b: &u8| if b.is_ascii_graphic() || *b == b' ' { *b } else { b'.' };
        write!(cx.out, "{:06x}:  {:016x}  {:016x}  ", i * 16, word(0), word(8));
        cx.out.put_bytes(&line.iter().map(shown).collect::<Vec<u8>>());
        cx.out.put("\n");
    }
}

/// `zdb -E`: shows the payload of an embedded pointer, given as its sixteen words
/// (`zdb_embedded_block`).
pub fn embedded(cx: &mut Ctx<'_>, words: &str) -> Run<i32> {
    let parsed: Option<Vec<u64>> =
        words.split(':').map(|w| u64::from_str_radix(w.strip_prefix("0x").unwrap_or(w), 16).ok()).collect();
    let Some(words) = parsed.filter(|w| w.len() == BLKPTR_SIZE / 8) else {
        cx.err.put("invalid input format\n");
        return Ok(1);
    };
    let raw: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let bp = match Blkptr::decode(&raw) {
        Ok(bp) => bp,
        Err(e) => {
            writeln!(cx.err, "decode failed: {e}");
            return Ok(1);
        }
    };
    let Body::Embedded(e) = &bp.body else {
        cx.err.put("decode failed: the pointer holds no data\n");
        return Ok(1);
    };
    let mut block = vec![0; bp.lsize.0 as usize];
    if let Err(e) = decompress(e.compress, e.payload(), &mut block) {
        writeln!(cx.err, "decode failed: {e}");
        return Ok(1);
    }
    cx.out.put_raw(&block);
    Ok(0)
}

#[cfg(test)]
mod tests;
