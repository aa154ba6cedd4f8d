//! The search for pools, and their import.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Pool, Prop};

/// Where to search for pools (`importargs_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScanRequest {
    /// Directories, devices and files to search; the system's default places if empty (`-d`).
    pub paths: Vec<PathBuf>,
    /// A cache file to read configurations from instead of a search (`-c`).
    pub cachefile: Option<PathBuf>,
    /// Search all of the directories that hold the cache file's devices, since the devices may have
    /// been renamed.
    pub beside: bool,
    /// Only the pool of this name.
    pub name: Option<String>,
    /// Only the pool of this guid.
    pub guid: Option<u64>,
}

/// A pool that a search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its configuration, with the states that an attempt to open it found (`spa_tryimport`).
    pub pool: Pool,
    /// Its comment.
    #[serde(default)]
    pub comment: Option<String>,
    /// The host that used it last, from the label.
    #[serde(default)]
    pub host: Host,
    /// When it was used last, in seconds since the epoch.
    #[serde(default)]
    pub timestamp: Option<u64>,
    /// Whether its import needs `-f`: another host used it, and did not export it.
    #[serde(default)]
    pub force_required: bool,
    /// The pool's activity that the search saw. The import does not wait again for what the search
    /// has watched already.
    #[serde(default)]
    pub seen: Option<Activity>,
}

/// The signs of a writer's activity in a pool's uberblock (`mmp_txg`, `mmp_seq` and the time of the
/// load information).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The transaction group.
    pub txg: u64,
    /// Its time, in seconds since the epoch.
    pub timestamp: u64,
    /// How many multihost writes followed that group.
    pub seq: u16,
}

/// The result of a search (`zpool_search_import`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Found {
    /// The pools that can be imported or shown.
    pub pools: Vec<Candidate>,
    /// Pools of the cache file that no device holds.
    pub lost: Vec<Lost>,
    /// Files, devices and directories that did not answer in time (`zfs_probe_timeout_ms`), and
    /// were skipped.
    pub silent: Vec<PathBuf>,
}

/// A pool that a cache file names and that the search did not find.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// Its devices that did not answer.
    pub silent: Vec<PathBuf>,
}

/// A host's identity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub name: Option<String>,
    /// Its `hostid`.
    pub id: Option<u64>,
}

/// What an attempt to load a pool found out (`load_info`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadInfo {
    /// The features that are in use and not supported: (guid, description).
    pub unsup_features: Vec<(String, String)>,
    /// Whether a read-only import is possible although features are not supported.
    pub can_rdonly: bool,
    /// The host in the MOS configuration.
    pub host: Host,
    /// Whether another host is using it now (multihost).
    pub mmp: MmpState,
    /// The host that uses it now.
    pub mmp_host: Host,
    /// What an older state would lose.
    pub rewind: Option<RewindInfo>,
    /// Log devices that are missing.
    pub missing_devices: Vec<super::Vdev>,
    /// The features that are enabled: (guid, reference count).
    pub enabled_features: Vec<(String, u64)>,
}

/// Whether another host uses a pool (`mmp_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MmpState {
    /// No sign of another host.
    #[default]
    Inactive,
    /// Another host is writing.
    Active,
    /// This host has no host id, so that multihost can't be checked.
    NoHostid,
}

/// What a rewind to an older state of the pool would cost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RewindInfo {
    /// The time of that state.
    pub load_time: u64,
    /// Seconds of changes that would be lost, if known.
    pub seconds_lost: Option<i64>,
    /// Data errors that would remain, if known.
    pub data_errors: Option<u64>,
}

/// How far back an import may go (`zpool_load_policy_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rewind {
    /// Rewind if necessary (`-F`).
    pub rewind: bool,
    /// Only report whether a rewind would work (`-n`).
    pub dry_run: bool,
    /// Try every uberblock (`-X`).
    pub extreme: bool,
    /// Start at this transaction group (`-T`).
    pub txg: Option<u64>,
    /// Rewind to the checkpoint.
    pub to_checkpoint: bool,
}

/// A request to import one pool (`zpool_import_props`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportRequest {
    /// The guid of the pool.
    pub guid: u64,
    /// Where to search for its devices.
    pub scan: ScanRequest,
    /// A new name for the pool.
    pub new_name: Option<String>,
    /// Whether the new name applies to this import only (`-t`).
    pub temporary_name: bool,
    /// Pool properties to set (`-o name=value`): `readonly`, `altroot`, `cachefile`, ….
    pub props: Vec<(String, String)>,
    /// Import even if another host may use it (`-f`).
    pub force: bool,
    /// Import even if a log device is missing (`-m`).
    pub missing_log: bool,
    /// Import a destroyed pool (`-D`).
    pub destroyed: bool,
    /// How far back to go.
    pub rewind: Rewind,
    /// The activity of the pool that the search saw ([`Candidate::seen`]).
    pub seen: Option<Activity>,
    /// The number of threads that visit the datasets; the daemon's own number if absent
    /// (`ZFS_SERIAL_MOUNT`: 1).
    pub threads: Option<u32>,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportOutcome {
    /// The present name of the pool.
    pub name: String,
    /// The state it was rewound to, or would be.
    pub rewind: Option<RewindInfo>,
    /// Notes for the caller: properties that can't be honoured.
    pub notes: Vec<Prop>,
}
