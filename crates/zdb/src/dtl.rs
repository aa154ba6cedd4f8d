//! Dirty time logs (DTLs): the txgs that each device lacks.
//!
//! # Theory
//! The MOS holds the log of a device. The logs of an interior vdev follow from its children:
//!
//! * *partial*: the txgs that at least one child lacks;
//! * *missing*: the txgs that too many children lack for the vdev's redundancy;
//! * *outage*: as *missing*, where a device that can't be read lacks all txgs.

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use super::text::lossy;
use ondisk::spacemap::MapType;
use ondisk::{Guid, VdevConfig, VdevKind};
use pool::range::RangeSet;
use pool::spacemap::{MapStep, SpaceMap};
use vdev::{VdevInfo, VdevState};

/// The logs of one vdev (`vdev_dtl_type_t`).
struct Logs {
    missing: RangeSet,
    partial: RangeSet,
    outage: RangeSet,
}

/// Shows the logs of all vdevs (`dump_dtl`).
pub fn show(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    let Some(root) = &pool.spa.config().vdev_tree else { return Ok(()) };
    let info = pool.spa.tree().describe();
    cx.out.put("\nDirty time logs:\n\n");
    let mut out = Vec::new();
    walk(pool, root, &info, 0, true, &mut out)?;
    for line in out.iter().rev() {
        cx.out.put(line);
    }
    Ok(())
}

fn state(info: &VdevInfo, guid: Guid) -> Option<VdevState> {
    if info.guid == guid {
        return Some(info.state);
    }
    info.children.iter().find_map(|c| state(c, guid))
}

/// Collects the lines of a vdev and its descendants, last line first.
fn walk(
    pool: &Opened,
    vdev: &VdevConfig,
    info: &VdevInfo,
    indent: usize,
    required: bool,
    out: &mut Vec<String>,
) -> Run<Logs> {
    let mut below = Vec::new();
    for child in vdev.children.iter().rev() {
        // A child is required if its parent has no redundancy. The pool requires each top-level
        // vdev.
        let top = indent == 0;
        below.push(walk(pool, child, info, indent + 4, top || tolerance(vdev) == 0, out)?);
    }
    let logs = if vdev.kind.is_leaf() { leaf(pool, vdev, info)? } else { above(vdev, &below) };
    let mut lines = Vec::new();
    let name = match &vdev.path {
        Some(p) => lossy(p).into_owned(),
        None if indent == 0 => pool.spa.name().to_owned(),
        None => vdev.kind.name().to_owned(),
    };
    let needed = if required { "DTL-required" } else { "DTL-expendable" };
    lines.push(format!("\t{:indent$}{name} [{needed}]\n", ""));
    for (title, set) in [("missing", &logs.missing), ("partial", &logs.partial), ("outage", &logs.outage)] {
        for (start, end) in set.iter() {
            let (pad, len) = (indent + 2, end - start);
            lines.push(format!("\t{:pad$}{title} [{start},{end}) length {len}\n", ""));
        }
    }
    out.extend(lines.into_iter().rev());
    Ok(logs)
}

/// The number of children that a vdev can lose.
fn tolerance(vdev: &VdevConfig) -> usize {
    match vdev.kind {
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => vdev.children.len().saturating_sub(1),
        VdevKind::Raidz | VdevKind::Draid => vdev.nparity.unwrap_or(0) as usize,
        _ => 0,
    }
}

fn leaf(pool: &Opened, vdev: &VdevConfig, info: &VdevInfo) -> Run<Logs> {
    let mut missing = RangeSet::new();
    if let Some(object) = vdev.dtl.filter(|o| o.0 != 0) {
        SpaceMap::open(pool.spa.mos(), object, 0, u64::MAX >> 1, 0)?.walk(|step| {
            if let MapStep::Range(r) = step {
                // A log may hold the same range twice; the set holds it once.
                let _ = match r.kind {
                    MapType::Alloc => missing.add(r.start, r.end),
                    MapType::Free => missing.remove(r.start, r.end),
                };
            }
            Ok(())
        })?;
    }
    let readable = matches!(state(info, vdev.guid), Some(VdevState::Healthy | VdevState::Degraded));
    let mut outage = missing.clone();
    if !readable {
        outage = RangeSet::new();
        let _ = outage.add(0, u64::MAX);
    }
    Ok(Logs { partial: missing.clone(), missing, outage })
}

fn above(vdev: &VdevConfig, below: &[Logs]) -> Logs {
    // The root lacks what any top-level vdev lacks.
    let most = if vdev.kind == VdevKind::Root { 1 } else { tolerance(vdev) + 1 };
    Logs {
        missing: at_least(below.iter().map(|l| &l.missing), most),
        partial: at_least(below.iter().map(|l| &l.missing), 1),
        outage: at_least(below.iter().map(|l| &l.outage), most),
    }
}

/// The ranges in which at least `n` of the sets overlap.
fn at_least<'a>(sets: impl Iterator<Item = &'a RangeSet>, n: usize) -> RangeSet {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for (start, end) in sets.flat_map(RangeSet::iter) {
        edges.extend([(start, 1), (end, -1)]);
    }
    edges.sort_unstable();
    let (mut out, mut depth, mut from) = (RangeSet::new(), 0i32, None);
    for (at, step) in edges {
        depth += step;
        match (depth >= n as i32, from) {
            (true, None) => from = Some(at),
            (false, Some(start)) => {
                let _ = out.add(start, at);
                from = None;
            }
            _ => {}
        }
    }
    out
}
