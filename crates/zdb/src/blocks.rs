//! `zdb -b` and `-c`: counts every block, verifies checksums, and looks for leaks.

use super::bplists;
use super::ctx::{Ctx, Run};
use super::opened::Opened;
use super::text::{blkptr, histogram};
use dsl::traverse::{pool_roots, traverse};
use ondisk::blkptr::DVAS_PER_BP;
use ondisk::{Blkptr, DmuType, Dva, VdevKind, mos};
use std::collections::{BTreeMap, HashSet};
use verify::block_stats::{
    BlockStats, CountedAs, Counts, Known, LEVELS, SizeHistogram, Sums, Unread, Verify,
};
use verify::leaks::{Classes, Leak, LeakCheck, Wrong};

/// Number of numbered block types (`DMU_OT_NUMTYPES`).
const NUMBERED: u8 = 54;
/// Error numbers of Linux: an I/O error, a wrong checksum, a place that does not exist.
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ECKSUM: i32 = 52;

/// The results of the search for leaks.
struct Verdict {
    leaks: Vec<Leak>,
    wrong: (u64, Vec<Wrong>),
    checkpoint: u64,
}

/// Counts all blocks and shows the statistics (`dump_block_stats`).
///
/// Returns the exit code: 0 without findings, 2 for leaks, 3 for unreadable blocks.
pub fn show(cx: &mut Ctx<'_>, pool: &Opened) -> Run<i32> {
    let checks = cx.opts.count('c');
    let track = !cx.opts.has('L');
    heading(cx, checks, track);
    let mut classes = Classes::read(&pool.spa)?;
    let claims = if track { load(cx, pool)? } else { None };
    let zio = pool.spa.cache().zio();
    let verify = match checks {
        0 => Verify::None,
        1 => Verify::Metadata,
        _ => Verify::All,
    };
    let mut census = BlockStats::new(zio, verify, known(pool)?);
    if let Some(claims) = &claims {
        census = census.claiming(claims);
        classes.unflushed = claims.unflushed;
        classes.normal.space += removed_space(pool);
    }
    waiting(pool, &census)?;
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    let roots = pool_roots(pool.spa.mos().objset(), |e| cx.report(&anyhow::Error::new(e)));
    traverse(zio, roots, threads, &census);
    logs(cx, pool, &census)?;
    let counts = census.finish();
    let readable = counts.failures == 0;
    errors(cx, &counts);
    let verdict = claims.map(|c| {
        let checkpoint = c.checkpoint;
        let (leaks, n, wrong) = c.finish();
        Verdict { leaks, wrong: (n, wrong), checkpoint }
    });
    let leaked = match &verdict {
        Some(v) => judge(cx, &counts, &classes, v),
        None => false,
    };
    let total = counts.total();
    if total.count == 0 {
        return Ok(2);
    }
    summary(cx, &counts, &classes);
    removed(cx, pool)?;
    if cx.opts.count('b') >= 2 {
        table(cx, &counts);
        sizes(cx, &counts);
    }
    cx.out.put("\n");
    Ok(if leaked {
        2
    } else if readable {
        0
    } else {
        3
    })
}

/// Bytes in the metaslabs of removed vdevs.
///
/// OpenZFS recreates these metaslabs for the search, and counts them.
fn removed_space(pool: &Opened) -> u64 {
    let config = pool.spa.config();
    let tree = config.vdev_tree.as_ref();
    let removed = tree.map_or(&[][..], |t| &t.children).iter().filter(|v| v.kind == VdevKind::Indirect);
    removed.fold(0, |n, v| {
        let (size, shift) = (v.asize.unwrap_or(0), v.metaslab_shift.unwrap_or(63).min(63));
        n.saturating_add(size >> shift << shift)
    })
}

fn heading(cx: &mut Ctx<'_>, checks: u32, track: bool) {
    let words = [
        (checks > 0 || track, "to verify "),
        (checks == 1, "metadata "),
        (checks > 0, "checksums "),
        (checks > 0 && track, "and verify "),
        (track, "nothing leaked "),
    ];
    let what: String = words.iter().filter(|(yes, _)| *yes).map(|(_, w)| *w).collect();
    writeln!(cx.out, "\nTraversing all blocks {what}...\n");
}

