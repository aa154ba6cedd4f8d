//! Rewrites and lists volume dumps, so that OpenAFS's programs can judge the formats.
//!
//! * `afsdump rebuild <DUMP >NEW` makes each section anew: headers, attributes, access lists, and
//!   directories from their entries.
//! * `afsdump list <DUMP` prints each path with its type, mode, size and the sum of its bytes.
//! * `afsdump vnodes <DUMP` prints each vnode with all attributes and the sum of its bytes, and
//!   each entry of a directory.
//! * `afsdump dress <DUMP >NEW` removes `/afs/` from the targets of links, which OpenAFS's client
//!   in user space adds. Those that then begin with `#` or `%` become mount points. Each directory
//!   gets an access list of its own.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use afs::acl::{Acl, AclEntry, RAW_SIZE, Rights};
use afs::dir::{Builder, Directory};
use afs::dump::{Attributes, Event, Reader, VnodeRecord, Writer};
use afs::types::{PrincipalId, Unique, Vnode, VnodeType};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("rebuild") => rebuild(io::stdin().lock(), io::BufWriter::new(io::stdout().lock())),
        Some("list") => list(io::stdin().lock(), &mut io::stdout().lock()),
        Some("vnodes") => vnodes(io::stdin().lock(), &mut io::stdout().lock()),
        Some("dress") => dress(io::stdin().lock(), io::BufWriter::new(io::stdout().lock())),
        _ => Err("say `rebuild`, `list`, `vnodes` or `dress`".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "afsdump: {}", afs::server::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// A directory or a link that is read, before it is written again.
struct Pending {
    record: Box<VnodeRecord>,
    blob: Vec<u8>,
}

fn rebuild(from: impl Read, to: impl Write) -> Result<(), Failure> {
    let mut reader = Reader::new(from);
    let mut writer = Writer::new(to);
    let mut pending: Option<Pending> = None;
    loop {
        let event = reader.next_event()?;
        if !matches!(event, Event::Data(_))
            && let Some(directory) = pending.take()
        {
            write_directory(&mut writer, directory)?;
        }
        match event {
            Event::Header(header) => writer.header(&header)?,
            Event::Volume(header) => writer.volume(&header)?,
            Event::Vnode(record) => match &record.attributes {
                Some(Attributes { kind: VnodeType::Directory, length: Some(_), .. }) => {
                    pending = Some(Pending { record, blob: Vec::new() });
                }
                _ => writer.vnode(&record)?,
            },
            Event::Data(range) => match &mut pending {
                Some(directory) => directory.blob.extend_from_slice(range),
                None => writer.data(range)?,
            },
            Event::End => return Ok(writer.end()?.flush()?),
        }
    }
}

fn write_directory(writer: &mut Writer<impl Write>, pending: Pending) -> Result<(), Failure> {
    let Pending { mut record, blob } = pending;
    let directory = Directory::new(&blob)?;
    let fid = |name: &[u8]| directory.lookup(name).map(|entry| (entry.vnode, entry.unique));
    let (Some(itself), Some(parent)) = (fid(b"."), fid(b"..")) else { return Err("no dots".into()) };
    let mut builder = Builder::new(itself, parent);
    for entry in directory.entries().filter(|entry| ![&b"."[..], b".."].contains(&entry.name)) {
        builder.add(entry)?;
    }
    let blob = builder.finish();
    if let Some(attributes) = &mut record.attributes {
        attributes.length = Some(blob.len() as u64);
        if let Some(raw) = attributes.acl {
            attributes.acl = Some(Acl::from_raw(&raw)?.to_raw());
        }
    }
    writer.vnode(&record)?;
    Ok(writer.data(&blob)?)
}

fn dress(from: impl Read, to: impl Write) -> Result<(), Failure> {
    let mut reader = Reader::new(from);
    let mut writer = Writer::new(to);
    let mut link: Option<Pending> = None;
    loop {
        let event = reader.next_event()?;
        if !matches!(event, Event::Data(_))
            && let Some(link) = link.take()
        {
            write_link(&mut writer, link)?;
        }
        match event {
            Event::Header(header) => writer.header(&header)?,
            Event::Volume(header) => writer.volume(&header)?,
            Event::Vnode(mut record) => match &mut record.attributes {
                Some(Attributes { kind: VnodeType::Symlink, length: Some(_), .. }) => {
                    link = Some(Pending { record, blob: Vec::new() });
                }
                attributes => {
                    let acl = attributes.as_mut().and_then(|attributes| attributes.acl.as_mut());
                    acl.map(|raw| more_access(raw, record.vnode)).transpose()?;
                    writer.vnode(&record)?;
                }
            },
            Event::Data(range) => match &mut link {
                Some(link) => link.blob.extend_from_slice(range),
                None => writer.data(range)?,
            },
            Event::End => return Ok(writer.end()?.flush()?),
        }
    }
}

fn write_link(writer: &mut Writer<impl Write>, mut link: Pending) -> Result<(), Failure> {
    let target = link.blob.strip_prefix(b"/afs/").unwrap_or(&link.blob);
    if let Some(attributes) = &mut link.record.attributes {
        attributes.length = Some(target.len() as u64);
        if matches!(target.first(), Some(b'#' | b'%')) {
            attributes.mode = 0o644;
        }
    }
    writer.vnode(&link.record)?;
    Ok(writer.data(target)?)
}

/// Adds one to ten users, who follow from the directory, and takes a right from another.
fn more_access(raw: &mut [u8; RAW_SIZE], vnode: Vnode) -> Result<(), Failure> {
    let acl = Acl::from_raw(raw)?;
    let user = |at: u32| PrincipalId(i32::try_from(1000 + at).expect("a small number"));
    let mut positive = acl.positive().to_vec();
    positive.extend((0..=vnode.0 % 10).map(|at| AclEntry { who: user(at), rights: Rights(1 + at) }));
    let negative = vec![AclEntry { who: user(vnode.0 % 1000), rights: Rights(16) }];
    *raw = Acl::new(positive, negative).ok_or("too many entries")?.to_raw();
    Ok(())
}

/// A vnode with what the lists need of its data.
struct Listed {
    unique: Unique,
    attributes: Attributes,
    sum: u64,
    data: Vec<u8>,
}

/// The vnodes that are whole in a dump.
fn read(from: impl Read) -> Result<BTreeMap<Vnode, Listed>, Failure> {
    let mut reader = Reader::new(from);
    let mut all: BTreeMap<Vnode, Listed> = BTreeMap::new();
    let mut last = Vnode(0);
    loop {
        match reader.next_event()? {
            Event::Vnode(record) => {
                last = record.vnode;
                if let Some(attributes) = record.attributes {
                    let listed = Listed { unique: record.unique, attributes, sum: 0, data: Vec::new() };
                    all.insert(last, listed);
                }
            }
            Event::Data(range) => {
                let listed = all.get_mut(&last).ok_or("data without a vnode")?;
                listed.sum = range.iter().fold(listed.sum, |sum, byte| sum.wrapping_add((*byte).into()));
                if listed.attributes.kind != VnodeType::File {
                    listed.data.extend_from_slice(range);
                }
            }
            Event::End => return Ok(all),
            Event::Header(_) | Event::Volume(_) => {}
        }
    }
}

fn vnodes(from: impl Read, to: &mut impl Write) -> Result<(), Failure> {
    for (vnode, Listed { unique, mut attributes, sum, data }) in read(from)? {
        if attributes.kind != VnodeType::Directory {
            writeln!(to, "{vnode} {unique} {attributes:?} {sum}")?;
            continue;
        }
        // The same entries may take more or fewer pages.
        attributes.length = None;
        let acl = attributes.acl.take().map(|raw| Acl::from_raw(&raw)).transpose()?;
        writeln!(to, "{vnode} {unique} {attributes:?} {acl:?}")?;
        let directory = Directory::new(&data)?;
        let mut entries: Vec<_> = directory.entries().collect();
        entries.sort();
        for entry in entries {
            let name = String::from_utf8_lossy(entry.name);
            writeln!(to, "{vnode}/{name} {} {}", entry.vnode, entry.unique)?;
        }
    }
    Ok(())
}

fn list(from: impl Read, to: &mut impl Write) -> Result<(), Failure> {
    let all = read(from)?;
    let mut todo = vec![(Vnode::ROOT, Vec::new())];
    while let Some((vnode, path)) = todo.pop() {
        let Some(listed) = all.get(&vnode) else { continue };
        let Listed { attributes, sum, data, .. } = listed;
        let name = String::from_utf8_lossy(&path);
        match attributes.kind {
            VnodeType::File => {
                let size = attributes.length.unwrap_or(0);
                writeln!(to, "f {:o} {size} {sum} .{name}", attributes.mode & 0o7777)?;
            }
            VnodeType::Symlink => writeln!(to, "l {} .{name}", String::from_utf8_lossy(data))?,
            VnodeType::Directory => {
                writeln!(to, "d {:o} .{name}", attributes.mode & 0o7777)?;
                for entry in Directory::new(data)?.entries() {
                    if ![&b"."[..], b".."].contains(&entry.name) {
                        todo.push((entry.vnode, [&path[..], b"/", entry.name].concat()));
                    }
                }
            }
        }
    }
    Ok(())
}
