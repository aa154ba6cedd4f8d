//! The tunables of a pool's transaction groups.

use std::time::Duration;

use observe::{Parameter, Unit};

/// Longest time that a txg with changes stays open.
pub const TXG_TIMEOUT: Parameter = Parameter {
    name: "zfs_txg_timeout",
    range: 1..=86_400,
    unit: Unit::Seconds,
    text: "longest time that a transaction group with changes stays open",
};
/// Most dirty data.
pub const DIRTY_DATA_MAX: Parameter = Parameter {
    name: "zfs_dirty_data_max",
    range: 1 << 20..=1 << 40,
    unit: Unit::Bytes,
    text: "most dirty data of a pool; at this limit writers wait",
};
/// Percent of the dirty data limit at which a txg closes early.
pub const DIRTY_DATA_SYNC_PERCENT: Parameter = Parameter {
    name: "zfs_dirty_data_sync_percent",
    range: 1..=99,
    unit: Unit::Percent,
    text: "share of zfs_dirty_data_max at which the open transaction group closes",
};
/// Percent of the dirty data limit at which the write throttle begins.
pub const DELAY_MIN_DIRTY_PERCENT: Parameter = Parameter {
    name: "zfs_delay_min_dirty_percent",
    range: 0..=100,
    unit: Unit::Percent,
    text: "share of zfs_dirty_data_max from which writers are delayed",
};
/// Steepness of the write throttle.
pub const DELAY_SCALE: Parameter = Parameter {
    name: "zfs_delay_scale",
    range: 0..=1_000_000_000,
    unit: Unit::Nanoseconds,
    text: "delay of a writer at the middle of the throttle's curve",
};

/// The tunables of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// Age at which a txg with changes is closed (`zfs_txg_timeout`).
    pub timeout: Duration,
    /// Most bytes dirty at a time (`zfs_dirty_data_max`).
    pub dirty_max: u64,
    /// Percent of `dirty_max` at which a txg is closed (`zfs_dirty_data_sync_percent`).
    pub sync_percent: u64,
    /// Percent of `dirty_max` from which new holders are delayed (`zfs_delay_min_dirty_percent`).
    pub delay_min_percent: u64,
    /// Nanoseconds of delay at the middle of the curve (`zfs_delay_scale`).
    pub delay_scale_ns: u64,
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            timeout: Duration::from_secs(5),
            dirty_max: 512 << 20,
            sync_percent: 20,
            delay_min_percent: 60,
            delay_scale_ns: 500_000,
        }
    }
}

impl Tunables {
    /// Tunables for a pool that may use so many bytes of memory: a tenth of them dirty, at most
    /// 4 GiB (`arc_init`).
    pub fn for_memory(bytes: u64) -> Tunables {
        let dirty_max = (bytes / 10).clamp(64 << 20, 4 << 30);
        Tunables { dirty_max, ..Tunables::default() }
    }

    /// Dirty bytes at which a txg is closed.
    pub(super) fn full(&self) -> u64 {
        (self.dirty_max / 100 * self.sync_percent).max(1)
    }

    /// The delay of a holder when `dirty` bytes are dirty.
    ///
    /// It is a hyperbola: 0 at the threshold and large near the limit, at most 100 ms.
    pub(super) fn delay(&self, dirty: u64) -> Option<Duration> {
        let min = self.dirty_max / 100 * self.delay_min_percent;
        if dirty <= min {
            return None;
        }
        let room = self.dirty_max.saturating_sub(dirty).max(1);
        let ns = u128::from(self.delay_scale_ns) * u128::from(dirty - min) / u128::from(room);
        Some(Duration::from_nanos(ns.min(100_000_000) as u64))
    }
}
