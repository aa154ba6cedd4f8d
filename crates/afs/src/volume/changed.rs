//! The check of a volume that was made from one that was checked.
//!
//! # Theory
//! An increment of blocks goes into a clone of a snapshot whose vnodes are a tree. Blocks that were
//! born before the snapshot are still the same. So only vnodes whose dnodes differ can contradict
//! each other now: they are read in both states, and so are the directories among them. Names in
//! directories that did not change are known from the older state: each vnode has as many there as
//! its links say, all in its parent.
//!
//! A circle of directories needs a directory whose parent changed. So the walk to the root begins
//! at those that differ.
//!
//! Blocks that are not on disk have no births. What was just received is compared by the records of
//! its stream instead ([`Differences::Touched`]).
//!
//! The time is that of the changes, and of the directories that have them.

use std::collections::{BTreeSet, HashMap, HashSet};

use dmu::{Change, Dnode, Objset};
use ondisk::{ObjNum, Txg};
use poolhouse::stream::Touch;
use zpl::{AfsBrief, FileSystem};

use super::tree::{MOST_VNODES, StoredVnode, Sums, TWO_NAMES, identity};
use super::{object, vnode};
use crate::types::{Unique, Vnode, VnodeType};
use crate::{Error, Place, Record, Result};

/// A vnode in one of the two states.
#[derive(Debug, Clone, Copy)]
struct Facts {
    unique: Unique,
    kind: VnodeType,
    parent: Vnode,
    links: u16,
    blocks: u64,
}

impl Facts {
    fn is_directory(&self) -> bool {
        self.kind == VnodeType::Directory
    }

    /// How many names it has.
    fn names(&self) -> u32 {
        if self.is_directory() { 1 } else { u32::from(self.links) }
    }
}

/// A vnode in both states.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    old: Option<Facts>,
    new: Option<Facts>,
}

/// Where two states may differ.
#[derive(Debug, Clone, Copy)]
pub enum Differences<'a> {
    /// In what was born after this txg. Both states are on disk.
    Since(Txg),
    /// In these objects. The new state need not be on disk.
    Touched(&'a [Touch]),
}

/// The directory that names a vnode, and how often.
type Naming = Option<(Vnode, u32)>;

/// What directories that differ say of a vnode.
#[derive(Debug, Clone, Copy, Default)]
struct Names {
    old: Naming,
    new: Naming,
}

/// The differences between two states of a volume.
struct Changes<'a> {
    old: &'a FileSystem,
    new: &'a FileSystem,
    vnodes: HashMap<Vnode, Pair>,
    names: HashMap<Vnode, Names>,
    /// How many more subdirectories a directory has.
    below: HashMap<Vnode, i64>,
}

/// Checks that the vnodes of `new` are a tree. It was made from `old`, whose vnodes are one with
/// these sums. `None`: the two can't be compared.
///
/// The greatest uniquifier may be that of a vnode that is gone. After an error, [`super::check()`]
/// may still find a tree: if the old state is damaged, or a limit is met that holds for both states
/// together.
///
/// # Errors
/// [`Error::Shape`] and others, as of [`super::restore()`].
pub fn check_changes(
    old: &FileSystem,
    new: &FileSystem,
    differences: Differences<'_>,
    sums: Sums,
) -> Result<Option<Sums>> {
    if !new.reads_files_like(old) {
        return Ok(None);
    }
    let (vnodes, names, below) = Default::default();
    let mut changes = Changes { old, new, vnodes, names, below };
    match differences {
        Differences::Since(since) => changes.collect(since)?,
        Differences::Touched(touched) => changes.collect_touched(touched)?,
    }
    changes.check()?;
    Ok(changes.sums(sums))
}

