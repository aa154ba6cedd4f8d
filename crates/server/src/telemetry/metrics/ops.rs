//! Operations of users: by kind for each pool, and by class for each dataset.
//!
//! # Theory
//! A pool can have many datasets, and Prometheus pays for each series. So datasets have counters
//! and no histograms, and only those with the most operations have a row: [`DATASETS`] of all pools
//! together. There is no row for the others: when a dataset gets a row or loses it, what it did
//! would leave that row or come to it, and a counter must only grow. Totals are in the operations
//! of the pools.

use super::escaped;
use api::{TopClass, TopOp, TopPool, TopQuery, TopTimes, TopView};
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// The most datasets on a page.
const DATASETS: u64 = 1000;
/// The errno of errors that have none.
const OTHERS: &str = "others";

/// The requests for what is here: by kind, and by datasets.
pub(super) fn queries() -> [TopQuery; 2] {
    [
        TopQuery { view: TopView::Ops, ..TopQuery::default() },
        TopQuery { view: TopView::Datasets, limit: DATASETS, ..TopQuery::default() },
    ]
}

/// The powers of two, in nanoseconds, of the lowest and highest bounds: 1 µs and 34 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=35;

/// A histogram in seconds: the upper bounds with their counts, and the total count.
fn seconds(times: &TopTimes) -> (Vec<(f64, u64)>, u64) {
    let mut buckets: Vec<(f64, u64)> = BOUNDS.map(|power| (2_f64.powi(power as i32) / 1e9, 0)).collect();
    buckets.push((f64::MAX, 0));
    for (top, count) in &times.buckets {
        // A bucket ends below a power of two, or at a quarter of the way to the next.
        let power = u64::BITS - top.leading_zeros();
        let at = power.saturating_sub(*BOUNDS.start()) as usize;
        let last = buckets.len() - 1;
        buckets[at.min(last)].1 += count;
    }
    let all = buckets.iter().map(|(_, count)| count).sum();
    (buckets, all)
}

/// The name and value of each label.
type Labels = Vec<(&'static str, String)>;

fn ops(pools: &[TopPool]) -> impl Iterator<Item = (&TopOp, Labels)> {
    pools.iter().flat_map(|pool| {
        let labels = |op: &TopOp| {
            vec![("pool", pool.name.clone()), ("frontend", op.frontend.clone()), ("op", op.op.clone())]
        };
        pool.ops.iter().map(move |op| (op, labels(op)))
    })
}

/// The classes of all datasets that have a row.
fn classes(pools: &[TopPool]) -> impl Iterator<Item = (&TopClass, Labels)> {
    pools.iter().flat_map(|pool| {
        pool.datasets.iter().flat_map(move |dataset| {
            dataset.classes.iter().map(move |class| {
                let names = [("pool", &*pool.name), ("dataset", &dataset.name), ("class", &class.class)];
                (class, names.map(|(label, value)| (label, escaped(value))).into())
            })
        })
    })
}

/// Counters of all classes.
fn counters<N: EncodeCounterValue>(
    to: &mut DescriptorEncoder,
    pools: &[TopPool],
    (name, help, unit): (&str, &str, Option<&Unit>),
    of: fn(&TopClass) -> N,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, unit, MetricType::Counter)?;
    for (class, labels) in classes(pools) {
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&of(class), None)?;
    }
    Ok(())
}

/// Encodes the answers to [`queries`].
///
/// # Errors
/// Those of the encoder.
pub(super) fn encode(to: &mut DescriptorEncoder, by_kind: &[TopPool], datasets: &[TopPool]) -> fmt::Result {
    let help = "How long operations of users took";
    let mut family =
        to.encode_descriptor("poolhouse_op", help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (op, labels) in ops(by_kind) {
        let (buckets, count) = seconds(&op.times);
        let sum = op.times.sum as f64 / 1e9;
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    let help = "What they read or wrote";
    let mut family = to.encode_descriptor("poolhouse_op", help, Some(&Unit::Bytes), MetricType::Counter)?;
    for (op, labels) in ops(by_kind).filter(|(op, _)| op.bytes > 0) {
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&op.bytes, None)?;
    }
    let help = "How many failed, by errno";
    let mut family = to.encode_descriptor("poolhouse_op_errors", help, None, MetricType::Counter)?;
    for (op, labels) in ops(by_kind) {
        let others = (OTHERS.to_owned(), op.other_errors);
        for (errno, count) in op.errors.iter().chain([&others]).filter(|(_, count)| *count > 0) {
            let mut labels = labels.clone();
            labels.push(("errno", errno.clone()));
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
    }
    let count = |class: &TopClass| seconds(&class.times).1;
    let (bytes, time) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
    counters(to, datasets, ("poolhouse_dataset_ops", "Operations of users", None), count)?;
    let about = ("poolhouse_dataset", "What they read or wrote", bytes);
    counters(to, datasets, about, |class| class.bytes)?;
    let about = ("poolhouse_dataset_errors", "How many failed", None);
    counters(to, datasets, about, |class| class.errors)?;
    let about = ("poolhouse_dataset", "How long they took in all", time);
    counters(to, datasets, about, |class| class.times.sum as f64 / 1e9)
}
