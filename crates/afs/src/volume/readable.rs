//! The dump of a damaged volume: all that can be read, as a whole tree.
//!
//! # Theory
//! A receiver refuses vnodes that are no tree. Damage makes them none: a directory names what is
//! lost, or is lost itself, and what it named has no name then. So the first pass reads the
//! attributes of all vnodes and the names in all directories, and makes a tree of them:
//!
//! * names of lost vnodes are left out, and link counts are those of what stays;
//! * what has no name gets one in a new directory [`ORPHANS`] of the root. Only administrators may
//!   enter it, since the access list of the lost directory is not known;
//! * a root directory that is lost is made anew, likewise.
//!
//! The second pass writes. Lost bytes of a file are zeros. A directory that lost a name has a
//! higher version, so that no client goes on with what it has cached.
//!
//! The names follow OpenAFS's salvager, which attaches orphans to the root directory itself.
//!
//! # Absent
//! Increments: they name the vnodes that have not changed, and a receiver deletes the others. So a
//! lost vnode would be deleted where it is still good.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;

use dmu::Extent;
use zpl::{DirCookie, FileSystem, Node};

use super::dump::{DumpScope, PIECE, attributes_of, dump_header};
use super::narrow;
use super::{blocks, object, type_of, vnode};
use crate::acl::Acl;
use crate::dir::{Builder, Entry, MAX_NAME, PAGE_SIZE, page_count};
use crate::dump::{Attributes, VnodeRecord, VolumeHeader, Writer};
use crate::types::{DataVersion, PrincipalId, Unique, Vnode, VnodeType};
use crate::{Error, Place, Record, Result};

/// The directory of what has no name.
const ORPHANS: &str = "__ORPHANS__";
/// Most entries of one such directory. A directory of AFS has 32,000 names of this length.
const MOST_ORPHANS: usize = 10_000;
/// Most vnodes that are remembered, and most names.
const MOST: usize = 16 << 20;

/// A part of a volume that a dump lacks, or has elsewhere.
#[derive(Debug)]
pub struct Loss {
    /// The path in the volume, with a slash before each name. `None`: no directory names it.
    pub path: Option<Vec<u8>>,
    /// The vnode. `None`: it is not known which ones.
    pub vnode: Option<Vnode>,
    /// The part.
    pub part: LostPart,
    /// The cause. `None`: the list of vnodes lacks it. Another loss says which part of that list is
    /// lost.
    pub why: Option<Error>,
}

/// Which part of a volume a dump lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostPart {
    /// A range of the list of vnodes. Those of them that directories name are losses of their own.
    Vnodes,
    /// The whole vnode.
    Whole,
    /// Bytes of a file, which are zeros in the dump.
    Bytes {
        /// The first byte.
        from: u64,
        /// The first byte after them.
        to: u64,
    },
    /// Names in a directory. What they named may have no name now.
    Names,
    /// A name for a vnode that another directory has.
    Entry,
    /// Its name. It has another one in the dump.
    Name {
        /// The path that it has in the dump.
        now: Vec<u8>,
    },
}

/// Writes a full dump of what can be read of a volume, reports the rest, and returns the output.
///
/// The counts of `volume` and its next unique are corrected in the dump. `version_base` is that of
/// [`super::DumpScope`].
///
/// # Errors
/// * [`Error::Write`]: the output can't be written.
/// * [`Error::TooLong`]: the volume has more vnodes than can be remembered, a directory has more
///   entries than AFS allows, or a string of the header is too long.
/// * [`Error::FileSystem`], [`Error::Shape`], [`Error::Range`]: attributes that could be read are
///   unreadable at the second attempt.
pub fn dump_readable<W: Write>(
    fs: &FileSystem,
    volume: &VolumeHeader,
    version_base: u32,
    to: W,
    report: &mut dyn FnMut(Loss),
) -> Result<W> {
    let mut found = Found::read(fs, version_base, report)?;
    let next_unique = found.make_tree(volume.next_unique, report)?;
    let volume = VolumeHeader { next_unique, ..found.counted(volume)? };
    let mut writer = Writer::new(to);
    writer.header(&dump_header(&volume, DumpScope::FULL))?;
    writer.volume(&volume)?;
    for number in found.folders.keys() {
        found.write_folder(fs, &volume, *number, &mut writer)?;
    }
    for (number, known) in found.vnodes.iter().filter(|(_, known)| known.kind != VnodeType::Directory) {
        found.write_file(fs, *number, known, &mut writer, report)?;
    }
    writer.end()
}

