//! Requests that change pools and datasets.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

use super::{DatasetKind, KeyMaterial, MountFailure, Vdev};

/// Properties as the user typed them: names and values. The code that sets them checks them.
pub type Settings = Vec<(String, String)>;

/// The devices of a new pool, or those to add to a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Layout {
    /// New top-level vdevs, in order. Only their kinds, paths, parity and allocation class are
    /// used.
    pub tops: Vec<Vdev>,
    /// Hot spares.
    pub spares: Vec<Vdev>,
    /// Cache devices.
    pub cache: Vec<Vdev>,
}

/// A request to create a pool (`zpool_create`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CreatePool {
    /// The name of the new pool.
    pub name: String,
    /// The name that it has until its first export (`-t`).
    pub temporary_name: Option<String>,
    /// Its devices.
    pub layout: Layout,
    /// Pool properties (`-o`, `-R`), and each feature to enable.
    pub props: Settings,
    /// Properties of its root dataset (`-O`, `-m`).
    pub root_props: Settings,
    /// Accept devices that seem to belong to a pool which is not in use (`-f`).
    pub force: bool,
    /// The key of its root dataset, if that is encrypted.
    pub key: Option<KeyMaterial>,
}

/// Background work on the free space of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Write it (`zpool initialize`).
    Initialize,
    /// Discard it (`zpool trim`).
    Trim,
}

/// What to do with the background work of a device (`pool_initialize_func_t`, `pool_trim_func_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkCommand {
    /// Start, or continue after a suspension.
    Start,
    /// Stop for good.
    Cancel,
    /// Stop, and allow to continue later.
    Suspend,
    /// Forget that the device was initialized (`POOL_INITIALIZE_UNINIT`).
    Undo,
}

/// A command for a pool's scan (`pool_scan_func_t`, `pool_scrub_cmd_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanCommand {
    /// Start a scrub, or continue one that is paused.
    Scrub,
    /// Start a scrub of the blocks that are newer than the last scrub.
    ScrubOn,
    /// Start a scrub of the blocks in the log of damaged blocks, or continue one that is paused.
    ErrorScrub,
    /// Restart the resilver, if a device needs one.
    Resilver,
    /// Pause the scrub.
    Pause,
    /// Stop the scrub for good.
    Stop,
}

