//! Choosing the pool's uberblock.

use std::collections::HashMap;
use std::sync::Arc;

use device::Device;
use observe::lock::Mutex;
use ondisk::{Ashift, Guid, PoolConfig, Txg, Uberblock, VdevConfig};
use vdev::Tree;

use crate::SpaError;
use crate::discovery::label::{FoundUberblock, Labels, read_uberblocks};
use crate::import::mmp;

/// The best uberblock of a set of devices.
#[derive(Debug, Clone)]
pub(super) struct Selected {
    /// The uberblock.
    pub(super) uberblock: Uberblock,
    /// Txg of the newest uberblock on the devices, even if it is too new.
    pub(super) newest: Txg,
    /// Its label: on the device of the uberblock, the newest that is not newer than it.
    pub(super) label: Option<PoolConfig>,
}

/// The open devices of a tree's leaves, with the sector shift that gives their uberblocks' size.
pub(super) fn leaves(tree: &Tree, root: &VdevConfig) -> Vec<(Guid, Arc<dyn Device>, Ashift)> {
    let mut shifts = HashMap::new();
    for top in &root.children {
        let shift = top.ashift.unwrap_or(Ashift(9));
        shifts.extend(top.leaves().map(|leaf| (leaf.guid, shift)));
    }
    tree.devices().filter_map(|(guid, d)| Some((guid, d.clone(), *shifts.get(&guid)?))).collect()
}

/// All uberblocks of the devices, read by one thread for each device if threads can be started.
pub(super) fn read_all(leaves: &[(Guid, Arc<dyn Device>, Ashift)]) -> Vec<(usize, Vec<FoundUberblock>)> {
    let all = Mutex::new(Vec::new());
    let threads = leaves.len().clamp(1, 8);
    let work = |first: usize| {
        for (n, (_, device, ashift)) in leaves.iter().enumerate().skip(first).step_by(threads) {
            let found = read_uberblocks(&**device, *ashift);
            all.lock().push((n, found));
        }
    };
    let work = &work;
    std::thread::scope(|s| {
        for t in 1..threads {
            let named = std::thread::Builder::new().name(format!("uberblocks-{t}"));
            if named.spawn_scoped(s, move || work(t)).is_err() {
                work(t);
            }
        }
        work(0);
    });
    let mut all = all.into_inner();
    all.sort_by_key(|(n, _)| *n);
    all
}

/// The newest uberblock that is not newer than `max` (`vdev_uberblock_load`). `extreme` accepts a
/// newer label if none fits.
pub(super) fn select(
    leaves: &[(Guid, Arc<dyn Device>, Ashift)],
    max: Txg,
    extreme: bool,
) -> Option<Selected> {
    let all = read_all(leaves);
    let found = || all.iter().flat_map(|(n, us)| us.iter().map(move |u| (*n, &u.uberblock)));
    let latest = found().map(|(_, u)| u).max_by(|a, b| a.newer(b))?;
    let newest = found().map(|(_, u)| u.txg).max()?;
    // Of equals the first one wins, so that the choice doesn't depend on the number of threads.
    let (n, best) = found()
        .filter(|(_, u)| u.txg <= max && u.txg != Txg(0))
        .reduce(|best, u| if u.1.newer(best.1).is_gt() { u } else { best })?;
    // A rewind across a step of a raidz expansion would read rows that have moved.
    if best.raidz_reflow != latest.raidz_reflow {
        return None;
    }
    let labels = Labels::read(&*leaves[n].1);
    let label = labels.best(best.txg).or_else(|| extreme.then(|| labels.best(Txg(u64::MAX))).flatten());
    Some(Selected { uberblock: best.clone(), newest, label: label.cloned() })
}

/// Whether a suspended pool is still ours (`spa_mmp_remote_host_activity`). No other host may have
/// written to it since `last`, nor write while it is watched.
pub(crate) fn check_still_ours(tree: &Tree, root: &VdevConfig, last: &Uberblock) -> Result<(), SpaError> {
    let devices = leaves(tree, root);
    let look = || select(&devices, Txg(u64::MAX), true).map(|s| (s.uberblock, s.label));
    let (now, label) = look().ok_or(SpaError::NoUberblock)?;
    if now.newer(last).is_gt() {
        let hostid = label.as_ref().and_then(|l| l.hostid);
        return Err(SpaError::Active { hostname: label.and_then(|l| l.hostname), hostid });
    }
    mmp::watch(&now, &mmp::SystemClock, look)
}
