//! Multihost protection: is another host writing to the pool now?
//!
//! # Theory
//! A host with a `multihost=on` pool writes uberblocks at short intervals, whether or not the pool
//! changes. So an import watches a pool that may be in use. If no newer uberblock appears for long
//! enough, no host has it. The duration follows from the interval that the last owner recorded: an
//! owner suspends its pool if its writes fail for that long.
//!
//! There is no need to watch if:
//!
//! * the uberblock says that protection is off;
//! * this host used the pool last;
//! * the pool was exported.
//!
//! Time, sleep and random numbers come through [`Clock`], so that tests control them.
//!
//! See OpenZFS `module/zfs/mmp.c`, `spa_activity_check`.

use std::time::Duration;

use ondisk::config::PoolState;
use ondisk::uberblock::{Mmp, Uberblock};
use ondisk::{PoolConfig, Txg};

use crate::{Host, SpaError};

#[cfg(test)]
mod tests;

/// Intervals without activity to wait for (`zfs_multihost_import_intervals`).
const IMPORT_INTERVALS: u64 = 20;
/// The interval if the pool doesn't record one, nanoseconds (`zfs_multihost_interval`).
const INTERVAL_NS: u64 = 1_000_000_000;
/// Factor on the owner's own limit, in hundredths (`MMP_IMPORT_SAFETY_FACTOR`).
const SAFETY_FACTOR: u64 = 200;
/// Longest wait: a day. The fields could claim four hours times 65535.
const LONGEST: Duration = Duration::from_secs(86400);

/// The clock of an import.
pub trait Clock: Sync {
    /// Time since a fixed moment; it never goes back.
    fn now(&self) -> Duration;

    /// Waits; false if the wait was interrupted and the import should end.
    fn sleep(&self, time: Duration) -> bool;

    /// A random number below `below`.
    fn random(&self, below: u32) -> u32;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed()
    }

    fn sleep(&self, time: Duration) -> bool {
        std::thread::sleep(time);
        true
    }

    fn random(&self, below: u32) -> u32 {
        use std::hash::{BuildHasher, Hasher};
        // A hasher's keys are random, which suffices to keep two hosts out of step.
        let chance = std::hash::RandomState::new().build_hasher().finish();
        (chance % u64::from(below.max(1))) as u32
    }
}

/// The activity that an uberblock shows. Equal values mean that nothing happened between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The transaction group.
    pub txg: Txg,
    /// When it was synced, seconds of the epoch.
    pub timestamp: u64,
    /// Number of MMP writes since then; 0 if they are not counted.
    pub seq: u16,
}

impl Seen {
    pub(crate) fn of(ub: &Uberblock) -> Seen {
        Seen { txg: ub.txg, timestamp: ub.timestamp, seq: ub.mmp.and_then(Mmp::seq).unwrap_or(0) }
    }
}

/// Whether the pool must be watched before an import (`spa_activity_check_required`).
///
/// `label` is the uberblock's label, `state` the state by the labels, `before` the result of an
/// earlier watch.
pub(crate) fn required(
    ub: &Uberblock,
    label: Option<&PoolConfig>,
    state: PoolState,
    host: &Host,
    before: Option<Seen>,
) -> bool {
    if ub.mmp.is_some_and(|m| m.delay_ns == 0) {
        return false;
    }
    // Without a sequence number, activity within a second doesn't show.
    if before.is_some_and(|b| b.seq != 0 && b == Seen::of(ub)) {
        return false;
    }
    let last = label.and_then(|l| l.hostid).unwrap_or(0);
    last != u64::from(host.hostid) && state == PoolState::Active
}

/// How long to watch (`spa_activity_check_duration`).
pub(crate) fn duration(ub: &Uberblock) -> Duration {
    let local = IMPORT_INTERVALS * INTERVAL_NS;
    let ns = match ub.mmp {
        None => local,
        Some(mmp) => match (mmp.interval_ms(), mmp.fail_intervals()) {
            (Some(ms), Some(0)) => {
                let each = (ms * 1_000_000).saturating_add(mmp.delay_ns);
                local.max(each.saturating_mul(IMPORT_INTERVALS))
            }
            (Some(ms), Some(fails)) => {
                (ms * 1_000_000).saturating_mul(u64::from(fails)) / 100 * SAFETY_FACTOR
            }
            _ => local.max(INTERVAL_NS.saturating_add(mmp.delay_ns).saturating_mul(IMPORT_INTERVALS)),
        },
    };
    Duration::from_nanos(ns).min(LONGEST)
}

/// Watches the pool: once a second, `look` reads the best uberblock and its label again.
pub(crate) fn watch(
    ub: &Uberblock,
    clock: &dyn Clock,
    mut look: impl FnMut() -> Option<(Uberblock, Option<PoolConfig>)>,
) -> Result<(), SpaError> {
    let first = Seen::of(ub);
    let long = duration(ub);
    // Up to a quarter more, so that two hosts that begin together don't end together.
    let end = clock.now() + long + long * clock.random(250) / 1000;
    while clock.now() < end {
        match look() {
            Some((now, _)) if Seen::of(&now) == first => {}
            Some((_, label)) => {
                let hostid = label.as_ref().and_then(|l| l.hostid);
                return Err(SpaError::Active { hostname: label.and_then(|l| l.hostname), hostid });
            }
            None => return Err(SpaError::NoUberblock),
        }
        if !clock.sleep(Duration::from_secs(1)) {
            return Err(SpaError::Interrupted);
        }
    }
    Ok(())
}
