//! The newest transaction groups: why each closed, and where the time of its sync went. And the
//! sums over all of them.

use crate::pools::{Imported, Pools};
use api::{Error, TXGS_MAX, TxgRecord, TxgTotals, Txgs};
use spa::txg::{Closed, Group, Stage};
use std::collections::HashMap;
use std::time::Duration;

use super::work::{by_kind, devices, op_name, waited};

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The transaction groups of a pool, or of all.
///
/// # Errors
/// See [`api::Service::txgs`].
pub(crate) fn txgs(pools: &Pools, pool: Option<&str>) -> Result<Txgs, Error> {
    let pools = match pool {
        Some(name) => vec![pools.table().pool_or_going(name)?],
        None => pools.table().present(),
    };
    let devices = devices(&pools);
    let of = |pool: &std::sync::Arc<Imported>| {
        let groups =
            pool.pool.spa().writer().map(|writer| writer.txgs().last_groups(TXGS_MAX)).unwrap_or_default();
        let name = pool.pool.name().to_owned();
        groups.iter().map(|group| record(&name, group, &devices)).collect::<Vec<_>>()
    };
    Ok(Txgs {
        process: api::process_id(),
        txgs: pools.iter().flat_map(of).collect(),
        totals: pools.iter().filter_map(|pool| totals(pool)).collect(),
    })
}

/// The names of the stages before the last, in the order of [`spa::txg::Totals::took`].
const STAGES: [&str; 4] = ["open", "quiescing", "waiting", "syncing"];

/// The sums of a pool that can be written.
fn totals(pool: &Imported) -> Option<TxgTotals> {
    let txgs = pool.pool.spa().writer()?.txgs();
    let sums = txgs.totals();
    let named = |names: &[&str], numbers: &[u64]| -> Vec<(String, u64)> {
        names.iter().zip(numbers).map(|(name, n)| ((*name).to_owned(), *n)).collect()
    };
    Some(TxgTotals {
        pool: pool.pool.name().to_owned(),
        took_ns: named(&STAGES, &sums.took.map(ns)),
        closed: named(&Closed::NAMES, &sums.closed),
        throttled_ns: ns(sums.throttled),
        syncing_ns: txgs.syncing().map_or(0, ns),
        dirty: txgs.dirty(),
        dirty_max: txgs.dirty_max(),
    })
}

fn record(pool: &str, group: &Group, devices: &HashMap<u64, String>) -> TxgRecord {
    let (stage, at) = match group.stage {
        Stage::Committed => ("committed", None),
        stage => (STAGES[stage as usize], Some(stage as usize)),
    };
    let mut took_ns = group.took.map(ns);
    if let Some(at) = at {
        took_ns[at] = ns(group.in_stage());
    }
    let by = match group.closed {
        Some(Closed::Requested(by)) => by,
        _ => None,
    };
    TxgRecord {
        pool: pool.to_owned(),
        txg: group.txg.0,
        stage: stage.to_owned(),
        age_ns: ns(group.opened.elapsed()),
        closed: group.closed.map_or("", Closed::name).to_owned(),
        requested_by: by.map(|job| op_name(job.kind, job.node).1.to_owned()).unwrap_or_default(),
        dirty: group.dirty,
        read: group.moved.read,
        written: group.moved.written,
        took_ns,
        waits: by_kind(&group.spent.ns),
        longest: group.spent.longest.map(|longest| waited(longest.wait, longest.what, longest.ns, devices)),
    }
}

#[cfg(test)]
mod tests;
