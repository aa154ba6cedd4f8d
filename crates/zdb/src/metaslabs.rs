//! `zdb -m`: metaslabs, their space maps, and the space map logs.

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use super::text::histogram;
use ondisk::spacemap::{MapType, SPACE_MAP_HISTOGRAM_SIZE};
use ondisk::{ObjNum, VdevConfig, mos};
use pool::metaslab::{Class, LogChanges, Metaslab, TopVdev};
use pool::spacemap::{MapStep, SpaceMap};

/// Smaller free segments are not counted if there are larger ones (`metaslab_by_size_min_shift`).
const BY_SIZE_MIN: u64 = 1 << 14;
/// Stands for an unknown fragmentation (`ZFS_FRAG_INVALID`).
const FRAG_INVALID: u64 = u64::MAX;
/// Stands for the vdev of an entry without one (`SM_NO_VDEVID`).
const SM_NO_VDEVID: u64 = 1 << 24;

/// The facts about the pool that all metaslabs need.
struct Shown<'a> {
    pool: &'a Opened,
    logged: bool,
    histograms: bool,
    changes: Option<LogChanges>,
}

/// Shows the metaslabs of all vdevs, or of a chosen one (`dump_metaslabs`).
///
/// `chosen` is the number of a vdev, then numbers of its metaslabs.
///
/// # Errors
/// * [`Stop::Exit`](super::ctx::Stop::Exit): the pool has no vdev of the chosen number.
/// * [`Stop::Failed`](super::ctx::Stop::Failed): an object can't be read.
pub fn show(cx: &mut Ctx<'_>, pool: &Opened, chosen: &[u64]) -> Run {
    let features = pool.spa.features();
    let tops = pool.spa.top_vdevs()?;
    let loads = cx.opts.count('m') > 2 && !cx.opts.has('L');
    let shown = Shown {
        pool,
        logged: features.is_active("com.delphix:log_spacemap"),
        histograms: features.is_active("com.delphix:spacemap_histogram"),
        changes: if loads { Some(LogChanges::read(pool.spa.mos(), &tops)?) } else { None },
    };
    cx.out.put("\nMetaslabs:\n");
    let root = pool.spa.config().vdev_tree.clone();
    let children = root.as_ref().map_or(&[][..], |r| &r.children);
    let chosen = if cx.opts.has('d') { &[][..] } else { chosen };
    if let Some(bad) = chosen.first().filter(|v| **v >= children.len() as u64) {
        return Err(cx.fatal(format!("bad vdev id: {bad}")));
    }
    for (i, vdev) in children.iter().enumerate() {
        if chosen.first().is_some_and(|v| *v != i as u64) {
            continue;
        }
        let top = tops.iter().find(|t| u64::from(t.id.0) == vdev.id);
        header(cx, pool, vdev, top)?;
        if chosen.len() > 1 {
            for m in &chosen[1..] {
                match top.filter(|t| *m < t.ms_count()) {
                    Some(top) => one(cx, &shown, top, *m)?,
                    None => writeln!(cx.err, "bad metaslab number {m}"),
                }
            }
            cx.out.put("\n");
            continue;
        }
        cx.part(|cx| indirect(cx, pool, vdev))?;
        if let Some(top) = top {
            for m in 0..top.ms_count() {
                cx.part(|cx| one(cx, &shown, top, m))?;
            }
        }
        cx.out.put("\n");
    }
    Ok(())
}

