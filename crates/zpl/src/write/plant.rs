//! Files whose attributes are all given, for volumes that are restored from a dump.
//!
//! # Theory
//! A dump names vnodes before or after the directories that have them. So here a file appears
//! without a name, and a directory with entries whose files may be missing yet. Commits wait for
//! the txg, and no status changes by itself. The caller gives all attributes, and publishes
//! the file system at the end.
//!
//! A planted file replaces the file that has its object. The old one is freed, and the new one is
//! made in the same transaction. Only a directory of the same generation stays, because most of its
//! entries stay. Its attributes are changed, and [`FileSystem::plant_entries`] changes the entries
//! that differ.
//!
//! # Crash
//! Each call is a transaction or several. The caller needs a snapshot to return to.
//!
//! # Locks
//! None: no other thread may use the file system.

use super::data::{ATTR_BYTES, grown};
use super::make::MAKE_BYTES;
use super::nfs4::AUTO_INHERIT;
use super::remove::REMOVE_BYTES;
use super::update::{AV_MODIFIED, Changes, NO_EXECS_DENIED, time_bytes};
use super::{Writer, trivial};
use crate::afs::{HEADER, header_bonus};
use crate::{AfsStatus, Attr, DirCookie, Error, FileSystem, FileType, Kind, Place, Result, Time};
use dmu::zap::{Value, Zap};
use dmu::{Dnode, NewObject, Tx};
use dsl::Need;
use ondisk::objset::ObjsetFlags;
use ondisk::sa::Attr as Sa;
use ondisk::zap::ZapFlags;
use ondisk::znode::Pflags;
use ondisk::{DmuType, ObjNum, Txg};
use std::collections::{HashMap, HashSet};

/// Longest header of a volume in bytes.
pub const AFS_HEADER_MAX: usize = 4096;
/// Entries or freed files of one transaction.
const BATCH: usize = 128;
/// The block of a new file of at most so many bytes.
const SECTOR: u64 = 512;

/// A file with everything that its attributes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plant {
    /// Its object and generation. The root directory exists already, and is changed.
    pub place: Place,
    /// The type.
    pub kind: Kind,
    /// The low twelve bits of the mode.
    pub permissions: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The directory.
    pub parent: ObjNum,
    /// The number of links.
    pub links: u64,
    /// The size: bytes of a file, entries of a directory with `.` and `..`.
    pub size: u64,
    /// All times.
    pub time: Time,
    /// The status.
    pub status: AfsStatus,
    /// The first bytes of a regular file, within its size.
    pub data: Vec<u8>,
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlantedEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The file.
    pub object: ObjNum,
    /// Its type.
    pub kind: FileType,
}

impl FileSystem {
    /// Stores the header of a volume. Returns the txg that has it.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    ///
    /// # Panics
    /// If it is longer than [`AFS_HEADER_MAX`].
    pub fn set_afs_header(&self, header: &[u8]) -> Result<Txg> {
        assert!(header.len() <= AFS_HEADER_MAX, "a header fits into an entry of the master node");
        // It replaces one of about the same length, also before a file is removed from a full pool.
        let tx = self.writer()?.tx(Need::netfree(2 * AFS_HEADER_MAX as u64))?;
        let (master, entry) = (self.master(), HEADER.as_bytes());
        let place = self.header_object()?.zip(header_bonus(header));
        match place {
            Some((object, bonus)) => {
                object.set_bonus(&tx, DmuType::UINT8_METADATA, &bonus)?;
                if master.lookup(entry)?.is_some() {
                    master.remove(&tx, entry)?;
                }
            }
            None => master.update(&tx, entry, &Value::bytes(header))?,
        }
        Ok(tx.txg())
    }