fn load(cx: &mut Ctx<'_>, pool: &Opened) -> Run<Option<LeakCheck>> {
    if destroying(pool)? {
        writeln!(cx.err, "zdb: datasets are being destroyed: leaks can't be told");
        return Ok(None);
    }
    match LeakCheck::load(&pool.spa) {
        Ok(Some(claims)) => {
            if claims.checkpoint_wrong > 0 {
                writeln!(cx.out, "{} segments of the checkpoint are not allocated", claims.checkpoint_wrong);
            }
            Ok(Some(claims))
        }
        Ok(None) => {
            writeln!(cx.err, "zdb: a device is being removed: leaks can't be told");
            Ok(None)
        }
        Err(e) => {
            cx.report(&anyhow::Error::new(e).context("the space maps can't be read: leaks can't be told"));
            Ok(None)
        }
    }
}

/// Whether blocks of destroyed datasets still wait to be freed.
fn destroying(pool: &Opened) -> Run<bool> {
    let mos = pool.spa.mos();
    if let Some(tree) = mos.dir(mos::BPTREE_OBJ)?
        && bplists::bptree_len(mos, tree)? > 0
    {
        return Ok(true);
    }
    match mos.dir(mos::DELETED_CLONES)? {
        Some(clones) => Ok(mos.zap(clones)?.count()? > 0),
        None => Ok(false),
    }
}

/// The facts about shared blocks that the count needs.
fn known(pool: &Opened) -> Run<Known> {
    let mos = pool.spa.mos();
    let mut known = Known::default();
    let tops = pool.spa.top_vdevs()?;
    known.ms_shift = tops.iter().map(|t| (t.id, t.ms_shift)).collect();
    for b in mos.brt(pool.spa.tree().top_count())? {
        for e in mos.brt_entries(&b)? {
            let e = e?;
            known.cloned.insert((b.vdev, ondisk::Offset(e.offset)), e.refcnt);
        }
    }
    let mut add = |dvas: [Option<Dva>; DVAS_PER_BP]| {
        if let [Some(first), Some(_), _] = dvas {
            known.extended.insert(first, dvas);
        }
    };
    for ddt in pool.spa.ddts(&tops)?.iter().filter(|d| d.is_flat()) {
        for class in &ddt.classes {
            for e in mos.ddt_entries(ddt, class)? {
                let e = e?;
                for slot in e.phys.slots() {
                    add(slot.dvas(&e.key)?);
                }
            }
        }
        for (key, (_, phys)) in ddt.logs.iter().flat_map(|l| &l.entries) {
            for slot in phys.slots() {
                add(slot.dvas(key)?);
            }
        }
    }
    Ok(known)
}

/// Counts the blocks that wait to be freed (`count_block_cb`).
fn waiting(pool: &Opened, census: &BlockStats<'_>) -> Run {
    let mos = pool.spa.mos();
    let mut count = |bp: &Blkptr, _freed: bool| {
        census.count(bp, CountedAs::DeferredFree);
        Ok(())
    };
    for name in [mos::SYNC_BPOBJ, mos::FREE_BPOBJ] {
        if let Some(object) = mos.dir(name)? {
            mos.walk_bpobj(object, &mut count)?;
        }
    }
    Ok(())
}

/// Counts the claimed blocks of intent logs. The space maps don't hold unclaimed ones yet.
fn logs(cx: &mut Ctx<'_>, pool: &Opened, census: &BlockStats<'_>) -> Run {
    let ub = pool.spa.uberblock();
    let mos = pool.spa.mos().objset();
    // The traversal's own list of roots has reported what can't be read.
    for root in pool_roots(mos, drop) {
        if root.objset == 0 {
            continue;
        }
        let dn = mos.dnode(ondisk::ObjNum(root.objset))?;
        let phys = ondisk::dsl::DslDatasetPhys::decode(dn.bonus())?;
        if phys.is_snapshot() {
            continue;
        }
        let Ok(os) =
            dmu::Objset::open(mos.cache().clone(), root.objset, &root.bp, zio::ReadOptions::demand())
        else {
            // The traversal has reported this error.
            continue;
        };
        cx.part(|_| log(&os, ub.txg.0, ub.checkpoint_txg.0, census))?;
    }
    Ok(())
}

