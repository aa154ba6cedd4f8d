//! The vnodes of a volume that is being restored or adopted, and the check that they are a tree.
//!
//! # Theory
//! A dump has vnodes in any order, so nothing can be checked before its end. Until then this module
//! remembers of each vnode what the check needs, and of each name where it is.
//!
//! Of a vnode that the dump only names, the volume knows more than the dump. At the end a walk over
//! all objects of the volume reads these vnodes, and deletes those that the dump does not name. So
//! the check covers the vnodes that stay as well.
//!
//! A directory that stays has entries with numbers of objects, but without uniques. Such an entry
//! must not lead to a vnode that this restore made: clients that have the directory in their caches
//! know another unique.

use std::collections::{BTreeSet, HashMap, HashSet};

use ondisk::ObjNum;
use zpl::{AfsBrief, DirCookie, FileSystem, FileType, Node, Pflags, PlantedEntry};

use super::{TARGET_MAX, blocks, entries_of, kind_of, length_of, narrow, object, vnode};
use crate::acl::Acl;
use crate::dump::MAX_LENGTH;
use crate::types::{Unique, Vnode, VnodeType};
use crate::{Error, Place, Record, Result};

/// Most vnodes that directories name, or that the dump has. All are remembered until the end.
pub(super) const MOST_VNODES: usize = 16 << 20;
/// What is wrong with a vnode that two directories name.
pub(super) const TWO_NAMES: &str = "it has names in two directories, or for two uses of its number";
/// Files that are deleted at once.
const BATCH: usize = 1024;

/// What is known of a vnode of the dump.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) unique: Unique,
    /// `None`: the dump only names it, and the walk has not seen it yet.
    pub(crate) kind: Option<VnodeType>,
    pub(crate) parent: Vnode,
    pub(crate) links: u16,
    /// The byte of the dump where its record begins.
    pub(crate) at: u64,
    /// The volume had no vnode with this number and unique.
    pub(crate) is_new: bool,
}

/// What the check needs of a vnode that a file system has.
#[derive(Debug)]
pub(super) struct StoredVnode {
    pub(super) kind: VnodeType,
    pub(super) parent: Vnode,
    pub(super) links: u16,
    /// Its space in KiB.
    pub(super) blocks: u64,
    /// What the entries of a directory name.
    pub(super) names: Vec<Vnode>,
}

impl StoredVnode {
    /// Reads a vnode, and checks what can be checked of it alone.
    pub(super) fn read(fs: &FileSystem, number: Vnode, brief: &AfsBrief, place: Place) -> Result<Self> {
        let shape = |why| Error::Shape { place, why };
        let kind = kind_of(number, brief.kind).map_err(shape)?;
        let time = brief.server_mtime.ok_or_else(|| shape("it has no status of AFS"))?;
        narrow::<u32>(place, "the server's time", time)?;
        let parent = match vnode(brief.parent) {
            _ if number == Vnode::ROOT => Vnode(0),
            Some(parent) => parent,
            None => return Err(shape("its parent is no directory of the volume")),
        };
        let links = narrow(place, "the link count", brief.links)?;
        let (length, names) = match kind {
            VnodeType::Directory => names_of(&fs.node(object(number))?, place)?,
            _ => (brief.size, Vec::new()),
        };
        check_length(kind, length, place)?;
        Ok(Self { kind, parent, links, blocks: blocks(length), names })
    }
}

/// The number and uniquifier of a file of a volume that came without a dump. `None`: it was removed
/// and is not freed yet, so it has no name.
pub(super) fn identity(number: ObjNum, brief: &AfsBrief) -> Result<Option<(Vnode, Unique)>> {
    if brief.links == 0 {
        return Ok(None);
    }
    let shape = |record, why| Err(Error::Shape { place: Place { record, at: 0 }, why });
    let Some(vnode) = vnode(number) else {
        return shape(Record::VolumeHeader, "it has a file whose number no vnode has");
    };
    if brief.pflags.has(Pflags::XATTR) {
        return shape(Record::Vnode(vnode), "the volume has attributes of another front end");
    }
    match u32::try_from(brief.generation) {
        Ok(unique) => Ok(Some((vnode, Unique(unique)))),
        Err(_) => shape(Record::Vnode(vnode), "its generation is no uniquifier"),
    }
}

