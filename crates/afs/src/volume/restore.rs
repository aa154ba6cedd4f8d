//! Restoring a full dump into a new volume.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Read;

use zpl::{
    AfsStatus, DirCookie, FileSystem, FileType, Kind, Place as ObjectPlace, Plant, PlantedEntry, Time,
};

use super::{object, owner, set_header, vnode};
use crate::acl::Acl;
use crate::dir::{Directory, MAX_PAGES, PAGE_SIZE};
use crate::dump::{Attributes, Event, Reader, VnodeRecord, VolumeHeader};
use crate::types::{Unique, Vnode, VnodeType};
use crate::{Error, Place, Record, Result};

/// Most vnodes that directories name, or that the dump has. All are remembered until the end.
const MOST_VNODES: usize = 16 << 20;
/// Bytes that are written at once.
const PIECE: usize = 1 << 20;
/// Longest target of a symbolic link.
const TARGET_MAX: u64 = 4095;

/// Restores a full dump into a volume that [`super::new_volume`] made, and returns its header.
///
/// # Errors
/// The volume is then incomplete, and must be destroyed.
///
/// * The errors of [`Reader::next_event`].
/// * [`Error::Shape`]: the file system is no new volume; the dump is incremental; or its vnodes are
///   no tree: one is missing or there twice, has a wrong link count or parent, or no name.
/// * [`Error::Range`], [`Error::TooLong`]: a directory or symbolic link is too long, or there are
///   too many vnodes.
/// * [`Error::FileSystem`]: the volume can't be changed.
pub fn restore<R: Read>(fs: &FileSystem, reader: &mut Reader<R>) -> Result<VolumeHeader> {
    if !fs.is_afs() || fs.afs_header()?.is_some() {
        return Err(Error::Shape { place: at(Vnode::ROOT), why: "the file system is no new volume" });
    }
    let mut restoring = Restoring {
        fs,
        named: HashMap::new(),
        made: HashMap::new(),
        links_in: BTreeSet::new(),
        current: None,
        data: Vec::new(),
        written: 0,
    };
    let mut header = None;
    loop {
        match reader.next_event()? {
            Event::Header(_) => {}
            Event::Volume(volume) => header = Some(*volume),
            Event::Vnode(record) => {
                restoring.finish()?;
                restoring.begin(*record)?;
            }
            Event::Data(piece) => restoring.data(piece)?,
            Event::End => break,
        }
    }
    restoring.finish()?;
    restoring.check()?;
    let dump = Place { record: Record::VolumeHeader, at: reader.offset() };
    let header = header.ok_or(Error::Shape { place: dump, why: "the dump has no volume header" })?;
    set_header(fs, &header)?;
    Ok(header)
}

/// What is known of a vnode of the dump.
#[derive(Clone, Copy)]
struct Made {
    unique: Unique,
    kind: VnodeType,
    parent: Vnode,
    links: u16,
}

/// What directories say of a vnode.
#[derive(Clone, Copy)]
struct Named {
    unique: Unique,
    parent: Vnode,
    names: u32,
}

struct Restoring<'a> {
    fs: &'a FileSystem,
    named: HashMap<Vnode, Named>,
    made: HashMap<Vnode, Made>,
    /// The directories with symbolic links, whose entries say that they are files.
    links_in: BTreeSet<Vnode>,
    /// The vnode whose data come next.
    current: Option<(VnodeRecord, Attributes)>,
    /// Its data that are not written yet.
    data: Vec<u8>,
    written: u64,
}

/// The place of an error in a vnode.
fn at(vnode: Vnode) -> Place {
    Place { record: Record::Vnode(vnode), at: 0 }
}