fn log(os: &dmu::Objset, synced: u64, checkpoint: u64, census: &BlockStats<'_>) -> Run {
    let Some(log) = zil::Log::open(os, synced, checkpoint)? else { return Ok(()) };
    let claimed = log.header().claim_txg;
    let mut seen: HashSet<Dva> = HashSet::new();
    let mut count = |bp: &Blkptr| {
        let first = bp.stored().and_then(|s| s.dvas[0]);
        if first.is_some_and(|d| seen.insert(d)) {
            census.count(bp, CountedAs::of(bp.kind));
        }
    };
    for block in log.blocks() {
        let block = block?;
        if block.claim == zil::Claim::Will {
            break;
        }
        count(&block.bp);
        for bp in block.records.iter().flatten().filter_map(|r| r.blkptr.as_ref()) {
            if claimed != 0 && bp.birth.0 >= claimed {
                count(bp);
            }
        }
    }
    Ok(())
}

/// The error number that OpenZFS has for this error.
fn errno(e: &dmu::Error) -> i32 {
    match e {
        dmu::Error::Read(zio::Error::Checksum { .. } | zio::Error::Decode { .. }) => ECKSUM,
        dmu::Error::Read(zio::Error::Place { .. }) => ENXIO,
        _ => EIO,
    }
}

fn errors(cx: &mut Ctx<'_>, counts: &Counts) {
    let mut by_errno: BTreeMap<i32, u64> = BTreeMap::new();
    for Unread { bookmark: b, bp, error } in &counts.failed {
        let errno = errno(error);
        *by_errno.entry(errno).or_default() += 1;
        let bp = bp.as_ref().filter(|_| cx.opts.count('b') >= 2).map(blkptr).unwrap_or_default();
        writeln!(
            cx.out,
            "zdb_blkptr_cb: Got error {errno} reading <{}, {}, {}, {:x}> {bp} -- skipping",
            b.objset, b.object.0, b.level.0, b.blkid.0
        );
    }
    if counts.failures > 0 {
        cx.out.put("\nError counts:\n\n");
        writeln!(cx.out, "\t{:>5}  count", "errno");
        for (errno, n) in by_errno {
            writeln!(cx.out, "\t{errno:5}  {n}");
        }
    }
}

/// Reports leaks; returns whether there are any.
///
/// "No leaks" means: each segment was claimed exactly once, and the sums are equal too.
fn judge(cx: &mut Ctx<'_>, counts: &Counts, classes: &Classes, v: &Verdict) -> bool {
    for l in &v.leaks {
        writeln!(cx.out, "leaked space: vdev {}, offset {:#x}, size {}", l.vdev.0, l.offset, l.size);
    }
    for w in &v.wrong.1 {
        let why = if w.unreadable { "can't be told" } else { "is not allocated or another block's" };
        let d = &w.dva;
        writeln!(cx.out, "space of <{}:{:x}:{:x}> {why}", d.vdev.0, d.offset.0, d.asize.0);
    }
    let found = (counts.total().asize.saturating_add(v.checkpoint))
        .wrapping_sub(counts.dedup.1)
        .wrapping_sub(counts.cloned.1);
    let alloc = classes.total();
    if found == alloc && v.leaks.is_empty() && v.wrong.0 == 0 {
        cx.out.put("\n\tNo leaks (block sum matches space maps exactly)\n");
        return false;
    }
    let diff = alloc.wrapping_sub(found) as i64;
    writeln!(cx.out, "block traversal size {found} != alloc {alloc} (leaked {diff})");
    true
}

