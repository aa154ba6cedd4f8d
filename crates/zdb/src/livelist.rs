//! `zdb -y`: checks the livelists of destroyed clones, and the space maps.
//!
//! # Theory
//! A livelist logs the blocks that its clone allocated and freed. The blocks left at its end are
//! still allocated. The space maps, then their logs, say for each range in turn that it is
//! allocated or free.
//!
//! These are errors:
//!
//! * A block is freed more often than it was allocated.
//! * A block is left, but the space maps say that it was freed after its birth.
//! * A range is allocated twice, or freed twice, in a row.
//!
//! # See
//! OpenZFS `livelist_metaslab_validate`.

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use super::text::compact;
use ondisk::spacemap::MapType;
use ondisk::{Blkptr, ObjNum, mos};
use pool::Mos;
use pool::metaslab::TopVdev;
use pool::range::RangeSet;
use pool::spacemap::{MapRange, MapStep, SpaceMap};
use std::collections::BTreeMap;

/// Blocks of livelists that are still allocated: (vdev, offset) to (size, birth txg).
type Leftover = BTreeMap<(u32, u64), (u64, u64)>;

/// Checks all livelists and space maps, and prints the errors (`livelist_metaslab_validate`).
pub fn validate(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    let mos = pool.spa.mos();
    cx.out.put("Verifying deleted livelist entries\n");
    let mut left = Leftover::new();
    if let Some(clones) = mos.dir(mos::DELETED_CLONES)? {
        for entry in mos.entries(clones)? {
            let Some(list) = entry?.value.first() else { continue };
            for sub in mos.deadlist(ObjNum(list))?.lists(mos)?.into_values() {
                sublist(cx, mos, sub, &mut left)?;
            }
        }
    }
    cx.out.put("Verifying metaslab entries\n");
    let logs = Logs::read(pool)?;
    for top in pool.spa.top_vdevs()? {
        let objects = mos.metaslab_objects(&top)?;
        let unflushed = mos.unflushed_txgs(&top)?;
        for (id, object) in objects.into_iter().enumerate() {
            let unflushed = unflushed.get(id).copied().unwrap_or(0);
            let one = One { top: &top, id: id as u64, object, unflushed };
            cx.part(|cx| metaslab(cx, mos, &one, &logs, &mut left))?;
        }
    }
    if !left.is_empty() {
        cx.out.put("ERROR: Found livelist blocks marked as allocated for indirect vdevs:\n");
        for ((vdev, offset), (size, born)) in &left {
            writeln!(cx.out, "<{vdev}:{offset:x}:{size:x}> TXG {born:x}");
        }
        cx.out.put("\n");
    }
    Ok(())
}

/// Checks one sub-list of a livelist (`sublivelist_verify_func`).
///
/// A sub-list holds all entries of its blocks, so it can be checked alone.
fn sublist(cx: &mut Ctx<'_>, mos: &Mos, object: ObjNum, left: &mut Leftover) -> Run {
    let mut blocks: BTreeMap<(u32, u64, u64), (Blkptr, i64)> = BTreeMap::new();
    mos.walk_bpobj(object, &mut |bp, freed| {
        if let Some(first) = bp.stored().and_then(|s| s.copies().next()) {
            let key = (first.vdev.0, first.offset.0, bp.birth.0);
            blocks.entry(key).or_insert((*bp, 0)).1 += if freed { -1 } else { 1 };
        }
        Ok(())
    })?;
    for (bp, balance) in blocks.values() {
        if *balance < 0 {
            writeln!(cx.out, "\tERROR: {} unmatched FREE(s): {}", -balance, compact(bp, true, false));
        } else if *balance > 0
            && let Some(stored) = bp.stored()
        {
            for d in stored.copies() {
                left.entry((d.vdev.0, d.offset.0)).or_insert((d.asize.0, bp.birth.0));
            }
        }
    }
    Ok(())
}

