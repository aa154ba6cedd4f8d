//! Operations of users: how many there were, how long they took, and how they ended.
//!
//! # Theory
//! A front end counts an operation when it has ended, for its dataset: by front end and kind, with
//! the code of its failure. That is a few relaxed additions. Nothing is kept for an operation
//! itself. A reader sums them up: over classes of operations, and over the datasets of a pool.
//!
//! A pool can have far more datasets than are in use. So a dataset gets counters at its first
//! operation, and a kind of operations at its first: 1.6 KB each. At most [`KEPT`] datasets have
//! counters. For another one, those that nothing uses and that were used least recently are added
//! to a sum. If all are in use, further datasets count together until there is room. So the sum of
//! all is always right.
//!
//! # Locks
//! A lock is taken at the first operation of a front end on a dataset, and for a reading.

use crate::clients::{self, Connection};
use crate::event::{self, OpDone};
use crate::op::Measured;
use crate::slow::Slowest;
use crate::work;
use crate::{Codes, CodesSnapshot, Counter, Latency, LatencySnapshot};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};

pub use crate::op::{Class, Ended, Frontend, Op};

/// The most datasets of a pool that have counters of their own.
pub const KEPT: usize = 4096;
/// How many make room at a time.
const ROOM: usize = KEPT / 8;
/// A dataset without counters of its own tries to get some once in so many operations.
const RETRY: u64 = 1024;
const MINUTE_NS: u64 = 60_000_000_000;

/// The number of the next counters.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number that the next dataset's or pool's counters get. Each gets a greater one than all
/// before.
pub fn next_number() -> u64 {
    NEXT.load(Relaxed)
}

/// All counters of datasets, by their numbers.
static ALL: Mutex<BTreeMap<u64, Weak<DatasetOps>>> = Mutex::new(BTreeMap::new());

/// The name of the dataset whose counters have this number, while they exist.
pub(crate) fn name_of(number: u64) -> Option<String> {
    let found = ALL.lock().get(&number).and_then(Weak::upgrade);
    found.map(|ops| ops.name())
}

/// Operations of one kind on a dataset, through one front end.
#[derive(Debug, Default)]
struct OpCounters {
    times: Latency,
    bytes: Counter,
    codes: Codes,
}

/// Operations of one kind, through one front end, until now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpSnapshot {
    /// The front end.
    pub frontend: Frontend,
    /// The kind.
    pub op: Op,
    /// How long they took, failed ones included.
    pub times: LatencySnapshot,
    /// Bytes of data that they read or wrote.
    pub bytes: u64,
    /// How often they failed, by errno.
    pub codes: CodesSnapshot,
}

/// Adds operations to others, by front end and kind.
pub fn merge(into: &mut Vec<OpSnapshot>, other: &[OpSnapshot]) {
    for theirs in other {
        match into.iter_mut().find(|mine| (mine.frontend, mine.op) == (theirs.frontend, theirs.op)) {
            Some(mine) => {
                mine.times.merge(&theirs.times);
                mine.bytes = mine.bytes.wrapping_add(theirs.bytes);
                mine.codes.merge(&theirs.codes);
            }
            None => into.push(theirs.clone()),
        }
    }
}

/// The counters of a dataset.
#[derive(Debug)]
pub struct DatasetOps {
    number: u64,
    name: Mutex<String>,
    /// When the last operation ended, by [`Measured::at`].
    last: AtomicU64,
    /// How many [`DatasetUse`]s count here. Changed upwards only under the lock of the table.
    uses: AtomicUsize,
    ops: [[OnceLock<Box<OpCounters>>; Op::ALL.len()]; Frontend::ALL.len()],
}

impl DatasetOps {
    fn new(name: String) -> Arc<Self> {
        let number = NEXT.fetch_add(1, Relaxed);
        let ops = [const { [const { OnceLock::new() }; Op::ALL.len()] }; Frontend::ALL.len()];
        let (last, uses) = (AtomicU64::new(0), AtomicUsize::new(0));
        let new = Arc::new(Self { number, name: Mutex::new(name), last, uses, ops });
        ALL.lock().insert(number, Arc::downgrade(&new));
        new
    }

