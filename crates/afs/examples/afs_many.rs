//! Writes a dump of a volume with many files, which anonymous users may change, and a list of the
//! files.
//!
//! Usage: `afs_many FILES SIZE DUMP LIST`
//!
//! A thousand files are in a directory. The list has the vnode and the uniquifier of each file in a
//! line. Servers restore a dump faster than clients can make as many files by calls.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

use afs::acl::{Acl, AclEntry, Rights};
use afs::dir::{Builder, Entry};
use afs::dump::{Attributes, Header, Span, VnodeRecord, VolumeHeader, Writer};
use afs::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType, VolumeId};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Files in a directory.
const IN_DIRECTORY: u32 = 1000;
/// When all was changed last.
const CHANGED: Date = Date(1_000_000_000);
/// The number that the dump says. A restore gives the volume another one.
const VOLUME: VolumeId = VolumeId(536_870_912);

/// Administrators and all users have all rights.
fn access_list() -> Acl {
    let all =
        [PrincipalId::ADMINISTRATORS, PrincipalId::ANYUSER].map(|who| AclEntry { who, rights: Rights::ALL });
    Acl::new(all.to_vec(), Vec::new()).expect("two entries fit")
}

/// The number of a directory: the root is the first. Directories have odd numbers.
fn directory(number: u32) -> (Vnode, Unique) {
    (Vnode(2 * number + 1), Unique(number + 1))
}

/// A file, of so many directories.
fn file(number: u32, directories: u32) -> (Vnode, Unique) {
    (Vnode(2 * number + 2), Unique(directories + 2 + number))
}

fn record(
    (vnode, unique): (Vnode, Unique),
    kind: VnodeType,
    parent: Vnode,
    links: u16,
    length: u64,
) -> VnodeRecord {
    let is_directory = kind == VnodeType::Directory;
    VnodeRecord {
        vnode,
        unique,
        attributes: Some(Attributes {
            kind,
            link_count: links,
            data_version: DataVersion(1),
            modify_time: CHANGED,
            author: PrincipalId(0),
            owner: PrincipalId(0),
            group: 0,
            mode: if is_directory { 0o777 } else { 0o644 },
            parent,
            server_modify_time: CHANGED,
            acl: is_directory.then(|| access_list().to_raw()),
            length: Some(length),
        }),
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [files, size, dump, list] = &words[..] else {
        return Err("usage: afs_many FILES SIZE DUMP LIST".into());
    };
    let (files, size): (u32, u32) = (files.parse()?, size.parse()?);
    let directories = files.div_ceil(IN_DIRECTORY);
    let kib = |bytes: u64| u32::try_from(bytes.div_ceil(1024).max(1)).unwrap_or(u32::MAX);
    let volume = VolumeHeader {
        id: VOLUME,
        version: 1,
        name: b"many".to_vec(),
        in_service: true,
        blessed: true,
        next_unique: Unique(directories + files + 3),
        parent: VOLUME,
        file_count: 1 + directories + files,
        disk_used: kib(size.into()).saturating_mul(files),
        creation_date: CHANGED,
        update_date: CHANGED,
        ..VolumeHeader::default()
    };
    let mut writer = Writer::new(BufWriter::new(File::create(dump)?));
    let spans = vec![Span { from: Date(0), to: CHANGED }];
    writer.header(&Header { volume: VOLUME, name: volume.name.clone(), spans })?;
    writer.volume(&volume)?;
    let (root, mut all) = (directory(0), Builder::new(directory(0), directory(0)));
    for number in 1..=directories {
        let (vnode, unique) = directory(number);
        all.add(Entry { name: format!("d{number}").as_bytes(), vnode, unique })?;
    }
    let blob = all.finish();
    let links = u16::try_from(2 + directories)?;
    writer.vnode(&record(root, VnodeType::Directory, Vnode(0), links, blob.len() as u64))?;
    writer.data(&blob)?;
    for number in 1..=directories {
        let mut all = Builder::new(directory(number), root);
        for file_number in (number - 1) * IN_DIRECTORY..files.min(number * IN_DIRECTORY) {
            let (vnode, unique) = file(file_number, directories);
            all.add(Entry { name: format!("f{file_number}").as_bytes(), vnode, unique })?;
        }
        let blob = all.finish();
        writer.vnode(&record(directory(number), VnodeType::Directory, root.0, 2, blob.len() as u64))?;
        writer.data(&blob)?;
    }
    let (data, mut lines) = (vec![b'x'; size as usize], BufWriter::new(File::create(list)?));
    for number in 0..files {
        let (this, parent) = (file(number, directories), directory(number / IN_DIRECTORY + 1).0);
        writer.vnode(&record(this, VnodeType::File, parent, 1, size.into()))?;
        writer.data(&data)?;
        writeln!(lines, "{} {}", this.0, this.1)?;
    }
    writer.end()?.flush()?;
    Ok(lines.flush()?)
}
