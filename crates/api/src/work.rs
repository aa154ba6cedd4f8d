//! What is under way, and what was slow: the data of `poolhouse ops` and `poolhouse slower`.
//!
//! Names of processes and files are hostile text: another user chose them.

use serde::{Deserialize, Serialize};

/// The most operations of a reply.
pub const SLOW_MAX: usize = 10_000;
/// The most transaction groups of a pool in a reply.
pub const TXGS_MAX: usize = 1000;

/// What an operation is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// The front end: `fuse`, `nbd` or `block`; `control` for a request of a command. Empty for a
    /// task of the engine.
    pub frontend: String,
    /// The operation, request or task.
    pub op: String,
    /// The dataset, if it is known.
    pub dataset: String,
    /// The object there. Of an operation on a name, that is the directory.
    pub object: Option<u64>,
    /// The object's present path in the dataset, if it was found in time.
    pub path: Option<String>,
    /// The transaction group of a sync.
    pub txg: Option<u64>,
    /// The process or thread that sent it, as the daemon sees it. 0: unknown.
    pub pid: u32,
    /// The user of that process.
    pub uid: u32,
    /// The name of that process. Empty: unknown.
    pub process: String,
    /// The address of a client that has no process here.
    pub address: Option<String>,
}

/// A thread that waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Waited {
    /// What for, by the kinds of waits: `lock`, `txg`, `flush` and so on.
    pub wait: String,
    /// What exactly: a device, a lock, a reason. Empty: unknown.
    pub what: String,
    /// For how long, in nanoseconds.
    pub ns: u64,
}

/// An operation that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnderWay {
    /// What it is about.
    pub subject: Subject,
    /// How long ago it began, in nanoseconds.
    pub age_ns: u64,
    /// What it waits for. `None`: it computes.
    pub wait: Option<Waited>,
    /// The name of its thread.
    pub thread: String,
    /// The number of its thread in the system.
    pub tid: u32,
    /// How many further threads work for it.
    pub helpers: u64,
}

/// What is under way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AllUnderWay {
    /// The process that does it ([`crate::process_id`]).
    pub process: u64,
    /// The operations, the oldest first, [`SLOW_MAX`] at most.
    pub ops: Vec<UnderWay>,
}

/// A request for slow operations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowQuery {
    /// Those that took at least so many nanoseconds.
    pub least_ns: u64,
    /// The slowest of each minute that ended since then, in nanoseconds since 1970. `None`: all
    /// from now on, for which the request must be repeated within a few seconds.
    pub since_ns: Option<u64>,
    /// [`SlowOps::next`] of the reply before. Empty for the first.
    pub next: Vec<(u64, u64)>,
    /// Only these operations, by their names. Empty: all.
    pub ops: Vec<String>,
    /// Only this dataset, its snapshots, and those below it.
    pub dataset: Option<String>,
}

/// Slow operations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowOps {
    /// The process that did them ([`crate::process_id`]).
    pub process: u64,
    /// The operations, the first that ended first. Of more than [`SLOW_MAX`], the slowest.
    pub ops: Vec<SlowOp>,
    /// For each pool, where the next request continues.
    pub next: Vec<(u64, u64)>,
    /// How many operations found no room, here or in the daemon since the request before.
    pub lost: u64,
}

/// An operation that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowOp {
    /// What it is about.
    pub subject: Subject,
    /// When it ended, in nanoseconds since 1970.
    pub at_ns: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// Bytes of data that it read or wrote.
    pub bytes: u64,
    /// The name of the errno with which it failed.
    pub error: Option<String>,
    /// Nanoseconds of its waits by kind, those that there were. The rest of its time was computing,
    /// or waiting for a processor.
    pub waits: Vec<(String, u64)>,
    /// Its longest wait.
    pub longest: Option<Waited>,
}

/// A transaction group of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TxgRecord {
    /// The pool.
    pub pool: String,
    /// Its number.
    pub txg: u64,
    /// Its stage: `open`, `quiescing`, `waiting`, `syncing`, `committed`.
    pub stage: String,
    /// How long ago it opened, in nanoseconds.
    pub age_ns: u64,
    /// Why it closed. Empty: it is open.
    pub closed: String,
    /// The operation or request that waits for it, if that is why.
    pub requested_by: String,
    /// Bytes that were dirtied in it, once it is committed.
    pub dirty: u64,
    /// Bytes that devices read and wrote during its sync, for any purpose.
    pub read: u64,
    /// The same of writes.
    pub written: u64,
    /// Nanoseconds of the stages `open`, `quiescing`, `waiting`, `syncing`, up to now for the last.
    pub took_ns: [u64; 4],
    /// Nanoseconds of the waits of its sync by kind, those that there were, once it is committed.
    pub waits: Vec<(String, u64)>,
    /// The longest wait of its sync.
    pub longest: Option<Waited>,
}

/// Sums over all transaction groups of a pool since its import. They only grow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TxgTotals {
    /// The pool.
    pub pool: String,
    /// Nanoseconds in each stage that ended, by name.
    pub took_ns: Vec<(String, u64)>,
    /// How many closed, by reason.
    pub closed: Vec<(String, u64)>,
    /// Nanoseconds that threads waited because so much was dirty, all threads together.
    pub throttled_ns: u64,
    /// How long the present sync has been under way, in nanoseconds. 0: there is none.
    pub syncing_ns: u64,
    /// Bytes that are dirty now.
    pub dirty: u64,
    /// The most bytes that may be dirty.
    pub dirty_max: u64,
}

/// The newest transaction groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Txgs {
    /// The process that writes them ([`crate::process_id`]).
    pub process: u64,
    /// Those of each pool, the oldest first.
    pub txgs: Vec<TxgRecord>,
    /// The sums of each pool.
    pub totals: Vec<TxgTotals>,
}
