//! Dumping a volume.

use std::io::Write;

use zpl::{AfsStatus, FileSystem, Node};

use super::{entries_of, length_of, object, type_of, vnode};
use crate::acl::Acl;
use crate::dir::{Builder, Entry};
use crate::dump::{Attributes, Header, Span, VnodeRecord, VolumeHeader, Writer};
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
    /// Prepared that the server changed at this time or later are whole. 0 makes a full dump.
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
}

/// Writes a dump of a volume, and returns the output. The volume does not change meanwhile.
///
/// `volume` is the volume header of the dump. A snapshot that is served as another volume has its
/// own id, name, type and dates.
///
/// # Errors
/// * [`Error::Shape`]: the volume has a file that no dump can have, or the header is none.
/// * [`Error::Range`]: a number is too large for a dump.
/// * [`Error::TooLong`]: a directory has more entries than AFS allows, or a string of the header is
///   too long.
/// * [`Error::Write`]: the output can't be written.
/// * [`Error::FileSystem`]: the volume can't be read.
pub fn dump<W: Write>(fs: &FileSystem, volume: &VolumeHeader, scope: DumpScope, to: W) -> Result<W> {
    let mut writer = Writer::new(to);
    writer.header(&dump_header(volume, scope))?;
    writer.volume(volume)?;
    for directories in [true, false] {
        let wanted = |vnode: Vnode| vnode.is_directory() == directories;
        for_each(fs, wanted, |number, node| {
            let at = writer.offset();
            let Prepared { record, blob } = vnode_of(fs, number, node, scope, Some(at))?;
            writer.vnode(&record)?;
            match record.attributes {
                Some(Attributes { kind: VnodeType::File, length, .. }) => {
                    data(&mut writer, node, length.unwrap_or(0))
                }
                _ => writer.data(&blob),
            }
        })?;
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
    let every = |_| true;
    for_each(fs, every, |number, node| {
        let Prepared { record, .. } = vnode_of(fs, number, node, scope, None)?;
        size = size.saturating_add(crate::dump::record_size(&record));
        Ok(())
    })?;
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

/// Calls `visit` for each wanted vnode, in ascending order.
fn for_each(
    fs: &FileSystem,
    wanted: impl Fn(Vnode) -> bool,
    mut visit: impl FnMut(Vnode, &Node) -> Result<()>,
) -> Result<()> {
    for dnode in fs.objset().objects(object(Vnode::ROOT)) {
        let number = dnode.map_err(zpl::Error::Dmu)?.object();
        let Some(vnode) = vnode(number).filter(|vnode| wanted(*vnode)) else { continue };
        let node = match fs.node(number) {
            // An object of the file system itself.
            Err(zpl::Error::NoFile { .. }) => continue,
            node => node?,
        };
        // Files that were removed and not freed yet have no links.
        if node.attr().nlink > 0 {
            visit(vnode, &node)?;
        }
    }
    Ok(())
}

/// A vnode that is about to be written.
struct Prepared {
    record: VnodeRecord,
    /// The data of a directory or symbolic link that is whole.
    blob: Vec<u8>,
}

/// A number of a file as one of a dump.
pub(super) fn narrow<T: TryFrom<u64>>(place: Place, field: &'static str, value: u64) -> Result<T> {
    T::try_from(value).map_err(|_| Error::Range { place, field, value })
}

/// A vnode as `scope` has it. `at` is where it begins in the dump; without one, its data are only
/// counted.
fn vnode_of(
    fs: &FileSystem,
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
        (VnodeType::Directory, Some(_)) => with_length(blob(fs, place, node)?),
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
fn data<W: Write>(writer: &mut Writer<W>, node: &Node, length: u64) -> Result<()> {
    let mut buffer = vec![0; PIECE.min(usize::try_from(length).unwrap_or(PIECE))];
    let mut offset = 0;
    while offset < length {
        let read = node.read(offset, &mut buffer)?;
        if read == 0 {
            // `Writer` reports the missing data.
            break;
        }
        writer.data(&buffer[..read])?;
        offset += read as u64;
    }
    Ok(())
}

/// The entries of a directory as clients of a cell have them.
fn blob(fs: &FileSystem, place: Place, node: &Node) -> Result<Vec<u8>> {
    let named = |object| -> Result<(Vnode, Unique)> {
        let vnode = vnode(object).ok_or(Error::Shape { place, why: "an entry names no vnode" })?;
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