/// The length of a directory, and what its entries name. It must have an access list.
fn names_of(node: &Node, place: Place) -> Result<(u64, Vec<Vnode>)> {
    let status = node.afs_status()?;
    let list = status.as_ref().map_or(&[][..], |status| &status.access_list);
    Acl::from_compact(list).map_err(|error| error.inside(place))?;
    let entries = entries_of(node, place)?;
    let names = entries.iter().map(|entry| vnode(entry.object)).collect::<Option<_>>();
    let names = names.ok_or(Error::Shape { place, why: "an entry names no vnode" })?;
    Ok((length_of(&entries).map_err(|error| error.inside(place))?, names))
}

/// What directories say of a vnode.
#[derive(Debug, Clone, Copy)]
struct Named {
    /// `None`: only directories that stay name it.
    unique: Option<Unique>,
    parent: Vnode,
    names: u32,
}

/// Sums over all vnodes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Space in KiB, as OpenAFS counts it.
    pub blocks: u64,
    /// How many there are.
    pub vnodes: u64,
    /// The greatest uniquifier of one.
    pub greatest_unique: Unique,
}

/// Reads all vnodes of a volume that came without a dump, and checks that they are a tree.
///
/// # Errors
/// [`Error::Shape`] and others, as of [`super::restore()`].
pub fn check(fs: &FileSystem) -> Result<Sums> {
    Tree::of_volume(fs)
}

/// The vnodes of the dump, and the names in their directories.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    known: HashMap<Vnode, Known>,
    named: HashMap<Vnode, Named>,
    /// Directories with entries whose types may be wrong.
    types_of: BTreeSet<Vnode>,
    sums: Sums,
}

impl Tree {
    fn of_volume(fs: &FileSystem) -> Result<Sums> {
        let mut tree = Self::default();
        for found in fs.afs_briefs(object(Vnode::ROOT)) {
            let (number, brief) = found?;
            let brief = brief.map_or_else(|| fs.afs_brief(number), |brief| Ok(Some(brief)))?;
            let Some(brief) = brief else { continue };
            let Some((vnode, unique)) = identity(number, &brief)? else { continue };
            tree.keep(vnode, unique, 0)?;
            tree.stay(fs, vnode, tree.known[&vnode], &brief)?;
        }
        tree.check(0)?;
        Ok(tree.sums)
    }

    /// Adds a vnode that is whole in the dump, with its space in KiB.
    pub(crate) fn insert(&mut self, vnode: Vnode, known: Known, blocks: u64) -> Result<()> {
        let place = Place { record: Record::Vnode(vnode), at: known.at };
        if self.known.len() == MOST_VNODES {
            return Err(Error::TooLong { place, field: "the list of vnodes", max: MOST_VNODES });
        }
        if self.known.insert(vnode, known).is_some() {
            return Err(Error::Shape { place, why: "the dump has a vnode twice" });
        }
        self.sums.vnodes += 1;
        self.sums.blocks = self.sums.blocks.saturating_add(blocks);
        self.sums.greatest_unique = self.sums.greatest_unique.max(known.unique);
        Ok(())
    }

    /// Adds a vnode that the dump only names.
    pub(super) fn keep(&mut self, vnode: Vnode, unique: Unique, at: u64) -> Result<()> {
        let known = Known { unique, kind: None, parent: Vnode(0), links: 0, at, is_new: false };
        self.insert(vnode, known, 0)
    }

    /// Adds the name that a whole directory has for a vnode. `at` is where the directory is.
    pub(crate) fn name(&mut self, parent: Vnode, vnode: Vnode, unique: Unique, at: u64) -> Result<()> {
        self.add_name(parent, vnode, Some(unique), at)
    }

    fn add_name(&mut self, parent: Vnode, vnode: Vnode, unique: Option<Unique>, at: u64) -> Result<()> {
        if self.named.len() == MOST_VNODES && !self.named.contains_key(&vnode) {
            let place = Place { record: Record::Vnode(parent), at };
            return Err(Error::TooLong { place, field: "the list of entries", max: MOST_VNODES });
        }
        let named = self.named.entry(vnode).or_insert(Named { unique, parent, names: 0 });
        named.names = named.names.saturating_add(1);
        if (named.unique, named.parent) == (unique, parent) {
            return Ok(());
        }
        let place = Place { record: Record::Vnode(vnode), at };
        Err(Error::Shape { place, why: TWO_NAMES })
    }

    /// Notes that entries of a directory may have a wrong type.
    pub(super) fn note_types(&mut self, dir: Vnode) {
        self.types_of.insert(dir);
    }

    pub(super) fn sums(&self) -> Sums {
        self.sums
    }

