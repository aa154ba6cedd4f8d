//! When a device has had too many errors, and how that is reported.
//!
//! # Theory
//! A single error says little about a device; many errors within a short time say a lot. So each
//! leaf counts its errors of each kind within a window of time. When the count reaches the
//! [`Limit`], the leaf raises an alarm. It raises no second one until the errors are cleared.
//!
//! * The same place counts once: a bad sector that is read again and again is one bad sector.
//! * If sisters have errors of the same kind at the same time, there is no alarm. The cause is then
//!   something that they share (a cable, a controller, memory), not one of them.
//!
//! What follows from an alarm is not decided here. The alarm is stored in the tree's
//! [`AlarmQueue`]. The thread that may change the pool waits at the bell. The bell also rings when
//! a device changes its state.
//!
//! # Locks
//! Each leaf's count has a lock of its own, taken when something failed. The bell's lock is taken
//! last, and is never held during other work.
//!
//! # See
//! OpenZFS `cmd/zed/agents/fmd_serd.c`, `zfs_diagnosis.c`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex};
use ondisk::Guid;

use crate::tree::{Node, NodeId, Tree};

/// What a device has too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symptom {
    /// The device returned bytes other than those that were written (`ereport.fs.zfs.checksum`).
    Checksum,
    /// Operations that failed (`ereport.fs.zfs.io`).
    Io,
    /// Operations that took very long (`ereport.fs.zfs.delay`).
    Slow,
}

impl Symptom {
    /// All of them, in the order of their numbers.
    pub const ALL: [Symptom; 3] = [Symptom::Checksum, Symptom::Io, Symptom::Slow];
}

/// How many errors of a symptom are too many within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The number of errors; with 0 there is no limit.
    pub count: u64,
    /// Within this time.
    pub within: Duration,
}

impl Limit {
    /// The limit that OpenZFS's daemon uses by default (`DEFAULT_CHECKSUM_N`, `DEFAULT_IO_N`, and
    /// `_T`).
    pub const DEFAULT: Limit = Limit { count: 10, within: Duration::from_secs(600) };
    /// No limit.
    pub const NEVER: Limit = Limit { count: 0, within: Duration::ZERO };
}

/// Most errors that are remembered of a leaf. A higher limit is never reached.
const MOST: usize = 1 << 16;

/// Errors of one kind.
#[derive(Debug)]
struct Series {
    limit: Limit,
    seen: VecDeque<(Instant, Option<(u64, u64)>)>,
    /// The limit was reached, and the errors have not been cleared since.
    fired: bool,
}

impl Series {
    /// Counts one error; returns whether it reached the limit.
    fn record(&mut self, now: Instant, place: Option<(u64, u64)>) -> bool {
        if self.fired || self.limit.count == 0 {
            return false;
        }
        self.forget(now);
        if place.is_some() && self.seen.iter().any(|(_, at)| *at == place) {
            return false;
        }
        let most = usize::try_from(self.limit.count).unwrap_or(MOST).min(MOST);
        while self.seen.len() >= most {
            self.seen.pop_front();
        }
        self.seen.push_back((now, place));
        self.fired = self.seen.len() as u64 >= self.limit.count;
        self.fired
    }

    /// Drops the errors that are older than the window.
    fn forget(&mut self, now: Instant) {
        let within = self.limit.within;
        while self.seen.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > within) {
            self.seen.pop_front();
        }
    }
}

/// The errors that a leaf counts.
#[derive(Debug)]
pub(crate) struct ErrorRates(Mutex<[Series; 3]>);

impl Default for ErrorRates {
    fn default() -> Self {
        let limits = [Limit::DEFAULT, Limit::DEFAULT, Limit::NEVER];
        Self(Mutex::new(limits.map(|limit| Series { limit, seen: VecDeque::new(), fired: false })))
    }
}

