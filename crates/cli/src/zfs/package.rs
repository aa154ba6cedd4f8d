//! Packages: several streams behind one another, with a list of what is in them.
//!
//! # Theory
//! The kernel module makes and takes streams of one snapshot. All that spans several is the
//! commands' work, as it is libzfs's: which snapshots are sent, in which order, and which
//! properties, holds and names the receiver gives them. Both sides describe a tree of datasets in
//! the same way, as [`Member`]s.
//!
//! # On disk
//! A package is a BEGIN of its own kind, its list, an END, the streams, and one more END. The list
//! is an XDR [`Nvlist`]:
//!
//! | name | value |
//! |---|---|
//! | `fromsnap`, `tosnap` | short names of the first and last snapshot |
//! | `not_recursive`, `raw` | present if true |
//! | `fss` | the members, by guid |
//!
//! # See
//! OpenZFS `libzfs_sendrecv.c`: `send_data_t`, `fsavl_create`.

use std::collections::HashMap;

use api::Settings;
use dsl::prop::Prop;
use ondisk::nvlist::{Nvlist, Value};

pub(super) mod gather;

/// The list of a package.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Package {
    /// The snapshot that the package builds on, without its dataset.
    pub(super) from: Option<String>,
    /// The last snapshot, without its dataset.
    pub(super) to: String,
    /// Whether it has a tree of datasets.
    pub(super) recursive: bool,
    /// Whether its streams are raw.
    pub(super) raw: bool,
    /// The file systems and volumes. A parent comes before its children.
    pub(super) members: Vec<Member>,
}

/// A file system or volume of a package.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Member {
    /// Its guid.
    pub(super) guid: u64,
    /// Its name at the sender.
    pub(super) name: String,
    /// The guid of the parent's snapshot `fromsnap`, or else `tosnap`; 0 if there is none.
    pub(super) parent_from: u64,
    /// The guid of the snapshot of which it is a clone.
    pub(super) origin: Option<u64>,
    /// Its own properties.
    pub(super) props: Option<Nvlist>,
    /// Whether it is an encryption root.
    pub(super) is_encroot: bool,
    /// Its snapshots, in the order of their creation.
    pub(super) snaps: Vec<Snap>,
    /// Whether the package lists holds.
    pub(super) holds: bool,
}

/// A snapshot of a member.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Snap {
    /// Its name without the dataset.
    pub(super) name: String,
    /// Its guid.
    pub(super) guid: u64,
    /// Its own properties, if the package has the snapshot.
    pub(super) props: Option<Nvlist>,
    /// Its holds, with their times.
    pub(super) holds: Option<Nvlist>,
}

/// A list of these pairs. Unlike [`Nvlist::set`], it does not look for the same name.
fn list_of(pairs: impl Iterator<Item = (String, Value)>) -> Nvlist {
    pairs.map(|(name, value)| (name.into_bytes(), value)).collect()
}

impl Package {
    /// Encodes the list.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut list = Nvlist::new();
        if let Some(from) = &self.from {
            list.set("fromsnap", Value::String(from.clone().into_bytes()));
        }
        list.set("tosnap", Value::String(self.to.clone().into_bytes()));
        if !self.recursive {
            list.set("not_recursive", Value::Boolean);
        }
        if self.raw {
            list.set("raw", Value::Boolean);
        }
        let members = self.members.iter();
        let members = members.map(|member| (format!("{:#x}", member.guid), Value::List(member.to_list())));
        list.set("fss", Value::List(list_of(members)));
        list.encode_xdr()
    }

    /// Decodes the list. `None`: it lacks something that each list has.
    pub(super) fn decode(list: &Nvlist) -> Option<Self> {
        let text = |name: &str| list.str(name).map(str::to_owned);
        let members = list.list("fss")?.iter().map(|(guid, member)| {
            let guid = std::str::from_utf8(guid).ok()?.strip_prefix("0x")?;
            let Value::List(member) = member else { return None };
            Member::of_list(u64::from_str_radix(guid, 16).ok()?, member)
        });
        Some(Self {
            from: text("fromsnap"),
            to: text("tosnap").unwrap_or_default(),
            recursive: !list.has("not_recursive"),
            raw: list.has("raw"),
            members: members.collect::<Option<_>>()?,
        })
    }
}