/// The entries of the space map logs in order, by vdev and metaslab.
struct Logs(BTreeMap<(u32, u64), Vec<(u64, MapRange)>>);

impl Logs {
    fn read(pool: &Opened) -> Run<Self> {
        let (mos, tops) = (pool.spa.mos(), pool.spa.top_vdevs()?);
        let mut all = BTreeMap::new();
        for (txg, object) in mos.log_spacemaps()? {
            SpaceMap::open(mos, object, 0, u64::MAX >> 1, 9)?.walk(|step| {
                if let MapStep::Range(r) = step
                    && let Some(top) = tops.iter().find(|t| Some(t.id.0) == r.vdev)
                {
                    let key = (top.id.0, r.start >> top.ms_shift.min(63));
                    all.entry(key).or_insert_with(Vec::new).push((txg, r));
                }
                Ok(())
            })?;
        }
        Ok(Self(all))
    }
}

/// A metaslab to check (`metaslab_verify_t`).
struct One<'a> {
    top: &'a TopVdev,
    id: u64,
    object: u64,
    unflushed: u64,
}

fn metaslab(cx: &mut Ctx<'_>, mos: &Mos, one: &One<'_>, logs: &Logs, left: &mut Leftover) -> Run {
    let (start, size) = one.top.metaslab(one.id);
    let live = mine(cx, one, left);
    let mut allocated = RangeSet::new();
    if one.object != 0 {
        SpaceMap::open(mos, ObjNum(one.object), start, size, one.top.ashift.0)?.walk(|step| {
            if let MapStep::Range(r) = step {
                apply(cx, one, &mut allocated, &live, r.txg, &r);
            }
            Ok(())
        })?;
    }
    for (txg, r) in logs.0.get(&(one.top.id.0, one.id)).into_iter().flatten() {
        if *txg >= one.unflushed {
            apply(cx, one, &mut allocated, &live, *txg, r);
        }
    }
    Ok(())
}

/// Moves the left blocks of one metaslab out of `left` (`mv_populate_livelist_allocs`).
fn mine(cx: &mut Ctx<'_>, one: &One<'_>, left: &mut Leftover) -> Leftover {
    let (start, size) = one.top.metaslab(one.id);
    let vdev = one.top.id.0;
    let inside: Vec<_> =
        left.range((vdev, start)..(vdev, start.saturating_add(size))).map(|(k, _)| *k).collect();
    let mut live = Leftover::new();
    for key in inside {
        let Some((bytes, born)) = left.remove(&key) else { continue };
        if key.1.saturating_add(bytes) > start.saturating_add(size) {
            writeln!(
                cx.out,
                "ERROR: Found block that crosses metaslab boundary: <{vdev}:{:x}:{bytes:x}>",
                key.1
            );
        } else {
            live.insert(key, (bytes, born));
        }
    }
    live
}

/// Checks and applies one entry of a space map (`metaslab_spacemap_validation_cb`).
fn apply(cx: &mut Ctx<'_>, one: &One<'_>, allocated: &mut RangeSet, live: &Leftover, txg: u64, r: &MapRange) {
    let (vdev, bytes) = (one.top.id.0, r.end - r.start);
    let (fits, what) = match r.kind {
        MapType::Alloc => (allocated.add(r.start, r.end), "ALLOC"),
        MapType::Free => (allocated.remove(r.start, r.end), "FREE"),
    };
    if !fits {
        writeln!(cx.out, "ERROR: DOUBLE {what}: {txg} [{:x}:{bytes:x}] {vdev}:{} LOG_SM", r.start, one.id);
    }
    if r.kind == MapType::Free {
        for ((_, offset), (size, born)) in live.range((vdev, r.start)..(vdev, r.end)) {
            if *born <= txg {
                writeln!(
                    cx.out,
                    "ERROR: Livelist ALLOC [{offset:x}:{size:x}] from TXG {born:x} FREED at TXG {txg:x}"
                );
            }
        }
    }
}