/// A vnode that can be read.
struct Known {
    unique: Unique,
    kind: VnodeType,
    length: u64,
    /// The directory that has it in the dump. `None`: none that was reached yet.
    parent: Option<Vnode>,
    links: u16,
}

/// A directory.
#[derive(Default)]
struct Folder {
    /// Its own name, once it is reached.
    name: Vec<u8>,
    entries: Vec<(Vec<u8>, Vnode)>,
    /// It has not the entries that the volume has.
    is_changed: bool,
    /// The volume has no such directory.
    is_made: bool,
}

struct Found {
    version_base: u32,
    vnodes: BTreeMap<Vnode, Known>,
    folders: BTreeMap<Vnode, Folder>,
    unreadable: BTreeMap<Vnode, Error>,
    /// Directories that lost names, and why.
    broken: Vec<(Vnode, Error)>,
    names: usize,
    /// The directory that orphans are put into, and its path.
    orphans: Option<(Vnode, Vec<u8>)>,
    /// The unique of the next directory that is made.
    next_unique: Unique,
}

fn place(number: Vnode) -> Place {
    Place { record: Record::Vnode(number), at: 0 }
}

fn too_long(number: Vnode, field: &'static str) -> Error {
    Error::TooLong { place: place(number), field, max: MOST }
}

impl Found {
    /// The first pass.
    fn read(fs: &FileSystem, version_base: u32, report: &mut dyn FnMut(Loss)) -> Result<Self> {
        let mut found = Self {
            version_base,
            vnodes: BTreeMap::new(),
            folders: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            broken: Vec::new(),
            names: 0,
            orphans: None,
            next_unique: Unique(0),
        };
        for dnode in fs.objset().objects(object(Vnode::ROOT)) {
            let number = match dnode {
                Ok(dnode) => vnode(dnode.object()),
                Err(error) => {
                    let why = Some(zpl::Error::Dmu(error).into());
                    report(Loss { path: None, vnode: None, part: LostPart::Vnodes, why });
                    continue;
                }
            };
            let Some(number) = number else { continue };
            if found.vnodes.len() + found.unreadable.len() == MOST {
                return Err(too_long(number, "the list of vnodes"));
            }
            if let Err(error) = found.add(fs, number) {
                found.unreadable.insert(number, error);
            }
            if found.names > MOST {
                return Err(too_long(number, "the list of entries"));
            }
        }
        Ok(found)
    }

    /// Adds a vnode.
    fn add(&mut self, fs: &FileSystem, number: Vnode) -> Result<()> {
        let node = match fs.node(object(number)) {
            // An object of the file system itself.
            Err(zpl::Error::NoFile { .. }) => return Ok(()),
            node => node?,
        };
        // Files that were removed and not freed yet have no links.
        if node.attr().nlink == 0 {
            return Ok(());
        }
        // What the second pass needs is read now, so that what lacks it is left out of the tree.
        let attributes = attributes(&node, number, self.version_base)?;
        let unique = Unique(narrow(place(number), "the unique", node.attr().generation)?);
        let (kind, length) = (attributes.kind, node.attr().size);
        let mut links = 0;
        match kind {
            VnodeType::File => {}
            VnodeType::Symlink => _ = node.readlink()?,
            VnodeType::Directory => {
                links = 2;
                let (entries, why) = names(&node, number);
                self.names += entries.len();
                let is_changed = why.is_some();
                self.broken.extend(why.map(|why| (number, why)));
                self.folders.insert(number, Folder { entries, is_changed, ..Folder::default() });
            }
        }
        self.next_unique = self.next_unique.max(Unique(unique.0.saturating_add(1)));
        self.vnodes.insert(number, Known { unique, kind, length, parent: None, links });
        Ok(())
    }