fn header(cx: &mut Ctx<'_>, pool: &Opened, vdev: &VdevConfig, top: Option<&TopVdev>) -> Run {
    let bias = match top.map(|t| t.class) {
        Some(Class::Log) => "log",
        Some(Class::Special) => "special",
        Some(Class::Dedup) => "dedup",
        Some(Class::Normal) => "",
        None if vdev.is_log => "log",
        None => "",
    };
    write!(cx.out, "\tvdev {:10}   {bias}", vdev.id);
    let zap = vdev.top_zap.filter(|z| z.0 != 0);
    if let Some(zap) = zap
        && let Some(object) = pool.spa.mos().u64(zap, mos::VDEV_TOP_MS_UNFLUSHED_PHYS_TXGS)?
    {
        write!(cx.out, "   ms_unflushed_phys object {object}");
    }
    let count = top.map_or(0, TopVdev::ms_count);
    writeln!(
        cx.out,
        "\n\t{:<10}{count:5}   {:<19}   {:<15}   {:<12}",
        "metaslabs", "offset", "spacemap", "free"
    );
    let dash = |n| "-".repeat(n);
    writeln!(cx.out, "\t{}   {}   {}   {}", dash(15), dash(19), dash(15), dash(12));
    Ok(())
}

/// Shows the mapping of a removed vdev (`print_vdev_indirect`).
fn indirect(cx: &mut Ctx<'_>, pool: &Opened, vdev: &VdevConfig) -> Run {
    let mos = pool.spa.mos();
    let Some(object) = vdev.indirect_object.filter(|o| o.0 != 0) else { return Ok(()) };
    let births_object = vdev.indirect_births.unwrap_or_default();
    let births = mos.indirect_births(births_object)?;
    writeln!(cx.out, "indirect births obj {}:\n    vib_count = {}", births_object.0, births.len());
    for b in births {
        writeln!(cx.out, "\toffset {:x} -> txg {}", b.offset.0, b.phys_birth.0);
    }
    let mapping = mos.indirect_mapping(object)?;
    let p = &mapping.phys;
    writeln!(cx.out, "\nindirect mapping obj {}:", object.0);
    writeln!(cx.out, "    vim_max_offset = {:#x}", p.max_offset);
    writeln!(cx.out, "    vim_bytes_mapped = {:#x}", p.bytes_mapped);
    writeln!(cx.out, "    vim_count = {}", p.num_entries);
    if cx.opts.count('d') <= 5 && cx.opts.count('m') <= 3 {
        return Ok(());
    }
    let counts = mos.obsolete_counts(p)?;
    for (i, e) in mapping.entries.iter().enumerate() {
        let obsolete = counts.get(i).copied().unwrap_or(0);
        writeln!(
            cx.out,
            "\t<{:x}:{:x}:{:x}> -> <{:x}:{:x}:{:x}> ({obsolete:x} obsolete)",
            vdev.id, e.src.0, e.size, e.vdev.0, e.dst.0, e.size
        );
    }
    cx.out.put("\n");
    let zap = vdev.top_zap.filter(|z| z.0 != 0);
    if let Some(zap) = zap
        && let Some(obsolete) = mos.u64(zap, mos::VDEV_TOP_INDIRECT_OBSOLETE_SM)?
    {
        writeln!(cx.out, "obsolete space map object {obsolete}:");
        let size = vdev.asize.unwrap_or(u64::MAX >> 1);
        let map = SpaceMap::open(mos, ObjNum(obsolete), 0, size, vdev.ashift.map_or(9, |a| a.0))?;
        space_map(cx, &map)?;
        cx.out.put("\n");
    }
    Ok(())
}

fn one(cx: &mut Ctx<'_>, shown: &Shown<'_>, top: &TopVdev, id: u64) -> Run {
    let mos = shown.pool.spa.mos();
    let (start, size) = top.metaslab(id);
    let object = mos.metaslab_objects(top)?.get(id as usize).copied().unwrap_or(0);
    let map = match object {
        0 => None,
        o => Some(SpaceMap::open(mos, ObjNum(o), start, size, top.ashift.0)?),
    };
    let alloc = map.as_ref().map_or(0, |m| m.phys().alloc);
    let free = cx.num(size.wrapping_sub(alloc as u64));
    writeln!(cx.out, "\tmetaslab {id:6}   offset {start:12x}   spacemap {object:6}   free    {free:>5}");
    let unflushed = mos.unflushed_txgs(top)?.get(id as usize).copied().unwrap_or(0);
    if let Some(changes) = &shown.changes {
        let ms = mos.load_metaslab(top, id, object, Some(unflushed).filter(|t| *t != 0), changes)?;
        loaded(cx, &ms);
    }
    if let Some(map) = &map {
        if cx.opts.count('m') > 1 && shown.histograms {
            let phys = map.phys();
            let frag = pool::metaslab::fragmentation(Some(phys), top.ashift.0).unwrap_or(FRAG_INVALID);
            writeln!(cx.out, "\tOn-disk histogram:\t\tfragmentation {frag}");
            histogram(cx.out, &phys.histogram[..SPACE_MAP_HISTOGRAM_SIZE], top.ashift.0.into());
        }
        space_map(cx, map)?;
    }
    if shown.logged {
        writeln!(cx.out, "\tFlush data:\n\tunflushed txg={unflushed}\n");
    }
    Ok(())
}