/// A change of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolChange {
    /// Destroy the pool (`zpool_destroy`). The command line is the last record of its history.
    Destroy {
        /// Unmount file systems that are in use.
        force: bool,
        /// The command line.
        command: String,
    },
    /// Add vdevs (`zpool_add`).
    Add {
        /// The vdevs.
        layout: Layout,
        /// Sector size, as a shift.
        ashift: Option<u64>,
        /// Refuse a sector size that the pool's other vdevs don't have.
        check_ashift: bool,
        /// Accept devices that seem to belong to a pool which is not in use.
        force: bool,
    },
    /// Remove a hot spare or cache device (`zpool_vdev_remove`).
    Remove {
        /// Its path, its guid, or the name that it is shown with.
        device: String,
    },
    /// Split one device off each mirror into a new pool (`zpool_vdev_split`).
    Split {
        /// The new pool's name.
        name: String,
        /// The guids of the devices.
        devices: Vec<u64>,
        /// Properties of the new pool, with `altroot` among them.
        props: Settings,
        /// Leave the new pool imported.
        import: bool,
    },
    /// Set properties or enable features (`zpool_set_prop`).
    Set {
        /// The properties and features.
        props: Settings,
    },
    /// Set a property of a vdev (`zpool_set_vdev_prop`).
    SetVdev {
        /// The guid of the vdev.
        guid: u64,
        /// The property.
        property: String,
        /// Its value, as it was typed.
        value: String,
    },
    /// Raise the version (`zpool upgrade`, `zpool_upgrade`).
    Upgrade {
        /// The new version.
        version: u64,
    },
    /// Give the pool a new guid (`zpool_reguid`).
    Reguid {
        /// The new guid; random if absent.
        guid: Option<u64>,
    },
    /// Write what is pending (`zpool_sync_one`).
    Sync,
    /// Write a transaction group, even if nothing is pending.
    SyncAnew,
    /// Keep the present state, so that an import can return to it (`zpool_checkpoint`).
    Checkpoint,
    /// Discard the checkpoint (`zpool_discard_checkpoint`).
    DiscardCheckpoint {
        /// Answer only when all space that it held is free.
        wait: bool,
    },
    /// Clear errors, and resume the pool if it is suspended (`zpool_clear`).
    Clear {
        /// Only of this device.
        device: Option<String>,
    },
    /// Look again for devices that are missing (`zpool_reopen_one`).
    Reopen,
    /// Take a device out of use (`zpool offline`, `zpool_vdev_offline`).
    Offline {
        /// The guid of the device.
        guid: u64,
        /// Only until the next import of the pool.
        temporary: bool,
        /// Mark the device as faulted.
        fault: bool,
    },
    /// Put a device into use again (`zpool online`, `zpool_vdev_online`).
    Online {
        /// The guid of the device.
        guid: u64,
        /// Use the space by which the device has grown.
        expand: bool,
    },
    /// Attach a device to another, or replace the other with it (`zpool_vdev_attach`).
    Attach {
        /// The guid of the other device.
        guid: u64,
        /// The new device.
        new: Box<Vdev>,
        /// Replace the other device.
        replace: bool,
        /// Rebuild sequentially: copy in the order of the space on the device.
        #[serde(default)]
        sequential: bool,
        /// Accept a device that seems to belong to a pool which is not in use.
        force: bool,
    },
    /// Detach a device from a mirror or a replacement (`zpool detach`, `zpool_vdev_detach`).
    Detach {
        /// The guid of the device.
        guid: u64,
    },
    /// Remove entries with one reference from the dedup tables (`zpool_ddt_prune`).
    PruneDdt {
        /// Those that are at least this many seconds old.
        older: Option<u64>,
        /// Or this percentage of them, the oldest first.
        percent: Option<u64>,
    },
    /// Start, suspend or stop background work on the free space of devices.
    ///
    /// Devices that refuse are reported together, as [`Reason::Several`](super::Reason::Several).
    /// Each error there is about a guid, and has the system's error number.
    Work {
        /// The kind of work.
        kind: WorkKind,
        /// What to do with it.
        command: WorkCommand,
        /// The guids of the devices.
        devices: Vec<u64>,
        /// Most bytes to discard in a second; 0 for no limit.
        rate: u64,
        /// Discard so that the data can't be read again.
        secure: bool,
    },
    /// Start, pause or stop a scrub, or start a resilver (`zpool_scan`).
    ///
    /// A refusal has the system's error number.
    Scan {
        /// The command.
        command: ScanCommand,
    },
    /// Write a record to the pool's history (`zpool_log_history`).
    Log {
        /// The command line.
        command: String,
    },
}