impl Restoring<'_> {
    fn begin(&mut self, record: VnodeRecord) -> Result<()> {
        let place = at(record.vnode);
        let shape = |why| Err(Error::Shape { place, why });
        let Some(attributes) = record.attributes.clone() else {
            return shape("an incremental dump needs the volume that it is based on");
        };
        let Some(length) = attributes.length else { return shape("the dump lacks its data") };
        let most = match attributes.kind {
            VnodeType::Directory => (MAX_PAGES * PAGE_SIZE) as u64,
            VnodeType::Symlink => TARGET_MAX,
            VnodeType::File => u64::MAX,
        };
        if length > most {
            return Err(Error::Range { place, field: "the length", value: length });
        }
        if attributes.kind == VnodeType::Directory && attributes.acl.is_none() {
            return shape("the dump lacks the access list of a directory");
        }
        if self.made.len() == MOST_VNODES {
            return Err(Error::TooLong { place, field: "the list of vnodes", max: MOST_VNODES });
        }
        let Attributes { kind, parent, link_count: links, .. } = attributes;
        let made = Made { unique: record.unique, kind, parent, links };
        if self.made.insert(record.vnode, made).is_some() {
            return shape("the dump has a vnode twice");
        }
        if attributes.kind == VnodeType::File {
            self.plant(&record, &attributes, Kind::Regular, length)?;
        }
        self.current = Some((record, attributes));
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> Result<()> {
        self.data.extend_from_slice(piece);
        let file = self.current.as_ref().is_some_and(|(_, a)| a.kind == VnodeType::File);
        if file && self.data.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Writes the data of a file.
    fn flush(&mut self) -> Result<()> {
        let Some((record, _)) = &self.current else { return Ok(()) };
        for piece in self.data.chunks(PIECE) {
            self.fs.plant_data(object(record.vnode), self.written, piece)?;
            self.written += piece.len() as u64;
        }
        self.data.clear();
        Ok(())
    }

    /// Ends the vnode whose data have all come.
    fn finish(&mut self) -> Result<()> {
        match self.current.as_ref().map(|(_, attributes)| attributes.kind) {
            Some(VnodeType::File) => self.flush()?,
            Some(VnodeType::Directory) => self.directory()?,
            Some(VnodeType::Symlink) => self.symlink()?,
            None => {}
        }
        self.current = None;
        self.data.clear();
        self.written = 0;
        Ok(())
    }

    fn symlink(&mut self) -> Result<()> {
        let Some((record, attributes)) = self.current.take() else { return Ok(()) };
        let target = std::mem::take(&mut self.data);
        self.links_in.insert(attributes.parent);
        let length = target.len() as u64;
        self.plant(&record, &attributes, Kind::Symlink(target), length)
    }

    fn directory(&mut self) -> Result<()> {
        let Some((record, attributes)) = self.current.take() else { return Ok(()) };
        let blob = std::mem::take(&mut self.data);
        let directory = Directory::new(&blob)?;
        let own = |name: &[u8]| matches!(name, b"." | b"..");
        let entries: Vec<_> = directory.entries().filter(|entry| !own(entry.name)).collect();
        let place = at(record.vnode);
        if self.named.len() + entries.len() > MOST_VNODES {
            return Err(Error::TooLong { place, field: "the list of entries", max: MOST_VNODES });
        }
        for entry in &entries {
            let new = Named { unique: entry.unique, parent: record.vnode, names: 0 };
            let named = self.named.entry(entry.vnode).or_insert(new);
            named.names += 1;
            let same = (named.unique, named.parent) == (new.unique, new.parent);
            if !same {
                let why = "it has names in two directories, or for two uses of its number";
                return Err(Error::Shape { place: at(entry.vnode), why });
            }
        }
        self.plant(&record, &attributes, Kind::Directory, entries.len() as u64 + 2)?;
        let kind = |vnode: Vnode| match vnode.is_directory() {
            true => FileType::Directory,
            false => FileType::Regular,
        };
        let planted: Vec<PlantedEntry<'_>> = entries
            .iter()
            .map(|entry| PlantedEntry {
                name: entry.name,
                object: object(entry.vnode),
                kind: kind(entry.vnode),
            })
            .collect();
        Ok(self.fs.plant_entries(object(record.vnode), &planted, false)?)
    }

    fn plant(&self, record: &VnodeRecord, attributes: &Attributes, kind: Kind, size: u64) -> Result<()> {
        let access_list = match &attributes.acl {
            Some(raw) => Acl::from_raw(raw)?.to_compact(),
            None => Vec::new(),
        };
        let status = AfsStatus {
            author: attributes.author.0,
            data_version: attributes.data_version.0.into(),
            server_mtime: attributes.server_modify_time.0.into(),
            access_list,
        };
        // The root directory is its own parent.
        let parent = if record.vnode == Vnode::ROOT { record.vnode } else { attributes.parent };
        Ok(self.fs.plant(&Plant {
            place: ObjectPlace { object: object(record.vnode), generation: record.unique.0.into() },
            kind,
            permissions: attributes.mode.into(),
            uid: owner(attributes.owner.0),
            gid: owner(attributes.group),
            parent: object(parent),
            links: attributes.link_count.into(),
            size,
            time: Time { secs: attributes.modify_time.0.into(), nanos: 0 },
            status,
        })?)
    }

    /// Checks that the vnodes are a tree, and corrects the types of entries.
    fn check(&self) -> Result<()> {
        let shape = |vnode, why| Err(Error::Shape { place: at(vnode), why });
        if !self.made.contains_key(&Vnode::ROOT) {
            return shape(Vnode::ROOT, "the dump lacks the root directory");
        }
        if self.named.contains_key(&Vnode::ROOT) {
            return shape(Vnode::ROOT, "a directory names the root directory");
        }
        if let Some(vnode) = self.named.keys().find(|vnode| !self.made.contains_key(*vnode)) {
            return shape(*vnode, "a directory names it, but the dump lacks it");
        }
        let mut below: HashMap<Vnode, u32> = HashMap::new();
        for (vnode, made) in self.made.iter().filter(|(vnode, _)| **vnode != Vnode::ROOT) {
            let Some(named) = self.named.get(vnode) else { return shape(*vnode, "no directory names it") };
            if named.unique != made.unique {
                return shape(*vnode, "a directory names another use of its number");
            }
            if named.parent != made.parent {
                return shape(*vnode, "its parent is not the directory that names it");
            }
            if made.kind == VnodeType::Directory {
                *below.entry(made.parent).or_default() += 1;
            } else if u32::from(made.links) != named.names {
                return shape(*vnode, "its link count is not the number of its names");
            }
            if made.kind == VnodeType::Directory && named.names != 1 {
                return shape(*vnode, "a directory has two names");
            }
        }
        let directories = self.made.iter().filter(|(_, made)| made.kind == VnodeType::Directory);
        for (vnode, made) in directories.clone() {
            if u32::from(made.links) != 2 + below.get(vnode).copied().unwrap_or(0) {
                return shape(*vnode, "its link count is not 2 and the number of its subdirectories");
            }
        }
        self.check_circles(directories.map(|(vnode, _)| *vnode))?;
        self.links_in.iter().try_for_each(|dir| self.retype(*dir))
    }

    /// Checks that each directory is below the root. All parents are directories of the dump.
    fn check_circles(&self, directories: impl Iterator<Item = Vnode>) -> Result<()> {
        let mut below_root = HashSet::from([Vnode::ROOT]);
        for directory in directories {
            let (mut at_now, mut path) = (directory, HashSet::new());
            while !below_root.contains(&at_now) {
                if !path.insert(at_now) {
                    return Err(Error::Shape { place: at(directory), why: "its parents run in a circle" });
                }
                at_now = self.made[&at_now].parent;
            }
            below_root.extend(path);
        }
        Ok(())
    }

    /// Gives the entries of symbolic links their type.
    fn retype(&self, dir: Vnode) -> Result<()> {
        let mut links = Vec::new();
        for entry in self.fs.read_dir(object(dir), DirCookie(2))? {
            let entry = entry?;
            let made = vnode(entry.object).and_then(|vnode| self.made.get(&vnode));
            if made.is_some_and(|made| made.kind == VnodeType::Symlink) {
                links.push(entry);
            }
        }
        let planted: Vec<PlantedEntry<'_>> = links
            .iter()
            .map(|link| PlantedEntry { name: &link.name, object: link.object, kind: FileType::Symlink })
            .collect();
        Ok(self.fs.plant_entries(object(dir), &planted, true)?)
    }
}
