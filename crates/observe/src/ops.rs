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

use crate::{Codes, CodesSnapshot, Counter, Latency, LatencySnapshot};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The most datasets of a pool that have counters of their own.
pub const KEPT: usize = 4096;
/// How many make room at a time.
const ROOM: usize = KEPT / 8;
/// A dataset without counters of its own tries to get some once in so many operations.
const RETRY: u64 = 1024;

/// The number of the next counters.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// When [`DatasetOps::last`] was 0.
static BEGAN: OnceLock<Instant> = OnceLock::new();

/// The number that the next dataset's or pool's counters get. Each gets a greater one than all
/// before.
pub fn next_number() -> u64 {
    NEXT.load(Relaxed)
}

/// Defines an enum whose values have names.
macro_rules! named {
    ($(#[$about:meta])* $enum:ident { $($(#[$meta:meta])* $value:ident $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $enum { $($(#[$meta])* $value,)* }

        impl $enum {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$value,)*];

            /// Its name in lower case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }
        }
    };
}

named! {
    /// What users reach a dataset through.
    Frontend {
        /// A mounted file system.
        Fuse "fuse",
        /// An exported volume.
        Nbd "nbd",
        /// A volume that is attached as a block device.
        Block "block",
    }
}

named! {
    /// What operations have in common, for the counters of a dataset.
    Class {
        /// They read data.
        Read "read",
        /// They write data.
        Write "write",
        /// They wait until changes are durable.
        Sync "sync",
        /// They find a name in a directory.
        Lookup "lookup",
        /// They list, add, remove or rename names.
        Names "names",
        /// They read or change attributes.
        Attributes "attributes",
        /// They free space, or anything else.
        Other "other",
    }
}

named! {
    /// The operations, by the names of system calls, or of NBD's commands.
    Op {
        /// Reads data.
        Read "read",
        /// Writes data.
        Write "write",
        /// Makes a file or directory durable.
        Fsync "fsync",
        /// Makes a file system durable.
        Syncfs "syncfs",
        /// Makes a volume durable.
        Flush "flush",
        /// Finds a name.
        Lookup "lookup",
        /// Lists names.
        Readdir "readdir",
        /// Creates a file that is not a directory.
        Mknod "mknod",
        /// Creates a file without a name.
        Tmpfile "tmpfile",
        /// Creates a directory.
        Mkdir "mkdir",
        /// Creates a symbolic link.
        Symlink "symlink",
        /// Adds a name to a file.
        Link "link",
        /// Removes a name.
        Unlink "unlink",
        /// Removes a directory.
        Rmdir "rmdir",
        /// Renames.
        Rename "rename",
        /// Reads the target of a symbolic link.
        Readlink "readlink",
        /// Reads attributes.
        Getattr "getattr",
        /// Changes attributes.
        Setattr "setattr",
        /// Reads an extended attribute.
        Getxattr "getxattr",
        /// Lists extended attributes.
        Listxattr "listxattr",
        /// Changes an extended attribute.
        Setxattr "setxattr",
        /// Removes an extended attribute.
        Removexattr "removexattr",
        /// Reads the sizes of a file system.
        Statfs "statfs",
        /// Reads or changes flags of a file.
        Ioctl "ioctl",
        /// Opens a file or directory.
        Open "open",
        /// Finds data or a hole, or tells where both are.
        Seek "lseek",
        /// Allocates, frees or zeroes a range of a file.
        Fallocate "fallocate",
        /// Shares a range with another file.
        CopyFileRange "copy_file_range",
        /// Frees a range of a volume.
        Trim "trim",
        /// Zeroes a range of a volume.
        WriteZeroes "write_zeroes",
        /// Tells where a volume has data and where holes.
        BlockStatus "block_status",
        /// Reads a range of a volume into the cache.
        Cache "cache",
        /// Anything else.
        Unknown "unknown",
    }
}