    /// Makes a tree of what was read, with the least unique that new vnodes may have. Returns the
    /// next unique.
    fn make_tree(&mut self, least: Unique, report: &mut dyn FnMut(Loss)) -> Result<Unique> {
        self.next_unique = self.next_unique.max(least).max(Unique(2));
        if !self.vnodes.contains_key(&Vnode::ROOT) {
            let why = self.unreadable.remove(&Vnode::ROOT);
            report(Loss { path: Some(b"/".to_vec()), vnode: Some(Vnode::ROOT), part: LostPart::Whole, why });
            self.make(Vnode::ROOT, Unique(1), Vec::new());
        }
        self.walk(Vnode::ROOT, report);
        let unreached = |found: &Self, directories: bool| -> Vec<Vnode> {
            let is_orphan = |(number, known): &(&Vnode, &Known)| {
                let is_wanted = number.is_directory() == directories;
                is_wanted && **number != Vnode::ROOT && known.parent.is_none()
            };
            found.vnodes.iter().filter(is_orphan).map(|(number, _)| *number).collect()
        };
        // First those that no other orphan has, so that trees stay whole.
        let directories = unreached(self, true);
        let below: HashSet<Vnode> = directories
            .iter()
            .flat_map(|number| self.folders.get(number).into_iter().flat_map(|folder| &folder.entries))
            .map(|(_, vnode)| *vnode)
            .collect();
        let (inner, outer): (Vec<Vnode>, Vec<Vnode>) =
            directories.into_iter().partition(|number| below.contains(number));
        for number in outer.into_iter().chain(inner) {
            self.attach(number, report);
        }
        for number in unreached(self, false) {
            self.attach(number, report);
        }
        for (dir, why) in std::mem::take(&mut self.broken) {
            let path = self.path_of(dir);
            report(Loss { path, vnode: Some(dir), part: LostPart::Names, why: Some(why) });
        }
        for (vnode, why) in std::mem::take(&mut self.unreadable) {
            report(Loss { path: None, vnode: Some(vnode), part: LostPart::Whole, why: Some(why) });
        }
        Ok(self.next_unique)
    }

    /// Reaches what is below a directory, and drops names of what is lost or is elsewhere.
    fn walk(&mut self, from: Vnode, report: &mut dyn FnMut(Loss)) {
        let mut todo = vec![from];
        while let Some(dir) = todo.pop() {
            let Some(folder) = self.folders.get_mut(&dir) else { continue };
            let entries = std::mem::take(&mut folder.entries);
            let (count, mut kept) = (entries.len(), Vec::with_capacity(entries.len()));
            for (name, target) in entries {
                let is_free = |known: &&mut Known| match known.kind {
                    VnodeType::Directory => known.parent.is_none() && target != Vnode::ROOT,
                    _ => known.parent.is_none_or(|parent| parent == dir),
                };
                let Some(known) = self.vnodes.get_mut(&target).filter(is_free) else {
                    let why = self.unreadable.remove(&target);
                    let path = Some(self.path_in(dir, &name));
                    let is_there = self.vnodes.contains_key(&target);
                    let part = if is_there { LostPart::Entry } else { LostPart::Whole };
                    report(Loss { path, vnode: Some(target), part, why });
                    continue;
                };
                known.parent = Some(dir);
                if known.kind == VnodeType::Directory {
                    self.folders.entry(target).or_default().name.clone_from(&name);
                    self.count_link(dir);
                    todo.push(target);
                } else {
                    known.links = known.links.saturating_add(1);
                }
                kept.push((name, target));
            }
            let folder = self.folders.entry(dir).or_default();
            folder.is_changed |= kept.len() < count;
            folder.entries = kept;
        }
    }

