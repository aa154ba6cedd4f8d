//! Restoring a dump into a volume: a new one, or one that has contents.

use std::io::BufRead;

use zpl::{AfsStatus, FileSystem, FileType, Kind, Place as ObjectPlace, Plant, PlantedEntry, Time};

use super::blocks;
use super::tree::{Known, Tree};
use super::{TARGET_MAX, object, owner, set_header};
use crate::acl::Acl;
use crate::dir::{Directory, MAX_PAGES, PAGE_SIZE};
use crate::dump::{Attributes, Event, Header, Reader, VnodeRecord, VolumeHeader};
use crate::types::{Unique, Vnode, VnodeType};
use crate::{Error, Place, Record, Result};

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;
/// Files of one transaction.
const BATCH: usize = 64;

/// What a restore found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The dump header.
    pub dump: Header,
    /// The volume header of the dump; of several, the last one. [`VolumeHeader::disk_used`] and
    /// [`VolumeHeader::file_count`] are those of the restored volume, and
    /// [`VolumeHeader::next_unique`] is above all its uniques.
    pub volume: VolumeHeader,
}

/// The header of a volume into which a dump was restored (`RestoreVolume`, `CopyVolumeHeader`).
///
/// `own` says what the volume is: its id, name, type, parent and clone. All other fields are the
/// dump's, except that the counts of use begin anew. The next unique never gets smaller, because
/// clients may still know files of the former contents.
pub fn restored_header(own: &VolumeHeader, dump: &VolumeHeader) -> VolumeHeader {
    VolumeHeader {
        id: own.id,
        version: own.version.max(1),
        name: own.name.clone(),
        kind: own.kind,
        parent: own.parent,
        clone: own.clone,
        next_unique: own.next_unique.max(dump.next_unique),
        week_use: [0; 7],
        day_use_date: Default::default(),
        day_use: 0,
        ..dump.clone()
    }
}

/// Restores a dump into a volume, and stores the header that `header` makes of the result.
///
/// The volume has the contents that the dump is based on, or those of [`super::new_volume`]. A
/// vnode that is whole in the dump replaces the one of the volume, and a vnode that the dump only
/// names stays. All other vnodes of the volume are deleted. So a full dump replaces all contents.
/// At the end the vnodes must be a tree.
///
/// The stored versions of data are those of the dump without `version_base`, which the volume adds
/// again.
///
/// No other thread may use the file system meanwhile. The changes are on disk with their txgs, for
/// which [`FileSystem::sync`] waits.
///
/// # Errors
/// The contents are then neither the old nor the new ones, and the header is the old one. The
/// caller rolls the file system back to a snapshot, or destroys it.
///
/// * The errors of [`Reader::next_event`].
/// * [`Error::Shape`]: the file system is no volume; an incremental dump does not fit the volume;
///   or the vnodes are no tree: one is missing or there twice, has a wrong link count or parent, or
///   no name.
/// * [`Error::Range`], [`Error::TooLong`]: a directory or symbolic link is too long, or there are
///   too many vnodes.
/// * [`Error::FileSystem`]: the volume can't be read or changed.
pub fn restore<R: BufRead>(
    fs: &FileSystem,
    reader: &mut Reader<R>,
    version_base: u32,
    header: impl FnOnce(&Restored) -> VolumeHeader,
) -> Result<Restored> {
    if !fs.is_afs() {
        let why = "the file system is no volume";
        return Err(Error::Shape { place: reader.place(), why });
    }
    let in_place = has_contents(fs)?;
    if in_place {
        // What was removed but not freed has numbers that the dump may use.
        fs.drain()?;
    }
    let mut restoring = Restoring {
        fs,
        in_place,
        tree: Tree::default(),
        current: None,
        data: Vec::new(),
        data_at: 0,
        written: 0,
        batch: Vec::new(),
        batch_bytes: 0,
    };
    let (mut dump, mut volume) = (Header::default(), None);
    loop {
        match reader.next_event()? {
            Event::Header(header) => dump = header,
            Event::Volume(header) => volume = Some(*header),
            Event::Vnode(mut record) => {
                restoring.finish()?;
                if let Some(attributes) = &mut record.attributes {
                    attributes.data_version.0 = attributes.data_version.0.wrapping_sub(version_base);
                }
                let at = reader.place().at;
                restoring.begin(*record, at, reader.offset())?;
            }
            Event::Data(piece) => restoring.data(piece)?,
            Event::End => break,
        }
    }
    restoring.finish()?;
    restoring.flush_batch()?;
    let end = reader.place();
    let mut volume = volume.ok_or(Error::Shape { place: end, why: "the dump has no volume header" })?;
    restoring.tree.end(fs, in_place, end.at)?;
    let sums = restoring.tree.sums();
    volume.disk_used = u32::try_from(sums.blocks).unwrap_or(u32::MAX);
    volume.file_count = u32::try_from(sums.vnodes).unwrap_or(u32::MAX);
    volume.next_unique = volume.next_unique.max(Unique(sums.greatest_unique.0.saturating_add(1)));
    let restored = Restored { dump, volume };
    set_header(fs, &header(&restored))?;
    Ok(restored)
}