impl Member {
    fn to_list(&self) -> Nvlist {
        let mut list = Nvlist::new();
        list.set("name", Value::String(self.name.clone().into_bytes()));
        list.set("parentfromsnap", Value::Uint64(self.parent_from));
        if let Some(origin) = self.origin {
            list.set("origin", Value::Uint64(origin));
        }
        if let Some(props) = &self.props {
            list.set("props", Value::List(props.clone()));
        }
        if self.is_encroot {
            list.set("is_encroot", Value::Boolean);
        }
        let guids = self.snaps.iter().map(|snap| (snap.name.clone(), Value::Uint64(snap.guid)));
        list.set("snaps", Value::List(list_of(guids)));
        let of = |pick: fn(&Snap) -> Option<&Nvlist>| {
            let lists = self
                .snaps
                .iter()
                .filter_map(|snap| Some((snap.name.clone(), Value::List(pick(snap)?.clone()))));
            Value::List(list_of(lists))
        };
        list.set("snapprops", of(|snap| snap.props.as_ref()));
        if self.holds {
            list.set("snapholds", of(|snap| snap.holds.as_ref()));
        }
        list
    }

    fn of_list(guid: u64, list: &Nvlist) -> Option<Self> {
        let by_name = |name: &str| {
            let lists = list.list(name).into_iter().flat_map(Nvlist::iter);
            lists.filter_map(|(name, list)| match list {
                Value::List(list) => Some((name, list)),
                _ => None,
            })
        };
        let props: HashMap<&[u8], &Nvlist> = by_name("snapprops").collect();
        let holds: HashMap<&[u8], &Nvlist> = by_name("snapholds").collect();
        let snaps = list.list("snaps")?.iter().map(|(name, guid)| {
            let Value::Uint64(guid) = guid else { return None };
            Some(Snap {
                name: String::from_utf8(name.to_vec()).ok()?,
                guid: *guid,
                props: props.get(name).map(|list| (*list).clone()),
                holds: holds.get(name).map(|list| (*list).clone()),
            })
        });
        Some(Self {
            guid,
            name: list.str("name")?.to_owned(),
            parent_from: list.u64("parentfromsnap")?,
            origin: list.u64("origin"),
            props: list.list("props").cloned(),
            is_encroot: list.has("is_encroot"),
            snaps: snaps.collect::<Option<_>>()?,
            holds: list.has("snapholds"),
        })
    }
}

/// Members and snapshots by the guid of the snapshot (`fsavl_find`). Of several with one guid, the
/// first counts.
#[derive(Debug, Default)]
pub(super) struct ByGuid(HashMap<u64, (usize, usize)>);

impl ByGuid {
    /// The places of all snapshots of these members.
    pub(super) fn of(members: &[Member]) -> Self {
        let mut places = HashMap::new();
        for (at, member) in members.iter().enumerate() {
            for (of, snap) in member.snaps.iter().enumerate() {
                places.entry(snap.guid).or_insert((at, of));
            }
        }
        Self(places)
    }

    /// The index of the member that has a snapshot, and of the snapshot.
    pub(super) fn find(&self, guid: u64) -> Option<(usize, usize)> {
        self.0.get(&guid).copied()
    }
}

/// The values of a package as text, for a request.
pub(super) fn texts(list: &Nvlist) -> Settings {
    let each = |(name, value): (&[u8], &Value)| {
        let name = String::from_utf8(name.to_vec()).ok()?;
        let value = match value {
            Value::String(text) => String::from_utf8(text.clone()).ok()?,
            Value::Uint64(n) => number(&name, *n),
            _ => return None,
        };
        Some((name, value))
    };
    // The contents of the dataset have these.
    let kept = [Prop::Keylocation, Prop::Volsize, Prop::Version].map(Prop::name);
    list.iter().filter_map(each).filter(|(name, _)| !kept.contains(&name.as_str())).collect()
}

/// A number as a user would write it.
fn number(name: &str, n: u64) -> String {
    let Some(prop) = Prop::by_name(name) else { return n.to_string() };
    let none = match prop {
        Prop::Quota | Prop::Refquota | Prop::Reservation | Prop::Refreservation => n == 0,
        Prop::FilesystemLimit | Prop::SnapshotLimit => n == u64::MAX,
        _ => false,
    };
    match prop.desc().index_name(n) {
        Some(word) => word.to_owned(),
        None if none => "none".to_owned(),
        None => n.to_string(),
    }
}

#[cfg(test)]
mod tests;
