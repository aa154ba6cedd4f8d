//! What a tree of datasets has, as the list of a package (`gather_nvlist`).

use std::collections::BTreeMap;

use api::{Dataset, DatasetKind as K, DatasetQuery, Prop, PropSelect, Source};
use dsl::prop::{Prop as Native, PropKind, is_user_property};
use ondisk::nvlist::Value;

use super::{Member, Snap};
use crate::cx::{Cx, Stop};
use crate::zfs::open::{HEADS, below, head_of, open};

/// A file system or volume, with its snapshots.
#[derive(Debug, Clone, Default)]
pub(in crate::zfs) struct Head {
    /// Its guid.
    pub(in crate::zfs) guid: u64,
    /// When it was created.
    pub(in crate::zfs) txg: u64,
    /// The snapshot of which it is a clone.
    pub(in crate::zfs) origin: Option<String>,
    /// Its encryption root, if it is encrypted.
    encroot: Option<String>,
    /// Its snapshots, in the order of their creation.
    pub(in crate::zfs) snaps: Vec<Point>,
}

/// A snapshot of a head.
#[derive(Debug, Clone)]
pub(in crate::zfs) struct Point {
    /// Its name without the dataset.
    pub(in crate::zfs) name: String,
    /// Its guid.
    pub(in crate::zfs) guid: u64,
    /// When it was created.
    pub(in crate::zfs) txg: u64,
}

impl Head {
    /// The snapshot with this name.
    pub(in crate::zfs) fn snap(&self, name: &str) -> Option<&Point> {
        self.snaps.iter().find(|snap| snap.name == name)
    }
}

/// The value of a property, unless it is empty.
fn set<'d>(dataset: &'d Dataset, property: &str) -> Option<&'d str> {
    dataset.prop(property).map(|p| p.value(true)).filter(|value| !matches!(*value, "" | "-"))
}

/// File systems and volumes by name.
#[derive(Debug, Default)]
pub(in crate::zfs) struct Tree(BTreeMap<String, Head>);

impl Tree {
    /// Reads a dataset, and with `recursive` all below it.
    ///
    /// # Errors
    /// * [`Stop::Fail`]: one can't be read. That is reported.
    pub(in crate::zfs) fn read(cx: &mut Cx, top: &str, recursive: bool) -> Result<Self, Stop> {
        let props = ["guid", "origin", "encryption", "encryptionroot"];
        let (heads, snaps) = match recursive {
            true => (below(cx, top, None, &HEADS, &props)?, below(cx, top, None, &[K::Snapshot], &["guid"])?),
            false => {
                (vec![open(cx, top, &HEADS, &props)?], below(cx, top, Some(1), &[K::Snapshot], &["guid"])?)
            }
        };
        let mut tree = BTreeMap::new();
        for head in heads {
            let encrypted = set(&head, "encryption").is_some_and(|value| value != "off");
            let new = Head {
                guid: head.number("guid").unwrap_or(0),
                txg: head.createtxg,
                origin: set(&head, "origin").map(str::to_owned),
                encroot: set(&head, "encryptionroot").filter(|_| encrypted).map(str::to_owned),
                snaps: Vec::new(),
            };
            tree.insert(head.name, new);
        }
        for snap in snaps {
            let Some((head, name)) = snap.name.split_once('@') else { continue };
            let Some(head) = tree.get_mut(head) else { continue };
            let (guid, txg) = (snap.number("guid").unwrap_or(0), snap.createtxg);
            head.snaps.push(Point { name: name.to_owned(), guid, txg });
        }
        for head in tree.values_mut() {
            head.snaps.sort_by(|a, b| (a.txg, &a.name).cmp(&(b.txg, &b.name)));
        }
        Ok(Self(tree))
    }

    /// The head with this name.
    pub(in crate::zfs) fn head(&self, name: &str) -> Option<&Head> {
        self.0.get(name)
    }

    /// The names of a head's children.
    fn children(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}/");
        let below = self.0.range(prefix.clone()..).map(|(name, _)| name);
        let below = below.take_while(|name| name.starts_with(&prefix));
        below.filter(|name| !name[prefix.len()..].contains('/')).cloned().collect()
    }

    /// The guid of a snapshot, which may be outside of the tree.
    fn guid_of(&self, cx: &mut Cx, snapshot: &str) -> Result<u64, Stop> {
        let inside = snapshot.split_once('@').and_then(|(head, name)| self.head(head)?.snap(name));
        match inside {
            Some(snap) => Ok(snap.guid),
            None => Ok(open(cx, snapshot, &[K::Snapshot], &["guid"])?.number("guid").unwrap_or(0)),
        }
    }
}

