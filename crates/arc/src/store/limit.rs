//! How much may be held, between two bounds: what the machine has left decides (`arc_reap_cb`).
//!
//! # Theory
//! Somebody who knows the machine tells every second what memory could be had ([`Store::adapt`]). A part of it is left to others ([`ARC_SYS_FREE`]); the cache may grow by what remains and no further, so that
//! it takes nothing that is not there even if it is filled before anybody looks again. Where less is left than others should have, it gives back what is lacking.
//!
//! What it gives back does not show at once, since the allocator returns memory over some seconds. So what was given back is remembered, and an eighth of it forgotten with each look: a lack that is no greater than that
//! is not answered twice. If it stays, it is answered again bit by bit.
//!
//! Nothing takes the cache below its lower bound (`zfs_arc_min`), and nothing above its upper one (`zfs_arc_max`), which goes before the lower.

use super::{Store, low_mark, sublists};
use crate::tunables::ARC_SYS_FREE;

/// What the machine has, or the control group that the process is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in all (`memory_all_bytes`).
    pub all: u64,
    /// Bytes that could be had without anybody suffering (`memory_free_bytes`).
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

    /// Bytes that the cache could take besides; fewer than none if others lack them (`memory_available_bytes`).
    pub fn available(&self) -> i64 {
        i64::try_from(i128::from(self.free) - i128::from(self.sys_free())).unwrap_or(i64::MAX)
    }
}

/// See the module. All are bytes.
pub(super) struct Limits {
    pub(super) min: u64,
    pub(super) max: u64,
    /// What the machine would allow.
    allowed: u64,
    /// Held when somebody looked last.
    held: u64,
    /// Given back since, and perhaps not seen yet.
    returned: u64,
    /// What others lacked when somebody looked last (`arc_need_free`).
    pub(super) lacking: u64,
    /// How often something was given back.
    pub(super) shrunk: u64,
}

impl Limits {
    pub(super) fn new(max: u64) -> Limits {
        Limits { min: 0, max, allowed: u64::MAX, held: 0, returned: 0, lacking: 0, shrunk: 0 }
    }

    fn limit(&self) -> u64 {
        self.allowed.clamp(self.min, self.max)
    }

    /// Takes note of what the machine has, while so much is held.
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
    /// Holds at most `max` bytes from now on (`zfs_arc_max`), and, however little memory the machine has, may hold `min` (`zfs_arc_min`), but for `max`; what is too much goes at once. What else was set of it holds too.
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

    /// Holds at most `max` bytes from now on, and nothing less because of what the machine has.
    pub fn set_max(&self, max: u64) {
        self.set_bounds(max, max);
    }

    /// The bounds: `c_min` and `c_max`.
    pub fn bounds(&self) -> (u64, u64) {
        let limits = self.inner.limits.lock();
        (limits.min, limits.max)
    }

    /// Told every second what the machine has; what is too much goes soon.
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

    /// Whether others lack memory, how much, and how often something was given back to them (`arc_no_grow`, `arc_need_free`, `memory_indirect_count`).
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
    /// Bytes that may be held as long as the machine has them (`c_max`).
    pub(super) fn most(&self) -> u64 {
        self.limits.lock().max
    }
}