    /// Makes files without names in a volume, in one transaction. Each replaces the file that has
    /// its object. The root directory, and a directory of the same generation, keep their entries.
    ///
    /// The caller limits the number of files and bytes.
    ///
    /// # Errors
    /// After an error, some of the files may be there.
    ///
    /// * [`Error::NameTooLong`]: the target of a symbolic link is empty or too long.
    /// * [`Error::TooLarge`]: the data end after the file's size.
    /// * [`Error::Dmu`] with [`dmu::Error::ObjectExists`]: the object is no file, but belongs to
    ///   the file system itself.
    /// * The errors of [changing](Error#changing).
    ///
    /// # Panics
    /// If the file system is no volume.
    pub fn plant(&self, plants: &[Plant]) -> Result<()> {
        assert!(self.is_afs(), "only volumes are restored from dumps");
        let w = self.writer()?;
        let mut bytes = 0;
        let mut former = Vec::with_capacity(plants.len());
        for plant in plants {
            let object = plant.place.object;
            if let Kind::Symlink(target) = &plant.kind
                && (target.is_empty() || target.len() >= super::make::TARGET_MAX)
            {
                return Err(Error::NameTooLong { len: target.len() });
            }
            if plant.data.len() as u64 > plant.size {
                return Err(Error::TooLarge { object });
            }
            let old = match self.node(object) {
                Ok(node) => Some(node),
                Err(Error::NoFile { .. }) => None,
                Err(e) => return Err(e),
            };
            if let Some(old) = &old
                && !plant.stays(self, old.attr())
            {
                self.free_much(w, old, 0, u64::MAX)?;
            }
            former.push(old.map(|old| *old.attr()));
            bytes += MAKE_BYTES + plant.data.len() as u64;
        }
        let tx = w.tx(Need::growing(bytes))?;
        let root = *self.node(self.root())?.attr();
        for (plant, old) in plants.iter().zip(former) {
            match old {
                Some(old) if plant.stays(self, &old) => self.change_planted(&tx, plant)?,
                Some(_) => {
                    self.free_now(&tx, plant.place.object)?;
                    self.make_planted(w, &tx, plant, &root)?;
                }
                None => self.make_planted(w, &tx, plant, &root)?,
            }
        }
        Ok(())
    }

    /// Gives a directory that stays its new attributes.
    fn change_planted(&self, tx: &Tx, plant: &Plant) -> Result<()> {
        let node = self.node(plant.place.object)?;
        let mut changes = Changes::default();
        let mode = plant.mode();
        let (count, aces) = trivial::aces(mode, true);
        changes.word(Sa::Mode, mode.into());
        changes.word(Sa::Uid, plant.uid.into());
        changes.word(Sa::Gid, plant.gid.into());
        changes.word(Sa::Gen, plant.place.generation);
        changes.word(Sa::DaclCount, count);
        changes.bytes(Sa::DaclAces, aces);
        for time in [Sa::Atime, Sa::Mtime, Sa::Ctime, Sa::Crtime] {
            changes.time(time, plant.time);
        }
        changes.word(Sa::Parent, plant.parent.0);
        changes.word(Sa::Links, plant.links);
        changes.word(Sa::Size, plant.size);
        changes.bytes(Sa::Afs, plant.status.encode());
        changes.apply(&node, tx)
    }

    fn make_planted(&self, w: &Writer, tx: &Tx, plant: &Plant, root: &Attr) -> Result<()> {
        let (os, object) = (self.objset(), plant.place.object);
        let spec = |kind| NewObject::new(kind).with_bonus(DmuType::SA, Vec::new());
        let dn = match plant.kind.file_type() {
            FileType::Directory => {
                let (norm, plain) = (self.normalization_on_disk(), ZapFlags::default());
                let spec = spec(DmuType::DIRECTORY_CONTENTS);
                Zap::create_claim(os, tx, object, &spec, norm, plain)?.dnode().clone()
            }
            kind => {
                let recordsize = u64::from(w.policy().recordsize);
                let block = match kind {
                    FileType::Regular => grown(SECTOR, 0, plant.size, recordsize).unwrap_or(SECTOR),
                    _ => SECTOR,
                };
                let block_size = u32::try_from(block).expect("recordsize is at most 16 MiB");
                let spec = NewObject { block_size, ..spec(DmuType::PLAIN_FILE_CONTENTS) };
                os.claim_object(tx, object, &spec)?
            }
        };
        self.attributes_of_planted(tx, &dn, plant, root)?;
        if plant.kind == Kind::Regular && !plant.data.is_empty() {
            dn.write_at(tx, 0, &plant.data)?;
        }
        Ok(())
    }

