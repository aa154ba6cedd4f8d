//! Requests that change what is imported, mounted or unlocked.

use serde::{Deserialize, Serialize};

use super::Error;

/// A request to export one pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportRequest {
    /// Which pool.
    pub name: String,
    /// Unmount by force (`-f`).
    pub force: bool,
    /// Drop it without leaving a mark (`-F`).
    pub hardforce: bool,
    /// How many threads unmount, if the daemon's own number is not wanted (`ZFS_SERIAL_MOUNT`: 1).
    pub threads: Option<u32>,
    /// Other pools are exported with it, and it is tried again: if it is busy, what was unmounted
    /// of it stays so until then, since that may be what the others are busy with.
    #[serde(default)]
    pub patient: bool,
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The dataset (or snapshot).
    pub dataset: String,
    /// Where.
    pub mountpoint: String,
    /// With which options.
    #[serde(default)]
    pub options: String,
}

/// A request to mount file systems.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountRequest {
    /// These; every file system of every pool if empty.
    pub datasets: Vec<String>,
    /// And those below them.
    pub recursive: bool,
    /// One dataset, named by the user: what doesn't apply is an error rather than skipped.
    pub explicit: bool,
    /// Those of them that were mounted until a moment ago: they come back though they are mounted by name alone (`canmount=noauto`).
    pub before: Vec<String>,
    /// Mount options (`-o`), split at commas.
    pub options: Vec<String>,
    /// Mount over a folder that is not empty (`-O`).
    pub overlay: bool,
    /// At this place rather than where they belong (`mount -t zfs`).
    pub at: Option<String>,
    /// Mount redacted datasets too (`-f`).
    pub force: bool,
    /// How many threads load and mount, if the daemon's own number is not wanted (`ZFS_SERIAL_MOUNT`: 1).
    pub threads: Option<u32>,
    /// Under this number others may ask how far it is.
    pub watch: Option<u64>,
}

/// What a request to mount is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountPhase {
    /// Reading the datasets and their properties.
    #[default]
    Load,
    /// Mounting.
    Mount,
}

/// How far a request to mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountProgress {
    /// What it is doing.
    pub phase: MountPhase,
    /// Datasets that have been read.
    pub loaded: u64,
    /// How many there are to mount; 0 as long as that is not known.
    pub total: u64,
    /// How many of them have been tried.
    pub done: u64,
}

/// How mounting went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountReport {
    /// How many file systems there were to mount.
    pub total: u64,
    /// How many are mounted now that were not before.
    pub mounted: u64,
    /// What went wrong.
    pub failures: Vec<MountFailure>,
    /// Milliseconds spent reading the datasets and their properties.
    pub load_ms: u64,
    /// Milliseconds spent mounting.
    pub mount_ms: u64,
    /// Milliseconds spent on sorting out what is to be mounted.
    pub other_ms: u64,
}

/// A mount or unmount that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFailure {
    /// The dataset, or the mountpoint where that is what the message is about.
    pub name: String,
    /// Why.
    pub error: Error,
}

/// A request to unmount file systems.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnmountRequest {
    /// These datasets or mountpoints; everything if empty.
    pub names: Vec<String>,
    /// Even if in use (`-f`).
    pub force: bool,
    /// And unload the keys (`-u`).
    pub unload_keys: bool,
    /// How many threads unmount, if the daemon's own number is not wanted (`ZFS_SERIAL_MOUNT`: 1).
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

/// A request to load an encryption root's key.
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
