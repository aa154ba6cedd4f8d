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

    /// Whether the reason is that something is used.
    pub fn is_busy(&self) -> bool {
        match self.reason {
            Reason::Busy | Reason::HeldOpen { .. } | Reason::InTheWay { .. } => true,
            Reason::System { errno } => errno == rustix::io::Errno::BUSY.raw_os_error(),
            _ => false,
        }
    }

    /// The HTTP status that fits the reason.
    pub fn http_status(&self) -> u16 {
        match &self.reason {
            Reason::NoSuchPool | Reason::NoSuchDataset | Reason::NoSuchImport | Reason::NoSuchMethod => 404,
            Reason::Permission | Reason::DelegationOff => 403,
            Reason::BadRequest { .. }
            | Reason::InvalidName
            | Reason::BadType
            | Reason::BadValue { .. }
            | Reason::BadProperty { .. } => 400,
            Reason::PoolExists
            | Reason::Busy
            | Reason::HeldOpen { .. }
            | Reason::InTheWay { .. }
            | Reason::DeviceOfPool { .. }
            | Reason::AlreadyMounted
            | Reason::NotMounted
            | Reason::KeyLoaded
            | Reason::KeyNotLoaded => 409,
            Reason::Io { .. } | Reason::Corrupt { .. } | Reason::Daemon { .. } | Reason::System { .. } => 500,
            _ => 422,
        }
    }
}

/// Why a file system can't be rolled back while it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmounts {
    /// More files and names differ than the kernel can be told of.
    Differences,
    /// What differs can't be read.
    Unreadable,
    /// It was rolled back too often since it was mounted.
    Often,
    /// It is mounted, and can't be opened.
    Closed,
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
    /// The pool's `delegation` is off: nothing is allowed to other users.
    DelegationOff,
    /// A pool with that name is imported.
    PoolExists,
    /// The pool or dataset is in use.
    Busy,
    /// Files of the pool's devices were removed while they are used, and are gone when it is exported.
    Nameless {
        /// Which, and where they can be read still.
        files: Vec<super::Nameless>,
    },
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
    /// The pool has no checkpoint to go back to, or to let go.
    NoCheckpoint,
    /// The pool has a checkpoint.
    CheckpointExists,
    /// A checkpoint is being discarded.
    DiscardingCheckpoint,
    /// The configuration is not valid.
    InvalidConfig,
    /// The pool can't be written by this release: import it read-only.
    ReadonlyOnly {
        /// Why.
        why: String,
    },
    /// A device of the pool can be read, and not written.
    NotWritable {
        /// Its path.
        device: String,
        /// The system's error number.
        errno: i32,
    },
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
    /// It is not offered over NBD.
    NotOffered,
    /// It is not attached.
    NotAttached,
    /// Programs use a volume's device or a file system, or something is mounted in that.
    HeldOpen {
        /// Which programs and mounts, in words.
        by: String,
    },
    /// A rollback has to unmount a file system that is in use.
    InTheWay {
        /// The file system.
        dataset: String,
        /// What uses it, in words, if that is known.
        by: Option<String>,
        /// Why it has to be unmounted.
        why: Unmounts,
    },
    /// A rollback left no folder for a file system's mountpoint, so that it was unmounted by force.
    MountpointLost {
        /// The mountpoint.
        at: String,
        /// Why the folder can't be made: `errno`.
        errno: i32,
        /// What used the file system, in words, if that is known.
        by: Option<String>,
    },
    /// It is attached.
    AlreadyAttached {
        /// The device's name.
        at: String,
    },
    /// A program that the daemon runs failed.
    Program {
        /// What it said.
        what: String,
    },
    /// The mountpoint holds something.
    MountpointNotEmpty,
    /// The mountpoint is not there, and can't be made.
    MountpointNotMade {
        /// `errno`.
        errno: i32,
    },
    /// A property is set, and a mounted file system can't have it.
    NotInEffect {
        /// The properties and their values, `exec=off, setuid=off`.
        setting: String,
        /// Why, and what helps.
        what: String,
    },
    /// Other users can't be let in by this one (`allow_other`).
    NobodyElse,
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
    /// The engine may not do it.
    Refused {
        /// Why.
        why: Refusal,
    },
    /// A property may not have this value.
    BadValue {
        /// Why, in OpenZFS's words.
        what: String,
    },
    /// Some of many things may not be done, and so none was.
    Several {
        /// Which, and why.
        errors: Vec<Error>,
    },
    /// A device of a new vdev is smaller than 64 MiB.
    DeviceTooSmall,
    /// A device is named twice, or is part of something else on this machine.
    DeviceTwice,
    /// A device belongs to a pool.
    DeviceOfPool {
        /// That pool.
        pool: String,
        /// Its state.
        state: super::PoolState,
    },
    /// A device can't be opened.
    DeviceOpen {
        /// `errno`.
        errno: i32,
    },
    /// The sector size does not go with the devices or the pool.
    BadAshift,
    /// The sector size of a new vdev is not that of all others.
    AshiftMismatch,
    /// The pool has no such device.
    NoSuchDevice,
    /// A guid can't be taken: something has it, or it is 0.
    BadGuid,
    /// A device can't be taken out, brought back, attached or detached.
    Device {
        /// Why.
        why: DeviceRefusal,
    },
    /// The answer would take more memory or time than this caller may have (`budget`), or the
    /// request has too many parts.
    TooMuch,
    /// The pool is suspended.
    Suspended,
    /// The pool's devices don't answer.
    Silent,
    /// Understood, and not done by this release.
    NotSupported {
        /// What.
        what: String,
    },
}

