//! Why a request was refused. The commands turn each reason into OpenZFS's message.

use serde::{Deserialize, Serialize};

use super::LoadInfo;

/// A request that failed: the reason, and its subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{about}: {reason:?}")]
pub struct Error {
    /// The pool, dataset or path of the request.
    pub about: String,
    /// Why.
    pub reason: Reason,
}

impl Error {
    /// An error about a pool, dataset or path.
    pub fn new(about: impl Into<String>, reason: Reason) -> Self {
        Self { about: about.into(), reason }
    }

    /// Whether the reason is that something is in use.
    pub fn is_busy(&self) -> bool {
        match self.reason {
            Reason::Busy
            | Reason::HeldOpen { .. }
            | Reason::InTheWay { .. }
            | Reason::ServedOverAfs { .. }
            | Reason::InTransaction { .. } => true,
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
            | Reason::ServedOverAfs { .. }
            | Reason::InTransaction { .. }
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

/// Why a rollback or receive has to unmount a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmounts {
    /// More files and names differ than the kernel can be notified of.
    Differences,
    /// The differences can't be read.
    Unreadable,
    /// It was rolled back too often since it was mounted.
    Often,
    /// It is mounted, and can't be opened.
    Closed,
    /// A received stream replaces all of it.
    Replaced,
}

/// Why a request failed (`zfs_error_t`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No such pool is imported.
    NoSuchPool,
    /// No such dataset, snapshot or bookmark.
    NoSuchDataset,
    /// No such pool was found on the devices.
    NoSuchImport,
    /// The text is not a valid name.
    InvalidName,
    /// The operation doesn't apply to this type of dataset.
    BadType,
    /// A pool property that does not exist, or can't have this value.
    BadProperty {
        /// The property.
        property: String,
    },
    /// The user lacks the permission.
    Permission,
    /// The pool's `delegation` is off, so other users may do nothing.
    DelegationOff,
    /// A pool with that name is imported.
    PoolExists,
    /// The pool or dataset is in use.
    Busy,
    /// Files of the pool's devices were removed while in use. They vanish when the pool is
    /// exported.
    Nameless {
        /// The files, and the paths under which they can still be read.
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
    /// Devices are missing or too damaged. The information says what an older state would cost.
    MissingDevices(Box<LoadInfo>),
    /// The pool has no checkpoint to return to or to discard.
    NoCheckpoint,
    /// The pool has a checkpoint.
    CheckpointExists,
    /// A checkpoint is being discarded.
    DiscardingCheckpoint,
    /// The configuration is not valid.
    InvalidConfig,
    /// This release can't write the pool; it can be imported read-only.
    ReadonlyOnly {
        /// Why.
        why: String,
    },
    /// A device of the pool can be read but not written.
    NotWritable {
        /// Its path.
        device: String,
        /// The system's error number.
        errno: i32,
    },
    /// The pool is not writable.
    PoolReadonly,
    /// What was read is not valid in a pool.
    Corrupt {
        /// The engine's error message.
        what: String,
        /// What an older state would cost.
        info: Box<LoadInfo>,
    },
    /// The devices could not be read.
    Io {
        /// The engine's error message.
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
    /// The dataset is partially received.
    PartiallyReceived,
    /// The dataset was received redacted.
    Redacted,
    /// It has large micro ZAPs, which a stream has only with large blocks
    /// (`ZFS_ERR_STREAM_LARGE_MICROZAP`).
    LargeMicrozap,
    /// The file system is mounted.
    AlreadyMounted,
    /// The file system is not mounted.
    NotMounted,
    /// The volume is not offered over NBD.
    NotOffered,
    /// The volume is not attached as a block device.
    NotAttached,
    /// A volume's device or a file system is in use, or something is mounted in the file system.
    HeldOpen {
        /// Which programs and mounts, as text.
        by: String,
    },
    /// A rollback or receive has to unmount a file system that is in use.
    InTheWay {
        /// The file system.
        dataset: String,
        /// What uses it, as text, if that is known.
        by: Option<String>,
        /// Why it has to be unmounted.
        why: Unmounts,
    },
    /// A rollback removed the folder of a file system's mountpoint, so that the file system was
    /// unmounted by force.
    MountpointLost {
        /// The mountpoint.
        at: String,
        /// Why the folder can't be created: `errno`.
        errno: i32,
        /// What used the file system, as text, if that is known.
        by: Option<String>,
    },
    /// The volume is attached already.
    AlreadyAttached {
        /// The device's name.
        at: String,
    },
    /// The AFS server can't serve.
    Afs {
        /// Why, with the file or address, and what to do.
        what: String,
    },
    /// The dataset is no partition of the AFS server.
    NotAfs,
    /// The AFS server has it.
    ServedOverAfs {
        /// The file system of the partition.
        partition: String,
        /// The volume that it is, or has; `None` for a partition, or what has one.
        volume: Option<u32>,
    },
    /// A transaction of an administrator's program has a volume of AFS.
    InTransaction {
        /// The volume.
        volume: u32,
        /// The number of the transaction.
        transaction: i32,
        /// The last call in it.
        call: String,
    },
    /// A program that the daemon runs failed.
    Program {
        /// Its error output.
        what: String,
    },
    /// The mountpoint is not empty.
    MountpointNotEmpty,
    /// The mountpoint does not exist, and can't be created.
    MountpointNotMade {
        /// `errno`.
        errno: i32,
    },
    /// A property is set, but the mounted file system can't take it over.
    NotInEffect {
        /// The properties and their values, `exec=off, setuid=off`.
        setting: String,
        /// Why, and what to do about it.
        what: String,
    },
    /// This user can't let other users use a mount (`allow_other`).
    NobodyElse,
    /// The path is not a mountpoint of this daemon.
    NotAMountpoint,
    /// A mount option is unknown.
    BadMountOption {
        /// The option.
        option: String,
    },
    /// The system refused.
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
    /// The daemon can't be reached, or its answer makes no sense.
    Daemon {
        /// What went wrong.
        what: String,
    },
    /// The engine refused the change.
    Refused {
        /// Why.
        why: Refusal,
    },
    /// A property can't have this value.
    BadValue {
        /// Why, in OpenZFS's words.
        what: String,
    },
    /// Some of several parts can't be done, so none was.
    Several {
        /// The errors of those parts.
        errors: Vec<Error>,
    },
    /// A device of a new vdev is smaller than 64 MiB (`SPA_MINDEVSIZE`).
    DeviceTooSmall,
    /// A device is named twice, or is part of another device on this machine.
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
    /// The sector size does not fit the devices or the pool.
    BadAshift,
    /// The sector size of a new vdev differs from that of all others.
    AshiftMismatch,
    /// The pool has no such device.
    NoSuchDevice,
    /// The guid can't be used: something has it, or it is 0.
    BadGuid,
    /// A device can't be taken out of use, put into use, attached or detached.
    Device {
        /// Why.
        why: DeviceRefusal,
    },
    /// The answer exceeds the memory or time that this caller may take (`budget`), or the request
    /// has too many parts.
    TooMuch,
    /// The stream can't be received.
    Stream {
        /// What is wrong with it.
        fault: StreamFault,
        /// The record and its place, or the feature, as text.
        what: String,
    },
    /// The receive failed, and what came is kept (`zfs receive -s`).
    Kept {
        /// Why it failed.
        reason: Box<Reason>,
    },
    /// The pool is suspended.
    Suspended,
    /// The pool's devices don't answer.
    Silent,
    /// The request is understood, but this release does not support it.
    NotSupported {
        /// What.
        what: String,
    },
}

/// What is wrong with a received stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamFault {
    /// It ends too early (`ZFS_ERR_STREAM_TRUNCATED`).
    Truncated,
    /// A checksum is wrong (`ECKSUM`).
    Checksum,
    /// A record makes no sense (`EINVAL`).
    Invalid,
    /// The pool or this release lacks a feature that it needs (`ENOTSUP`).
    Feature,
    /// It is raw, and does not fit the encryption of its target.
    Encryption,
}

/// Why a change of devices was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceRefusal {
    /// It is not a leaf device.
    NotLeaf,
    /// Some data can be read only from this device.
    NoReplicas,
    /// It belongs to a pool that was split off.
    SplitOff,
    /// Nothing can be attached to it or replace it at its position.
    Target,
    /// The new device is too small.
    TooSmall,
    /// The new device has larger sectors than its vdev.
    Ashift,
    /// The new device is in use.
    InUse,
    /// Only another hot spare can take its place.
    OnlySpare,
    /// Only children of mirrors and of replacements can be detached.
    NotMirror,
    /// A resilver is running or wanted.
    Resilvering,
    /// A sequential resilver is running.
    Rebuilding,
    /// Its vdev can't be resilvered sequentially.
    NotSequential,
    /// The feature `device_rebuild` is not enabled.
    RebuildDisabled,
}

/// Why a change was refused (`errno` and `zfs_errno_t` of the kernel module's answers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The name exists already.
    Exists,
    /// The parent dataset does not exist.
    NoParent,
    /// The parent dataset is not a file system.
    WrongParent,
    /// It is in use.
    Busy,
    /// It has snapshots.
    HasSnapshots,
    /// It has children.
    HasChildren,
    /// The snapshot has clones.
    HasClones,
    /// The snapshot is held.
    Held,
    /// There is no free space.
    NoSpace,
    /// A quota or limit would be exceeded.
    Quota,
    /// The dataset is being received, or was destroyed in part.
    Inconsistent,
    /// A snapshot of this very transaction group exists: try again.
    Again,
    /// It is a snapshot, which is read-only.
    ReadOnly,
    /// It is not a snapshot.
    NotSnapshot,
    /// It is not a file system or volume.
    NotHead,
    /// It is not a clone.
    NotClone,
    /// The names belong to different pools or kinds.
    CrossDevice,
    /// A dataset can't be moved below itself.
    Recursive,
    /// It is the pool's root dataset.
    Root,
    /// A name would be too long.
    NameTooLong,
    /// The tree would have too many levels.
    TooDeep,
    /// A snapshot of this name exists at the destination.
    SnapshotConflict,
    /// A newer snapshot or bookmark exists.
    NotLatest,
    /// The dataset has no snapshot.
    NoSnapshot,
    /// A hold with this tag exists.
    TagExists,
    /// There is no hold with this tag.
    NoTag,
    /// The tag is too long.
    TagTooLong,
    /// Too many names in one list of the dataset collide with the new one.
    NamesCollide,
    /// A redaction list can't name so many snapshots.
    TooManySnapshots,
    /// A required feature is not enabled.
    Feature,
    /// The snapshot is not an earlier state of the dataset.
    NotBefore,
    /// The latest snapshot is not the source of the received stream.
    NotSource,
    /// The dataset has changed since its latest snapshot.
    Modified,
    /// The received stream lacks the large blocks of earlier ones.
    LargeBlocks,
    /// The rest of a stream would replace an existing dataset.
    ResumeExists,
    /// The permission can't be granted.
    BadGrant,
    /// The key of the parent dataset is not loaded.
    ParentKeyNotLoaded,
    /// The key can't be used in this way.
    Key,
}

/// A message without the numbers that Rust adds to the texts of system errors.
///
/// They stand at the end of each text, as in `Permission denied (os error 13)`.
pub fn plain(message: &str) -> String {
    const NUMBER: &str = " (os error ";
    let (mut kept, mut rest) = (String::new(), message);
    while let Some((text, after)) = rest.split_once(NUMBER) {
        kept.push_str(text);
        rest = match after.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => rest,
            _ => {
                kept.push_str(NUMBER);
                after
            }
        };
    }
    kept + rest
}

/// The message of an error, followed by those of its causes, as [`plain`] text.
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
    plain(&words)
}