/// A quotient with C's text for 0/0.
fn quotient(a: f64, b: f64, width: usize) -> String {
    let q = a / b;
    if q.is_nan() { format!("{:>width$}", "-nan") } else { format!("{q:width$.2}") }
}

fn summary(cx: &mut Ctx<'_>, counts: &Counts, classes: &Classes) {
    let t = counts.total();
    let (n, lsize) = (t.count, t.lsize as f64);
    writeln!(cx.out, "\n\t{:<16} {n:14}", "bp count:");
    writeln!(cx.out, "\t{:<16} {:14}", "ganged count:", t.gangs);
    writeln!(cx.out, "\t{:<16} {:14}      avg: {:6}", "bp logical:", t.lsize, t.lsize / n);
    for (title, size) in [("bp physical:", t.psize), ("bp allocated:", t.asize)] {
        let ratio = quotient(lsize, size as f64, 6);
        writeln!(cx.out, "\t{title:<16} {size:14}      avg: {:6}     compression: {ratio}", size / n);
    }
    let (refs, asize) = counts.dedup;
    let ratio = asize as f64 / t.asize as f64 + 1.0;
    writeln!(cx.out, "\t{:<16} {asize:14}    ref>1: {refs:6}   deduplication: {ratio:6.2}", "bp deduped:");
    let (clones, asize) = counts.cloned;
    writeln!(cx.out, "\t{:<16} {asize:14}    count: {clones:6}", "bp cloned:");
    for (title, class, always) in [
        ("Normal class:", &classes.normal, true),
        ("Special class", &classes.special, false),
        ("Dedup class", &classes.dedup, false),
        ("Embedded log class", &classes.embedded_log, false),
    ] {
        if always || class.present {
            let used = quotient(100.0 * class.alloc as f64, class.space as f64, 5);
            writeln!(cx.out, "\t{title:<16} {:14}     used: {used}%", class.alloc);
        }
    }
    // Embedded data is of type 0 (`BP_EMBEDDED_TYPE_DATA`), a redaction mark of type 2.
    let data: u64 = counts.embedded.values().sum();
    for (kind, n) in [(0, data), (2, counts.redacted)] {
        if n == 0 {
            continue;
        }
        writeln!(cx.out, "\n\tadditional, non-pointer bps of type {kind}: {n:10}");
        if cx.opts.count('b') >= 3 {
            cx.out.put("\t number of (compressed) bytes:  number of bps\n");
            let mut buckets = [0; 113];
            if kind == 0 {
                counts.embedded.iter().for_each(|(size, n)| buckets[(*size as usize).min(112)] = *n);
            }
            histogram(cx.out, &buckets, 0);
        }
    }
    if t.ditto_samevdev != 0 {
        writeln!(cx.out, "\tDittoed blocks on same vdev: {}", t.ditto_samevdev);
    }
    if t.ditto_same_ms != 0 {
        writeln!(cx.out, "\tDittoed blocks in same metaslab: {}", t.ditto_same_ms);
    }
}

fn removed(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    let config = pool.spa.config();
    let tree = config.vdev_tree.as_ref();
    for vdev in tree.map_or(&[][..], |t| &t.children) {
        let Some(object) = vdev.indirect_object.filter(|o| o.0 != 0) else { continue };
        let n = pool.spa.mos().indirect_mapping(object)?.entries.len();
        // OpenZFS prints the number of entries again as their memory.
        let again = cx.num(n as u64);
        writeln!(cx.out, "\tindirect vdev id {} has {n} segments ({again} in memory)", vdev.id);
    }
    Ok(())
}

