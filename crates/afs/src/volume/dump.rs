//! Dumping a volume.

use std::io::Write;
use std::sync::Arc;

use observe::lock::Mutex;
use ondisk::ObjNum;
use zpl::{AfsBrief, AfsStatus, FileSystem, Node};

use super::tree::MOST_VNODES;
use super::{entries_of, kind_of, length_of, narrow, object, type_of, vnode};
use crate::acl::Acl;
use crate::dir::{Builder, Entry};
use crate::dump::{Attributes, Header, Output, Plain, Span, VnodeRecord, VolumeHeader, Writer};
use crate::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType, VolumeType};
use crate::{Error, Place, Record, Result};

/// Bytes that are read at once.
pub(super) const PIECE: usize = 1 << 20;

/// What a dump has of a volume.
///
/// Each vnode that has not changed is named. OpenAFS's calls choose:
///
/// | call | directories |
/// |---|---|
/// | Dump, DumpV2, GetSize | all |
/// | DumpV2 with `VOLDUMPV2_OMITDIRS`, Forward, ForwardMultiple | those that changed |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DumpScope {
    /// Vnodes that the server changed at this time or later are whole. 0 makes a full dump.
    pub since: Date,
    /// Directories are whole only if they changed, as other vnodes.
    pub omit_unchanged_directories: bool,
    /// What is added to the stored versions of data.
    pub version_base: u32,
}

impl DumpScope {
    /// Everything.
    pub const FULL: Self = Self { since: Date(0), omit_unchanged_directories: false, version_base: 0 };

    fn has(self, kind: VnodeType, server_mtime: u64) -> bool {
        let all = kind == VnodeType::Directory && !self.omit_unchanged_directories;
        all || server_mtime >= u64::from(self.since.0)
    }

    /// Whether the dump only names a vnode. `None`: its file must be opened to tell.
    fn names(self, number: Vnode, brief: &AfsBrief) -> Option<bool> {
        let kind = kind_of(number, brief.kind).ok()?;
        Some(!self.has(kind, brief.server_mtime?))
    }
}

/// A vnode that a walk has found.
#[derive(Clone, Copy)]
struct Found {
    number: Vnode,
    /// Its unique. `None`: its file must be opened, and may be no vnode.
    unique: Option<Unique>,
    /// The dump only names it.
    is_named: bool,
}

/// Writes a dump of a volume, and returns the output. The volume does not change meanwhile.
///
/// `volume` is the volume header of the dump. A snapshot that is served as another volume has its
/// own id, name, type and dates.
///
/// The vnodes of directories come first, and then the others. One walk finds both, and the entries
/// of directories need the uniques of all. So a dump takes 16 bytes of memory for each vnode.
///
/// # Errors
/// * [`Error::Shape`]: the volume has a file that no dump can have, or the header is none.
/// * [`Error::Range`]: a number is too large for a dump.
/// * [`Error::TooLong`]: a directory has more entries than AFS allows, or a string of the header is
///   too long.
/// * [`Error::Write`]: the output can't be written.
/// * [`Error::FileSystem`]: the volume can't be read.
pub fn dump<W: Write>(fs: &FileSystem, volume: &VolumeHeader, scope: DumpScope, to: W) -> Result<W> {
    dump_from(fs, volume, scope, &Walk::default(), 0, Plain(to)).map(|Plain(to)| to)
}

/// What a walk found in a volume. Several dumps of a volume that does not change may share it.
#[derive(Default)]
pub(crate) struct Walk(Mutex<Option<Arc<Vec<Found>>>>);

impl Walk {
    /// Walks, unless another dump has. One that finds another one walking waits for it.
    fn all(&self, fs: &FileSystem, scope: DumpScope) -> Result<Arc<Vec<Found>>> {
        let mut all = self.0.lock();
        if let Some(all) = &*all {
            return Ok(Arc::clone(all));
        }
        let mut found = Vec::new();
        for one in walk(fs, scope) {
            let one = one?;
            if found.len() == MOST_VNODES {
                let place = Place { record: Record::Vnode(one.number), at: 0 };
                return Err(Error::TooLong { place, field: "the list of vnodes", max: MOST_VNODES });
            }
            found.push(one);
        }
        Ok(Arc::clone(all.insert(Arc::new(found))))
    }
}