/// Shows the free space of a loaded metaslab (`dump_metaslab_stats`).
fn loaded(cx: &mut Ctx<'_>, ms: &Metaslab) {
    let free = ms.free();
    let sizes: Vec<u64> = free.iter().map(|(s, e)| e - s).collect();
    let large = sizes.iter().filter(|n| **n >= BY_SIZE_MIN).count();
    let segments = if large == 0 { sizes.len() } else { large };
    let most = cx.num(sizes.iter().copied().max().unwrap_or(0));
    let percent = free.space() * 100 / ms.size.max(1);
    writeln!(
        cx.out,
        "\t {:>25} {segments:10}   {:>7}  {most:>6}   {:>4} {percent:4}%",
        "segments", "maxsize", "freepct"
    );
    cx.out.put("\tIn-memory histogram:\n");
    histogram(cx.out, &free.histogram(), 0);
}

/// Shows a space map (`dump_spacemap`).
pub fn space_map(cx: &mut Ctx<'_>, map: &SpaceMap) -> Run {
    let p = map.phys();
    writeln!(cx.out, "space map object {}:", map.object().0);
    writeln!(cx.out, "  smp_length = {:#x}", p.length);
    writeln!(cx.out, "  smp_alloc = {:#x}", p.alloc as u64);
    if cx.opts.count('d') < 6 && cx.opts.count('m') < 4 {
        return Ok(());
    }
    let (mut n, mut sum) = (0u64, 0i64);
    map.walk(|step| {
        match step {
            MapStep::Debug { txg: 0, .. } => writeln!(cx.out, "\t    [{n:6}] PADDING"),
            MapStep::Debug { action, pass, txg, .. } => {
                let action = if action == MapType::Alloc { "ALLOC" } else { "FREE" };
                writeln!(cx.out, "\t    [{n:6}] {action}: txg {txg} pass {pass}");
            }
            MapStep::Range(r) => {
                let (letter, size) = match r.kind {
                    MapType::Alloc => ('A', (r.end - r.start) as i64),
                    MapType::Free => ('F', -((r.end - r.start) as i64)),
                };
                sum = sum.wrapping_add(size);
                let vdev = r.vdev.map_or(SM_NO_VDEVID, u64::from);
                writeln!(
                    cx.out,
                    "\t    [{n:6}]    {letter}  range: {:010x}-{:010x}  size: {:06x} vdev: {vdev:06} words: {}",
                    r.start,
                    r.end,
                    r.end - r.start,
                    1 + u8::from(r.two_words)
                );
            }
        }
        n += 1;
        Ok(())
    })?;
    if sum != p.alloc {
        writeln!(cx.out, "space_map_object alloc ({}) INCONSISTENT with space map summary ({sum})", p.alloc);
    }
    Ok(())
}

