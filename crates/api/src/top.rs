//! What the daemon does, in numbers that only grow: the data of `poolhouse top`.
//!
//! # Theory
//! A reply has numbers since the counters began. A reader that asks twice subtracts. So the daemon
//! keeps nothing for a reader, and any number of them can read at their own pace.
//!
//! Lists are bounded. What is not in one is in a sum beside it, so a reader knows all totals.
//!
//! Counters of a dataset, volume or client begin anew when it was gone in between. Then they have
//! another `number`. A number that is not below [`Top::next`] of an earlier reading began after
//! that.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The most rows of a reply.
pub const TOP_MAX: usize = 10_000;

/// A number that no other process has, also in another namespace of processes.
pub fn process_id() -> u64 {
    static ID: OnceLock<u64> = OnceLock::new();
    *ID.get_or_init(|| RandomState::new().hash_one(std::process::id()) | 1)
}

/// What a reader wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopView {
    /// Operations by datasets.
    #[default]
    Datasets,
    /// Operations by kind.
    Ops,
    /// Calls of the AFS server, by name.
    Calls,
    /// Clients of all kinds. Only for the daemon's owners.
    Clients,
    /// Volumes and their clients. Only for the daemon's owners.
    Vms,
    /// Clients of the AFS file server.
    AfsClients,
    /// Volumes of the AFS server.
    Volumes,
    /// How often volumes come into use, by partitions.
    Attach,
    /// Waits for locks of the daemon.
    Locks,
    /// Which client has promises for which volume. Only for the daemon's owners.
    Promises,
    /// Threads of the daemon. Only for its owners.
    Threads,
}

impl TopView {
    /// Whether it has only numbers of the AFS server.
    pub fn is_of_afs(self) -> bool {
        match self {
            Self::Calls | Self::AfsClients | Self::Volumes | Self::Attach | Self::Promises => true,
            Self::Datasets | Self::Ops | Self::Clients | Self::Vms | Self::Locks | Self::Threads => false,
        }
    }
}

/// A request for one view.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopQuery {
    /// The view.
    pub view: TopView,
    /// The most rows, [`TOP_MAX`] at most. 0: as many.
    pub limit: u64,
    /// Whether those come first that did something last, for a reader of intervals.
    pub last: bool,
    /// Promises of this client alone: its address, with or without its port.
    pub client: Option<String>,
    /// Promises of this volume alone.
    pub volume: Option<u32>,
}

/// The numbers of a view. Lists of other views are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Top {
    /// Nanoseconds since the daemon began.
    pub clock_ns: u64,
    /// The same when the counters of the view began.
    pub began_ns: u64,
    /// The same in seconds since 1970.
    pub began: u64,
    /// What counts: another number means that all counters began anew.
    pub run: u64,
    /// The process whose counters these are ([`process_id`]).
    pub process: u64,
    /// Whether the daemon has an AFS server.
    pub afs: bool,
    /// The number of the next dataset, volume or client that comes into use.
    pub next: u64,
    /// [`TopView::Datasets`] and [`TopView::Ops`].
    pub pools: Vec<TopPool>,
    /// [`TopView::Calls`].
    pub calls: Vec<TopCall>,
    /// [`TopView::Clients`] and [`TopView::Vms`].
    pub clients: Vec<TopClient>,
    /// What clients did that are not in the list, those of AFS apart.
    pub other_clients: Vec<TopClient>,
    /// What counts clients of AFS, as [`Self::run`]; 0: none of [`Self::clients`] are of AFS.
    pub afs_run: u64,
    /// [`Self::next`] of clients of AFS among [`Self::clients`].
    pub afs_next: u64,
    /// [`TopView::AfsClients`].
    pub afs_clients: Vec<TopAfsClient>,
    /// What clients did that are not in the list.
    pub other_afs_clients: TopAfsClient,
    /// [`TopView::Volumes`].
    pub volumes: Vec<TopVolume>,
    /// What clients did with volumes that are not in the list, by partitions.
    pub other_volumes: Vec<TopVolume>,
    /// [`TopView::Attach`].
    pub attach: Vec<TopAttach>,
    /// [`TopView::Locks`].
    pub locks: Vec<TopLock>,
    /// [`TopView::Promises`].
    pub promises: Vec<TopPromise>,
    /// How many promises are not in the list.
    pub other_promises: u64,
    /// [`TopView::Threads`].
    pub threads: Vec<TopThread>,
}

/// Operations that front ends do on datasets of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopPool {
    /// The number of its counters, another one for each import.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// [`TopView::Datasets`].
    pub datasets: Vec<TopDataset>,
    /// The operations on datasets that are not in the list.
    pub other_datasets: Vec<TopClass>,
    /// [`TopView::Ops`].
    pub ops: Vec<TopOp>,
}

/// A dataset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopDataset {
    /// The number of its counters.
    pub number: u64,
    /// Its name, as of its last use.
    pub name: String,
    /// The operations, those that there were.
    pub classes: Vec<TopClass>,
}

/// Operations of one class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopClass {
    /// `read`, `write`, `sync`, `lookup`, `names`, `attributes` or `other`.
    pub class: String,
    /// How long they took, failed ones included.
    pub times: TopTimes,
    /// Bytes of data that they read or wrote.
    pub bytes: u64,
    /// How many failed.
    pub errors: u64,
}

/// Operations of one kind, through one front end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopOp {
    /// `fuse`, `nbd` or `block`.
    pub frontend: String,
    /// The name of the system call or command.
    pub op: String,
    /// How long they took, failed ones included.
    pub times: TopTimes,
    /// Bytes of data that they read or wrote.
    pub bytes: u64,
    /// How often they failed, by the name of the errno, or its number.
    pub errors: Vec<(String, u64)>,
    /// How often they failed with further errors.
    pub other_errors: u64,
}