/// What a list is to contain.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::zfs) struct Wish<'a> {
    /// The topmost dataset.
    pub(in crate::zfs) top: &'a str,
    /// The snapshot on which the package builds.
    pub(in crate::zfs) from: Option<&'a str>,
    /// The last snapshot; absent at the receiver, which looks at what is there.
    pub(in crate::zfs) to: Option<&'a str>,
    /// Also all below it (`-R`).
    pub(in crate::zfs) recursive: bool,
    /// Streams are raw.
    pub(in crate::zfs) raw: bool,
    /// Also the snapshots between (`-I`).
    pub(in crate::zfs) all: bool,
    /// Leave out datasets without the last snapshot (`-s`).
    pub(in crate::zfs) skip_missing: bool,
    /// Report what is left out (`-v`).
    pub(in crate::zfs) verbose: bool,
    /// Only received values (`-b`).
    pub(in crate::zfs) backup: bool,
    /// List holds (`-h`).
    pub(in crate::zfs) holds: bool,
    /// List the properties of datasets (`-p`).
    pub(in crate::zfs) props: bool,
}

/// The members of a package.
///
/// # Errors
/// * [`Stop::Fail`]: a dataset can't be read, or can't be in a package. That is reported.
pub(in crate::zfs) fn gather(cx: &mut Cx, tree: &Tree, wish: &Wish<'_>) -> Result<Vec<Member>, Stop> {
    let mut gathering = Gathering { tree, wish, members: Vec::new() };
    gathering.visit(cx, wish.top, (0, 0))?;
    Ok(gathering.members)
}

struct Gathering<'a> {
    tree: &'a Tree,
    wish: &'a Wish<'a>,
    members: Vec<Member>,
}

impl Gathering<'_> {
    /// Adds a dataset and those below it (`send_iterate_fs`). `parent_from` is the guid of the
    /// parent's snapshot, and `to_txg` is when the last snapshot of the parents was created.
    fn visit(&mut self, cx: &mut Cx, name: &str, (parent_from, to_txg): (u64, u64)) -> Result<(), Stop> {
        let (tree, wish) = (self.tree, self.wish);
        let Some(head) = tree.head(name) else { return Ok(()) };
        let own_to = wish.to.and_then(|to| head.snap(to)).map(|snap| snap.txg);
        if wish.to.is_some() && own_to.is_none() {
            return missing(cx, wish, name, to_txg != 0 && head.txg > to_txg);
        }
        let to_txg = own_to.unwrap_or(to_txg);
        let mut member = Member {
            guid: head.guid,
            name: name.to_owned(),
            parent_from,
            holds: wish.holds,
            ..Member::default()
        };
        if let Some(origin) = &head.origin {
            member.origin = Some(tree.guid_of(cx, origin)?);
        }
        if wish.props || (wish.to.is_some() && (wish.backup || wish.recursive)) {
            let found = details(cx, wish, name, Some(0), &HEADS)?;
            member.props = Some(found.iter().flat_map(|one| listed(one, wish.backup)).collect());
        }
        if let Some(root) = &head.encroot {
            member.is_encroot = root == name;
            if !wish.raw {
                let to = wish.to.unwrap_or_default();
                writeln!(
                    cx.err,
                    "cannot send {}@{to}: encrypted dataset {name} may not be sent with properties without \
                     the raw flag",
                    wish.top
                );
                return Err(Stop::Fail(1));
            }
        }
        let from = self.snapshots(cx, head, &mut member, to_txg)?;
        self.members.push(member);
        if wish.recursive {
            for child in tree.children(name) {
                self.visit(cx, &child, (from, to_txg))?;
            }
        }
        Ok(())
    }

    /// Adds the snapshots of a dataset. Returns the guid of the one that its children refer to
    /// (`send_iterate_snap`).
    fn snapshots(&self, cx: &mut Cx, head: &Head, member: &mut Member, to_txg: u64) -> Result<u64, Stop> {
        let wish = self.wish;
        let many = wish.all || wish.recursive || wish.to.is_none();
        let txg_of = |name: Option<&str>| name.and_then(|name| head.snap(name)).map(|snap| snap.txg);
        let (first, last) = match wish.recursive {
            true => (None, None),
            false => (txg_of(wish.from), txg_of(wish.to)),
        };
        let mut from_guid = 0;
        // Of one dataset alone, only the snapshots of the package have their properties listed.
        let mut seen_from = wish.recursive || !many && wish.from.is_some() || wish.all && wish.from.is_none();
        let mut seen_to = false;
        let mut wanted = Vec::new();
        for snap in &head.snaps {
            let (is_from, is_to) = (wish.from == Some(&*snap.name), wish.to == Some(&*snap.name));
            let in_range = match many {
                true => first.is_none_or(|txg| snap.txg >= txg) && last.is_none_or(|txg| snap.txg <= txg),
                false => is_to,
            };
            if !in_range {
                continue;
            }
            if to_txg != 0 && snap.txg > to_txg {
                if wish.verbose {
                    writeln!(
                        cx.err,
                        "skipping snapshot {}@{} because it was created after the destination snapshot ({})",
                        member.name,
                        snap.name,
                        wish.to.unwrap_or_default()
                    );
                }
                continue;
            }
            member.snaps.push(Snap { name: snap.name.clone(), guid: snap.guid, ..Snap::default() });
            if is_from || (from_guid == 0 && is_to) {
                from_guid = snap.guid;
            }
            if !wish.recursive {
                if !seen_from && is_from {
                    seen_from = true;
                    continue;
                }
                if (seen_to || !seen_from) && !(is_to && wish.from.is_none()) {
                    continue;
                }
                seen_to |= is_to;
            }
            wanted.push(member.snaps.len() - 1);
        }
        if wish.to.is_some() {
            self.snapshot_lists(cx, member, &wanted)?;
        }
        Ok(from_guid)
    }

    /// Lists properties and holds of these snapshots of a member.
    fn snapshot_lists(&self, cx: &mut Cx, member: &mut Member, wanted: &[usize]) -> Result<(), Stop> {
        let wish = self.wish;
        let found = match wanted {
            [] => Vec::new(),
            [one] => {
                let name = format!("{}@{}", member.name, member.snaps[*one].name);
                details(cx, wish, &name, Some(0), &[K::Snapshot])?
            }
            _ => details(cx, wish, &member.name, Some(1), &[K::Snapshot])?,
        };
        let found: BTreeMap<&str, &Dataset> = found
            .iter()
            .filter(|one| head_of(&one.name) == member.name)
            .filter_map(|one| Some((one.name.split_once('@')?.1, one)))
            .collect();
        for at in wanted {
            let snap = &mut member.snaps[*at];
            let props = found.get(&*snap.name).into_iter().flat_map(|one| listed(one, wish.backup));
            snap.props = Some(props.collect());
            if wish.holds {
                let name = format!("{}@{}", member.name, snap.name);
                // A snapshot whose holds can't be read is listed without them.
                let holds = cx.service()?.holds(&name).ok();
                snap.holds = holds.map(|holds| {
                    holds.into_iter().map(|hold| (hold.tag.into_bytes(), Value::Uint64(hold.time))).collect()
                });
            }
        }
        Ok(())
    }
}

