//! The newest transaction groups: why each closed, and where the time of its sync went.

use crate::pools::{Imported, Pools};
use api::{Error, TXGS_MAX, TxgRecord, Txgs};
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
    Ok(Txgs { process: api::process_id(), txgs: pools.iter().flat_map(of).collect() })
}

fn record(pool: &str, group: &Group, devices: &HashMap<u64, String>) -> TxgRecord {
    let (stage, at) = match group.stage {
        Stage::Open => ("open", Some(0)),
        Stage::Quiescing => ("quiescing", Some(1)),
        Stage::Waiting => ("waiting", Some(2)),
        Stage::Syncing => ("syncing", Some(3)),
        Stage::Committed => ("committed", None),
    };
    let mut took_ns = group.took.map(ns);
    if let Some(at) = at {
        took_ns[at] = ns(group.in_stage());
    }
    let (closed, by) = match group.closed {
        None => ("", None),
        Some(Closed::Age) => ("age", None),
        Some(Closed::Dirty) => ("dirty", None),
        Some(Closed::Full) => ("full", None),
        Some(Closed::Requested(by)) => ("request", by),
        Some(Closed::GoOn) => ("continued", None),
        Some(Closed::Export) => ("export", None),
    };
    TxgRecord {
        pool: pool.to_owned(),
        txg: group.txg.0,
        stage: stage.to_owned(),
        age_ns: ns(group.opened.elapsed()),
        closed: closed.to_owned(),
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