impl ErrorRates {
    /// Counts one error; returns whether it reached the limit.
    pub(crate) fn record(&self, what: Symptom, now: Instant, place: Option<(u64, u64)>) -> bool {
        self.0.lock()[what as usize].record(now, place)
    }

    /// Whether there was an error within the window.
    fn is_active(&self, what: Symptom, now: Instant) -> bool {
        let series = &mut self.0.lock()[what as usize];
        series.forget(now);
        !series.seen.is_empty()
    }

    /// Clears the counts.
    pub(crate) fn clear(&self) {
        for series in &mut *self.0.lock() {
            series.seen.clear();
            series.fired = false;
        }
    }

    /// Withdraws an alarm: the next error is judged anew. The count stays, since the sisters
    /// compare with it.
    fn relent(&self, what: Symptom) {
        self.0.lock()[what as usize].fired = false;
    }

    fn set_limit(&self, what: Symptom, limit: Limit) {
        self.0.lock()[what as usize].limit = limit;
    }
}

/// Where the thread that watches a pool's devices waits for alarms.
#[derive(Debug, Default)]
pub struct AlarmQueue {
    rung: Mutex<AlarmState>,
    ringing: Condvar,
}

#[derive(Debug, Default)]
struct AlarmState {
    rings: bool,
    alarms: Vec<(Guid, Symptom)>,
}

impl AlarmQueue {
    /// Wakes the thread that waits.
    pub fn ring(&self) {
        self.rung.lock().rings = true;
        self.ringing.notify_all();
    }

    fn alarm(&self, device: Guid, what: Symptom) {
        let mut rung = self.rung.lock();
        if !rung.alarms.contains(&(device, what)) {
            rung.alarms.push((device, what));
        }
        rung.rings = true;
        drop(rung);
        self.ringing.notify_all();
    }

    /// Waits until the bell rings, or for this time at most; returns whether it rang. A ring before
    /// this call counts.
    pub fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut rung = self.rung.lock();
        match at_most {
            Some(time) => {
                let until = Instant::now() + time;
                while !rung.rings && !self.ringing.wait_until(&mut rung, until).timed_out() {}
            }
            None => {
                while !rung.rings {
                    self.ringing.wait(&mut rung);
                }
            }
        }
        std::mem::take(&mut rung.rings)
    }

    /// The alarms since the last call, each device and symptom once.
    pub fn take_alarms(&self) -> Vec<(Guid, Symptom)> {
        std::mem::take(&mut self.rung.lock().alarms)
    }
}

impl Node {
    /// Counts an error of a leaf; returns whether it reached the limit. The caller compares with
    /// the sisters ([`Tree::complain`]).
    fn suffers(&self, what: Symptom, place: Option<(u64, u64)>) -> bool {
        self.tally.record(what, Instant::now(), place)
    }
}

impl Tree {
    /// The bell of the pool's devices. All trees of a pool share it.
    pub fn bell(&self) -> &Arc<AlarmQueue> {
        &self.bell
    }

    /// Sets how many errors of a symptom are too many for a leaf, from now on.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`](crate::VdevError::NoSuchGuid): the pool has no vdev of this
    ///   guid.
    pub fn set_limit(&self, leaf: Guid, what: Symptom, limit: Limit) -> crate::Result<()> {
        self.guid(leaf)?.tally.set_limit(what, limit);
        Ok(())
    }

    /// Counts an error of a leaf, and raises an alarm if it reached the limit.
    pub(crate) fn complain(&self, leaf: NodeId, what: Symptom, place: Option<(u64, u64)>) {
        let node = self.node(leaf);
        if !node.suffers(what, place) {
            return;
        }
        let now = Instant::now();
        let sisters = node.parent.map(|parent| &self.node(parent).children[..]).unwrap_or_default();
        let shared =
            sisters.iter().filter(|id| **id != leaf).any(|id| self.node(*id).tally.is_active(what, now));
        match shared {
            true => node.tally.relent(what),
            false => self.bell.alarm(node.guid, what),
        }
    }
}

#[cfg(test)]
mod tests;
