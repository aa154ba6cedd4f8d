//! Requests that change pools and datasets.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

use super::{DatasetKind, KeyMaterial, MountFailure, Vdev};

/// Properties as the user gave them: names and texts, checked by whoever sets them.
pub type Settings = Vec<(String, String)>;

/// The devices of a new pool, or those that a pool gets in addition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Layout {
    /// New top-level vdevs, in order: kinds, paths, parity and allocation class are what counts.
    pub tops: Vec<Vdev>,
    /// Hot spares.
    pub spares: Vec<Vdev>,
    /// Cache devices.
    pub cache: Vec<Vdev>,
}

/// A request to make a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// The name that it has until it is exported (`-t`).
    pub temporary_name: Option<String>,
    /// Its devices.
    pub layout: Layout,
    /// Pool properties (`-o`, `-R`), and each feature that is to be enabled.
    pub props: Settings,
    /// Properties of its root dataset (`-O`, `-m`).
    pub root_props: Settings,
    /// Take devices that seem to belong to a pool which is not in use (`-f`).
    pub force: bool,
    /// The key of its root dataset, if that is encrypted.
    pub key: Option<KeyMaterial>,
}

/// What is done to what is free on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// It is written (`zpool initialize`).
    Initialize,
    /// It is discarded (`zpool trim`).
    Trim,
}

/// What is to become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkCommand {
    /// Begin, or go on.
    Start,
    /// Stop for good.
    Cancel,
    /// Stop, to go on later.
    Suspend,
    /// Let it count as never done.
    Undo,
}

/// What is asked of a pool's scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanCommand {
    /// Begin a scrub, or go on with one that is paused.
    Scrub,
    /// Begin a scrub of what is newer than the last one.
    ScrubOn,
    /// Begin a scrub of what the log of damaged blocks names, or go on with one that is paused.
    ErrorScrub,
    /// Begin the resilver anew, if a device needs one.
    Resilver,
    /// Pause the scrub.
    Pause,
    /// Stop the scrub for good.
    Stop,
}

/// What is done to a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolChange {
    /// Destroy it; its history ends with this line.
    Destroy {
        /// Unmount what is in use.
        force: bool,
        /// The command line.
        command: String,
    },
    /// Add vdevs.
    Add {
        /// These.
        layout: Layout,
        /// Sector size, as a shift.
        ashift: Option<u64>,
        /// Refuse a sector size that the pool's other vdevs don't have.
        check_ashift: bool,
        /// Take devices that seem to belong to a pool which is not in use.
        force: bool,
    },
    /// Remove a hot spare or cache device.
    Remove {
        /// Its path, its guid, or the name that it is shown with.
        device: String,
    },
    /// Split a device of each mirror off into a new pool.
    Split {
        /// The new pool's name.
        name: String,
        /// The devices, by guid.
        devices: Vec<u64>,
        /// Properties of the new pool, `altroot` among them.
        props: Settings,
        /// Leave the new pool imported.
        import: bool,
    },
    /// Set properties or enable features.
    Set {
        /// These.
        props: Settings,
    },
    /// Set a property of a vdev.
    SetVdev {
        /// Its guid.
        guid: u64,
        /// The property.
        property: String,
        /// Its value, as it was typed.
        value: String,
    },
    /// Raise the version (`zpool upgrade`).
    Upgrade {
        /// To this.
        version: u64,
    },
    /// Give it a new guid.
    Reguid {
        /// This one; one at random if absent.
        guid: Option<u64>,
    },
    /// Write what is pending.
    Sync,
    /// The same, even if that is nothing.
    SyncAnew,
    /// Keep its present state, to go back to.
    Checkpoint,
    /// Let the kept state go.
    DiscardCheckpoint {
        /// Answer when all that it held is free.
        wait: bool,
    },
    /// Forget errors, and resume if it is suspended.
    Clear {
        /// Of this device only.
        device: Option<String>,
    },
    /// Look for devices that are gone.
    Reopen,
    /// Take a device out of use (`zpool offline`).
    Offline {
        /// Its guid.
        guid: u64,
        /// Only until the pool is imported again.
        temporary: bool,
        /// As one that is faulted.
        fault: bool,
    },
    /// Bring a device back (`zpool online`).
    Online {
        /// Its guid.
        guid: u64,
        /// Take in what it has grown by.
        expand: bool,
    },
    /// Attach a device to another, or put it in its place (`zpool attach`, `zpool replace`).
    Attach {
        /// The guid of the other.
        guid: u64,
        /// The device.
        new: Box<Vdev>,
        /// It takes the other's place.
        replace: bool,
        /// It gets what it lacks in the order of its space.
        #[serde(default)]
        sequential: bool,
        /// Take a device that seems to belong to a pool which is not in use.
        force: bool,
    },
    /// Take a device out of a mirror or a replacement (`zpool detach`).
    Detach {
        /// Its guid.
        guid: u64,
    },
    /// Forget entries of the dedup tables that have one reference.
    PruneDdt {
        /// Those that are so many seconds old.
        older: Option<u64>,
        /// Or so many in a hundred, the oldest.
        percent: Option<u64>,
    },
    /// Write or discard what is free on devices, or stop that. Devices that refuse are among several errors, each about a guid, with the system's number
    /// for why.
    Work {
        /// Which of the two.
        kind: WorkKind,
        /// What is to become of it.
        command: WorkCommand,
        /// The devices, by guid.
        devices: Vec<u64>,
        /// Bytes a second that are discarded at most; 0 is no limit.
        rate: u64,
        /// Discard so that nothing can be read again.
        secure: bool,
    },
    /// Begin, pause or stop a scrub, or begin a resilver. What is refused has the system's number for why.
    Scan {
        /// What is asked for.
        command: ScanCommand,
    },
    /// Write this line to its history.
    Log {
        /// The command line.
        command: String,
    },
}