impl Op {
    /// The class that it belongs to.
    pub fn class(self) -> Class {
        match self {
            Self::Read => Class::Read,
            Self::Write => Class::Write,
            Self::Fsync | Self::Syncfs | Self::Flush => Class::Sync,
            Self::Lookup => Class::Lookup,
            Self::Readdir
            | Self::Mknod
            | Self::Tmpfile
            | Self::Mkdir
            | Self::Symlink
            | Self::Link
            | Self::Unlink
            | Self::Rmdir
            | Self::Rename => Class::Names,
            Self::Readlink
            | Self::Getattr
            | Self::Setattr
            | Self::Getxattr
            | Self::Listxattr
            | Self::Setxattr
            | Self::Removexattr
            | Self::Statfs
            | Self::Ioctl => Class::Attributes,
            Self::Open
            | Self::Seek
            | Self::Fallocate
            | Self::CopyFileRange
            | Self::Trim
            | Self::WriteZeroes
            | Self::BlockStatus
            | Self::Cache
            | Self::Unknown => Class::Other,
        }
    }
}

/// An operation that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What it was.
    pub op: Op,
    /// When it reached the front end.
    pub began: Instant,
    /// How long it took from then on.
    pub took: Duration,
    /// Bytes of data that it read or wrote. Those of a failed one don't count.
    pub bytes: u64,
    /// The errno with which it failed.
    pub failed: Option<i32>,
}

impl Ended {
    /// An operation that ends now.
    pub fn now(op: Op, began: Instant, bytes: u64, failed: Option<i32>) -> Self {
        let bytes = if failed.is_some() { 0 } else { bytes };
        Self { op, began, took: began.elapsed(), bytes, failed }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
    /// When the last operation ended, in nanoseconds after [`BEGAN`].
    last: AtomicU64,
    /// How many [`DatasetUse`]s count here. Changed upwards only under the lock of the table.
    uses: AtomicUsize,
    ops: [[OnceLock<Box<OpCounters>>; Op::ALL.len()]; Frontend::ALL.len()],
}

impl DatasetOps {
    fn new(name: String) -> Self {
        let number = NEXT.fetch_add(1, Relaxed);
        let ops = [const { [const { OnceLock::new() }; Op::ALL.len()] }; Frontend::ALL.len()];
        Self { number, name: Mutex::new(name), last: AtomicU64::new(0), uses: AtomicUsize::new(0), ops }
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

    fn count(&self, frontend: Frontend, ended: &Ended) {
        let counters = self.ops[frontend as usize][ended.op as usize].get_or_init(Box::default);
        counters.times.record(nanos(ended.took));
        if ended.bytes > 0 {
            counters.bytes.add(ended.bytes);
        }
        if let Some(code) = ended.failed {
            counters.codes.count(code);
        }
        let began = BEGAN.get_or_init(Instant::now);
        // Of several threads, any may be the last.
        self.last.store(nanos((ended.began + ended.took).saturating_duration_since(*began)), Relaxed);
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
}

impl Default for OpTable {
    fn default() -> Self {
        let crowd = Arc::new(DatasetOps::new(String::new()));
        let datasets = Datasets { kept: HashMap::new(), gone: Vec::new(), crowd };
        Self { number: NEXT.fetch_add(1, Relaxed), datasets: Mutex::new(datasets) }
    }
}

impl OpTable {
    /// The number of the pool's counters, another one for each import.
    pub fn number(&self) -> u64 {
        self.number
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
        let ops = datasets.kept.entry(key).or_insert_with(|| Arc::new(DatasetOps::new(String::new())));
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
    /// Counts an operation. `name` returns the present name of the dataset.
    pub fn count(&self, frontend: Frontend, ended: &Ended, name: impl Fn() -> String) {
        match self.ops.get().or_else(|| self.begin(&name)) {
            Some(ops) => ops.count(frontend, ended),
            None => self.table.crowd().count(frontend, ended),
        }
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

impl Drop for DatasetUse {
    fn drop(&mut self) {
        if let Some(ops) = self.ops.get() {
            ops.uses.fetch_sub(1, Release);
        }
    }
}

#[cfg(test)]
mod tests;
