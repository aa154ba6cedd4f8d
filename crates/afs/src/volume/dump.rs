//! Dumping a volume.

use std::io::Write;

use zpl::{DirCookie, FileSystem, FileType, Node};

use super::{header, object, vnode};
use crate::acl::Acl;
use crate::dir::{Builder, Entry};
use crate::dump::{Attributes, Header, Span, VnodeRecord, Writer};
use crate::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType};
use crate::{Error, Place, Record, Result};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Writes a full dump of a volume, and returns the output. The volume does not change meanwhile.
///
/// # Errors
/// * [`Error::Shape`]: the volume has no header, or a file that no dump can have.
/// * [`Error::Range`]: a number is too large for a dump.
/// * [`Error::TooLong`]: a directory has more entries than AFS allows.
/// * [`Error::Write`]: the output can't be written.
/// * [`Error::FileSystem`]: the volume can't be read.
pub fn dump<W: Write>(fs: &FileSystem, to: W) -> Result<W> {
    let none = Place { record: Record::VolumeHeader, at: 0 };
    let volume = header(fs)?.ok_or(Error::Shape { place: none, why: "the volume has no header" })?;
    let mut writer = Writer::new(to);
    let spans = vec![Span { from: Date(0), to: volume.update_date }];
    writer.header(&Header { volume: volume.id, name: volume.name.clone(), spans })?;
    writer.volume(&volume)?;
    for directories in [true, false] {
        for dnode in fs.objset().objects(object(Vnode::ROOT)) {
            let number = dnode.map_err(zpl::Error::Dmu)?.object();
            let Some(vnode) = vnode(number).filter(|vnode| vnode.is_directory() == directories) else {
                continue;
            };
            let node = match fs.node(number) {
                // An object of the file system itself.
                Err(zpl::Error::NoFile { .. }) => continue,
                node => node?,
            };
            write(fs, &mut writer, vnode, &node)?;
        }
    }
    writer.end()
}

/// A number of a file as one of a dump.
fn narrow<T: TryFrom<u64>>(vnode: Vnode, field: &'static str, value: u64) -> Result<T> {
    let place = Place { record: Record::Vnode(vnode), at: 0 };
    T::try_from(value).map_err(|_| Error::Range { place, field, value })
}

fn write<W: Write>(fs: &FileSystem, writer: &mut Writer<W>, number: Vnode, node: &Node) -> Result<()> {
    let place = Place { record: Record::Vnode(number), at: 0 };
    let shape = |why| Error::Shape { place, why };
    let attr = node.attr();
    let kind = match attr.kind {
        FileType::Regular => VnodeType::File,
        FileType::Directory => VnodeType::Directory,
        FileType::Symlink => VnodeType::Symlink,
        _ => return Err(shape("AFS has no such type of file")),
    };
    if (kind == VnodeType::Directory) != number.is_directory() {
        return Err(shape("the vnode's number is not one of its type"));
    }
    let status = node.afs_status()?.ok_or_else(|| shape("it has no status of AFS"))?;
    let contents = match kind {
        VnodeType::Directory => blob(fs, number, node)?,
        VnodeType::Symlink => node.readlink()?,
        VnodeType::File => Vec::new(),
    };
    let length = if kind == VnodeType::File { attr.size } else { contents.len() as u64 };
    let parent = match number {
        Vnode::ROOT => Vnode(0),
        _ => vnode(attr.parent).ok_or_else(|| shape("its parent is no directory of the volume"))?,
    };
    let acl = match kind {
        VnodeType::Directory => Some(Acl::from_compact(&status.access_list)?.to_raw()),
        _ => None,
    };
    let seconds = attr.mtime.secs.cast_unsigned();
    let id = |field, id| narrow::<u32>(number, field, id).map(u32::cast_signed);
    writer.vnode(&VnodeRecord {
        vnode: number,
        unique: Unique(narrow(number, "the unique", attr.generation)?),
        attributes: Some(Attributes {
            kind,
            link_count: narrow(number, "the link count", attr.nlink)?,
            // AFS counts modulo 2^32.
            data_version: DataVersion(status.data_version as u32),
            modify_time: Date(narrow(number, "the modification time", seconds)?),
            author: PrincipalId(status.author),
            owner: PrincipalId(id("the owner", attr.uid.0)?),
            group: id("the group", attr.gid.0)?,
            mode: (attr.mode & 0o7777) as u16,
            parent,
            server_modify_time: Date(narrow(number, "the server's time", status.server_mtime)?),
            acl,
            length: Some(length),
        }),
    })?;
    match kind {
        VnodeType::File => data(writer, node, length),
        _ => writer.data(&contents),
    }
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
fn blob(fs: &FileSystem, number: Vnode, node: &Node) -> Result<Vec<u8>> {
    let place = Place { record: Record::Vnode(number), at: 0 };
    let shape = |why| Error::Shape { place, why };
    let named = |object| -> Result<(Vnode, Unique)> {
        let vnode = vnode(object).ok_or_else(|| shape("an entry names no vnode"))?;
        let generation = fs.node(object)?.attr().generation;
        Ok((vnode, Unique(narrow(vnode, "the unique", generation)?)))
    };
    let mut builder = Builder::new(named(node.object())?, named(node.attr().parent)?);
    for entry in fs.read_dir(node.object(), DirCookie(2))? {
        let entry = entry?;
        let (vnode, unique) = named(entry.object)?;
        builder.add(Entry { name: &entry.name, vnode, unique })?;
    }
    Ok(builder.finish())
}
