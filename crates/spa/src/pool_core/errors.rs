//! Why a pool was not changed, or a transaction group not synced.

use ondisk::{Ashift, Guid, Txg};

use crate::new_vdevs::CreateError;
use crate::txg::Stopped;

/// More passes than any txg needs: not to converge is a defect (the `zfs_sync_pass_*` are single
/// digits).
pub(crate) const MAX_PASSES: u32 = 64;

/// Why a transaction group could not be synced.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A dataset, or an operation on one, failed.
    #[error("transaction group {txg}: datasets")]
    Datasets {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: dsl::Error,
    },
    /// The intent log of a dataset failed.
    #[error("transaction group {txg}: an intent log")]
    Log {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: zil::Error,
    },
    /// The pool metadata could not be read or written.
    #[error("transaction group {txg}: the pool's metadata")]
    Metadata {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: pool::Error,
    },
    /// The MOS could not be read or written.
    #[error("transaction group {txg}: the meta object set")]
    Mos {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: dmu::Error,
    },
    /// A block could not be freed.
    #[error("transaction group {txg}: freeing")]
    Free {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: zio::Error,
    },
    /// A deferred metadata write failed.
    #[error("transaction group {txg}: writing metadata")]
    Write {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: zio::Error,
    },
    /// Devices could not make their writes durable.
    #[error("transaction group {txg}: flushing")]
    Flush {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: vdev::FlushError,
    },
    /// Too few devices took the labels or the uberblock.
    #[error("transaction group {txg}: {written} of {wanted} devices took the {what}")]
    Labels {
        /// The transaction group.
        txg: Txg,
        /// `labels` or `uberblock`.
        what: &'static str,
        /// Devices that took it.
        written: usize,
        /// Devices that should have.
        wanted: usize,
    },
    /// A change of the vdev tree failed, although its check had passed.
    #[error("transaction group {txg}: the tree of vdevs")]
    Shape {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: vdev::VdevError,
    },
    /// The pool was suspended and then released.
    #[error("transaction group {txg}: given up, as the pool is suspended")]
    LetGo {
        /// The transaction group.
        txg: Txg,
    },
    /// The passes did not converge.
    #[error("transaction group {txg}: no end after {MAX_PASSES} passes")]
    Endless {
        /// The transaction group.
        txg: Txg,
    },
}

/// Why the pool was not changed. It is as it was, except perhaps with `Stopped`.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The pool has stopped. Whether the change is on disk is unknown.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The devices can't be used, or not in this layout.
    #[error(transparent)]
    Devices(#[from] CreateError),
    /// The new vdevs have another sector size than all vdevs of the pool
    /// (`ZFS_ERR_ASHIFT_MISMATCH`).
    #[error("a new vdev has the ashift {}, all others have {}", new.0, old.0)]
    AshiftMismatch {
        /// That of the new vdev.
        new: Ashift,
        /// That of all others.
        old: Ashift,
    },
    /// The labels of a new device can't be written.
    #[error("labels of a new device")]
    Labels(#[from] vdev::label::LabelWriteError),
    /// A device is missing or bad (`ENXIO`).
    #[error("a device is missing or bad")]
    Unhealthy,
    /// The device is in use (`EBUSY`).
    #[error("the device {} is in use", guid.0)]
    Busy {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The rest of the pool has too little space (`ENOSPC`).
    #[error("the rest of the pool has no room")]
    NoRoom,
    /// Too many names in one list have hashes that begin like that of the new one (`ENOSPC`).
    #[error("too many names in its list collide with this one: choose another name")]
    NamesCollide,
    /// There is a checkpoint (`ZFS_ERR_CHECKPOINT_EXISTS`).
    #[error("a checkpoint exists")]
    CheckpointExists,
    /// A checkpoint is being discarded (`ZFS_ERR_DISCARDING_CHECKPOINT`).
    #[error("a checkpoint is being discarded")]
    DiscardingCheckpoint,
    /// The guid is 0, or in use (`EEXIST`).
    #[error("the guid {} is in use", guid.0)]
    Guid {
        /// The guid.
        guid: Guid,
    },
    /// This release does not support it.
    #[error("{what} is not in this release")]
    Unsupported {
        /// The unsupported operation.
        what: &'static str,
    },
    /// The pool metadata can't be read.
    #[error("the pool's metadata")]
    Metadata(#[from] pool::Error),
    /// The changed tree is invalid, or lacks the vdev.
    #[error("the tree of vdevs")]
    Tree(#[from] vdev::VdevError),
}

/// Why a device was not changed.
#[derive(Debug, thiserror::Error)]
pub enum LifeError {
    /// The pool can't be changed.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The vdev is not a device of its own (`ENOTSUP`).
    #[error("the vdev {} is no device", guid.0)]
    NotLeaf {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// Some data can be read only from it (`EBUSY`).
    #[error("the device {} holds what no other does", guid.0)]
    NoReplicas {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The device has left with a split (`EINVAL`).
    #[error("the device {} was split off", guid.0)]
    SplitOff {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// Nothing can be attached to it or replace it at its place (`ENOTSUP`).
    #[error("the vdev {} can't have a side more", guid.0)]
    Target {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The new device is too small (`EOVERFLOW`).
    #[error("the new device has {size} bytes, and {least} are needed")]
    TooSmall {
        /// Its allocatable bytes.
        size: u64,
        /// The least size, in bytes.
        least: u64,
    },
    /// The new device has larger sectors than its vdev (`EDOM`).
    #[error("the new device has an ashift of {}, its vdev one of {}", new.0, vdev.0)]
    Ashift {
        /// The device's.
        new: ondisk::Ashift,
        /// The vdev's.
        vdev: ondisk::Ashift,
    },
    /// The new device is in use (`EBUSY`).
    #[error("the new device is in use")]
    InUse,
    /// The place of a hot spare in use can only be taken by another hot spare.
    #[error("the device {} can only be replaced by another hot spare", guid.0)]
    OnlySpare {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// A resilver is running or requested, which excludes a rebuild
    /// (`ZFS_ERR_RESILVER_IN_PROGRESS`).
    #[error("a resilver is in progress")]
    Resilvering,
    /// A sequential rebuild is running, which excludes a resilver (`ZFS_ERR_REBUILD_IN_PROGRESS`).
    #[error("a sequential resilver is in progress")]
    Rebuilding,
    /// Its top-level vdev can't be rebuilt sequentially (`ENOTSUP`).
    #[error("what is beside {} can't be rebuilt sequentially", guid.0)]
    NotSequential {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The feature `device_rebuild` is not enabled (`ENOTSUP`).
    #[error("the feature device_rebuild is not enabled")]
    RebuildDisabled,
    /// Only children of mirrors and of replacements can be detached (`ENOTSUP`).
    #[error("the vdev {} can't lose a side", guid.0)]
    NotMirror {
        /// Guid of the vdev.
        guid: Guid,
    },
}
