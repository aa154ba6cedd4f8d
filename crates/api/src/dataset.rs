//! Datasets, snapshots and bookmarks, with their holds, grants and space accounting.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

use super::{Error, Prop, Reason};

/// The kind of a name in the dataset tree (`zfs_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatasetKind {
    /// A file system.
    Filesystem,
    /// A block volume.
    Volume,
    /// A snapshot of either.
    Snapshot,
    /// A bookmark of either.
    Bookmark,
}

/// A dataset with the requested properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// Full name: `pool/fs`, `pool/fs@snap`, `pool/fs#mark`.
    pub name: String,
    /// What it is.
    pub kind: DatasetKind,
    /// The kind of the file system or volume. For a snapshot or bookmark, that of its dataset.
    pub head: DatasetKind,
    /// The transaction group in which it was created (`createtxg`). It gives the order of
    /// snapshots.
    pub createtxg: u64,
    /// Native properties in OpenZFS's order, then user properties by name. Properties that don't
    /// apply are absent.
    #[serde(default)]
    pub props: Vec<Prop>,
}

impl Dataset {
    /// The property of that name, if it applies and was requested.
    pub fn prop(&self, name: &str) -> Option<&Prop> {
        self.props.iter().find(|p| p.name == name)
    }

    /// The number of a numeric or index property.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.prop(name).and_then(|p| p.number)
    }

    /// The pool's name.
    pub fn pool(&self) -> &str {
        let end = self.name.find(['/', '@', '#']).unwrap_or(self.name.len());
        &self.name[..end]
    }
}

/// The location of an object (`zpool_obj_to_path`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectPath {
    /// The dataset; absent if no object set has that number.
    pub dataset: Option<String>,
    /// The path in its file system; absent if there is none.
    pub path: Option<String>,
    /// Where that file system is mounted, if it is.
    pub mountpoint: Option<String>,
}

/// The datasets that match a query, as far as they can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetList {
    /// The readable datasets, in no particular order.
    pub datasets: Vec<Dataset>,
    /// What could not be read. Each error is about a dataset, or a name below which something can't
    /// be read.
    pub failures: Vec<Error>,
}

impl DatasetList {
    /// A list without failures.
    pub fn whole(datasets: Vec<Dataset>) -> Self {
        Self { datasets, failures: Vec::new() }
    }
}

/// Which properties to read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PropSelect {
    /// None: names only.
    #[default]
    None,
    /// All visible native properties and all user properties.
    All,
    /// These, of any family (`userused@…`, `written@…`, user properties), hidden ones too.
    Named(Vec<String>),
}

/// Which datasets to list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetQuery {
    /// Where to start; all pools if absent.
    pub root: Option<String>,
    /// How many levels below the root to descend: 0 is the root alone, absent means all of them.
    ///
    /// A snapshot or bookmark is one level below its dataset.
    pub depth: Option<u32>,
    /// The kinds to return; the root is returned only if its kind is among them.
    pub kinds: Vec<DatasetKind>,
    /// Return the snapshots of pools whose `listsnapshots` is on even if `kinds` lacks them.
    pub listsnapshots: bool,
    /// The properties to return.
    pub props: PropSelect,
    /// Also fill in received values.
    pub received: bool,
    /// Return values as they are stored: without the options of mounts and the alternate root.
    pub stored: bool,
}

/// Most properties that one query may name: all native ones, and quotas of some hundred users, are
/// far fewer.
const NAMED_MAX: usize = 4096;

impl DatasetQuery {
    /// The same query, with each kind and each property once, at its first position.
    ///
    /// # Errors
    /// * [`Reason::TooMuch`]: the query names more than 4,096 different properties.
    pub fn distinct(&self) -> Result<Self, Error> {
        let mut query = self.clone();
        let mut kinds = BTreeSet::new();
        query.kinds.retain(|kind| kinds.insert(*kind));
        if let PropSelect::Named(names) = &mut query.props {
            let mut seen = BTreeSet::new();
            names.retain(|name| seen.insert(name.clone()));
            if names.len() > NAMED_MAX {
                return Err(Error::new(query.root.as_deref().unwrap_or("datasets"), Reason::TooMuch));
            }
        }
        Ok(query)
    }
}

/// A table of the space accounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpaceClass {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

/// The use and quotas of a user, group or project in one file system (`zfs userspace`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceEntry {
    /// The table.
    pub class: SpaceClass,
    /// The SID domain, or nothing for POSIX ids.
    #[serde(default)]
    pub domain: String,
    /// The user, group or project id. With a domain, it is the RID.
    pub id: u32,
    /// Bytes used; absent if there is no record.
    #[serde(default)]
    pub used: Option<u64>,
    /// Byte quota.
    #[serde(default)]
    pub quota: Option<u64>,
    /// Objects used.
    #[serde(default)]
    pub objused: Option<u64>,
    /// Object quota.
    #[serde(default)]
    pub objquota: Option<u64>,
}

/// A user hold on a snapshot (`zfs_get_holds`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The snapshot's full name.
    pub snapshot: String,
    /// The tag.
    pub tag: String,
    /// When it was placed, in seconds since the epoch.
    pub time: u64,
}

/// The permissions granted at one dataset (`zfs allow`, `zfs_get_fsacl`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The dataset.
    pub dataset: String,
    /// The granted words by grantee, as they are stored: `ul$1000` and the like.
    pub grants: BTreeMap<String, BTreeSet<String>>,
}