    fn count_link(&mut self, dir: Vnode) {
        if let Some(known) = self.vnodes.get_mut(&dir) {
            known.links = known.links.saturating_add(1);
        }
    }

    /// Makes a directory that the volume lacks.
    fn make(&mut self, number: Vnode, unique: Unique, name: Vec<u8>) {
        let kind = VnodeType::Directory;
        self.vnodes.insert(number, Known { unique, kind, length: 0, parent: None, links: 2 });
        self.folders.insert(number, Folder { name, is_made: true, ..Folder::default() });
    }

    /// Adds an entry for a vnode that no directory has.
    fn enter(&mut self, dir: Vnode, name: Vec<u8>, number: Vnode) {
        let Some(known) = self.vnodes.get_mut(&number) else { return };
        known.parent = Some(dir);
        match known.kind {
            VnodeType::Directory => {
                self.folders.entry(number).or_default().name.clone_from(&name);
                self.count_link(dir);
            }
            _ => known.links = 1,
        }
        let folder = self.folders.entry(dir).or_default();
        folder.entries.push((name, number));
        folder.is_changed = true;
    }

    /// Gives an orphan a name, if it has none yet, and reaches what is below it.
    fn attach(&mut self, number: Vnode, report: &mut dyn FnMut(Loss)) {
        let Some(known) = self.vnodes.get(&number).filter(|known| known.parent.is_none()) else { return };
        let what = if known.kind == VnodeType::Directory { "DIR" } else { "FILE" };
        let name = format!("__ORPHAN{what}__.{number}.{}", known.unique).into_bytes();
        let has_space =
            |dir: &Vnode| self.folders.get(dir).is_some_and(|folder| folder.entries.len() < MOST_ORPHANS);
        let (dir, path) = match &self.orphans {
            Some((dir, path)) if has_space(dir) => (*dir, path.clone()),
            _ => self.make_orphans(),
        };
        let now = [&path[..], b"/", &name].concat();
        report(Loss { path: None, vnode: Some(number), part: LostPart::Name { now }, why: None });
        self.enter(dir, name, number);
        self.walk(number, report);
    }

    /// Makes a directory for orphans. Returns it, and its path.
    fn make_orphans(&mut self) -> (Vnode, Vec<u8>) {
        let taken: HashSet<&[u8]> = self
            .folders
            .get(&Vnode::ROOT)
            .map(|root| root.entries.iter().map(|(name, _)| &name[..]).collect())
            .unwrap_or_default();
        let name = (1_u64..)
            .map(|n| if n == 1 { ORPHANS.to_owned() } else { format!("{ORPHANS}.{n}") })
            .find(|name| !taken.contains(name.as_bytes()))
            .expect("there are more numbers than entries")
            .into_bytes();
        let path = [b"/", &name[..]].concat();
        // A lost vnode keeps its number: clients may have it.
        let number = (3..u32::MAX)
            .step_by(2)
            .map(Vnode)
            .find(|number| !self.vnodes.contains_key(number) && !self.unreadable.contains_key(number))
            .expect("there are more numbers than vnodes");
        let unique = self.next_unique;
        self.next_unique.0 = unique.0.saturating_add(1);
        self.make(number, unique, Vec::new());
        self.enter(Vnode::ROOT, name, number);
        self.orphans = Some((number, path.clone()));
        (number, path)
    }

    fn path_in(&self, dir: Vnode, name: &[u8]) -> Vec<u8> {
        let mut names = vec![name];
        let mut at = dir;
        while at != Vnode::ROOT
            && let Some(folder) = self.folders.get(&at)
            && let Some(parent) = self.vnodes.get(&at).and_then(|known| known.parent)
        {
            names.push(&folder.name);
            at = parent;
        }
        names.iter().rev().flat_map(|name| [b"/", *name].concat()).collect()
    }