/// What is done to datasets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatasetChange {
    /// Make a file system or volume.
    Create {
        /// Its name.
        name: String,
        /// Which of the two.
        kind: DatasetKind,
        /// Its properties; `volsize` among them for a volume.
        props: Settings,
        /// A volume that reserves no room (`-s`).
        sparse: bool,
        /// Make the datasets above it that don't exist (`-p`).
        parents: bool,
        /// Mount it.
        mount: bool,
        /// Its key, if it is to be an encryption root.
        key: Option<KeyMaterial>,
    },
    /// Destroy file systems, volumes and snapshots, in this order, so that what depends on another comes first.
    Destroy {
        /// Full names.
        names: Vec<String>,
        /// Unmount what is in use.
        force: bool,
        /// Mark snapshots that are in use to be destroyed later (`-d`).
        defer: bool,
    },
    /// Destroy bookmarks.
    DestroyBookmarks {
        /// Full names.
        names: Vec<String>,
    },
    /// Make snapshots, all or none.
    Snapshot {
        /// Full names.
        names: Vec<String>,
        /// User properties of each.
        props: Settings,
    },
    /// Make a clone.
    Clone {
        /// Of this snapshot.
        origin: String,
        /// The clone's name.
        name: String,
        /// Its properties.
        props: Settings,
        /// Make the datasets above it that don't exist.
        parents: bool,
    },
    /// Swap a clone with its origin's dataset.
    Promote {
        /// The clone.
        name: String,
    },
    /// Rename a file system or volume with all below it.
    Rename {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
        /// Make the datasets above it that don't exist (`-p`).
        parents: bool,
        /// Leave mounts where they are (`-u`).
        keep_mounted: bool,
        /// Unmount what is in use (`-f`).
        force: bool,
    },
    /// Rename a snapshot.
    RenameSnapshot {
        /// The dataset.
        dataset: String,
        /// The snapshot's name, without the dataset's.
        from: String,
        /// Its new name.
        to: String,
        /// Those of that name of all datasets below too (`-r`).
        recursive: bool,
    },
    /// Go back to the last snapshot.
    Rollback {
        /// The snapshot.
        snapshot: String,
        /// What must go first: later snapshots, bookmarks, clones, in order.
        destroy: Vec<String>,
        /// Unmount clones by force.
        force: bool,
    },
    /// Make a bookmark.
    Bookmark {
        /// Of this snapshot or bookmark.
        source: String,
        /// Its name.
        name: String,
    },
    /// Hold snapshots.
    Hold {
        /// Full names.
        snapshots: Vec<String>,
        /// The tag.
        tag: String,
    },
    /// Release holds.
    Release {
        /// Full names.
        snapshots: Vec<String>,
        /// The tag.
        tag: String,
    },
    /// Set properties.
    Set {
        /// Of these datasets.
        name: String,
        /// To these values.
        props: Settings,
        /// Leave mounts as they are (`-u`).
        keep_mounted: bool,
    },
    /// Take a property's value from above again.
    Inherit {
        /// Of this dataset.
        name: String,
        /// The property.
        prop: String,
        /// Or from the stream that the dataset was received with (`-S`).
        received: bool,
    },
    /// Change an encryption root's key, or make one.
    ChangeKey {
        /// The dataset.
        name: String,
        /// Its new key; absent to inherit the key of the dataset above (`-i`).
        key: Option<KeyMaterial>,
        /// `keyformat`, `keylocation` and `pbkdf2iters`.
        props: Settings,
    },
    /// Grant permissions, or take them back (`zfs allow`, `zfs unallow`).
    Allow {
        /// On this dataset.
        name: String,
        /// Words by whom, as they are stored; to take all of them back, none.
        grants: BTreeMap<String, BTreeSet<String>>,
        /// Take them back.
        remove: bool,
    },
}

impl DatasetChange {
    /// The name of a dataset that is changed.
    pub fn subject(&self) -> &str {
        match self {
            Self::Create { name, .. }
            | Self::Clone { name, .. }
            | Self::Promote { name }
            | Self::Bookmark { name, .. }
            | Self::Set { name, .. }
            | Self::Inherit { name, .. }
            | Self::ChangeKey { name, .. }
            | Self::Allow { name, .. } => name,
            Self::Destroy { names, .. } | Self::DestroyBookmarks { names } | Self::Snapshot { names, .. } => {
                names.first().map_or("", String::as_str)
            }
            Self::Hold { snapshots, .. } | Self::Release { snapshots, .. } => {
                snapshots.first().map_or("", String::as_str)
            }
            Self::Rename { from, .. } => from,
            Self::RenameSnapshot { dataset, .. } => dataset,
            Self::Rollback { snapshot, .. } => snapshot,
        }
    }
}

/// What came of a change that was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// File systems that should be mounted now, and are not.
    pub unmounted: Vec<MountFailure>,
    /// What could not be done of many things that stand for themselves; of properties, what is mounted and goes on as before them.
    pub failures: Vec<MountFailure>,
}
