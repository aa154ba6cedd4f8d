//! Transaction groups, and waits for locks.
//!
//! # See
//! `spa::txg::Totals`, and `observe::Site` for the locks.

use super::escaped;
use api::{TopLock, TopQuery, TopView, TxgTotals};
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// The request for the locks.
pub(super) fn query() -> TopQuery {
    TopQuery { view: TopView::Locks, ..TopQuery::default() }
}

/// The name and value of each label.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A counter, with a row for each of `rows`.
fn counter<'a, N: EncodeCounterValue>(
    to: &mut DescriptorEncoder,
    (name, help, unit): (&str, &str, Option<&Unit>),
    rows: impl Iterator<Item = (N, Labels<'a>)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, unit, MetricType::Counter)?;
    for (value, labels) in rows {
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Encodes the sums over all transaction groups, and the waits for locks.
///
/// # Errors
/// Those of the encoder.
pub(super) fn encode(to: &mut DescriptorEncoder, txgs: &[TxgTotals], locks: &[TopLock]) -> fmt::Result {
    let about = ("poolhouse_txg", "Time of transaction groups in each phase", Some(&Unit::Seconds));
    named(to, about, txgs, "phase", |of| &of.took_ns, seconds)?;
    let about = ("poolhouse_txg_closed", "Transaction groups that closed, by the reason", None);
    named(to, about, txgs, "why", |of| &of.closed, |count| count)?;
    let help = "Time that writers waited because so much was dirty";
    let rows = txgs.iter().map(|of| (seconds(of.throttled_ns), vec![("pool", of.pool.as_str())]));
    counter(to, ("poolhouse_txg_throttled", help, Some(&Unit::Seconds)), rows)?;
    gauges(to, txgs)?;

    let sites: Vec<(String, &TopLock)> = locks.iter().map(|lock| (escaped(&lock.name), lock)).collect();
    let rows = sites.iter().map(|(site, lock)| (seconds(lock.waits.sum), vec![("site", site.as_str())]));
    counter(to, ("poolhouse_lock_wait", "Time that threads waited for locks", Some(&Unit::Seconds)), rows)?;
    let count = |lock: &TopLock| lock.waits.buckets.iter().map(|(_, count)| count).sum::<u64>();
    let rows = sites.iter().map(|(site, lock)| (count(lock), vec![("site", site.as_str())]));
    counter(to, ("poolhouse_lock_waits", "How often threads waited for locks", None), rows)
}

/// A counter with a row for each named number of each pool; the names are in `label`.
fn named<N: EncodeCounterValue>(
    to: &mut DescriptorEncoder,
    about: (&str, &str, Option<&Unit>),
    txgs: &[TxgTotals],
    label: &'static str,
    of: fn(&TxgTotals) -> &[(String, u64)],
    value: fn(u64) -> N,
) -> fmt::Result {
    let names = txgs.iter().flat_map(|one| of(one).iter().map(move |(name, n)| (one, escaped(name), *n)));
    let names: Vec<(&TxgTotals, String, u64)> = names.collect();
    let rows = names
        .iter()
        .map(|(one, name, n)| (value(*n), vec![("pool", one.pool.as_str()), (label, name.as_str())]));
    counter(to, about, rows)
}

fn gauges(to: &mut DescriptorEncoder, txgs: &[TxgTotals]) -> fmt::Result {
    let help = "How long the present sync has been under way; 0 if there is none";
    let (seconds_unit, bytes) = (Unit::Seconds, Unit::Bytes);
    let mut family =
        to.encode_descriptor("poolhouse_txg_syncing", help, Some(&seconds_unit), MetricType::Gauge)?;
    for one in txgs {
        family.encode_family(&[("pool", one.pool.as_str())])?.encode_gauge(&seconds(one.syncing_ns))?;
    }
    type Of = fn(&TxgTotals) -> u64;
    let sizes: [(&str, &str, Of); 2] = [
        ("poolhouse_txg_dirty", "What is dirty now", |one| one.dirty),
        ("poolhouse_txg_dirty_max", "The most that may be dirty", |one| one.dirty_max),
    ];
    for (name, help, of) in sizes {
        let mut family = to.encode_descriptor(name, help, Some(&bytes), MetricType::Gauge)?;
        for one in txgs {
            family.encode_family(&[("pool", one.pool.as_str())])?.encode_gauge(&of(one))?;
        }
    }
    Ok(())
}