/// [`dump`] without its first `skip` bytes. The data of files among them are not read.
///
/// While it skips, it flushes the output again and again, which may end the dump by an error.
pub(crate) fn dump_from<W: Output>(
    fs: &FileSystem,
    volume: &VolumeHeader,
    scope: DumpScope,
    walk: &Walk,
    skip: u64,
    to: W,
) -> Result<W> {
    let mut writer = Writer::skipping(to, skip);
    writer.header(&dump_header(volume, scope))?;
    writer.volume(volume)?;
    let all = walk.all(fs, scope)?;
    for directories in [true, false] {
        for found in all.iter().filter(|found| found.number.is_directory() == directories) {
            write_vnode(&mut writer, (fs, &all), *found, scope)?;
        }
    }
    writer.end()
}

/// The size in bytes of the dump that [`dump`] would write, without reading the data of files
/// (`SizeDumpVolume`).
///
/// # Errors
/// Those of [`dump`], without [`Error::Write`].
pub fn dump_size(fs: &FileSystem, volume: &VolumeHeader, scope: DumpScope) -> Result<u64> {
    let mut size = crate::dump::dump_size(&dump_header(volume, scope), volume, []);
    for found in walk(fs, scope) {
        let found = found?;
        if found.is_named {
            size = size.saturating_add(crate::dump::NAME_SIZE);
        } else if let Some(node) = open(fs, found.number)? {
            let Prepared { record, .. } = vnode_of((fs, &[]), found.number, &node, scope, None)?;
            size = size.saturating_add(crate::dump::record_size(&record));
        }
    }
    Ok(size)
}

/// The dump header. Its last date depends on which copy the volume is (`DumpDumpHeader`).
pub(super) fn dump_header(volume: &VolumeHeader, scope: DumpScope) -> Header {
    let to = match volume.kind {
        VolumeType::ReadWrite => volume.update_date,
        VolumeType::Backup if volume.backup_date != Date(0) => volume.backup_date,
        VolumeType::Backup | VolumeType::ReadOnly => volume.creation_date,
    };
    let spans = vec![Span { from: scope.since, to }];
    Header { volume: volume.id, name: volume.name.clone(), spans }
}

/// The vnodes of a volume, in ascending order. A file that was removed and not freed yet has no
/// links, and is no vnode.
fn walk(fs: &FileSystem, scope: DumpScope) -> impl Iterator<Item = Result<Found>> {
    let found = move |found: zpl::Result<(ObjNum, Option<AfsBrief>)>| {
        let (object, brief) = match found {
            Ok(found) => found,
            Err(error) => return Some(Err(error.into())),
        };
        let number = vnode(object)?;
        if brief.is_some_and(|brief| brief.links == 0) {
            return None;
        }
        let unique = brief.and_then(|brief| u32::try_from(brief.generation).ok()).map(Unique);
        let is_named = brief.and_then(|brief| scope.names(number, &brief));
        Some(Ok(Found { number, unique, is_named: unique.is_some() && is_named == Some(true) }))
    };
    fs.afs_briefs(object(Vnode::ROOT)).filter_map(found)
}

/// Opens the file of a vnode. `None`: it is no vnode.
fn open(fs: &FileSystem, number: Vnode) -> Result<Option<Node>> {
    match fs.node(object(number)) {
        // An object of the file system itself.
        Err(zpl::Error::NoFile { .. }) => Ok(None),
        node => Ok(Some(node?).filter(|node| node.attr().nlink > 0)),
    }
}

/// A volume with all its vnodes.
type Walked<'a> = (&'a FileSystem, &'a [Found]);

fn write_vnode<W: Output>(
    writer: &mut Writer<W>,
    volume: Walked<'_>,
    found: Found,
    scope: DumpScope,
) -> Result<()> {
    if let Some(unique) = found.unique.filter(|_| found.is_named) {
        return writer.name(found.number, unique);
    }
    let Some(node) = open(volume.0, found.number)? else { return Ok(()) };
    let Prepared { record, blob } = vnode_of(volume, found.number, &node, scope, Some(writer.offset()))?;
    writer.vnode(&record)?;
    match record.attributes {
        Some(Attributes { kind: VnodeType::File, length, .. }) => data(writer, &node, length.unwrap_or(0)),
        _ => writer.data(&blob),
    }
}

/// A vnode that is about to be written.
struct Prepared {
    record: VnodeRecord,
    /// The data of a directory or symbolic link that is whole.
    blob: Vec<u8>,
}