/// Whether a volume has more than the root directory of [`super::new_volume`].
fn has_contents(fs: &FileSystem) -> Result<bool> {
    // A restore that failed leaves contents without a header.
    let others = fs.objset().objects(object(Vnode(Vnode::ROOT.0 + 1))).next().transpose();
    Ok(fs.afs_header()?.is_some() || others.map_err(zpl::Error::Dmu)?.is_some())
}

struct Restoring<'a> {
    fs: &'a FileSystem,
    /// Whether the volume may have contents.
    in_place: bool,
    tree: Tree,
    /// The vnode whose data come next.
    current: Option<(VnodeRecord, Attributes)>,
    /// Its data that are not written yet.
    data: Vec<u8>,
    /// Where its data begin in the dump.
    data_at: u64,
    written: u64,
    /// Small files and links that are planted together.
    batch: Vec<Plant>,
    batch_bytes: usize,
}

impl Restoring<'_> {
    /// Begins a vnode. Its record begins at byte `at` of the dump, and its data at `data_at`.
    fn begin(&mut self, record: VnodeRecord, at: u64, data_at: u64) -> Result<()> {
        let place = Place { record: Record::Vnode(record.vnode), at };
        let Some(attributes) = record.attributes.clone() else {
            return self.tree.keep(record.vnode, record.unique, at);
        };
        let shape = |why| Err(Error::Shape { place, why });
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
        let former = self.former(record.vnode)?;
        let is_new = former.is_none_or(|(unique, _)| unique != u64::from(record.unique.0));
        let Attributes { kind, parent, link_count: links, .. } = attributes;
        let known = Known { unique: record.unique, kind: Some(kind), parent, links, at, is_new };
        self.tree.insert(record.vnode, known, blocks(length))?;
        if kind == VnodeType::Symlink || former.is_some_and(|(_, kind)| kind == FileType::Symlink) {
            self.tree.note_types(parent);
        }
        if kind == VnodeType::File && length > PIECE as u64 {
            let plant = plant(&record, &attributes, place, Kind::Regular, length)?;
            self.fs.plant(&[plant])?;
        }
        self.data_at = data_at;
        self.current = Some((record, attributes));
        Ok(())
    }

    /// The generation and type of what the volume has under this number.
    fn former(&self, vnode: Vnode) -> Result<Option<(u64, FileType)>> {
        if !self.in_place {
            return Ok(None);
        }
        match self.fs.node(object(vnode)) {
            Ok(node) => Ok(Some((node.attr().generation, node.attr().kind))),
            Err(zpl::Error::NoFile { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn data(&mut self, piece: &[u8]) -> Result<()> {
        self.data.extend_from_slice(piece);
        let large = self.current.as_ref().is_some_and(|(_, a)| is_large(a));
        // Whole ranges alone are also whole blocks.
        let whole = self.data.len() - self.data.len() % PIECE;
        if large && whole > 0 { self.write_data(whole) } else { Ok(()) }
    }

    /// Writes the next bytes of the data of a large file.
    fn write_data(&mut self, bytes: usize) -> Result<()> {
        let Some((record, _)) = &self.current else { return Ok(()) };
        for piece in self.data[..bytes].chunks(PIECE) {
            // What is not written reads as zeros.
            if piece.iter().any(|byte| *byte != 0) {
                self.fs.plant_data(object(record.vnode), self.written, piece)?;
            }
            self.written += piece.len() as u64;
        }
        self.data.drain(..bytes);
        Ok(())
    }

    /// Ends the vnode whose data have all come.
    fn finish(&mut self) -> Result<()> {
        match self.current.as_ref().map(|(_, attributes)| attributes.kind) {
            Some(VnodeType::File) => self.file()?,
            Some(VnodeType::Directory) => self.directory()?,
            Some(VnodeType::Symlink) => self.symlink()?,
            None => {}
        }
        self.current = None;
        self.data.clear();
        self.written = 0;
        Ok(())
    }

    /// Where errors in the data of the current vnode are.
    fn place(&self, vnode: Vnode) -> Place {
        Place { record: Record::Vnode(vnode), at: self.data_at }
    }

    fn file(&mut self) -> Result<()> {
        if self.current.as_ref().is_some_and(|(_, attributes)| is_large(attributes)) {
            return self.write_data(self.data.len());
        }
        let Some((record, attributes)) = self.current.take() else { return Ok(()) };
        let data = std::mem::take(&mut self.data);
        let place = self.place(record.vnode);
        let size = data.len() as u64;
        let plant = plant(&record, &attributes, place, Kind::Regular, size)?;
        self.push(Plant { data, ..plant })
    }

    fn symlink(&mut self) -> Result<()> {
        let Some((record, attributes)) = self.current.take() else { return Ok(()) };
        let target = std::mem::take(&mut self.data);
        let place = self.place(record.vnode);
        if target.is_empty() {
            return Err(Error::Shape { place, why: "a symbolic link has no target" });
        }
        let length = target.len() as u64;
        self.push(plant(&record, &attributes, place, Kind::Symlink(target), length)?)
    }

    /// Plants a file together with others.
    fn push(&mut self, plant: Plant) -> Result<()> {
        self.batch_bytes += plant.data.len();
        self.batch.push(plant);
        if self.batch.len() == BATCH || self.batch_bytes >= PIECE { self.flush_batch() } else { Ok(()) }
    }

    fn flush_batch(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.fs.plant(&self.batch)?;
        }
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    fn directory(&mut self) -> Result<()> {
        let Some((record, attributes)) = self.current.take() else { return Ok(()) };
        let blob = std::mem::take(&mut self.data);
        let place = self.place(record.vnode);
        let directory = Directory::new(&blob).map_err(|error| error.inside(place))?;
        let own = |name: &[u8]| matches!(name, b"." | b"..");
        let entries: Vec<_> = directory.entries().filter(|entry| !own(entry.name)).collect();
        for entry in &entries {
            self.tree.name(record.vnode, entry.vnode, entry.unique, place.at)?;
        }
        let size = entries.len() as u64 + 2;
        self.fs.plant(&[plant(&record, &attributes, place, Kind::Directory, size)?])?;
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
        Ok(self.fs.plant_entries(object(record.vnode), &planted)?)
    }
}

/// Whether a file is written in ranges, as they come.
fn is_large(attributes: &Attributes) -> bool {
    attributes.kind == VnodeType::File && attributes.length.is_some_and(|length| length > PIECE as u64)
}

/// The file of a vnode, without data.
fn plant(
    record: &VnodeRecord,
    attributes: &Attributes,
    place: Place,
    kind: Kind,
    size: u64,
) -> Result<Plant> {
    let access_list = match &attributes.acl {
        Some(raw) => Acl::from_raw(raw).map_err(|error| error.inside(place))?.to_compact(),
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
    Ok(Plant {
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
        data: Vec::new(),
    })
}