/// Shows the space map logs, and how many of their entries are valid (`dump_log_spacemaps`).
pub fn logs(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    if !pool.spa.features().is_active("com.delphix:log_spacemap") {
        return Ok(());
    }
    let mos = pool.spa.mos();
    let logs = mos.log_spacemaps()?;
    cx.out.put("\nLog Space Maps in Pool:\n");
    for (txg, object) in &logs {
        writeln!(cx.out, "Log Spacemap object {} txg {txg}", object.0);
        let map = SpaceMap::open(mos, *object, 0, u64::MAX >> 1, 9)?;
        space_map(cx, &map)?;
    }
    cx.out.put("\n");
    let tops = pool.spa.top_vdevs()?;
    let unflushed = tops.iter().map(|t| mos.unflushed_txgs(t)).collect::<pool::Result<Vec<_>>>()?;
    cx.out.put("Log Space Map Obsolete Entry Statistics:\n");
    let (mut valid_total, mut total) = (0u64, 0u64);
    let (mut valid, mut entries, mut last) = (0u64, 0u64, 0);
    for (txg, object) in &logs {
        (valid, entries) = (0, 0);
        last = *txg;
        SpaceMap::open(mos, *object, 0, u64::MAX >> 1, 9)?.walk(|step| {
            let MapStep::Range(r) = step else { return Ok(()) };
            entries += 1;
            let at = tops.iter().position(|t| Some(t.id.0) == r.vdev);
            let flushed = at.and_then(|i| {
                let ms = r.start >> tops[i].ms_shift.min(63);
                unflushed[i].get(ms as usize)
            });
            valid += u64::from(flushed.is_some_and(|f| txg >= f));
            Ok(())
        })?;
        valid_total += valid;
        total += entries;
        if logs.keys().next_back() != Some(txg) && entries > 0 {
            writeln!(cx.out, "{valid:<8} valid entries out of {entries:<8} - txg {txg}");
        }
    }
    writeln!(cx.out, "{valid:<8} valid entries out of {entries:<8} - txg {last}");
    writeln!(cx.out, "{valid_total:<8} valid entries out of {total:<8} - total\n");
    Ok(())
}

/// `zdb -M`: shows the fragmentation of each vdev and of the normal class (`dump_metaslab_groups`).
pub fn groups(cx: &mut Ctx<'_>, pool: &Opened, special: bool) -> Run {
    let mos = pool.spa.mos();
    let (mut sum, mut weight) = (0u128, 0u128);
    let mut all = [0u64; 64];
    let mut unknown = false;
    for top in pool.spa.top_vdevs()? {
        if top.class != Class::Normal && !(special && top.class == Class::Special) {
            continue;
        }
        let space = mos.vdev_space(&top)?;
        let mut buckets = [0u64; 64];
        for (m, object) in mos.metaslab_objects(&top)?.into_iter().enumerate() {
            if object == 0 {
                continue;
            }
            let (start, size) = top.metaslab(m as u64);
            let map = SpaceMap::open(mos, ObjNum(object), start, size, top.ashift.0)?;
            for (i, n) in map.phys().histogram.iter().enumerate() {
                let bucket = (i + usize::from(top.ashift.0)).min(63);
                buckets[bucket] = buckets[bucket].saturating_add(*n);
            }
        }
        write!(cx.out, "\tvdev {:10}\t\tmetaslabs{:5}\t\tfragmentation", top.id.0, top.ms_count());
        match space.fragmentation {
            None => writeln!(cx.out, "{:>3}", "-"),
            Some(f) => writeln!(cx.out, "{f:3}%"),
        }
        histogram(cx.out, &buckets, 0);
        if top.class == Class::Normal {
            all.iter_mut().zip(&buckets).for_each(|(a, b)| *a = a.saturating_add(*b));
            unknown |= space.fragmentation.is_none();
            sum += u128::from(space.fragmentation.unwrap_or(0)) * u128::from(space.space);
            weight += u128::from(space.space);
        }
    }
    write!(cx.out, "\tpool {}\tfragmentation", pool.spa.name());
    if unknown {
        writeln!(cx.out, "\t{:>3}", "-");
    } else {
        writeln!(cx.out, "\t{:3}%", sum.checked_div(weight).unwrap_or(0));
    }
    histogram(cx.out, &all, 0);
    Ok(())
}