    /// Writes the attributes of a new file, in the order of OpenZFS.
    fn attributes_of_planted(&self, tx: &Tx, dn: &Dnode, plant: &Plant, root: &Attr) -> Result<()> {
        let kind = plant.kind.file_type();
        let directory = kind == FileType::Directory;
        let mode = plant.mode();
        let mut flags = Pflags::ARCHIVE | AV_MODIFIED | Pflags::ACL_TRIVIAL;
        flags |= if directory { AUTO_INHERIT } else { 0 };
        flags |= if trivial::all_execute(mode) { NO_EXECS_DENIED } else { 0 };
        let mut project = 0;
        if matches!(kind, FileType::Regular | FileType::Directory) {
            let counts = self.objset().phys().flags.0 & ObjsetFlags::PROJECTQUOTA_COMPLETE != 0;
            flags |= if counts { Pflags::PROJID } else { 0 };
            if root.pflags.has(Pflags::PROJINHERIT) {
                flags |= Pflags::PROJINHERIT;
                project = root.projid;
            }
        }
        let word = |n: u64| n.to_le_bytes();
        let target: &[u8] = if let Kind::Symlink(target) = &plant.kind { target } else { b"" };
        let words = [
            (Sa::Mode, word(mode.into())),
            (Sa::Size, word(plant.size)),
            (Sa::Gen, word(plant.place.generation)),
            (Sa::Uid, word(plant.uid.into())),
            (Sa::Gid, word(plant.gid.into())),
            (Sa::Parent, word(plant.parent.0)),
            (Sa::Flags, word(flags)),
        ];
        let mut all: Vec<(Sa, &[u8])> = words.iter().map(|(a, v)| (*a, &v[..])).collect();
        let time = time_bytes(plant.time);
        all.extend([Sa::Atime, Sa::Mtime, Sa::Ctime, Sa::Crtime].map(|a| (a, &time[..])));
        let (count, aces) = trivial::aces(mode, directory);
        let (links, project, count) = (word(plant.links), word(project), word(count));
        all.push((Sa::Links, &links));
        if flags & Pflags::PROJID != 0 {
            all.push((Sa::Projid, &project));
        }
        all.push((Sa::DaclCount, &count));
        all.push((Sa::DaclAces, &aces));
        if kind == FileType::Symlink {
            all.push((Sa::Symlink, target));
        }
        let status = plant.status.encode();
        all.push((Sa::Afs, &status));
        Ok(self.sa().replace(dn, tx, &all)?)
    }