/// A call of the AFS server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopCall {
    /// `file` or `volume` of calls to these services, `client` of calls to clients.
    pub service: String,
    /// The name of the call.
    pub call: String,
    /// How long it took, failed calls included.
    pub times: TopTimes,
    /// How often it failed, by the name of the error, or its number.
    pub errors: Vec<(String, u64)>,
    /// How often it failed with further errors.
    pub other_errors: u64,
}

/// Times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopTimes {
    /// The sum of all.
    pub sum: u64,
    /// The longest.
    pub max: u64,
    /// How many are at most this long, and longer than the row before, in rising order.
    pub buckets: Vec<(u64, u64)>,
}

/// A client.
///
/// The name and the control group of a process are hostile text: another user chose them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopClient {
    /// The number of its counters. Those of AFS have their own numbers.
    pub number: u64,
    /// `fuse`, `nbd`, `block`, `control` or `afs`.
    pub kind: String,
    /// The name of its process, or its address, for AFS with the user. Empty: it has none, or it is
    /// not known.
    pub name: String,
    /// The number of its process. 0: the kernel, or a process that the daemon can't see.
    pub pid: Option<u32>,
    /// The user for whom it acts.
    pub uid: Option<u32>,
    /// The control group of its process. Empty: not known.
    pub cgroup: String,
    /// The volume that it uses.
    pub volume: Option<String>,
    /// The subject of its certificate.
    pub subject: Option<String>,
    /// Its connections.
    pub connections: Option<u64>,
    /// The operations, those that there were.
    pub ops: Vec<TopClientOp>,
    /// How many failed.
    pub failed: u64,
    /// The sum of their times in nanoseconds.
    pub ns: u64,
    /// How often they failed, by the names of operation and errno, as `rmdir ENOTEMPTY`.
    pub errors: Vec<(String, u64)>,
    /// How often they failed in further ways.
    pub other_errors: u64,
    /// Bytes of data that it read.
    pub read: u64,
    /// Bytes of data that it wrote.
    pub written: u64,
    /// How long reads took. Only [`TopView::Vms`] has the buckets.
    pub reads: TopTimes,
    /// How long writes took. Only [`TopView::Vms`] has the buckets.
    pub writes: TopTimes,
}

/// Operations of a client of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopClientOp {
    /// The name of the system call or command.
    pub op: String,
    /// How many there were, failed ones included.
    pub count: u64,
}

/// A client of the AFS file server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopAfsClient {
    /// The number of its counters.
    pub number: u64,
    /// Its address and port.
    pub address: String,
    /// The user whose calls these are. Absent: its calls prove none, or the reader may not know.
    pub user: Option<String>,
    /// Connections with a call of the last minute or two.
    pub connections: u64,
    /// CreateFile.
    pub make_file: u64,
    /// RemoveFile.
    pub remove_file: u64,
    /// MakeDir.
    pub make_dir: u64,
    /// RemoveDir.
    pub remove_dir: u64,
    /// Rename.
    pub rename: u64,
    /// Lookup.
    pub lookup: u64,
    /// Link.
    pub link: u64,
    /// Symlink.
    pub symlink: u64,
    /// StoreStatus.
    pub store_status: u64,
    /// StoreData and StoreData64.
    pub store_data: u64,
    /// FetchData and FetchData64.
    pub fetch: u64,
    /// FetchStatus, BulkStatus and InlineBulkStatus.
    pub status: u64,
    /// All other calls.
    pub other: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Bytes of files and directories that it read.
    pub read: u64,
    /// Bytes of files that it stored.
    pub written: u64,
}

/// A volume of the AFS server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopVolume {
    /// The number of its counters.
    pub number: u64,
    /// Its partition: `/vicepa`.
    pub partition: String,
    /// The volume.
    pub id: u32,
    /// Its name. Empty: memory does not have it.
    pub name: String,
    /// Calls of clients on its files.
    pub calls: u64,
    /// Bytes of files and directories that clients read.
    pub read: u64,
    /// Bytes of files that clients stored.
    pub written: u64,
}

/// How often volumes of a partition come into use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopAttach {
    /// The partition.
    pub partition: String,
    /// Volumes that came into use.
    pub attached: u64,
    /// How long it took to open their files.
    pub opened: TopTimes,
    /// How often that failed.
    pub failed: u64,
    /// How often files were closed.
    pub closed: u64,
    /// Volumes that came to rest.
    pub rested: u64,
}

/// Waits for the locks of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopLock {
    /// What they protect.
    pub name: String,
    /// How long threads waited.
    pub waits: TopTimes,
    /// The same by the code that waited: file and line.
    pub callers: Vec<(String, TopTimes)>,
}

/// A thread of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopThread {
    /// Its number in the system.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// When it began, by the system's clock; a later thread can have the same number.
    pub began: u64,
    /// Nanoseconds that it computed as a user.
    pub user_ns: u64,
    /// Nanoseconds that the kernel computed for it.
    pub system_ns: u64,
    /// Nanoseconds that it waited for a processor.
    pub latency_ns: u64,
    /// Nanoseconds of its waits by kind, those that there were.
    pub waits: Vec<(String, u64)>,
    /// What it does now. Empty: nothing for a user, or nothing that is known.
    pub doing: String,
}

/// Promises of a volume to a client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopPromise {
    /// The client's address and port. Empty: it has none now.
    pub address: String,
    /// The client's UUID, if it has one.
    pub uuid: Option<String>,
    /// The volume.
    pub volume: u32,
    /// Its name. Empty: memory does not have it.
    pub name: String,
    /// For how many of its files.
    pub files: u64,
    /// Whether for the volume as a whole.
    pub whole: bool,
}