    /// Completes the volume after the last vnode: reads the vnodes that stay, deletes those that
    /// the dump does not name, checks the tree, and corrects the types of entries. `end` is the
    /// length of the dump.
    pub(super) fn end(&mut self, fs: &FileSystem, in_place: bool, end: u64) -> Result<()> {
        if in_place {
            self.walk(fs)?;
        }
        let absent =
            self.known.iter().filter(|(_, known)| known.kind.is_none()).map(|(vnode, _)| *vnode).min();
        if let Some(vnode) = absent {
            return self.wrong(vnode, "the dump only names it, and the volume lacks it");
        }
        self.check(end)?;
        self.types_of.iter().try_for_each(|dir| self.correct_types(fs, *dir))
    }

    /// The error for a vnode of the dump.
    fn wrong<T>(&self, vnode: Vnode, why: &'static str) -> Result<T> {
        let at = self.known.get(&vnode).map_or(0, |known| known.at);
        Err(Error::Shape { place: Place { record: Record::Vnode(vnode), at }, why })
    }

    fn walk(&mut self, fs: &FileSystem) -> Result<()> {
        let mut unnamed = Vec::new();
        for found in fs.afs_briefs(object(Vnode::ROOT)) {
            let (number, brief) = found?;
            let known = vnode(number).and_then(|vnode| Some((vnode, *self.known.get(&vnode)?)));
            if known.is_some_and(|(_, known)| known.kind.is_some()) {
                continue;
            }
            let brief = brief.map_or_else(|| fs.afs_brief(number), |brief| Ok(Some(brief)))?;
            let Some(brief) = brief else { continue };
            if brief.pflags.has(Pflags::XATTR) {
                let at = known.map_or(0, |(_, known)| known.at);
                let record = vnode(number).map_or(Record::VolumeHeader, Record::Vnode);
                let why = "the volume has attributes of another front end";
                return Err(Error::Shape { place: Place { record, at }, why });
            }
            match known {
                Some((vnode, known)) => self.stay(fs, vnode, known, &brief)?,
                None if number == fs.root() => {}
                None => unnamed.push(number),
            }
            if unnamed.len() == BATCH {
                fs.uproot(&unnamed)?;
                unnamed.clear();
            }
        }
        Ok(fs.uproot(&unnamed)?)
    }

    /// Reads a vnode that stays.
    fn stay(&mut self, fs: &FileSystem, number: Vnode, known: Known, brief: &AfsBrief) -> Result<()> {
        if brief.generation != u64::from(known.unique.0) {
            return self
                .wrong(number, "the dump only names it, and the volume has another use of its number");
        }
        let place = Place { record: Record::Vnode(number), at: known.at };
        let stored = StoredVnode::read(fs, number, brief, place)?;
        for vnode in stored.names {
            if self.known.get(&vnode).is_some_and(|known| known.is_new) {
                return self.wrong(vnode, "a directory that stays names another use of its number");
            }
            self.add_name(number, vnode, None, place.at)?;
        }
        self.sums.blocks = self.sums.blocks.saturating_add(stored.blocks);
        let StoredVnode { kind, parent, links, .. } = stored;
        self.known.insert(number, Known { kind: Some(kind), parent, links, ..known });
        Ok(())
    }

    /// Checks that the vnodes are a tree. Of several errors, the one of the smallest vnode returns.
    pub(crate) fn check(&self, end: u64) -> Result<()> {
        if !self.known.contains_key(&Vnode::ROOT) {
            let place = Place { record: Record::Vnode(Vnode::ROOT), at: end };
            return Err(Error::Shape { place, why: "the dump lacks the root directory" });
        }
        if self.named.contains_key(&Vnode::ROOT) {
            return self.wrong(Vnode::ROOT, "a directory names the root directory");
        }
        let lacking = self.named.iter().filter(|(vnode, _)| !self.known.contains_key(*vnode));
        if let Some((vnode, named)) = lacking.min_by_key(|(vnode, _)| **vnode) {
            let at = self.known.get(&named.parent).map_or(0, |known| known.at);
            let place = Place { record: Record::Vnode(*vnode), at };
            return Err(Error::Shape { place, why: "a directory names it, but the dump lacks it" });
        }
        let mut subdirectories: HashMap<Vnode, u32> = HashMap::new();
        for (_, known) in self.directories().filter(|(vnode, _)| **vnode != Vnode::ROOT) {
            *subdirectories.entry(known.parent).or_default() += 1;
        }
        let bad = self.known.iter().filter_map(|(vnode, known)| {
            let below = subdirectories.get(vnode).copied().unwrap_or(0);
            Some((*vnode, self.contradiction(*vnode, known, below)?))
        });
        if let Some((vnode, why)) = bad.min() {
            return self.wrong(vnode, why);
        }
        self.check_circles()
    }

