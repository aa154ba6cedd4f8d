//! Multihost protection: is another host writing to the pool right now?
//!
//! # Theory
//! A host that has a pool with `multihost=on` writes uberblocks at short intervals, whether or not the pool changes. So a
//! pool that might be in use is watched: if for long enough no newer uberblock appears, nobody has it. How long is enough
//! follows from what the last owner wrote of its own interval: it gives its pool up when its writes fail for that long.
//! There is no need to watch when the uberblock says that protection is off, when this host used the pool last, or when it
//! was exported.
//!
//! Time, sleep and chance come through [`Clock`], so that a test owns them.
//!
//! See OpenZFS `module/zfs/mmp.c`, `spa_activity_check`.

use std::time::Duration;

use ondisk::config::PoolState;
use ondisk::uberblock::{Mmp, Uberblock};
use ondisk::{PoolConfig, Txg};

use crate::{Host, SpaError};

#[cfg(test)]
mod tests;

/// Intervals without activity that are waited for (`zfs_multihost_import_intervals`).
const IMPORT_INTERVALS: u64 = 20;
/// The interval where the pool doesn't tell it (`zfs_multihost_interval`), in nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;
/// By how much the owner's own limit is exceeded, in hundredths (`MMP_IMPORT_SAFETY_FACTOR`).
const SAFETY_FACTOR: u64 = 200;
/// Longest wait that is believed: a day. The fields allow four hours times 65535.
const LONGEST: Duration = Duration::from_secs(86400);

/// The passing of time, as far as an import needs it.
pub trait Clock: Sync {
    /// Time since some moment, which never goes back.
    fn now(&self) -> Duration;

    /// Waits; false when the wait was broken off and the import should be.
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
        // The keys of a hasher are random; that is chance enough to keep two hosts from marching in step.
        let chance = std::hash::RandomState::new().build_hasher().finish();
        (chance % u64::from(below.max(1))) as u32
    }
}

/// What an uberblock shows of its writer's activity; the same twice means that nothing happened between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The group.
    pub txg: Txg,
    /// When it was synced, seconds of the epoch.
    pub timestamp: u64,
    /// How many writes for activity's sake there were since; 0 if it isn't counted.
    pub seq: u16,
}

impl Seen {
    pub(crate) fn of(ub: &Uberblock) -> Seen {
        Seen { txg: ub.txg, timestamp: ub.timestamp, seq: ub.mmp.and_then(Mmp::seq).unwrap_or(0) }
    }
}

/// Whether the pool must be watched before it is imported (`spa_activity_check_required`). `label` is the one that goes with
/// the uberblock, `state` what the labels say, `before` what an earlier watch ended with.
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
    // Without a sequence number two watches can't be told apart within a second.
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

/// Watches the pool through `look`, which reads the best uberblock and its label anew, once a second.
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