/// Whether all vnodes are as in an earlier state, a snapshot of this txg. What the file system
/// keeps for itself may differ.
///
/// # Errors
/// [`Error::FileSystem`]: a block of dnodes can't be read.
pub fn is_same_since(os: &Objset, since: Txg) -> Result<bool> {
    // A vnode that is gone had a name, so its directory differs.
    for change in os.changes_since(since, object(Vnode::ROOT)) {
        if !matches!(change.map_err(zpl::Error::Dmu)?, Change::Free(..)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The vnode that an object is, and what its directory entries name.
fn read(fs: &FileSystem, number: ObjNum) -> Result<Option<(Facts, Vec<Vnode>)>> {
    let Some((vnode, unique, brief)) = known(fs, number)? else { return Ok(None) };
    let place = Place { record: Record::Vnode(vnode), at: 0 };
    let StoredVnode { kind, parent, links, blocks, names } = StoredVnode::read(fs, vnode, &brief, place)?;
    Ok(Some((Facts { unique, kind, parent, links, blocks }, names)))
}

fn known(fs: &FileSystem, number: ObjNum) -> Result<Option<(Vnode, Unique, AfsBrief)>> {
    let Some(brief) = fs.afs_brief(number)? else { return Ok(None) };
    Ok(identity(number, &brief)?.map(|(vnode, unique)| (vnode, unique, brief)))
}

/// Whether an object is the same in both states.
fn is_same(old: &FileSystem, new: &FileSystem, number: ObjNum) -> Result<bool> {
    let old = match old.objset().dnode(number) {
        Err(dmu::Error::NoSuchObject { .. }) => return Ok(false),
        old => old.map_err(zpl::Error::Dmu)?,
    };
    let new = new.objset().dnode(number).map_err(zpl::Error::Dmu)?;
    Ok(old.phys() == new.phys())
}

/// Whether an object has the same dnode in both states, but for pointers.
fn has_same_dnode(old: &FileSystem, new: &FileSystem, number: ObjNum) -> Result<bool> {
    let dnode = |fs: &FileSystem| match fs.objset().dnode(number) {
        Err(dmu::Error::NoSuchObject { .. }) => Ok(None),
        dnode => dnode.map(Some).map_err(zpl::Error::Dmu),
    };
    let facts =
        |dnode: &Dnode| (dnode.kind(), dnode.block_size(), dnode.bonus_kind(), dnode.phys().num_slots());
    let has_spill = |dnode: &Dnode| dnode.phys().spill.is_some();
    Ok(match (dnode(old)?, dnode(new)?) {
        (Some(old), Some(new)) => {
            facts(&old) == facts(&new) && old.bonus() == new.bonus() && !has_spill(&old) && !has_spill(&new)
        }
        _ => false,
    })
}

fn wrong<T>(vnode: Vnode, why: &'static str) -> Result<T> {
    Err(Error::Shape { place: Place { record: Record::Vnode(vnode), at: 0 }, why })
}

impl Changes<'_> {
    fn collect(&mut self, since: Txg) -> Result<()> {
        for change in self.new.objset().changes_since(since, object(Vnode::ROOT)) {
            match change.map_err(zpl::Error::Dmu)? {
                Change::Used(number) if is_same(self.old, self.new, number)? => {}
                Change::Used(number) => self.add(number)?,
                Change::Free(first, last) => {
                    for dnode in self.old.objset().objects(first) {
                        let number = dnode.map_err(zpl::Error::Dmu)?.object();
                        if number > last {
                            break;
                        }
                        self.add(number)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds what differs, of the objects of a stream.
    fn collect_touched(&mut self, touched: &[Touch]) -> Result<()> {
        let mut touched = touched.to_vec();
        touched.sort_unstable_by_key(|touch| touch.first);
        // A stream may say the same more than once.
        let (mut numbers, mut next) = (BTreeSet::new(), object(Vnode::ROOT));
        let mut enter = |number: ObjNum| {
            numbers.insert(number);
            let place = Place { record: Record::Vnode(Vnode::ROOT), at: 0 };
            let too_many = Error::TooLong { place, field: "the list of vnodes", max: MOST_VNODES };
            if numbers.len() > MOST_VNODES { Err(too_many) } else { Ok(()) }
        };
        for Touch { first, last, is_dnode } in touched {
            if last < object(Vnode::ROOT) || is_dnode && has_same_dnode(self.old, self.new, first)? {
                continue;
            }
            if first == last {
                enter(first)?;
                continue;
            }
            // Those of a range were freed. A new object has a record of its own.
            next = next.max(first);
            for dnode in self.old.objset().objects(next) {
                let number = dnode.map_err(zpl::Error::Dmu)?.object();
                if number > last {
                    break;
                }
                enter(number)?;
            }
            next = next.max(ObjNum(last.0.saturating_add(1)));
        }
        numbers.into_iter().try_for_each(|number| self.add(number))
    }

    /// Adds a vnode that differs.
    fn add(&mut self, number: ObjNum) -> Result<()> {
        let (old, new) = (read(self.old, number)?, read(self.new, number)?);
        let Some(vnode) = vnode(number).filter(|_| old.is_some() || new.is_some()) else { return Ok(()) };
        let place = Place { record: Record::Vnode(vnode), at: 0 };
        let pair =
            Pair { old: old.as_ref().map(|(facts, _)| *facts), new: new.as_ref().map(|(facts, _)| *facts) };
        for (facts, more) in [(pair.old, -1), (pair.new, 1)] {
            if let Some(facts) = facts.filter(|facts| facts.is_directory() && vnode != Vnode::ROOT) {
                *self.below.entry(facts.parent).or_default() += more;
            }
        }
        if self.vnodes.len() == MOST_VNODES {
            return Err(Error::TooLong { place, field: "the list of vnodes", max: MOST_VNODES });
        }
        self.vnodes.insert(vnode, pair);
        for named in old.into_iter().flat_map(|(_, names)| names) {
            self.add_name(named, place)?.old.get_or_insert((vnode, 0)).1 += 1;
        }
        for named in new.into_iter().flat_map(|(_, names)| names) {
            let of = self.add_name(named, place)?.new.get_or_insert((vnode, 0));
            if of.0 != vnode {
                return wrong(named, TWO_NAMES);
            }
            of.1 += 1;
        }
        Ok(())
    }

    fn add_name(&mut self, named: Vnode, place: Place) -> Result<&mut Names> {
        if self.names.len() == MOST_VNODES && !self.names.contains_key(&named) {
            return Err(Error::TooLong { place, field: "the list of entries", max: MOST_VNODES });
        }
        Ok(self.names.entry(named).or_default())
    }

    /// A vnode in both states.
    fn pair(&self, vnode: Vnode) -> Result<Pair> {
        if let Some(pair) = self.vnodes.get(&vnode) {
            return Ok(*pair);
        }
        let same = read(self.old, object(vnode))?.map(|(facts, _)| facts);
        Ok(Pair { old: same, new: same })
    }

    fn check(&self) -> Result<()> {
        if self.vnodes.get(&Vnode::ROOT).is_some_and(|pair| pair.new.is_none()) {
            return wrong(Vnode::ROOT, "the volume lacks the root directory");
        }
        let mut touched: Vec<Vnode> =
            self.vnodes.keys().chain(self.names.keys()).chain(self.below.keys()).copied().collect();
        touched.sort_unstable();
        touched.dedup();
        for vnode in touched {
            if let Some(why) = self.contradiction(vnode)? {
                return wrong(vnode, why);
            }
        }
        self.check_circles()
    }

    /// What is wrong with a vnode, beside circles.
    fn contradiction(&self, vnode: Vnode) -> Result<Option<&'static str>> {
        let names = self.names.get(&vnode).copied().unwrap_or_default();
        let more = self.below.get(&vnode).copied().unwrap_or(0);
        if names.old == names.new && more == 0 && !self.vnodes.contains_key(&vnode) {
            return Ok(None);
        }
        let pair = self.pair(vnode)?;
        let is_root = vnode == Vnode::ROOT;
        let in_same = |old: &Facts| !is_root && !self.vnodes.contains_key(&old.parent);
        let kept = pair.old.filter(in_same).map(|old| (old.parent, old.names()));
        let named = match (kept, names.new) {
            (Some(_), Some(_)) => return Ok(Some(TWO_NAMES)),
            (kept, new) => kept.or(new),
        };
        let Some(new) = pair.new else {
            return Ok(named.map(|_| "a directory names it, but the volume lacks it"));
        };
        let before = pair.old.filter(Facts::is_directory).map_or(0, |old| i64::from(old.links) - 2);
        if new.is_directory() && i64::from(new.links) != 2 + before + more {
            return Ok(Some("its link count is not 2 and the number of its subdirectories"));
        }
        Ok(match named {
            None if is_root => None,
            Some(_) if is_root => Some("a directory names the root directory"),
            None => Some("no directory names it"),
            Some((parent, _)) if parent != new.parent => {
                Some("its parent is not the directory that names it")
            }
            Some((_, names)) if names != new.names() => Some("its link count is not the number of its names"),
            Some(_) => None,
        })
    }

    /// The directory of a vnode in the new state.
    fn parent(&self, vnode: Vnode) -> Result<Option<Vnode>> {
        match self.vnodes.get(&vnode) {
            Some(pair) => Ok(pair.new.map(|new| new.parent)),
            None => Ok(known(self.old, object(vnode))?.and_then(|(_, _, brief)| super::vnode(brief.parent))),
        }
    }

    /// Checks that each directory that differs is below the root. All parents are directories.
    fn check_circles(&self) -> Result<()> {
        let mut below_root = HashSet::from([Vnode::ROOT]);
        let is_directory = |pair: &Pair| pair.new.is_some_and(|new| new.is_directory());
        for (directory, _) in self.vnodes.iter().filter(|(_, pair)| is_directory(pair)) {
            let (mut at, mut path) = (*directory, HashSet::new());
            while !below_root.contains(&at) {
                if !path.insert(at) {
                    return wrong(*directory, "its parents run in a circle");
                }
                at = match self.parent(at)? {
                    Some(parent) => parent,
                    None => return wrong(at, "its parent is no directory of the volume"),
                };
            }
            below_root.extend(path);
        }
        Ok(())
    }

    /// The sums of the new state. `None`: those of the old one can't be right, or a limit is met.
    fn sums(&self, old: Sums) -> Option<Sums> {
        let of = |facts: &Option<Facts>| facts.map_or((0, 0), |facts| (1, i128::from(facts.blocks)));
        let (mut vnodes, mut blocks) = (i128::from(old.vnodes), i128::from(old.blocks));
        for pair in self.vnodes.values() {
            let (new, gone) = (of(&pair.new), of(&pair.old));
            vnodes += new.0 - gone.0;
            blocks += new.1 - gone.1;
        }
        let of_new = self.vnodes.values().filter_map(|pair| pair.new).map(|new| new.unique);
        let greatest_unique = of_new.fold(old.greatest_unique, Unique::max);
        let vnodes = u64::try_from(vnodes).ok().filter(|vnodes| *vnodes <= MOST_VNODES as u64)?;
        // The largest sum may be that of more.
        let blocks = u64::try_from(blocks).ok().filter(|blocks| old.blocks.max(*blocks) < u64::MAX)?;
        Some(Sums { blocks, vnodes, greatest_unique })
    }
}