    /// The number of these counters. A dataset that was not used for long can get new ones.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The dataset's name, as of its last use.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// A number that grows with the time of the last operation, the same for all pools.
    pub fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// The operations until now, those that there were.
    pub fn snapshot(&self) -> Vec<OpSnapshot> {
        let all = Frontend::ALL.iter().flat_map(|frontend| Op::ALL.iter().map(move |op| (*frontend, *op)));
        let of = |(frontend, op): (Frontend, Op)| {
            let counters = self.ops[frontend as usize][op as usize].get()?;
            // An operation counts here last. So there are never more failures than operations.
            let codes = counters.codes.snapshot();
            let (times, bytes) = (counters.times.snapshot(), counters.bytes.get());
            Some(OpSnapshot { frontend, op, times, bytes, codes })
        };
        all.filter_map(of).collect()
    }

    fn count(&self, frontend: Frontend, ended: &Measured) {
        let counters = self.ops[frontend as usize][ended.op as usize].get_or_init(Box::default);
        counters.times.record(ended.ns);
        if ended.bytes > 0 {
            counters.bytes.add(ended.bytes);
        }
        if let Some(code) = ended.failed {
            counters.codes.count(code);
        }
        // Of several threads, any may be the last.
        self.last.store(ended.at, Relaxed);
    }
}

impl Drop for DatasetOps {
    fn drop(&mut self) {
        ALL.lock().remove(&self.number);
    }
}

/// What identifies a dataset of a pool for good: its object number, and the transaction group that
/// created it.
pub type DatasetKey = (u64, u64);

/// The datasets of a pool that have counters.
#[derive(Debug)]
struct Datasets {
    kept: HashMap<DatasetKey, Arc<DatasetOps>>,
    /// The operations of those that made room.
    gone: Vec<OpSnapshot>,
    /// Those of all that found no room.
    crowd: Arc<DatasetOps>,
}

impl Datasets {
    /// Makes room for another. Returns false if all are in use.
    fn make_room(&mut self) -> bool {
        // What a use counted before it ended is visible after this load.
        let kept = self.kept.iter().filter(|(_, ops)| ops.uses.load(Acquire) == 0);
        let mut unused: Vec<(u64, DatasetKey)> = kept.map(|(key, ops)| (ops.last(), *key)).collect();
        unused.sort_unstable();
        for (_, key) in unused.iter().take(ROOM) {
            if let Some(ops) = self.kept.remove(key) {
                merge(&mut self.gone, &ops.snapshot());
            }
        }
        !unused.is_empty()
    }
}

/// The counters of a pool.
#[derive(Debug)]
pub struct OpTable {
    number: u64,
    datasets: Mutex<Datasets>,
    slowest: Slowest,
}

impl Default for OpTable {
    fn default() -> Self {
        let crowd = DatasetOps::new(String::new());
        let datasets = Datasets { kept: HashMap::new(), gone: Vec::new(), crowd };
        let slowest = Slowest::default();
        Self { number: NEXT.fetch_add(1, Relaxed), datasets: Mutex::new(datasets), slowest }
    }
}

impl OpTable {
    /// The number of the pool's counters, another one for each import.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The slowest operations.
    pub fn slowest(&self) -> &Slowest {
        &self.slowest
    }

    /// Prepares to count the operations on a dataset. It costs nothing until the first.
    pub fn dataset(self: &Arc<Self>, key: DatasetKey) -> DatasetUse {
        DatasetUse { table: Arc::clone(self), key, ops: OnceLock::new(), uncounted: AtomicU64::new(0) }
    }

    /// The operations by front end and kind, of all datasets.
    pub fn ops(&self) -> Vec<OpSnapshot> {
        let (datasets, mut sum) = self.datasets();
        datasets.iter().for_each(|dataset| merge(&mut sum, &dataset.snapshot()));
        sum
    }

    /// The datasets that have counters, and the operations of all others.
    pub fn datasets(&self) -> (Vec<Arc<DatasetOps>>, Vec<OpSnapshot>) {
        let datasets = self.datasets.lock();
        let (all, mut others) = (datasets.kept.values().cloned().collect(), datasets.gone.clone());
        merge(&mut others, &datasets.crowd.snapshot());
        (all, others)
    }

