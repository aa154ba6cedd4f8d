//! When a device has had more errors than it should, and who is told.
//!
//! # Theory
//! A single error says little of a device, and many within a short time a lot. So each leaf counts its errors of each kind within a window of time, and when
//! there are as many as its [`Limit`] allows, that is an alarm: raised once, until the errors are cleared. The same place counts once: one bad sector that is
//! read again and again is one bad sector. Where sisters have errors of the same kind at the same time, what they have in common is to blame rather than one
//! of them (a cable, a controller, memory), and there is no alarm.
//!
//! What follows from an alarm is not decided here. It hangs at the tree's [`Bell`], at which somebody waits who may change the pool; the bell also
//! rings when a device comes into another state.
//!
//! # Locks
//! Each leaf's count has a lock of its own, taken when something failed; the bell's is taken last, and never held while anybody works.
//!
//! # See
//! OpenZFS `cmd/zed/agents/fmd_serd.c`, `zfs_diagnosis.c`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ondisk::Guid;
use parking_lot::{Condvar, Mutex};

use crate::tree::{Node, NodeId, Tree};

/// What a device has too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symptom {
    /// Bytes that were not those that were written (`ereport.fs.zfs.checksum`).
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

/// How many of a symptom are too many: so many within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// So many; none are ever too many if this is 0.
    pub count: u64,
    /// Within this time.
    pub within: Duration,
}

impl Limit {
    /// Errors that OpenZFS's daemon takes for too many where nobody says otherwise (`DEFAULT_CHECKSUM_N`, `DEFAULT_IO_N`, and `_T`).
    pub const DEFAULT: Limit = Limit { count: 10, within: Duration::from_secs(600) };
    /// No number is too many.
    pub const NEVER: Limit = Limit { count: 0, within: Duration::ZERO };
}

/// Most errors that are remembered of a leaf: a limit beyond is never reached.
const MOST: usize = 1 << 16;

/// Errors of one kind.
#[derive(Debug)]
struct Series {
    limit: Limit,
    seen: VecDeque<(Instant, Option<(u64, u64)>)>,
    /// It was too much, and nobody has cleared it.
    fired: bool,
}

impl Series {
    /// Counts one; says whether that was one too many.
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

    /// Forgets what is too long ago.
    fn forget(&mut self, now: Instant) {
        let within = self.limit.within;
        while self.seen.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > within) {
            self.seen.pop_front();
        }
    }
}

/// What a leaf counts of its errors.
#[derive(Debug)]
pub(crate) struct Tally(Mutex<[Series; 3]>);

impl Default for Tally {
    fn default() -> Self {
        let limits = [Limit::DEFAULT, Limit::DEFAULT, Limit::NEVER];
        Self(Mutex::new(limits.map(|limit| Series { limit, seen: VecDeque::new(), fired: false })))
    }
}

impl Tally {
    /// Counts one; says whether that was one too many.
    pub(crate) fn record(&self, what: Symptom, now: Instant, place: Option<(u64, u64)>) -> bool {
        self.0.lock()[what as usize].record(now, place)
    }

    /// Whether there was any, within the time that counts.
    fn is_active(&self, what: Symptom, now: Instant) -> bool {
        let series = &mut self.0.lock()[what as usize];
        series.forget(now);
        !series.seen.is_empty()
    }

    /// Begins anew.
    pub(crate) fn clear(&self) {
        for series in &mut *self.0.lock() {
            series.seen.clear();
            series.fired = false;
        }
    }

    /// There was no alarm after all: the next error is looked at anew. What was counted stays, for the sisters' sake.
    fn relent(&self, what: Symptom) {
        self.0.lock()[what as usize].fired = false;
    }

    fn set_limit(&self, what: Symptom, limit: Limit) {
        self.0.lock()[what as usize].limit = limit;
    }
}

/// Where whoever sees to a pool's devices waits.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<Rung>,
    ringing: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    rings: bool,
    alarms: Vec<(Guid, Symptom)>,
}

impl Bell {
    /// Calls whoever waits.
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

    /// Waits until it rings, or for this time; what it rang before this call counts. Says whether it rang.
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
    /// Counts an error of a leaf, and says whether that was one too many. Whoever calls looks at the sisters ([`Tree::complain`]).
    fn suffers(&self, what: Symptom, place: Option<(u64, u64)>) -> bool {
        self.tally.record(what, Instant::now(), place)
    }
}

impl Tree {
    /// Where whoever sees to the devices waits. All trees of a pool have the same.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// How many of a symptom are too many for a leaf, from now on.
    ///
    /// # Errors
    /// [`VdevError::NoSuchGuid`](crate::VdevError::NoSuchGuid).
    pub fn set_limit(&self, leaf: Guid, what: Symptom, limit: Limit) -> crate::Result<()> {
        self.guid(leaf)?.tally.set_limit(what, limit);
        Ok(())
    }

    /// Counts an error of a leaf, and raises an alarm if that was one too many.
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
