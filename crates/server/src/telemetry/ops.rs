//! Operations of users, by datasets and by kind.

use crate::pools::Imported;
use api::{TopClass, TopDataset, TopOp, TopPool};
use observe::LatencySnapshot;
use observe::ops::{Class, DatasetOps, OpSnapshot, merge};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use super::errnos::errno_name;
use super::times::times;

fn pool(of: &Imported) -> TopPool {
    TopPool { number: of.pool.ops().number(), name: of.pool.name().to_owned(), ..TopPool::default() }
}

/// Sums by classes, those that there were.
fn classes(ops: &[OpSnapshot]) -> Vec<TopClass> {
    let of = |class: &Class| {
        let (mut seen, mut sum) = (LatencySnapshot::default(), TopClass::default());
        for op in ops.iter().filter(|op| op.op.class() == *class) {
            seen.merge(&op.times);
            sum.bytes = sum.bytes.saturating_add(op.bytes);
            sum.errors = sum.errors.saturating_add(op.codes.sum());
        }
        let class = class.name().to_owned();
        (!seen.buckets.is_empty()).then(|| TopClass { class, times: times(seen), ..sum })
    };
    Class::ALL.iter().filter_map(of).collect()
}

/// The datasets of all pools, `limit` at most: those with the most operations, or those that were
/// used last.
pub(super) fn datasets(pools: &[Arc<Imported>], last: bool, limit: usize) -> Vec<TopPool> {
    let (mut all, mut others) = (Vec::new(), Vec::new());
    for (at, of) in pools.iter().enumerate() {
        let (mut datasets, mut rest) = of.pool.ops().datasets();
        // Of several with one name, the newest has it, and the others are gone.
        datasets.sort_unstable_by_key(|dataset| Reverse(dataset.number()));
        let mut names = HashSet::new();
        for dataset in datasets {
            let seen = dataset.snapshot();
            match names.insert(dataset.name()) {
                true => all.push((at, dataset.last(), seen, dataset)),
                false => merge(&mut rest, &seen),
            }
        }
        others.push(rest);
    }
    let count = |ops: &[OpSnapshot]| ops.iter().map(|op| op.times.count()).sum::<u64>();
    all.sort_by_cached_key(|(_, used, ops, _)| Reverse(if last { *used } else { count(ops) }));
    for (at, _, seen, _) in all.drain(limit.min(all.len())..) {
        merge(&mut others[at], &seen);
    }
    let mut shown: Vec<TopPool> = pools.iter().map(|of| pool(of)).collect();
    for (at, _, seen, dataset) in all {
        shown[at].datasets.push(row(&dataset, &seen));
    }
    for (pool, rest) in shown.iter_mut().zip(others) {
        pool.other_datasets = classes(&rest);
    }
    shown
}

fn row(dataset: &DatasetOps, seen: &[OpSnapshot]) -> TopDataset {
    TopDataset { number: dataset.number(), name: dataset.name(), classes: classes(seen) }
}

/// The operations of all pools by kind.
pub(super) fn ops(pools: &[Arc<Imported>], limit: usize) -> Vec<TopPool> {
    let row = |seen: OpSnapshot| TopOp {
        frontend: seen.frontend.name().to_owned(),
        op: seen.op.name().to_owned(),
        times: times(seen.times),
        bytes: seen.bytes,
        errors: seen.codes.codes.into_iter().map(|(code, count)| (errno_name(code), count)).collect(),
        other_errors: seen.codes.others,
    };
    let mut left = limit;
    let of = |of: &Arc<Imported>| {
        let ops: Vec<TopOp> = of.pool.ops().ops().into_iter().take(left).map(row).collect();
        left -= ops.len();
        TopPool { ops, ..pool(of) }
    };
    pools.iter().map(of).collect()
}
