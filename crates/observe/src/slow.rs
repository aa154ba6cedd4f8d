//! The slowest operations of a pool.
//!
//! # Theory
//! The [`EACH`] slowest operations of each minute are kept for [`KEPT_MINUTES`]. So a question
//! about them can come later. Whether an operation belongs to them takes two comparisons.
//!
//! A reader can *watch*: from then on, all operations that take at least a certain time are kept
//! too, the last [`RECENT`]. A reader repeats that in time, or the watch ends. Several readers
//! share the list, and each of the operations there has a number: so a reader knows what it missed.
//!
//! # Locks
//! The lock of a pool's list is taken for an operation that is kept, and for a reading.
//!
//! # See
//! Ceph's `dump_historic_slow_ops`.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use crate::op::{Ended, Frontend, Op};
use crate::work::{self, Spent};

/// Operations that are kept of each minute.
pub const EACH: usize = 16;
/// Minutes of which operations are kept: a day.
pub const KEPT_MINUTES: u64 = 24 * 60;
/// Operations that are kept for watches.
pub const RECENT: usize = 4096;
/// A watch ends after so much time without a reading.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Of an operation that took so many nanoseconds, the name of its process is looked up.
const NAMED_NS: u64 = 1_000_000;

/// An operation that took long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowOp {
    /// Each of a pool has a greater one than all before.
    pub number: u64,
    /// When it ended.
    pub at: SystemTime,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// The front end.
    pub frontend: Frontend,
    /// The kind.
    pub op: Op,
    /// The dataset's name at that time.
    pub dataset: String,
    /// The [`work::Place`] of its node; 0: unknown.
    pub place: u64,
    /// What it was about, by the place's number.
    pub node: u64,
    /// The process that sent it. 0: unknown.
    pub pid: u32,
    /// The user of that process.
    pub uid: u32,
    /// The name of that process, if it was looked up.
    pub process: String,
    /// The number of its client: see [`work::Job::client`].
    pub client: u64,
    /// Bytes of data that it read or wrote.
    pub bytes: u64,
    /// The errno with which it failed.
    pub failed: Option<i32>,
    /// Where the time went.
    pub spent: Spent,
}

/// The slowest operations of a minute.
#[derive(Debug)]
struct Minute {
    number: u64,
    ops: Vec<SlowOp>,
}

#[derive(Debug, Default)]
struct Lists {
    minutes: VecDeque<Minute>,
    next: u64,
    /// When the watches end, by their least times.
    watches: BTreeMap<u64, Instant>,
    /// What was kept for watches: the last of all, up to `recent_next`.
    recent: VecDeque<SlowOp>,
    recent_next: u64,
}

impl Lists {
    /// Removes watches that have ended. Returns the least time of those that are left.
    fn expire(&mut self, now: Instant) -> u64 {
        let had = self.watches.len();
        self.watches.retain(|_, until| *until >= now);
        if self.watches.is_empty() && had > 0 {
            self.recent = VecDeque::new();
            // A reader that comes back learns that it missed something.
            self.recent_next += 1;
        }
        self.watches.first_key_value().map_or(u64::MAX, |(least, _)| *least)
    }
}

/// The slowest operations of a pool.
#[derive(Debug)]
pub struct Slowest {
    /// Operations of [`Self::minute`] that are not slower are not kept.
    least_ns: AtomicU64,
    minute: AtomicU64,
    /// From this time on, operations are kept for a watch.
    watched_ns: AtomicU64,
    lists: Mutex<Lists>,
}

impl Default for Slowest {
    fn default() -> Self {
        let lists = Mutex::default();
        let (least_ns, minute) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { least_ns, minute, watched_ns: AtomicU64::new(u64::MAX), lists }
    }
}

/// The answer to a watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// The operations, the oldest first.
    pub ops: Vec<SlowOp>,
    /// Where the next reading continues.
    pub next: u64,
    /// How many found no room since the reading before, those of other watches included.
    pub lost: u64,
}

impl Slowest {
    /// Keeps an operation of this thread if it is slow. `minute` is that of its end; minutes begin
    /// anywhere, but their numbers grow.
    pub(crate) fn see(
        &self,
        frontend: Frontend,
        ended: &Ended,
        took_ns: u64,
        minute: u64,
        name: impl Fn() -> String,
    ) {
        let is_slow = took_ns > self.least_ns.load(Relaxed) || minute > self.minute.load(Relaxed);
        if is_slow || took_ns >= self.watched_ns.load(Relaxed) {
            self.keep(describe(frontend, ended, took_ns, name()), minute);
        }
    }