/// Why devices stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceRefusal {
    /// It is no device of its own.
    NotLeaf,
    /// Something can be read from it alone.
    NoReplicas,
    /// It went with a pool that was split off.
    SplitOff,
    /// Nothing can be attached to it, or take its place, where it is.
    Target,
    /// The new device has too little room.
    TooSmall,
    /// The new device has larger sectors than its vdev.
    Ashift,
    /// The new device is in use.
    InUse,
    /// Only another hot spare can take its place.
    OnlySpare,
    /// Only sides of mirrors and of replacements are detached.
    NotMirror,
    /// A resilver goes on or is wanted.
    Resilvering,
    /// A sequential resilver goes on.
    Rebuilding,
    /// Its vdev can't be resilvered sequentially.
    NotSequential,
    /// The feature `device_rebuild` is not enabled.
    RebuildDisabled,
}

/// Why a change may not be made (`errno` and `zfs_errno_t` of the kernel module's answers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// There is one of this name already.
    Exists,
    /// The dataset above does not exist.
    NoParent,
    /// The dataset above is no file system.
    WrongParent,
    /// Somebody uses it.
    Busy,
    /// It has snapshots.
    HasSnapshots,
    /// It has children.
    HasChildren,
    /// The snapshot has clones.
    HasClones,
    /// The snapshot is held.
    Held,
    /// There is no room.
    NoSpace,
    /// A quota or limit would be exceeded.
    Quota,
    /// A dataset is received into it, or it was destroyed in part.
    Inconsistent,
    /// There is a snapshot of this very moment: try again.
    Again,
    /// It is a snapshot, which can't be written.
    ReadOnly,
    /// It is no snapshot.
    NotSnapshot,
    /// It is no file system or volume.
    NotHead,
    /// It is no clone.
    NotClone,
    /// The names are of different pools or kinds.
    CrossDevice,
    /// A dataset can't be moved below itself.
    Recursive,
    /// It is the pool's root dataset.
    Root,
    /// A name would become too long.
    NameTooLong,
    /// There would be too many levels.
    TooDeep,
    /// A snapshot of this name is in the way.
    SnapshotConflict,
    /// A newer snapshot or bookmark is in the way.
    NotLatest,
    /// The dataset has no snapshot.
    NoSnapshot,
    /// A hold with this tag exists.
    TagExists,
    /// There is no hold with this tag.
    NoTag,
    /// The tag is too long.
    TagTooLong,
    /// A feature is needed that is not enabled.
    Feature,
    /// The snapshot is not in the dataset's past.
    NotBefore,
    /// What is to be granted can't be.
    BadGrant,
    /// The key of the dataset above is not loaded.
    ParentKeyNotLoaded,
    /// A key can't be used so.
    Key,
}

/// An error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.ends_with(&cause_words) {
            words.push_str(": ");
            words.push_str(&cause_words);
        }
        source = cause.source();
    }
    words
}
