//! Finding pools and importing them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Pool, Prop};

/// Where to look for pools.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScanRequest {
    /// Folders, devices and files to look at; the system's default places if empty (`-d`).
    pub paths: Vec<PathBuf>,
    /// A cache file to read configurations from instead (`-c`).
    pub cachefile: Option<PathBuf>,
    /// Look at everything in the folders of the cache file's devices, since these may have other names now.
    pub beside: bool,
    /// Only the pool of this name.
    pub name: Option<String>,
    /// Only the pool of this guid.
    pub guid: Option<u64>,
}

/// A pool that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its configuration with the states that an attempt to open it found (`spa_tryimport`).
    pub pool: Pool,
    /// Its comment.
    #[serde(default)]
    pub comment: Option<String>,
    /// The host that last used it, from the label.
    #[serde(default)]
    pub host: Host,
    /// When it was last used, in seconds since the epoch.
    #[serde(default)]
    pub timestamp: Option<u64>,
    /// Whether the pool must be forced (`-f`): it was not exported, and by another host.
    #[serde(default)]
    pub force_required: bool,
    /// What the pool showed of another host's activity, for the import: what was watched need not be watched again.
    #[serde(default)]
    pub seen: Option<Activity>,
}

/// What a pool's uberblock shows of its writer's activity (`mmp_txg`, `mmp_seq` and the time of the load information).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The transaction group.
    pub txg: u64,
    /// Its time, in seconds since the epoch.
    pub timestamp: u64,
    /// How many writes there were since for activity's sake.
    pub seq: u16,
}

/// What a search found (`zpool_search_import`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Found {
    /// The pools that could be imported, or shown.
    pub pools: Vec<Candidate>,
    /// Pools of the cache file that are on none of the devices.
    pub lost: Vec<Lost>,
    /// Files, devices and folders that did not answer in time (`zfs_probe_timeout_ms`), and were passed over.
    pub silent: Vec<PathBuf>,
}

/// A pool that a cache file names, and that was not found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// Those of its devices that did not answer.
    pub silent: Vec<PathBuf>,
}

/// A host's identity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub name: Option<String>,
    /// `hostid`.
    pub id: Option<u64>,
}

/// What an attempt to load a pool told (`load_info`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadInfo {
    /// The features that are in use and not understood: (guid, description).
    pub unsup_features: Vec<(String, String)>,
    /// The pool could be imported read-only although features are not supported.
    pub can_rdonly: bool,
    /// The host in the MOS configuration.
    pub host: Host,
    /// Whether another host is using it now (multihost).
    pub mmp: MmpState,
    /// That host.
    pub mmp_host: Host,
    /// What an older state would lose.
    pub rewind: Option<RewindInfo>,
    /// Log devices that are missing.
    pub missing_devices: Vec<super::Vdev>,
    /// The features that are enabled: (guid, reference count).
    pub enabled_features: Vec<(String, u64)>,
}

/// Whether a pool is in use elsewhere (`mmp_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MmpState {
    /// No sign of it.
    #[default]
    Inactive,
    /// The other host keeps writing.
    Active,
    /// It can't be told without a host id here.
    NoHostid,
}

/// What an older state of the pool would cost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RewindInfo {
    /// The time of that state.
    pub load_time: u64,
    /// Seconds lost, if known.
    pub seconds_lost: Option<i64>,
    /// Data errors that would remain, if known.
    pub data_errors: Option<u64>,
}

/// How far an import may go back (`zpool_load_policy_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rewind {
    /// Go back if necessary (`-F`).
    pub rewind: bool,
    /// Only say whether that would work (`-n`).
    pub dry_run: bool,
    /// Look at every uberblock (`-X`).
    pub extreme: bool,
    /// Start at this transaction group (`-T`).
    pub txg: Option<u64>,
    /// Go back to the checkpoint.
    pub to_checkpoint: bool,
}

/// A request to import one pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportRequest {
    /// Which pool.
    pub guid: u64,
    /// Where to look for its devices.
    pub scan: ScanRequest,
    /// A new name.
    pub new_name: Option<String>,
    /// The new name holds for this import only (`-t`).
    pub temporary_name: bool,
    /// Pool properties to set (`-o name=value`): `readonly`, `altroot`, `cachefile`, ….
    pub props: Vec<(String, String)>,
    /// Import although another host may use it (`-f`).
    pub force: bool,
    /// Import although a log device is missing (`-m`).
    pub missing_log: bool,
    /// Import a destroyed pool (`-D`).
    pub destroyed: bool,
    /// How far to go back.
    pub rewind: Rewind,
    /// What the search saw of the pool's activity ([`Candidate::seen`]).
    pub seen: Option<Activity>,
    /// How many threads pass over the datasets, if the daemon's own number is not wanted (`ZFS_SERIAL_MOUNT`: 1).
    pub threads: Option<u32>,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportOutcome {
    /// The pool's name now.
    pub name: String,
    /// What it was taken back to, if it was, or would be.
    pub rewind: Option<RewindInfo>,
    /// What the caller should know: properties that can't be honoured.
    pub notes: Vec<Prop>,
}