    /// What is wrong with a vnode, beside circles. `below` is the number of its subdirectories.
    fn contradiction(&self, vnode: Vnode, known: &Known, below: u32) -> Option<&'static str> {
        let links = u32::from(known.links);
        let directory = known.kind == Some(VnodeType::Directory);
        if directory && links != 2 + below {
            return Some("its link count is not 2 and the number of its subdirectories");
        }
        if vnode == Vnode::ROOT {
            return None;
        }
        let Some(named) = self.named.get(&vnode) else { return Some("no directory names it") };
        if named.unique.is_some_and(|unique| unique != known.unique) {
            return Some("a directory names another use of its number");
        }
        if named.parent != known.parent {
            return Some("its parent is not the directory that names it");
        }
        match directory {
            true if named.names != 1 => Some("a directory has two names"),
            false if links != named.names => Some("its link count is not the number of its names"),
            _ => None,
        }
    }

    fn directories(&self) -> impl Iterator<Item = (&Vnode, &Known)> {
        self.known.iter().filter(|(_, known)| known.kind == Some(VnodeType::Directory))
    }

    /// Checks that each directory is below the root. All parents are directories of the tree.
    fn check_circles(&self) -> Result<()> {
        let mut below_root = HashSet::from([Vnode::ROOT]);
        for (directory, _) in self.directories() {
            let (mut at, mut path) = (*directory, HashSet::new());
            while !below_root.contains(&at) {
                if !path.insert(at) {
                    return self.wrong(*directory, "its parents run in a circle");
                }
                at = self.known[&at].parent;
            }
            below_root.extend(path);
        }
        Ok(())
    }

    /// Gives the entries of a directory the types of what they name.
    fn correct_types(&self, fs: &FileSystem, dir: Vnode) -> Result<()> {
        let mut wrong: Vec<(Vec<u8>, ObjNum, FileType)> = Vec::new();
        for entry in fs.read_dir(object(dir), DirCookie(2))? {
            let entry = entry?;
            let known = vnode(entry.object).and_then(|vnode| self.known.get(&vnode));
            if let Some(kind) = known.and_then(|known| known.kind).map(file_type)
                && kind != entry.kind
            {
                wrong.push((entry.name, entry.object, kind));
            }
        }
        let planted: Vec<PlantedEntry<'_>> = wrong
            .iter()
            .map(|(name, object, kind)| PlantedEntry { name, object: *object, kind: *kind })
            .collect();
        Ok(fs.plant_types(object(dir), &planted)?)
    }
}

/// Refuses a length that no dump can have, or that no restore takes.
fn check_length(kind: VnodeType, length: u64, place: Place) -> Result<()> {
    let most = match kind {
        VnodeType::File | VnodeType::Directory => MAX_LENGTH,
        VnodeType::Symlink if length == 0 => {
            return Err(Error::Shape { place, why: "a symbolic link has no target" });
        }
        VnodeType::Symlink => TARGET_MAX,
    };
    if length > most { Err(Error::Range { place, field: "the length", value: length }) } else { Ok(()) }
}

fn file_type(kind: VnodeType) -> FileType {
    match kind {
        VnodeType::File => FileType::Regular,
        VnodeType::Directory => FileType::Directory,
        VnodeType::Symlink => FileType::Symlink,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LENGTH, TARGET_MAX, VnodeType, check_length};
    use crate::types::Vnode;
    use crate::{Place, Record};

    /// Goal: a vnode that came without a dump has a length that a dump can have.
    #[test]
    fn lengths() {
        let place = Place { record: Record::Vnode(Vnode(2)), at: 0 };
        let is_taken = |kind, length| check_length(kind, length, place).is_ok();
        for (kind, least, most) in [
            (VnodeType::File, 0, MAX_LENGTH),
            (VnodeType::Directory, 0, MAX_LENGTH),
            (VnodeType::Symlink, 1, TARGET_MAX),
        ] {
            assert!(is_taken(kind, least) && is_taken(kind, most) && !is_taken(kind, most + 1));
        }
        assert!(!is_taken(VnodeType::Symlink, 0));
    }
}