fn table(cx: &mut Ctx<'_>, counts: &Counts) {
    cx.out.put("\nBlocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType\n");
    let total = counts.total();
    let numbered = (0..NUMBERED).filter_map(|t| DmuType::from_disk(t).ok());
    for kind in numbered {
        rows(cx, counts, &total, Some(CountedAs::Type(kind)), kind.name());
    }
    rows(cx, counts, &total, Some(CountedAs::DeferredFree), "deferred free");
    // The row stays in the table, but no block counts in it any more.
    none(cx, "dedup ditto");
    rows(cx, counts, &total, Some(CountedAs::Other), "other");
    rows(cx, counts, &total, None, "Total");
    let mut metadata = Sums::default();
    for ((level, what), sums) in &counts.sums {
        if let CountedAs::Type(kind) = what
            && (*level > 0 || kind.is_metadata())
            && sums.asize != 0
        {
            metadata.add(sums);
        }
    }
    row(cx, &metadata, &total, "Metadata Total");
}

fn none(cx: &mut Ctx<'_>, name: &str) {
    writeln!(
        cx.out,
        "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>6}\t{name}",
        "-", "-", "-", "-", "-", "-", "-"
    );
}

/// The rows of a type: with `-bbb` one for each level, then the sum.
fn rows(cx: &mut Ctx<'_>, counts: &Counts, total: &Sums, what: Option<CountedAs>, name: &str) {
    let level_sums = |level: u8| {
        let mut s = Sums::default();
        let of = counts.sums.iter().filter(|((l, w), _)| *l == level && what.is_none_or(|x| *w == x));
        of.for_each(|(_, v)| s.add(v));
        s
    };
    let sum = what.map_or(*total, |w| counts.of(w));
    if sum.asize == 0 {
        return none(cx, name);
    }
    if cx.opts.count('b') >= 3 {
        for level in (0..LEVELS as u8).rev() {
            let s = level_sums(level);
            if s.asize == 0 || (level == 0 && s.asize == sum.asize) {
                continue;
            }
            row(cx, &s, total, &format!("    L{level} {name}"));
        }
    }
    row(cx, &sum, total, name);
}

fn row(cx: &mut Ctx<'_>, s: &Sums, total: &Sums, name: &str) {
    let num = |n| cx.numbers.num(n);
    let avg = s.asize.checked_div(s.count).unwrap_or(0);
    let line = format!(
        "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{}\t{}\t{name}",
        num(s.count),
        num(s.lsize),
        num(s.psize),
        num(s.asize),
        num(avg),
        quotient(s.lsize as f64, s.psize as f64, 5),
        quotient(100.0 * s.asize as f64, total.asize as f64, 6),
    );
    writeln!(cx.out, "{line}");
    if cx.opts.count('b') >= 3 && s.gangs > 0 {
        let gangs = cx.num(s.gangs);
        writeln!(cx.out, "\t number of ganged blocks: {gangs}");
    }
}

fn sizes(cx: &mut Ctx<'_>, counts: &Counts) {
    let exact = cx.numbers.exact;
    let histograms: [&SizeHistogram; 3] = [&counts.psize, &counts.lsize, &counts.asize];
    cx.out.put("\nBlock Size Histogram\n");
    if exact {
        cx.out.put("\nblock\tpsize\t\t\tlsize\t\t\t  asize\nsize\t");
        cx.out.put(&"Count\tSize\tCum.\t".repeat(3));
    } else {
        writeln!(cx.out, "\n{:>7}   {:<7}              {:<7}              asize", "block", "psize", "lsize");
        write!(cx.out, "{:>7} ", "size");
        cx.out.put(&format!("{:>7}{:>7}{:>7}", "Count", "Size", "Cum.").repeat(3));
    }
    cx.out.put("\n");
    let mut sums = [0u64; 3];
    for bin in 9..=24 {
        let size = cx.num(1 << bin);
        if exact {
            cx.out.put(&size);
        } else {
            write!(cx.out, "{size:>7}:");
        }
        for (h, sum) in histograms.iter().zip(&mut sums) {
            *sum += h.bytes[bin];
            for n in [h.count[bin], h.bytes[bin], *sum] {
                let n = cx.num(n);
                if exact {
                    write!(cx.out, "\t{n}");
                } else {
                    write!(cx.out, "{n:>7}");
                }
            }
        }
        cx.out.put("\n");
    }
}