/// A change of datasets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatasetChange {
    /// Create a file system or volume (`zfs_create`).
    Create {
        /// Its name.
        name: String,
        /// Whether it is a file system or a volume.
        kind: DatasetKind,
        /// Its properties. Those of a volume include `volsize`.
        props: Settings,
        /// Create a volume without a space reservation (`-s`).
        sparse: bool,
        /// Create missing parents (`-p`).
        parents: bool,
        /// Mount the new file system.
        mount: bool,
        /// Its key, if it becomes an encryption root.
        key: Option<KeyMaterial>,
    },
    /// Destroy file systems, volumes and snapshots (`zfs_destroy`).
    ///
    /// They are destroyed in this order, so a dataset must come before those that it depends on.
    Destroy {
        /// Full names.
        names: Vec<String>,
        /// Unmount file systems that are in use.
        force: bool,
        /// Mark snapshots that are in use for a later destruction (`-d`).
        defer: bool,
    },
    /// Destroy bookmarks (`lzc_destroy_bookmarks`).
    DestroyBookmarks {
        /// Full names.
        names: Vec<String>,
    },
    /// Create snapshots, all or none (`zfs_snapshot_nvl`).
    Snapshot {
        /// Full names.
        names: Vec<String>,
        /// User properties for each snapshot.
        props: Settings,
    },
    /// Create a clone (`zfs_clone`).
    Clone {
        /// The snapshot to clone.
        origin: String,
        /// The clone's name.
        name: String,
        /// Its properties.
        props: Settings,
        /// Create missing parents.
        parents: bool,
    },
    /// Make a clone the origin of the dataset that it was cloned from (`zfs_promote`).
    Promote {
        /// The clone.
        name: String,
    },
    /// Rename a file system or volume and all below it (`zfs_rename`).
    Rename {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
        /// Create missing parents (`-p`).
        parents: bool,
        /// Leave the mounts where they are (`-u`).
        keep_mounted: bool,
        /// Unmount file systems that are in use (`-f`).
        force: bool,
    },
    /// Rename a snapshot (`zfs_rename`).
    RenameSnapshot {
        /// The dataset.
        dataset: String,
        /// The snapshot's name, without the dataset's.
        from: String,
        /// Its new name.
        to: String,
        /// Also rename the snapshots of that name of all datasets below (`-r`).
        recursive: bool,
    },
    /// Roll back to the last snapshot (`zfs_rollback`).
    Rollback {
        /// The snapshot.
        snapshot: String,
        /// What is destroyed before: later snapshots, bookmarks and clones, in order.
        destroy: Vec<String>,
        /// Unmount clones by force.
        force: bool,
    },
    /// Create a bookmark (`lzc_bookmark`).
    Bookmark {
        /// The snapshot or bookmark that it is made from.
        source: String,
        /// Its name.
        name: String,
    },
    /// Place a hold on snapshots (`zfs_hold_nvl`).
    Hold {
        /// Full names.
        snapshots: Vec<String>,
        /// The tag.
        tag: String,
    },
    /// Release holds (`zfs_release`).
    Release {
        /// Full names.
        snapshots: Vec<String>,
        /// The tag.
        tag: String,
    },
    /// Set properties (`zfs_prop_set_list`).
    Set {
        /// The dataset.
        name: String,
        /// The properties and their new values.
        props: Settings,
        /// Leave the mounts as they are (`-u`).
        keep_mounted: bool,
    },
    /// Set the received properties of snapshots that exist. They replace all that each had received
    /// before. What can't be set is left out (`ZFS_IOC_SET_PROP`, `zc_cookie`).
    SetReceived {
        /// The snapshots with their properties.
        snapshots: Vec<(String, Settings)>,
    },
    /// Remove a property's own value, so that it is inherited again (`zfs_prop_inherit`).
    Inherit {
        /// The dataset.
        name: String,
        /// The property.
        prop: String,
        /// Return to the received value, if there is one (`-S`).
        received: bool,
    },
    /// Change an encryption root's key, or make the dataset one (`zfs_crypto_rewrap`).
    ChangeKey {
        /// The dataset.
        name: String,
        /// Its new key; absent to inherit the parent's key (`-i`).
        key: Option<KeyMaterial>,
        /// `keyformat`, `keylocation` and `pbkdf2iters`.
        props: Settings,
    },
    /// Give a dataset that was received raw the encryption root that it has at the sender. Nothing
    /// is wrapped again (`DCP_CMD_FORCE_NEW_KEY`, `DCP_CMD_FORCE_INHERIT`).
    MoveKeys {
        /// The dataset.
        name: String,
        /// It becomes an encryption root. Otherwise it takes its parent's.
        own: bool,
    },
    /// Grant permissions, or revoke them (`zfs allow`, `zfs unallow`, `zfs_set_fsacl`).
    Allow {
        /// The dataset.
        name: String,
        /// The granted words by grantee, as they are stored. No words means to revoke all of the
        /// grantee's.
        grants: BTreeMap<String, BTreeSet<String>>,
        /// Revoke them.
        remove: bool,
    },
}

impl DatasetChange {
    /// The name of a dataset that the change is about.
    pub fn subject(&self) -> &str {
        match self {
            Self::Create { name, .. }
            | Self::Clone { name, .. }
            | Self::Promote { name }
            | Self::Bookmark { name, .. }
            | Self::Set { name, .. }
            | Self::Inherit { name, .. }
            | Self::ChangeKey { name, .. }
            | Self::MoveKeys { name, .. }
            | Self::Allow { name, .. } => name,
            Self::Destroy { names, .. } | Self::DestroyBookmarks { names } | Self::Snapshot { names, .. } => {
                names.first().map_or("", String::as_str)
            }
            Self::Hold { snapshots, .. } | Self::Release { snapshots, .. } => {
                snapshots.first().map_or("", String::as_str)
            }
            Self::SetReceived { snapshots } => snapshots.first().map_or("", |(name, _)| name.as_str()),
            Self::Rename { from, .. } => from,
            Self::RenameSnapshot { dataset, .. } => dataset,
            Self::Rollback { snapshot, .. } => snapshot,
        }
    }
}

/// The result of a change that was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// File systems that should be mounted now and are not.
    pub unmounted: Vec<MountFailure>,
    /// What failed of several independent parts of the change.
    ///
    /// For properties: those that the mounted file system did not take over. It keeps their old
    /// values.
    pub failures: Vec<MountFailure>,
}
