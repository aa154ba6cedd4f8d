//! Requests about the AFS server of the daemon.

use serde::{Deserialize, Serialize};

/// The most volumes, clients or locks in one reply.
pub const AFS_PAGE: usize = 10_000;

/// A request to serve a file system as a partition of the AFS server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsEnable {
    /// The file system.
    pub dataset: String,
    /// The partition, as `a` or `/vicepa`. Absent: as it was before.
    pub partition: Option<String>,
    /// Create the file system.
    pub create: bool,
    /// The folder of the cell's configuration.
    pub config: Option<String>,
    /// The IPv4 address of both services.
    pub address: Option<String>,
    /// The port of the file server.
    pub port: Option<u16>,
    /// The port of the volume server.
    pub volume_port: Option<u16>,
}

/// A request to serve a partition no more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsDisable {
    /// The file system of the partition.
    pub dataset: String,
    /// End transactions of its volumes.
    pub force: bool,
}

/// A request to make a volume of the dump that follows.
///
/// It has what dumps don't have. All else of the volume is as the dump says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsAdopt {
    /// The file system of the partition, which is served.
    pub dataset: String,
    /// The volume, whose dump follows.
    pub volume: u32,
    /// The backup volume of its group; 0 for none.
    pub backup: u32,
    /// When its server made the copy, in seconds since 1970.
    pub copied: u32,
}

/// What is wanted of a list of volumes, clients or locks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsQuery {
    /// Only this partition, as `a` or `/vicepa`.
    pub partition: Option<String>,
    /// Only this volume.
    pub volume: Option<u32>,
    /// What comes after this number: a volume's, or [`AfsClient::number`].
    pub after: u64,
}

/// The AFS server and its partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsStatus {
    /// The server, if it runs.
    pub server: Option<AfsServer>,
    /// The partitions of the imported pools, served or not.
    pub partitions: Vec<AfsPartition>,
}

/// A running AFS server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsServer {
    /// The cell.
    pub cell: String,
    /// The folder of the cell's configuration.
    pub config: String,
    /// The address and port of the file server.
    pub files: String,
    /// The address and port of the volume server.
    pub volumes: String,
    /// The UUID by which the cell knows the server.
    pub uuid: String,
    /// Whether the cell's database has the present addresses.
    pub registered: bool,
    /// The addresses of the last registration.
    pub addresses: Vec<String>,
    /// When the server was last registered, in seconds since 1970.
    pub registered_at: Option<u64>,
    /// Why the last registration failed, and what to do.
    pub registration_problem: Option<String>,
    /// Whether no protection server answers.
    pub protection_away: bool,
    /// The versions of the cell's keys.
    pub keys: Vec<i32>,
    /// The superusers.
    pub superusers: Vec<String>,
    /// How many clients are known.
    pub clients: u64,
    /// How many promises clients have.
    pub promises: u64,
    /// Volumes that travelled from here as blocks since the start, and their bytes.
    pub sent: u64,
    /// See [`Self::sent`].
    pub sent_bytes: u64,
    /// Volumes of which only the header was sent, since their files had not changed.
    pub unchanged: u64,
    /// Volumes that came as blocks since the start, and their bytes.
    pub received: u64,
    /// See [`Self::received`].
    pub received_bytes: u64,
    /// Dumps that were begun to other servers since the start.
    pub dumps: u64,
    /// The transactions of administrators' programs.
    pub transactions: Vec<AfsTransaction>,
}

/// A transaction of an administrator's program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsTransaction {
    /// Its number, for `vos endtrans`.
    pub id: i32,
    /// Its volume.
    pub volume: u32,
    /// The last call in it.
    pub call: String,
    /// Whether that call runs still.
    pub running: bool,
    /// When it began, in seconds since 1970.
    pub begun: u64,
}

/// A partition of the AFS server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsPartition {
    /// Its name: `/vicepa`.
    pub name: String,
    /// Its file system.
    pub dataset: String,
    /// Whether it is served.
    pub served: bool,
    /// A command takes it into service, or out of it.
    pub moving: bool,
    /// Why it is not served, or can't be read.
    pub problem: Option<crate::Reason>,
    /// How many volumes and clones it has.
    pub volumes: u64,
    /// Its space in KiB.
    pub total: u64,
    /// What is free of it.
    pub free: u64,
}

/// A volume or clone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsVolume {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// `RW`, `RO` or `BK`.
    pub kind: String,
    /// Its partition: `/vicepa`.
    pub partition: String,
    /// Where it is in the pool: a file system or snapshot.
    pub dataset: String,
    /// `online`, `busy`, `offline`, `transaction`, `damaged`, or `waiting`: its header can't be
    /// read now, because a call or the pool does not answer.
    pub state: String,
    /// Its size in KiB, as AFS counts.
    pub size: u64,
    /// Its quota in KiB; 0 for none.
    pub quota: u64,
    /// How many files it has.
    pub files: u64,
    /// When it last changed, in seconds since 1970.
    pub updated: u64,
    /// How many promises clients have.
    pub promises: u64,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsClient {
    /// Its number in this daemon.
    pub number: u64,
    /// Its address and port.
    pub address: String,
    /// Its UUID, if it has one.
    pub uuid: Option<String>,
    /// Whether it answers, so that it can have promises.
    pub answers: bool,
    /// How many promises it has.
    pub promises: u64,
    /// Seconds since its last call.
    pub idle: u64,
}

/// A lock that clients have on a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfsLock {
    /// The volume.
    pub volume: u32,
    /// The vnode of the file.
    pub vnode: u32,
    /// Whether it is for writing.
    pub write: bool,
    /// How many locks for reading.
    pub readers: u32,
}
