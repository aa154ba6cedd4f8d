//! Files whose attributes are all given, for volumes that are restored from a dump.
//!
//! # Theory
//! A dump names vnodes before or after the directories that have them. So here a file appears
//! without a name, and a directory with entries whose files may be missing yet. Commits wait for
//! the txg, and no status changes by itself. The caller gives all attributes, and publishes
//! the file system at the end.

use super::data::{ATTR_BYTES, grown};
use super::make::{Birth, MAKE_BYTES};
use super::replay::Given;
use super::trivial;
use super::update::Changes;
use crate::afs::HEADER;
use crate::{AfsStatus, Error, FileSystem, FileType, Kind, NewFile, Place, Result, Time};
use dmu::zap::Value;
use dsl::Need;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;

/// Longest header of a volume in bytes.
pub const AFS_HEADER_MAX: usize = 4096;
/// Entries of one transaction.
const BATCH: usize = 128;

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
    /// Stores the header of a volume.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    ///
    /// # Panics
    /// If it is longer than [`AFS_HEADER_MAX`].
    pub fn set_afs_header(&self, header: &[u8]) -> Result<()> {
        assert!(header.len() <= AFS_HEADER_MAX, "a header fits into an entry of the master node");
        let tx = self.writer()?.tx(Need::growing(2 * AFS_HEADER_MAX as u64))?;
        Ok(self.master().update(&tx, HEADER.as_bytes(), &Value::bytes(header))?)
    }

    /// Makes a file without a name in a volume, or gives the root directory its attributes.
    ///
    /// # Errors
    /// * [`Error::Dmu`] with [`dmu::Error::ObjectExists`]: the object exists.
    /// * [`Error::NameTooLong`]: the target of a symbolic link is empty or too long.
    /// * The errors of [changing](Error#changing).
    ///
    /// # Panics
    /// If the file system is no volume.
    pub fn plant(&self, plant: &Plant) -> Result<()> {
        assert!(self.is_afs(), "only volumes are restored from dumps");
        let w = self.writer()?;
        if let Kind::Symlink(target) = &plant.kind
            && (target.is_empty() || target.len() >= super::make::TARGET_MAX)
        {
            return Err(Error::NameTooLong { len: target.len() });
        }
        let root = self.node(self.root())?;
        let Place { object, generation } = plant.place;
        let tx = w.tx(Need::growing(MAKE_BYTES))?;
        let new = NewFile {
            uid: plant.uid,
            gid: plant.gid,
            ..NewFile::new(plant.kind.clone(), plant.permissions & 0o7777)
        };
        if object != self.root() {
            let given = Given { object, slots: 1, generation, time: plant.time };
            self.make(w, &tx, &Birth { given: Some(&given), ..Birth::new(&new, &root) })?;
        }
        let node = self.node(object)?;
        let mut changes = Changes::default();
        if object == self.root() {
            let mode = (FileType::Directory.bits() as u32) << 12 | new.permissions;
            let (count, aces) = trivial::aces(mode, true);
            changes.word(Sa::Mode, mode.into());
            changes.word(Sa::Uid, plant.uid.into());
            changes.word(Sa::Gid, plant.gid.into());
            changes.word(Sa::Gen, generation);
            changes.word(Sa::DaclCount, count);
            changes.bytes(Sa::DaclAces, aces);
            for time in [Sa::Atime, Sa::Mtime, Sa::Ctime, Sa::Crtime] {
                changes.time(time, plant.time);
            }
        }
        changes.word(Sa::Parent, plant.parent.0);
        changes.word(Sa::Links, plant.links);
        changes.word(Sa::Size, plant.size);
        changes.bytes(Sa::Afs, plant.status.encode());
        changes.apply(&node, &tx)?;
        let recordsize = u64::from(w.policy().recordsize);
        if plant.kind == Kind::Regular
            && let Some(block) = grown(node.dnode().block_size(), 0, plant.size, recordsize)
        {
            self.grow_block(&node, &tx, block)?;
        }
        Ok(())
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

    /// Adds entries to a planted directory; with `again`, replaces entries that it has.
    ///
    /// # Errors
    /// * [`Error::NotDirectory`]: the object is no directory.
    /// * [`Error::Dmu`] with [`dmu::Error::EntryExists`]: two entries have one name.
    /// * The errors of [changing](Error#changing).
    pub fn plant_entries(&self, dir: ObjNum, entries: &[PlantedEntry<'_>], again: bool) -> Result<()> {
        let w = self.writer()?;
        let node = self.node(dir)?;
        if node.attr().kind != FileType::Directory {
            return Err(Error::NotDirectory { object: dir });
        }
        let zap = self.dir_zap(node.dnode())?;
        for batch in entries.chunks(BATCH) {
            let tx = w.tx(Need::growing(MAKE_BYTES * batch.len() as u64))?;
            for entry in batch {
                let value = Value::from(self.entry_value(entry.object, entry.kind));
                match again {
                    true => zap.update(&tx, entry.name, &value)?,
                    false => zap.add(&tx, entry.name, &value)?,
                }
            }
        }
        Ok(())
    }
}
