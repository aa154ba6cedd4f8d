//! How much may be held, between two bounds: it follows the machine's free memory (`arc_reap_cb`).
//!
//! # Theory
//! A thread that watches the machine reports every second how much memory is free
//! ([`Store::adapt`]). A part of it is left to others ([`ARC_SYS_FREE`]). The cache may grow by the
//! rest and no further. So it takes only memory that exists, even if it fills up before the next
//! report. If less is free than others should have, the cache releases the difference.
//!
//! Released memory does not show at once, since the allocator returns it over some seconds. So
//! released bytes are remembered, and each report forgets an eighth of them. A lack that is no
//! larger than what is remembered is not answered twice. If it stays, it is answered again bit by
//! bit.
//!
//! The cache never shrinks below its lower bound (`zfs_arc_min`), and never grows above its upper
//! one (`zfs_arc_max`). The upper bound takes precedence.

use super::{Store, low_mark, sublists};
use crate::tunables::ARC_SYS_FREE;

/// Memory of the machine, or of the control group of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in all (`memory_all_bytes`).
    pub all: u64,
    /// Bytes that are free without harm to other processes (`memory_free_bytes`).
    pub free: u64,
}

impl Memory {
    /// Bytes that are left to others (`arc_sys_free`).
    pub fn sys_free(&self) -> u64 {
        match ARC_SYS_FREE.get() {
            0 => self.all / 32,
            set => set,
        }
    }

    /// Bytes by which the cache could grow; negative if others lack memory
    /// (`memory_available_bytes`).
    pub fn available(&self) -> i64 {
        i64::try_from(i128::from(self.free) - i128::from(self.sys_free())).unwrap_or(i64::MAX)
    }
}

/// The limits of a store, in bytes; see the module.
pub(super) struct Limits {
    pub(super) min: u64,
    pub(super) max: u64,
    /// What the machine allows.
    allowed: u64,
    /// Bytes held at the last report.
    held: u64,
    /// Bytes released since, and perhaps not visible yet.
    returned: u64,
    /// Bytes that others lacked at the last report (`arc_need_free`).
    pub(super) lacking: u64,
    /// How often memory was released.
    pub(super) shrunk: u64,
}

impl Limits {
    pub(super) fn new(max: u64) -> Limits {
        Limits { min: 0, max, allowed: u64::MAX, held: 0, returned: 0, lacking: 0, shrunk: 0 }
    }

    fn limit(&self) -> u64 {
        self.allowed.clamp(self.min, self.max)
    }

    /// Records the memory of the machine, while `size` bytes are held.
    fn look(&mut self, memory: Memory, size: u64) {
        let available = memory.available();
        self.lacking = if available < 0 { available.unsigned_abs() } else { 0 };
        let gone = std::mem::replace(&mut self.held, size).saturating_sub(size);
        self.returned = self.returned - self.returned.div_ceil(8) + gone;
        if self.lacking == 0 {
            self.allowed = size.saturating_add(available.unsigned_abs());
            return;
        }
        let fresh = self.lacking.saturating_sub(self.returned);
        let limit = self.limit();
        if fresh > 0 && limit > self.min {
            self.allowed = size.min(limit).saturating_sub(fresh).max(self.min);
            self.shrunk += 1;
        }
    }
}

impl Store {
    /// Sets the bounds: at most `max` bytes (`zfs_arc_max`), and at least `min`, however little
    /// memory the machine has (`zfs_arc_min`).
    ///
    /// `max` takes precedence. Blocks above it are evicted at once. Other settings of the limit
    /// stay.
    pub fn set_bounds(&self, min: u64, max: u64) {
        let limit = {
            let mut limits = self.inner.limits.lock();
            (limits.min, limits.max) = (min.min(max), max);
            self.apply(limits.limit())
        };
        self.inner.lists.iter().for_each(|list| list.set_sublists(sublists()));
        if self.inner.pressure.size() > limit && self.wake() {
            self.inner.pressure.await_round();
        }
    }

    /// Holds at most `max` bytes from now on, and does not shrink for the machine's sake.
    pub fn set_max(&self, max: u64) {
        self.set_bounds(max, max);
    }

    /// The bounds: `c_min` and `c_max`.
    pub fn bounds(&self) -> (u64, u64) {
        let limits = self.inner.limits.lock();
        (limits.min, limits.max)
    }

    /// Reports the machine's memory, every second. Blocks above the new limit are evicted soon.
    pub fn adapt(&self, memory: Memory) {
        let limit = {
            let mut limits = self.inner.limits.lock();
            limits.look(memory, self.inner.pressure.size());
            self.apply(limits.limit())
        };
        if self.inner.pressure.size() > limit && self.wake() {
            self.inner.pressure.call();
        }
    }

    fn apply(&self, limit: u64) -> u64 {
        self.inner.pressure.set(limit, low_mark(limit));
        limit
    }

    /// Whether others lack memory, how much, and how often memory was released to them
    /// (`arc_no_grow`, `arc_need_free`, `memory_indirect_count`).
    pub(super) fn named_limits(&self) -> [(&'static str, u64); 6] {
        let limits = self.inner.limits.lock();
        [
            ("c", self.inner.pressure.low()),
            ("c_min", limits.min),
            ("c_max", limits.max),
            ("arc_no_grow", u64::from(limits.lacking > 0)),
            ("arc_need_free", limits.lacking),
            ("memory_indirect_count", limits.shrunk),
        ]
    }
}

impl super::Inner {
    /// Bytes that may be held if the machine has them (`c_max`).
    pub(super) fn most(&self) -> u64 {
        self.limits.lock().max
    }
}