    /// Writes contents of a planted file, within its size.
    ///
    /// # Errors
    /// * [`Error::NotRegular`], [`Error::IsDirectory`]: the object is no regular file.
    /// * [`Error::TooLarge`]: the data end after the file's size.
    /// * The errors of [changing](Error#changing).
    pub fn plant_data(&self, object: ObjNum, offset: u64, data: &[u8]) -> Result<()> {
        let w = self.writer()?;
        let node = self.file_to_change(object)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= node.attr().size);
        end.ok_or(Error::TooLarge { object })?;
        let tx = w.tx(Need::growing(data.len() as u64 + ATTR_BYTES))?;
        Ok(node.dnode().write_at(&tx, offset, data)?)
    }

    /// Gives a planted directory exactly these entries.
    ///
    /// An entry that names the same object as before keeps its type, whatever `entries` says:
    /// [`FileSystem::plant_types`] changes types.
    ///
    /// # Errors
    /// * [`Error::NotDirectory`]: the object is no directory.
    /// * [`Error::Dmu`] with [`dmu::Error::EntryExists`]: two entries have one name.
    /// * The errors of [changing](Error#changing).
    pub fn plant_entries(&self, dir: ObjNum, entries: &[PlantedEntry<'_>]) -> Result<()> {
        let w = self.writer()?;
        let zap = self.planted_dir(dir)?;
        let old = match zap.count()? {
            0 => HashMap::new(),
            _ => self.remove_others(dir, &zap, entries)?,
        };
        for batch in entries.chunks(BATCH) {
            let tx = w.tx(Need::growing(MAKE_BYTES * batch.len() as u64))?;
            for entry in batch {
                let value = Value::from(self.entry_value(entry.object, entry.kind));
                match old.get(entry.name) {
                    None => zap.add(&tx, entry.name, &value)?,
                    Some(object) if *object == entry.object => {}
                    Some(_) => zap.update(&tx, entry.name, &value)?,
                }
            }
        }
        Ok(())
    }

    /// Removes the entries of a directory whose names are not in `entries`. Returns the objects of
    /// the others.
    fn remove_others(
        &self,
        dir: ObjNum,
        zap: &Zap,
        entries: &[PlantedEntry<'_>],
    ) -> Result<HashMap<Vec<u8>, ObjNum>> {
        let w = self.writer()?;
        let new: HashSet<&[u8]> = entries.iter().map(|entry| entry.name).collect();
        let mut stay = HashMap::new();
        let mut from = DirCookie(2);
        loop {
            let mut gone = Vec::new();
            for entry in self.read_dir(dir, from)? {
                let entry = entry?;
                from = entry.next;
                if new.contains(&entry.name[..]) {
                    stay.insert(entry.name, entry.object);
                } else {
                    gone.push(entry.name);
                }
                if gone.len() == BATCH {
                    break;
                }
            }
            let tx = w.tx(Need::netfree(REMOVE_BYTES * gone.len() as u64))?;
            for name in &gone {
                zap.remove(&tx, name)?;
            }
            if gone.len() < BATCH {
                return Ok(stay);
            }
        }
    }

    /// Corrects the types of entries that a planted directory has.
    ///
    /// # Errors
    /// * [`Error::NotDirectory`]: the object is no directory.
    /// * The errors of [changing](Error#changing).
    pub fn plant_types(&self, dir: ObjNum, entries: &[PlantedEntry<'_>]) -> Result<()> {
        let w = self.writer()?;
        let zap = self.planted_dir(dir)?;
        for batch in entries.chunks(BATCH) {
            let tx = w.tx(Need::growing(MAKE_BYTES * batch.len() as u64))?;
            for entry in batch {
                let value = Value::from(self.entry_value(entry.object, entry.kind));
                zap.update(&tx, entry.name, &value)?;
            }
        }
        Ok(())
    }

    fn planted_dir(&self, dir: ObjNum) -> Result<Zap> {
        let node = self.node(dir)?;
        node.require_dir()?;
        self.dir_zap(node.dnode())
    }

    /// Frees files of a volume, whether directories name them or not.
    ///
    /// # Errors
    /// After an error, some of the files may be freed.
    ///
    /// * [`Error::NoFile`]: an object is no file.
    /// * The errors of [changing](Error#changing).
    pub fn uproot(&self, objects: &[ObjNum]) -> Result<()> {
        let w = self.writer()?;
        for batch in objects.chunks(BATCH) {
            for object in batch {
                self.free_much(w, &self.node(*object)?, 0, u64::MAX)?;
            }
            let tx = w.tx(Need::netfree(REMOVE_BYTES * batch.len() as u64))?;
            for object in batch {
                self.free_now(&tx, *object)?;
            }
        }
        Ok(())
    }

    fn free_now(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        self.objset().free_object(tx, object)?;
        self.forget_dir(object);
        Ok(())
    }
}

impl Plant {
    /// Whether the file that has the object stays and is changed.
    fn stays(&self, fs: &FileSystem, old: &Attr) -> bool {
        let directory = old.kind == FileType::Directory && self.kind == Kind::Directory;
        directory && (self.place.object == fs.root() || old.generation == self.place.generation)
    }

    fn mode(&self) -> u32 {
        (self.kind.file_type().bits() as u32) << 12 | (self.permissions & 0o7777)
    }
}