    /// The counters of a dataset, if it has any.
    pub fn of(&self, key: DatasetKey) -> Option<Arc<DatasetOps>> {
        self.datasets.lock().kept.get(&key).cloned()
    }

    /// The counters of a dataset that is in use from now on. `None` if there is no room.
    fn begin(&self, key: DatasetKey) -> Option<Arc<DatasetOps>> {
        let mut datasets = self.datasets.lock();
        if datasets.kept.len() >= KEPT && !datasets.kept.contains_key(&key) && !datasets.make_room() {
            return None;
        }
        let ops = datasets.kept.entry(key).or_insert_with(|| DatasetOps::new(String::new()));
        ops.uses.fetch_add(1, Relaxed);
        Some(Arc::clone(ops))
    }

    /// The counters of all datasets that found no room.
    fn crowd(&self) -> Arc<DatasetOps> {
        Arc::clone(&self.datasets.lock().crowd)
    }
}

/// The use of a dataset by a front end. Its counters stay as long as it exists.
#[derive(Debug)]
pub struct DatasetUse {
    table: Arc<OpTable>,
    key: DatasetKey,
    /// Its counters, from the first operation that finds room on.
    ops: OnceLock<Arc<DatasetOps>>,
    /// Operations since one found no room. 0: there was always room.
    uncounted: AtomicU64,
}

impl DatasetUse {
    /// Counts an operation, also for the process and user of this thread's job. `name` returns the
    /// present name of the dataset.
    pub fn count(&self, frontend: Frontend, ended: &Ended, name: impl Fn() -> String) {
        let measured = ended.measured();
        clients::count_measured(&measured);
        self.count_here(frontend, ended, &measured, name);
    }

    /// Counts an operation of a client with a connection. `name` returns the present name of the
    /// dataset.
    pub fn count_for(
        &self,
        client: &Connection,
        frontend: Frontend,
        ended: &Ended,
        name: impl Fn() -> String,
    ) {
        let measured = ended.measured();
        client.count_measured(&measured);
        self.count_here(frontend, ended, &measured, name);
    }

    fn count_here(&self, frontend: Frontend, ended: &Ended, measured: &Measured, name: impl Fn() -> String) {
        let crowd;
        let ops = match self.ops.get().or_else(|| self.begin(&name)) {
            Some(ops) => ops,
            None => {
                crowd = self.table.crowd();
                &crowd
            }
        };
        ops.count(frontend, measured);
        event::op_done(|| done(frontend, measured, ops.number));
        self.table.slowest.see(frontend, ended, measured.ns, measured.at / MINUTE_NS, name);
    }

    /// Gets counters for the dataset, if there is room.
    fn begin(&self, name: &impl Fn() -> String) -> Option<&Arc<DatasetOps>> {
        let is_full = self.uncounted.load(Relaxed) > 0;
        if is_full && !self.uncounted.fetch_add(1, Relaxed).is_multiple_of(RETRY) {
            return None;
        }
        let Some(found) = self.table.begin(self.key) else {
            self.uncounted.fetch_max(1, Relaxed);
            return None;
        };
        if let Err(found) = self.ops.set(found) {
            // Another thread was here first, and its use is the one that counts.
            found.uses.fetch_sub(1, Release);
        }
        self.rename_to(name);
        self.ops.get()
    }

    /// Notes that the dataset has another name now, which `name` returns.
    pub fn rename_to(&self, name: impl Fn() -> String) {
        if let Some(ops) = self.ops.get() {
            // The name is read under the lock. So of two changes, the later one stays.
            let mut known = ops.name.lock();
            *known = name();
        }
    }
}

/// The event of an operation that has ended.
fn done(frontend: Frontend, ended: &Measured, dataset: u64) -> OpDone {
    let (pid, uid) = work::job().map_or((0, 0), |job| (job.pid.into(), job.uid.into()));
    let errno = ended.failed.map_or(0, |code| code.unsigned_abs().into());
    let (op, ns) = (ended.op as u64, ended.ns);
    OpDone { frontend: frontend as u64, op, errno, bytes: ended.bytes, ns, dataset, pid, uid }
}

impl Drop for DatasetUse {
    fn drop(&mut self) {
        if let Some(ops) = self.ops.get() {
            ops.uses.fetch_sub(1, Release);
        }
    }
}

#[cfg(test)]
mod tests;
