//! Volumes as file systems of a pool: vnodes are objects, and dumps are restored and made.
//!
//! # Theory
//! A vnode and its object have numbers that differ by a constant ([`object`]), so both have the
//! same parity: directories are odd. The uniquifier is the generation of the file. What a file has
//! no field for is in its AFS status ([`zpl::AfsStatus`]), and the header of the volume is in an
//! object of its own.
//!
//! A restore makes files as the dump names them, and checks at its end that the vnodes are a tree.
//! Until then the caller shows the file system to no other user. After an error it rolls the file
//! system back to a snapshot, or destroys a new one.
//!
//! A dump is full or incremental ([`DumpScope`]). What is served as a volume may be a snapshot,
//! with another id, name and type than those that are stored. So the caller gives the header of a
//! dump.
//!
//! A dump of a damaged volume fails. [`dump_readable`] makes one of what can be read.
//!
//! # Absent
//! * Files that another front end creates: they have numbers that no vnode of their type may have.
//!   Such a volume can't be dumped.
//! * The blob of a directory is made for each dump. It is not kept.

mod changed;
mod dump;
mod readable;
mod restore;
pub(crate) mod tree;

pub use changed::{Differences, check_changes, is_same_since};
pub use dump::{DumpScope, dump, dump_size};
pub(crate) use dump::{Walk, dump_from};
pub use readable::{Loss, LostPart, dump_readable};
pub use restore::{Restored, restore, restored_header};
pub use tree::{Sums, check};

use ondisk::ObjNum;
use zpl::{AfsRoot, AfsStatus, DirCookie, DirEntry, FileSystem, FileType, NewFileSystem, Node};

use crate::acl::Acl;
use crate::dir::{MAX_PAGES, PAGE_SIZE, page_count};
use crate::dump::{Event, Header, Reader, Span, VolumeHeader, Writer};
use crate::types::{PrincipalId, Unique, Vnode, VnodeType};
use crate::{Error, Place, Record, Result};

/// The object of vnode 0. Those before the root's belong to the file system itself.
const FIRST: u64 = 256;
/// Longest target of a symbolic link.
const TARGET_MAX: u64 = 4095;

/// A number of a file as one of a dump.
fn narrow<T: TryFrom<u64>>(place: Place, field: &'static str, value: u64) -> Result<T> {
    T::try_from(value).map_err(|_| Error::Range { place, field, value })
}

/// The object of a vnode.
pub fn object(vnode: Vnode) -> ObjNum {
    ObjNum(FIRST + u64::from(vnode.0))
}

/// The vnode of an object. `None`: the object is no vnode.
pub fn vnode(object: ObjNum) -> Option<Vnode> {
    let number = object.0.checked_sub(FIRST).filter(|number| *number > 0)?;
    u32::try_from(number).ok().map(Vnode)
}

/// The space that a vnode of this length counts for, in KiB (`nBlocks`). An empty one counts for 1.
pub fn blocks(length: u64) -> u64 {
    length.div_ceil(1024).max(1)
}

/// The type of a vnode.
fn type_of(number: Vnode, node: &Node) -> std::result::Result<VnodeType, &'static str> {
    kind_of(number, node.attr().kind)
}

/// The type of a vnode whose file has this type.
fn kind_of(number: Vnode, kind: FileType) -> std::result::Result<VnodeType, &'static str> {
    let kind = match kind {
        FileType::Regular => VnodeType::File,
        FileType::Directory => VnodeType::Directory,
        FileType::Symlink => VnodeType::Symlink,
        _ => return Err("AFS has no such type of file"),
    };
    match (kind == VnodeType::Directory) == number.is_directory() {
        true => Ok(kind),
        false => Err("the vnode's number is not one of its type"),
    }
}

/// The entries of a directory without `.` and `..`, as many as one may have.
fn entries_of(node: &Node, place: Place) -> Result<Vec<DirEntry>> {
    // An entry takes at least a slot of 32 bytes.
    const MOST: usize = MAX_PAGES * PAGE_SIZE / 32;
    let mut entries = Vec::new();
    for entry in node.read_dir(DirCookie(2))? {
        if entries.len() == MOST {
            return Err(Error::TooLong { place, field: "the directory", max: MAX_PAGES * PAGE_SIZE });
        }
        entries.push(entry?);
    }
    Ok(entries)
}