    /// The path of a vnode: one of its names.
    fn path_of(&self, number: Vnode) -> Option<Vec<u8>> {
        if number == Vnode::ROOT {
            return Some(b"/".to_vec());
        }
        let dir = self.vnodes.get(&number)?.parent?;
        let (name, _) = self.folders.get(&dir)?.entries.iter().find(|(_, vnode)| *vnode == number)?;
        Some(self.path_in(dir, name))
    }

    /// The header with counts of what the dump has.
    fn counted(&self, volume: &VolumeHeader) -> Result<VolumeHeader> {
        let mut used = 0_u64;
        for (number, known) in &self.vnodes {
            let length = match self.folders.get(number) {
                Some(folder) => {
                    (page_count(folder.entries.iter().map(|(name, _)| &name[..]))? * PAGE_SIZE) as u64
                }
                None => known.length,
            };
            used = used.saturating_add(blocks(length));
        }
        Ok(VolumeHeader {
            disk_used: u32::try_from(used).unwrap_or(u32::MAX),
            file_count: u32::try_from(self.vnodes.len()).unwrap_or(u32::MAX),
            ..volume.clone()
        })
    }

    fn write_folder<W: Write>(
        &self,
        fs: &FileSystem,
        volume: &VolumeHeader,
        number: Vnode,
        writer: &mut Writer<W>,
    ) -> Result<()> {
        let (Some(known), Some(folder)) = (self.vnodes.get(&number), self.folders.get(&number)) else {
            return Ok(());
        };
        let named =
            |number: Vnode| (number, self.vnodes.get(&number).map_or(Unique(0), |known| known.unique));
        let parent = known.parent.unwrap_or(Vnode::ROOT);
        let mut builder = Builder::new(named(number), named(parent));
        for (name, target) in &folder.entries {
            let (vnode, unique) = named(*target);
            builder.add(Entry { name, vnode, unique }).map_err(|error| error.inside(place(number)))?;
        }
        let blob = builder.finish();
        let mut attributes = match folder.is_made {
            true => made(volume),
            false => attributes(&fs.node(object(number))?, number, self.version_base)?,
        };
        if folder.is_changed {
            attributes.data_version = attributes.data_version.next();
        }
        let length = Some(blob.len() as u64);
        let parent = known.parent.unwrap_or(Vnode(0));
        let attributes = Attributes { length, parent, link_count: known.links, ..attributes };
        writer.vnode(&VnodeRecord { vnode: number, unique: known.unique, attributes: Some(attributes) })?;
        writer.data(&blob)
    }

    fn write_file<W: Write>(
        &self,
        fs: &FileSystem,
        number: Vnode,
        known: &Known,
        writer: &mut Writer<W>,
        report: &mut dyn FnMut(Loss),
    ) -> Result<()> {
        let node = fs.node(object(number))?;
        let target = match known.kind {
            VnodeType::Symlink => Some(node.readlink()?),
            _ => None,
        };
        let length = target.as_ref().map_or(node.attr().size, |target| target.len() as u64);
        let attributes = Attributes {
            length: Some(length),
            parent: known.parent.unwrap_or(Vnode(0)),
            link_count: known.links,
            ..attributes(&node, number, self.version_base)?
        };
        writer.vnode(&VnodeRecord { vnode: number, unique: known.unique, attributes: Some(attributes) })?;
        match target {
            Some(target) => writer.data(&target),
            None => contents(writer, &node, length, &mut |(from, to), why| {
                let (path, part) = (self.path_of(number), LostPart::Bytes { from, to });
                report(Loss { path, vnode: Some(number), part, why: Some(why) });
            }),
        }
    }
}

/// The attributes of a vnode, but for its parent and length.
fn attributes(node: &Node, number: Vnode, version_base: u32) -> Result<Attributes> {
    let shape = |why| Error::Shape { place: place(number), why };
    let kind = type_of(number, node).map_err(shape)?;
    let status = node.afs_status()?.ok_or_else(|| shape("it has no status of AFS"))?;
    attributes_of(place(number), node, (kind, Vnode(0)), &status, version_base, 0)
}

