//! `zdb -s`: the I/O statistics of the devices (`show_pool_stats`).

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use console::Out;
use console::numbers;
use pool::metaslab::Class;
use std::collections::BTreeMap;
use vdev::{AllocBias, VdevInfo, VdevKind};

/// Width of a name with its suffix, and of the space columns that some vdevs lack.
const NAME: usize = 25;
const SPACE: usize = 12;

/// Bytes of a vdev: allocatable, allocated.
type Bytes = (u64, u64);

/// Shows the pool and its vdevs. Like zdb 2.3.2, it shows no cache device and no spare.
pub fn show(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    let (mut tops, mut all) = (BTreeMap::new(), (0u64, 0u64));
    for top in pool.spa.top_vdevs()? {
        let space = pool.spa.mos().vdev_space(&top)?;
        if top.class != Class::Log {
            all = (all.0.saturating_add(space.space), all.1.saturating_add(space.alloc));
        }
        tops.insert(u64::from(top.id.0), (space.space, space.alloc));
    }
    let info = pool.spa.tree().describe();
    cx.out.put("                            capacity   operations   bandwidth  ---- errors ----\n");
    cx.out.put("description                used avail  read write  read write  read write cksum\n");
    line(cx.out, &info, pool.spa.name(), 0, all);
    for top in &info.children {
        below(cx.out, top, 2, tops.get(&top.id).copied().unwrap_or_default());
    }
    Ok(())
}

// The recursion is as deep as the tree, whose depth is checked when it is built.
fn below(out: &mut Out, v: &VdevInfo, indent: usize, bytes: Bytes) {
    let path = v.path.as_deref().map(String::from_utf8_lossy);
    // The kind with its parity, without the vdev's number.
    let kind = v.name.rsplit_once('-').map_or(v.name.as_str(), |(kind, _)| kind);
    line(out, v, path.as_deref().unwrap_or(kind), indent, bytes);
    for child in v.children.iter().filter(|child| child.kind != VdevKind::Hole) {
        below(out, child, indent + 2, (0, 0));
    }
}

fn line(out: &mut Out, v: &VdevInfo, name: &str, indent: usize, (space, alloc): Bytes) {
    let suffix = match (v.alloc_bias, v.is_log) {
        (Some(AllocBias::Special), _) => " (special)",
        (Some(AllocBias::Dedup), _) => " (dedup)",
        (Some(AllocBias::Log), _) | (None, true) => " (log)",
        (None, false) => "",
    };
    let name = out.cell(name).into_owned();
    let (taken, columns) = (indent + name.len(), NAME + if space == 0 { SPACE } else { 0 });
    // OpenZFS pads after a name that is too long, by the excess.
    let (left, right) = (columns.saturating_sub(taken), taken.saturating_sub(columns));
    write!(out, "{:indent$}{name}{suffix:<left$}{:pad$}", "", "", pad = right.saturating_sub(suffix.len()));
    if space != 0 {
        write!(out, "{:>6}{:>6}", numbers::num(alloc), numbers::num(space.saturating_sub(alloc)));
    }
    let (s, seconds) = (&v.stats, (v.stats.age_ns / 1_000_000_000).max(1));
    let rates = [s.read_ops, s.write_ops, s.read_bytes, s.write_bytes].map(|n| n / seconds);
    for n in rates.into_iter().chain([s.read_errors, s.write_errors, s.checksum_errors]) {
        write!(out, " {:>5}", numbers::num(n));
    }
    out.put("\n");
}
