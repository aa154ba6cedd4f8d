//! Detailed I/O statistics of a pool's devices (`vdev_get_stats_ex`).

use std::collections::HashMap;

use observe::HistogramSnapshot;
use ondisk::Guid;
use vdev::{ClassSnapshot, VdevInfo};

use api::{ClassIo, IoStat, Pool, Vdev};

/// The number of latency buckets (`VDEV_L_HISTO_BUCKETS`).
const LATENCIES: usize = 37;
/// The number of size buckets (`VDEV_RQ_HISTO_BUCKETS`).
const SIZES: usize = 25;

/// Fills in the statistics of all vdevs of a pool, and of its cache devices.
pub(super) fn fill(pool: &mut Pool, info: &VdevInfo, cache: &arc::Cache) {
    let mut all = HashMap::new();
    index(info, &mut all);
    enter(&mut pool.root, &all);
    for v in &mut pool.l2cache {
        if let Some(used) = cache.device_stats(Guid(v.guid)) {
            v.stat.timestamp_ns = used.age_ns;
            v.stat.io = Some(Box::new(io_stat(&used.classes)));
        }
    }
}

fn index<'a>(info: &'a VdevInfo, into: &mut HashMap<u64, &'a VdevInfo>) {
    into.insert(info.guid.0, info);
    info.children.iter().for_each(|c| index(c, into));
}

// The recursion is as deep as the tree, which is limited when it is built.
fn enter(v: &mut Vdev, all: &HashMap<u64, &VdevInfo>) {
    let found = if v.kind == "root" { all.values().find(|i| i.name == "root") } else { all.get(&v.guid) };
    if let Some(info) = found {
        let s = &info.stats;
        v.stat.timestamp_ns = s.age_ns;
        (v.stat.ops[1], v.stat.ops[2]) = (s.read_ops, s.write_ops);
        (v.stat.bytes[1], v.stat.bytes[2]) = (s.read_bytes, s.write_bytes);
        (v.stat.ops[5], v.stat.bytes[5]) = (s.trim_ops, s.trim_bytes);
        v.stat.io = Some(Box::new(io_stat(&s.classes)));
    }
    v.children.iter_mut().for_each(|c| enter(c, all));
}

/// The statistics of all classes.
fn io_stat(classes: &[ClassSnapshot]) -> IoStat {
    let powers = |histogram: &HistogramSnapshot, buckets| {
        let mut counts = histogram.powers(buckets);
        counts.truncate(counts.iter().rposition(|n| *n != 0).map_or(0, |last| last + 1));
        counts
    };
    let class = |one: &ClassSnapshot| ClassIo {
        class: one.class.name().to_owned(),
        io: one.io.name().to_owned(),
        ops: one.ops,
        bytes: one.bytes,
        active: one.active,
        waiting: one.waiting,
        disk_sum_ns: one.disk_sum_ns,
        wait: powers(&one.wait_ns, LATENCIES),
        disk: powers(&one.disk_ns, LATENCIES),
        total: powers(&one.total_ns, LATENCIES),
        single: powers(&one.single, SIZES),
        joined: powers(&one.joined, SIZES),
    };
    IoStat { classes: classes.iter().map(class).collect() }
}