/// Reports a dataset without the last snapshot, or leaves it out.
fn missing(cx: &mut Cx, wish: &Wish<'_>, name: &str, newer: bool) -> Result<(), Stop> {
    let to = wish.to.unwrap_or_default();
    if newer {
        if wish.verbose {
            writeln!(cx.err, "skipping dataset {name}: snapshot {to} does not exist");
        }
        return Ok(());
    }
    if wish.skip_missing {
        writeln!(cx.err, "WARNING: skipping dataset {name} and its children: snapshot {to} does not exist");
        return Ok(());
    }
    let how = if wish.recursive { " recursively" } else { "" };
    writeln!(cx.err, "cannot send {}@{to}{how}: snapshot {name}@{to} does not exist", wish.top);
    Err(Stop::Fail(1))
}

/// Datasets with all properties, as they are stored.
fn details(
    cx: &mut Cx,
    wish: &Wish<'_>,
    root: &str,
    depth: Option<u32>,
    kinds: &[K],
) -> Result<Vec<Dataset>, Stop> {
    let query = DatasetQuery {
        root: Some(root.to_owned()),
        depth,
        kinds: kinds.to_vec(),
        props: PropSelect::All,
        received: wish.backup,
        stored: true,
        ..DatasetQuery::default()
    };
    match cx.service()?.datasets(&query) {
        Ok(list) => match list.failures.first() {
            None => Ok(list.datasets),
            Some(e) => Err(cx.fail(&format!("cannot open '{}'", e.about), e)),
        },
        Err(e) => Err(cx.fail(&format!("cannot open '{root}'"), &e)),
    }
}

/// The properties of a dataset that a package lists: those that are set there
/// (`send_iterate_prop`).
fn listed(dataset: &Dataset, backup: bool) -> Vec<(Vec<u8>, Value)> {
    let is_snapshot = dataset.kind == K::Snapshot;
    let props = dataset.props.iter();
    props
        .filter_map(|prop| Some((prop.name.clone().into_bytes(), entry(prop, is_snapshot, backup)?)))
        .collect()
}

/// What a package says of one property.
fn entry(prop: &Prop, is_snapshot: bool, backup: bool) -> Option<Value> {
    let text = match (backup, &prop.source) {
        (true, _) => &prop.received.as_ref()?.1,
        (false, Source::Local | Source::Received) => prop.value(true),
        (false, _) => return None,
    };
    if is_user_property(&prop.name) {
        return Some(Value::String(text.as_bytes().to_vec()));
    }
    let native = Native::by_name(&prop.name).filter(|native| native.name() == prop.name)?;
    let desc = native.desc();
    let limits = [Native::Quota, Native::Reservation, Native::Refquota, Native::Refreservation];
    // The contents of the dataset have these two.
    let kept = [Native::Volsize, Native::Version];
    if desc.is_readonly() || kept.contains(&native) || (is_snapshot && limits.contains(&native)) {
        return None;
    }
    if desc.kind == PropKind::String {
        return Some(Value::String(text.as_bytes().to_vec()));
    }
    let number = match text {
        _ if !backup => prop.number,
        text if desc.kind == PropKind::Index => desc.index_value(text),
        "none" => Some(u64::MAX),
        text => text.parse().ok(),
    };
    number.map(Value::Uint64)
}

/// Whether a list can be received (`libzfs_max_nvlist`).
pub(in crate::zfs) fn fits(list: &[u8]) -> bool {
    list.len() as u64 <= ondisk::replay::MAX_LIST
}
