//! Why a request was refused, in nouns that the commands turn into OpenZFS's words.

use serde::{Deserialize, Serialize};

use super::LoadInfo;

/// A request that failed: why, and what it was about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{about}: {reason:?}")]
pub struct Error {
    /// The pool, dataset or path that was asked for.
    pub about: String,
    /// Why.
    pub reason: Reason,
}

impl Error {
    /// An error about a pool, dataset or path.
    pub fn new(about: impl Into<String>, reason: Reason) -> Self {
        Self { about: about.into(), reason }
    }

    /// The HTTP status that fits the reason.
    pub fn http_status(&self) -> u16 {
        match &self.reason {
            Reason::NoSuchPool | Reason::NoSuchDataset | Reason::NoSuchImport | Reason::NoSuchMethod => 404,
            Reason::Permission => 403,
            Reason::BadRequest { .. }
            | Reason::InvalidName
            | Reason::BadType
            | Reason::BadProperty { .. } => 400,
            Reason::PoolExists
            | Reason::Busy
            | Reason::AlreadyMounted
            | Reason::NotMounted
            | Reason::KeyLoaded
            | Reason::KeyNotLoaded => 409,
            Reason::Io { .. } | Reason::Corrupt { .. } | Reason::Daemon { .. } | Reason::System { .. } => 500,
            _ => 422,
        }
    }
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No such pool is imported.
    NoSuchPool,
    /// No such dataset, snapshot or bookmark.
    NoSuchDataset,
    /// No such pool was found on the devices.
    NoSuchImport,
    /// The name can't be one.
    InvalidName,
    /// The operation doesn't apply to this type of dataset.
    BadType,
    /// A pool property that does not exist, or can't be set so.
    BadProperty {
        /// The property.
        property: String,
    },
    /// Not allowed to this user.
    Permission,
    /// A pool with that name is imported.
    PoolExists,
    /// The pool or dataset is in use.
    Busy,
    /// One or more of the pool's devices are in use, here or elsewhere on the machine.
    DevicesInUse,
    /// The pool's version or a feature of it is not supported.
    Unsupported(Box<LoadInfo>),
    /// The pool was last used by another host, and `-f` was not given.
    UsedElsewhere {
        /// That host's name.
        hostname: Option<String>,
        /// Its `hostid`.
        hostid: u64,
        /// When, in seconds since the epoch.
        timestamp: u64,
    },
    /// Another host is using it now.
    Active(Box<LoadInfo>),
    /// Devices are missing or too damaged; the information says what an older state would cost.
    MissingDevices(Box<LoadInfo>),
    /// The pool has no checkpoint to go back to.
    NoCheckpoint,
    /// The configuration is not valid.
    InvalidConfig,
    /// The pool can't be written by this release: import it read-only.
    ReadonlyOnly,
    /// The pool is not writable.
    PoolReadonly,
    /// What was read is not what a pool may hold, with what an older state would cost.
    Corrupt {
        /// The engine's own words.
        what: String,
        /// What an older state would cost.
        info: Box<LoadInfo>,
    },
    /// The devices could not be read, with what an older state would cost.
    Io {
        /// The engine's own words.
        what: String,
        /// What an older state would cost.
        info: Box<LoadInfo>,
    },
    /// `mountpoint=legacy`.
    LegacyMountpoint,
    /// `mountpoint=none`.
    NoMountpoint,
    /// `canmount=off`.
    CanmountOff,
    /// The dataset is delegated to a container.
    Zoned,
    /// The dataset's key is not loaded.
    KeyNotLoaded,
    /// The dataset's key is loaded.
    KeyLoaded,
    /// The key is not the dataset's.
    WrongKey,
    /// The key is not well formed (length, hexadecimal digits).
    BadKey,
    /// The dataset is not encrypted.
    NotEncrypted,
    /// The dataset gets its key from this encryption root.
    NotEncryptionRoot {
        /// The root.
        root: String,
    },
    /// The dataset is a half-received one.
    PartiallyReceived,
    /// The dataset was received redacted.
    Redacted,
    /// The file system is mounted.
    AlreadyMounted,
    /// The file system is not mounted.
    NotMounted,
    /// The mountpoint holds something.
    MountpointNotEmpty,
    /// The path is not a mountpoint of ours.
    NotAMountpoint,
    /// A mount option is not known.
    BadMountOption {
        /// The option.
        option: String,
    },
    /// The system refused, with its error number.
    System {
        /// `errno`.
        errno: i32,
    },
    /// The daemon does not have this method.
    NoSuchMethod,
    /// The request does not parse.
    BadRequest {
        /// What is wrong with it.
        what: String,
    },
    /// The daemon can't be reached or did not answer sensibly.
    Daemon {
        /// What went wrong.
        what: String,
    },
    /// Understood, and not done by this release.
    NotSupported {
        /// What.
        what: String,
    },
}
