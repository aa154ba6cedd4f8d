//! Requests that change what is imported, mounted or unlocked.

use serde::{Deserialize, Serialize};

use super::Error;

/// A request to export one pool (`zpool_export`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportRequest {
    /// The name of the pool.
    pub name: String,
    /// Unmount by force (`-f`).
    pub force: bool,
    /// Close it without marking it as exported (`-F`, `zpool_export_force`).
    pub hardforce: bool,
    /// The number of threads that unmount; the daemon's own number if absent (`ZFS_SERIAL_MOUNT`:
    /// 1).
    pub threads: Option<u32>,
    /// Other pools are exported with it, and the command retries if this pool is busy.
    ///
    /// Then what was unmounted stays unmounted until the retry, since the other pools may need
    /// that.
    #[serde(default)]
    pub patient: bool,
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The dataset or snapshot.
    pub dataset: String,
    /// The mountpoint.
    pub mountpoint: String,
    /// The mount options, separated by commas.
    #[serde(default)]
    pub options: String,
}

/// A request to mount file systems (`zfs_mount_at`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountRequest {
    /// The datasets; every file system of every pool if empty.
    pub datasets: Vec<String>,
    /// Also mount those below them.
    pub recursive: bool,
    /// The user named one dataset: if it can't be mounted, that is an error. Otherwise such
    /// datasets are skipped.
    pub explicit: bool,
    /// Datasets that were mounted until a moment ago. They are mounted again even with
    /// `canmount=noauto`.
    pub before: Vec<String>,
    /// Mount options (`-o`), split at commas.
    pub options: Vec<String>,
    /// Mount over a directory that is not empty (`-O`).
    pub overlay: bool,
    /// Mount at this place instead of the dataset's mountpoint (`mount -t zfs`).
    pub at: Option<String>,
    /// Mount redacted datasets too (`-f`).
    pub force: bool,
    /// The number of threads that load and mount; the daemon's own number if absent
    /// (`ZFS_SERIAL_MOUNT`: 1).
    pub threads: Option<u32>,
    /// The number under which other requests can query the progress.
    pub watch: Option<u64>,
}

/// The phase of a request to mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountPhase {
    /// It reads the datasets and their properties.
    #[default]
    Load,
    /// It mounts.
    Mount,
}

/// The progress of a request to mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountProgress {
    /// The present phase.
    pub phase: MountPhase,
    /// The number of datasets that were read.
    pub loaded: u64,
    /// The number of file systems to mount; 0 while that is not known.
    pub total: u64,
    /// The number of file systems that were tried.
    pub done: u64,
}

/// The result of a request to mount or unmount.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountReport {
    /// The number of file systems to mount.
    pub total: u64,
    /// The number that were not mounted before and are now.
    pub mounted: u64,
    /// The failures.
    pub failures: Vec<MountFailure>,
    /// Milliseconds spent reading the datasets and their properties.
    pub load_ms: u64,
    /// Milliseconds spent mounting.
    pub mount_ms: u64,
    /// Milliseconds spent on selecting and sorting what to mount.
    pub other_ms: u64,
}

/// A mount or unmount that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFailure {
    /// The dataset, or the mountpoint if the error is about that.
    pub name: String,
    /// Why.
    pub error: Error,
}

/// A request to unmount file systems (`zfs_unmount`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnmountRequest {
    /// The datasets or mountpoints; everything if empty.
    pub names: Vec<String>,
    /// Unmount even if in use (`-f`).
    pub force: bool,
    /// Also unload the keys (`-u`).
    pub unload_keys: bool,
    /// The number of threads that unmount; the daemon's own number if absent (`ZFS_SERIAL_MOUNT`:
    /// 1).
    pub threads: Option<u32>,
}

/// A key as the user gave it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyMaterial {
    /// A passphrase.
    Passphrase(Vec<u8>),
    /// 64 hexadecimal digits.
    Hex(Vec<u8>),
    /// 32 bytes.
    Raw(Vec<u8>),
}

impl std::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Passphrase(_) => "Passphrase(…)",
            Self::Hex(_) => "Hex(…)",
            Self::Raw(_) => "Raw(…)",
        })
    }
}

/// A request to load an encryption root's key (`zfs_crypto_load_key`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadKeyRequest {
    /// The encryption root.
    pub dataset: String,
    /// Its key.
    pub key: KeyMaterial,
    /// Only check the key (`-n`).
    #[serde(default)]
    pub noop: bool,
}