/// A vnode as `scope` has it. `at` is where it begins in the dump; without one, its data are only
/// counted.
fn vnode_of(
    volume: Walked<'_>,
    number: Vnode,
    node: &Node,
    scope: DumpScope,
    at: Option<u64>,
) -> Result<Prepared> {
    let place = Place { record: Record::Vnode(number), at: at.unwrap_or(0) };
    let shape = |why| Error::Shape { place, why };
    let attr = node.attr();
    let kind = type_of(number, node).map_err(shape)?;
    let status = node.afs_status()?.ok_or_else(|| shape("it has no status of AFS"))?;
    let unique = Unique(narrow(place, "the unique", attr.generation)?);
    let named = VnodeRecord { vnode: number, unique, attributes: None };
    if !scope.has(kind, status.server_mtime) {
        return Ok(Prepared { record: named, blob: Vec::new() });
    }
    let (length, blob) = match (kind, at) {
        (VnodeType::File, _) => (attr.size, Vec::new()),
        (VnodeType::Symlink, None) => (attr.size, Vec::new()),
        (VnodeType::Directory, None) => (length_of(&entries_of(node, place)?)?, Vec::new()),
        (VnodeType::Symlink, Some(_)) => with_length(node.readlink()?),
        (VnodeType::Directory, Some(_)) => with_length(blob(volume, place, node)?),
    };
    let parent = match number {
        Vnode::ROOT => Vnode(0),
        _ => vnode(attr.parent).ok_or_else(|| shape("its parent is no directory of the volume"))?,
    };
    let attributes = attributes_of(place, node, (kind, parent), &status, scope.version_base, length)?;
    Ok(Prepared { record: VnodeRecord { attributes: Some(attributes), ..named }, blob })
}

/// The attributes of a vnode of this type and parent.
pub(super) fn attributes_of(
    place: Place,
    node: &Node,
    (kind, parent): (VnodeType, Vnode),
    status: &AfsStatus,
    version_base: u32,
    length: u64,
) -> Result<Attributes> {
    let attr = node.attr();
    let acl = match kind {
        VnodeType::Directory => Some(Acl::from_compact(&status.access_list)?.to_raw()),
        _ => None,
    };
    let seconds = attr.mtime.secs.cast_unsigned();
    let id = |field, id| narrow::<u32>(place, field, id).map(u32::cast_signed);
    Ok(Attributes {
        kind,
        link_count: narrow(place, "the link count", attr.nlink)?,
        // AFS counts modulo 2^32.
        data_version: DataVersion((status.data_version as u32).wrapping_add(version_base)),
        modify_time: Date(narrow(place, "the modification time", seconds)?),
        author: PrincipalId(status.author),
        owner: PrincipalId(id("the owner", attr.uid.0)?),
        group: id("the group", attr.gid.0)?,
        mode: (attr.mode & 0o7777) as u16,
        parent,
        server_modify_time: Date(narrow(place, "the server's time", status.server_mtime)?),
        acl,
        length: Some(length),
    })
}

fn with_length(blob: Vec<u8>) -> (u64, Vec<u8>) {
    (blob.len() as u64, blob)
}

/// The contents of a file.
fn data<W: Output>(writer: &mut Writer<W>, node: &Node, length: u64) -> Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut offset = writer.skip_data()?;
    while offset < length {
        let parts = node.read_blocks(offset, PIECE as u64)?;
        if parts.is_empty() {
            // `Writer` reports the missing data.
            break;
        }
        for part in parts {
            offset += part.range.len() as u64;
            if let Some(block) = &part.block {
                writer.block(block, part.range)?;
                continue;
            }
            let mut left = part.range.len();
            while left > 0 {
                let zeros = &ZEROS[..left.min(ZEROS.len())];
                writer.data(zeros)?;
                left -= zeros.len();
            }
        }
    }
    Ok(())
}

/// The entries of a directory as clients of a cell have them.
fn blob((fs, all): Walked<'_>, place: Place, node: &Node) -> Result<Vec<u8>> {
    let named = |object| -> Result<(Vnode, Unique)> {
        let vnode = vnode(object).ok_or(Error::Shape { place, why: "an entry names no vnode" })?;
        let found = all.binary_search_by_key(&vnode, |found| found.number).ok();
        if let Some(unique) = found.and_then(|index| all[index].unique) {
            return Ok((vnode, unique));
        }
        let generation = fs.node(object)?.attr().generation;
        Ok((vnode, Unique(narrow(place, "the unique", generation)?)))
    };
    let mut builder = Builder::new(named(node.object())?, named(node.attr().parent)?);
    for entry in entries_of(node, place)? {
        let (vnode, unique) = named(entry.object)?;
        builder.add(Entry { name: &entry.name, vnode, unique }).map_err(|error| error.inside(place))?;
    }
    Ok(builder.finish())
}