    #[cold]
    fn keep(&self, mut op: SlowOp, minute: u64) {
        let lists = &mut *self.lists.lock();
        op.number = lists.next;
        lists.next += 1;
        if op.took_ns >= self.watched_ns.load(Relaxed) {
            let least = lists.expire(Instant::now());
            self.watched_ns.store(least, Relaxed);
            if op.took_ns >= least {
                if lists.recent.len() >= RECENT {
                    lists.recent.pop_front();
                }
                lists.recent.push_back(op.clone());
                lists.recent_next += 1;
            }
        }
        self.keep_of_minute(lists, op, minute);
    }

    fn keep_of_minute(&self, lists: &mut Lists, op: SlowOp, minute: u64) {
        if lists.minutes.back().is_none_or(|last| last.number < minute) {
            lists.minutes.push_back(Minute { number: minute, ops: Vec::new() });
            let is_old = |first: &Minute| first.number.saturating_add(KEPT_MINUTES) <= minute;
            while lists.minutes.front().is_some_and(is_old) {
                lists.minutes.pop_front();
            }
            self.least_ns.store(0, Relaxed);
            self.minute.store(minute, Relaxed);
        }
        // An operation that ended in an earlier minute, and comes late, counts for the last.
        let Some(last) = lists.minutes.back_mut() else { return };
        if last.ops.len() < EACH {
            last.ops.push(op);
        } else if let Some(least) = last.ops.iter_mut().min_by_key(|kept| kept.took_ns)
            && least.took_ns < op.took_ns
        {
            *least = op;
        }
        if last.ops.len() == EACH {
            let least = last.ops.iter().map(|kept| kept.took_ns).min().unwrap_or(0);
            self.least_ns.store(least, Relaxed);
        }
    }

    /// The slowest operations of each minute that ended since `since` and took `least`, the oldest
    /// first.
    pub fn since(&self, since: SystemTime, least: Duration) -> Vec<SlowOp> {
        let least = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX);
        let lists = self.lists.lock();
        let all = lists.minutes.iter().flat_map(|minute| &minute.ops);
        let mut found: Vec<SlowOp> =
            all.filter(|op| op.took_ns >= least && op.at >= since).cloned().collect();
        drop(lists);
        found.sort_by_key(|op| (op.at, op.number));
        found
    }

    /// Keeps operations that take at least `least` from now on. Returns those that were kept since
    /// the reading with this [`Watched::next`]. `None`: the first reading.
    pub fn watch(&self, least: Duration, after: Option<u64>) -> Watched {
        let least = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX);
        let lists = &mut *self.lists.lock();
        let now = Instant::now();
        lists.expire(now);
        lists.watches.insert(least, now + PATIENCE);
        self.watched_ns.store(lists.expire(now), Relaxed);
        let next = lists.recent_next;
        let Some(after) = after else { return Watched { ops: Vec::new(), next, lost: 0 } };
        let first = next.saturating_sub(lists.recent.len() as u64);
        let seen = usize::try_from(after.saturating_sub(first)).unwrap_or(usize::MAX);
        let new = lists.recent.iter().skip(seen).filter(|op| op.took_ns >= least);
        Watched { ops: new.cloned().collect(), next, lost: first.saturating_sub(after) }
    }
}

fn describe(frontend: Frontend, ended: &Ended, took_ns: u64, dataset: String) -> SlowOp {
    let current = work::current();
    let (job, spent) = current.map_or((None, Spent::default()), |(job, spent)| (Some(job), spent));
    let (place, node) = job.map_or((0, 0), |job| (job.place, job.node));
    let (pid, uid, client) = job.map_or((0, 0, 0), |job| (job.pid, job.uid, job.client));
    let process = if took_ns >= NAMED_NS && pid != 0 { process_name(pid) } else { String::new() };
    let (op, bytes, failed) = (ended.op, ended.bytes, ended.failed);
    let at = SystemTime::now();
    SlowOp {
        number: 0,
        at,
        took_ns,
        frontend,
        op,
        dataset,
        place,
        node,
        pid,
        uid,
        process,
        client,
        bytes,
        failed,
        spent,
    }
}

/// The name of a process; empty if it has ended, and for the number 0.
pub fn process_name(pid: u32) -> String {
    if pid == 0 {
        return String::new();
    }
    // Any bytes but a null may be in a name.
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()
}

#[cfg(test)]
mod tests;