/// The attributes of a directory that the volume lacks.
fn made(volume: &VolumeHeader) -> Attributes {
    Attributes {
        kind: VnodeType::Directory,
        link_count: 2,
        data_version: DataVersion(1),
        modify_time: volume.update_date,
        author: PrincipalId(0),
        owner: PrincipalId(0),
        group: 0,
        mode: 0o755,
        parent: Vnode(0),
        server_modify_time: volume.update_date,
        acl: Some(Acl::of_new_volume().to_raw()),
        length: None,
    }
}

/// The names in a directory, and why there are no more.
fn names(node: &Node, number: Vnode) -> (Vec<(Vec<u8>, Vnode)>, Option<Error>) {
    let mut names = Vec::new();
    let entries = match node.read_dir(DirCookie(2)) {
        Ok(entries) => entries,
        Err(error) => return (names, Some(error.into())),
    };
    let mut lost = None;
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return (names, Some(error.into())),
        };
        let possible = entry.name.len() <= MAX_NAME && !entry.name.contains(&0);
        match vnode(entry.object).filter(|_| possible) {
            Some(target) => names.push((entry.name, target)),
            None => {
                let why = "AFS can't have one of its entries";
                lost = Some(Error::Shape { place: place(number), why });
            }
        }
        if names.len() > MOST {
            return (names, Some(too_long(number, "the directory")));
        }
    }
    (names, lost)
}

/// Writes the contents of a file, with zeros for what can't be read, and reports each such range
/// once.
fn contents<W: Write>(
    writer: &mut Writer<W>,
    node: &Node,
    length: u64,
    lost: &mut dyn FnMut((u64, u64), Error),
) -> Result<()> {
    let block = node.dnode().block_size().max(1);
    let mut walk = node.dnode().walk();
    let mut buffer = vec![0; PIECE.min(usize::try_from(length).unwrap_or(PIECE))];
    let mut gap: Option<((u64, u64), Error)> = None;
    let mut at = 0;
    while at < length {
        let (bad, why) = match walk.next_offset(at, Extent::Data) {
            Ok(next) => {
                let data = next.unwrap_or(length).clamp(at, length);
                zeros(writer, data - at)?;
                at = data;
                if at == length {
                    break;
                }
                match read(node, at, block, &mut buffer) {
                    Ok(read) => {
                        writer.data(&buffer[..read])?;
                        at += read as u64;
                        continue;
                    }
                    Err(error) => ((at, (at / block + 1).saturating_mul(block).min(length)), error.into()),
                }
            }
            Err(damage) => {
                let bad = (damage.from.clamp(at, length), damage.to.clamp(at + 1, length));
                (bad, zpl::Error::Dmu(damage.error).into())
            }
        };
        zeros(writer, bad.1 - at)?;
        at = bad.1;
        match &mut gap {
            Some(((_, to), _)) if *to == bad.0 => *to = bad.1,
            _ => {
                if let Some((range, why)) = gap.replace((bad, why)) {
                    lost(range, why);
                }
            }
        }
    }
    match gap {
        Some((range, why)) if range.0 < range.1 => lost(range, why),
        _ => {}
    }
    Ok(())
}

/// Reads as much as the buffer has space for, or else one block.
fn read(node: &Node, at: u64, block: u64, buffer: &mut [u8]) -> zpl::Result<usize> {
    if let Ok(read) = node.read(at, buffer) {
        return Ok(read);
    }
    let one = usize::try_from(block - at % block).unwrap_or(usize::MAX).min(buffer.len());
    node.read(at, &mut buffer[..one])
}

fn zeros<W: Write>(writer: &mut Writer<W>, mut count: u64) -> Result<()> {
    const ZEROS: &[u8] = &[0; 64 << 10];
    while count > 0 {
        let some = usize::try_from(count).unwrap_or(usize::MAX).min(ZEROS.len());
        writer.data(&ZEROS[..some])?;
        count -= some as u64;
    }
    Ok(())
}