/// The length of a directory with these entries.
fn length_of(entries: &[DirEntry]) -> Result<u64> {
    let pages = page_count(entries.iter().map(|entry| &entry.name[..]))?;
    Ok((pages * PAGE_SIZE) as u64)
}

/// What a volume counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// KiB of its vnodes.
    pub blocks: u64,
    /// Its vnodes.
    pub vnodes: u64,
}

/// Counts a volume anew, in a time that grows with its files.
///
/// # Errors
/// * [`Error::FileSystem`]: it can't be read.
/// * [`Error::TooLong`]: AFS can't have one of its directories.
pub fn count(fs: &FileSystem) -> Result<Counts> {
    let mut counts = Counts::default();
    for dnode in fs.objset().objects(object(Vnode::ROOT)) {
        let file = dnode.map_err(zpl::Error::Dmu)?.object();
        let Some(number) = vnode(file) else { continue };
        let node = match fs.node(file) {
            // What the file system keeps for itself.
            Err(zpl::Error::NoFile { .. }) => continue,
            found => found?,
        };
        let attr = node.attr();
        let length = match type_of(number, &node) {
            Ok(VnodeType::Directory) => {
                length_of(&entries_of(&node, Place { record: Record::Vnode(number), at: 0 })?)?
            }
            Ok(_) => attr.size,
            Err(_) => continue,
        };
        if attr.nlink > 0 {
            counts.blocks = counts.blocks.saturating_add(blocks(length));
            counts.vnodes += 1;
        }
    }
    Ok(counts)
}

/// An id as the owner or group of a file. Groups have negative ids.
fn owner(id: i32) -> u32 {
    id.cast_unsigned()
}

/// The contents of a new volume. Its root directory admits administrators only.
///
/// `now` is the time of creation: seconds since 1970, and nanoseconds. `header` is that of the
/// volume, as it is stored; empty if it gets one later.
pub fn new_volume(now: (u64, u64), header: Vec<u8>) -> NewFileSystem {
    let status = AfsStatus {
        author: PrincipalId::default().0,
        data_version: 0,
        server_mtime: now.0,
        access_list: Acl::of_new_volume().to_compact(),
    };
    let generation = Unique(1).0.into();
    let root = AfsRoot { object: object(Vnode::ROOT), generation, status, header };
    NewFileSystem { afs: Some(root), ..NewFileSystem::new(now) }
}

/// The stored form of a volume's header: a dump without vnodes.
fn header_bytes(header: &VolumeHeader) -> Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new());
    let spans = vec![Span::default()];
    writer.header(&Header { volume: header.id, name: header.name.clone(), spans })?;
    writer.volume(header)?;
    writer.end()
}

/// Stores the header of a volume.
///
/// # Errors
/// * [`Error::TooLong`], [`Error::Shape`]: a dump can't have this header.
/// * [`Error::FileSystem`]: it can't be stored.
pub fn set_header(fs: &zpl::FileSystem, header: &VolumeHeader) -> Result<()> {
    fs.set_afs_header(&header_bytes(header)?)?;
    Ok(())
}

/// The header of a volume; `None` if it has none yet.
///
/// # Errors
/// * [`Error::FileSystem`]: it can't be read.
/// * The errors of [`Reader::next_event`]: it is malformed.
pub fn header(fs: &zpl::FileSystem) -> Result<Option<VolumeHeader>> {
    let Some(bytes) = fs.afs_header()? else { return Ok(None) };
    let mut reader = Reader::new(&bytes[..]);
    loop {
        match reader.next_event()? {
            Event::Volume(header) => return Ok(Some(*header)),
            Event::End => return Ok(None),
            _ => {}
        }
    }
}

impl From<zpl::Error> for Error {
    fn from(source: zpl::Error) -> Self {
        Self::FileSystem { source: Box::new(source) }
    }
}
