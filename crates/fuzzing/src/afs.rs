//! Input of AFS: dumps of other servers, directories in them, access lists, calls of clients, and
//! configuration files.

use std::path::Path;

use ::afs::acl::{Acl, AclText, RAW_SIZE};
use ::afs::calls::{callback, fileserver, ptserver, vlserver, volserver};
use ::afs::config::{CellServDb, NetInfo, NetRestrict, UserList, this_cell};
use ::afs::dir::Directory;
use ::afs::dump::{Event, Header as DumpHeader, MAX_LENGTH, Reader, Span, VnodeRecord, VolumeHeader, Writer};
use ::afs::types::{Vnode, VolumeId};
use ::afs::vicep::{DiskVnode, Head, Info, LARGE_SIZE, SMALL_SIZE};

/// A dump. If it is whole and in order, it is written again and read again.
pub fn dump(data: &[u8]) {
    if let Ok(again) = rewrite(data) {
        let third = rewrite(&again).expect("what is written again is whole");
        assert!(again == third, "what is written again has the same bytes");
    }
}

/// Reads a dump, and writes it again. Fails as the reader or the writer does: only the writer
/// refuses a second volume header.
fn rewrite(data: &[u8]) -> ::afs::Result<Vec<u8>> {
    let mut reader = Reader::new(data);
    let mut writer = Writer::new(Vec::new());
    loop {
        match reader.next_event()? {
            Event::Header(header) => writer.header(&header)?,
            Event::Volume(header) => writer.volume(&header)?,
            Event::Vnode(record) => {
                if let Some(raw) = record.attributes.as_ref().and_then(|attributes| attributes.acl) {
                    let _ = Acl::from_raw(&raw);
                }
                writer.vnode(&record)?;
            }
            Event::Data(range) => writer.data(range)?,
            Event::End => return writer.end(),
        }
    }
}

/// The pages of a directory, and all names in them.
pub fn dir(data: &[u8]) {
    let Ok(directory) = Directory::new(data) else { return };
    for entry in directory.entries() {
        assert_eq!(directory.lookup(entry.name), Some(entry));
    }
    directory.is_allocation_right();
    let names: Vec<_> = directory
        .entries()
        .map(|entry| entry.name)
        .filter(|name| ![&b"."[..], b".."].contains(name))
        .collect();
    let _ = ::afs::dir::page_count(names);
}

/// An access list in each of its forms.
pub fn acl(data: &[u8]) {
    if let Some(Ok(acl)) = data.first_chunk::<RAW_SIZE>().map(Acl::from_raw) {
        assert_eq!(Acl::from_raw(&acl.to_raw()).expect("it was encoded"), acl);
        acl.rights(&acl.principals());
    }
    if let Ok(acl) = Acl::from_compact(data) {
        assert_eq!(acl.to_compact(), data);
    }
    if let Ok(text) = AclText::parse(data) {
        let ids: Vec<_> = (1..).map(::afs::types::PrincipalId).take(text.names().len()).collect();
        let names: Vec<_> = text.names().map(<[u8]>::to_vec).collect();
        let acl = text.resolve(&ids).expect("there is a number for each name");
        let _ = acl.text(&names);
    }
}

/// A call or a reply: a byte for the service, four for the operation, and the rest.
pub fn calls(data: &[u8]) {
    macro_rules! call {
        ($service:ident, $opcode:expr, $bytes:expr) => {{
            if let Ok(call) = $service::Call::decode($opcode, $bytes) {
                let again = $service::Call::decode($opcode, &call.request()[4..]);
                assert_eq!(again.expect("it was encoded"), call);
            }
            if let Ok(reply) = $service::Reply::decode($opcode, $bytes) {
                let again = $service::Reply::decode($opcode, &reply.encode());
                assert_eq!(again.expect("it was encoded"), reply);
            }
        }};
    }
    let Some((&[service, number @ ..], bytes)) = data.split_first_chunk::<5>() else { return };
    let opcode = u32::from_be_bytes(number);
    match service % 5 {
        0 => call!(fileserver, opcode, bytes),
        1 => call!(volserver, opcode, bytes),
        2 => call!(callback, opcode, bytes),
        3 => call!(ptserver, opcode, bytes),
        _ => call!(vlserver, opcode, bytes),
    }
}

/// A configuration file, whichever it is.
pub fn config(data: &[u8]) {
    let _ = this_cell(data);
    if let Ok(db) = CellServDb::parse(data) {
        for cell in db.cells() {
            assert!(db.cell(&cell.name).is_some());
        }
    }
    let host = [std::net::Ipv4Addr::new(10, 0, 0, 1)];
    let chosen = NetInfo::parse(data).choose(&host);
    NetRestrict::parse(data).keep(&chosen);
    let users = UserList::parse(data);
    assert!(users.names().all(|name| name.is_empty() || users.has(name)));
}

/// A record of a partition of OpenAFS's file server, after the number of its volume or vnode.
///
/// A vnode that is one can be in a dump.
pub fn vicep(data: &[u8]) {
    let Some((number, record)) = data.split_first_chunk() else { return };
    let number = u32::from_le_bytes(*number);
    if number == 0 {
        return;
    }
    let id = VolumeId(number);
    let head = Head::decode(record, id).unwrap_or(Head { id, parent: id });
    let volume = Info::decode(record, head).map(|info| info.header);
    if let Ok(Some(found)) = DiskVnode::decode(record, Vnode(number)) {
        let record =
            VnodeRecord { vnode: found.vnode, unique: found.unique, attributes: Some(found.attributes) };
        let mut writer = Writer::new(Vec::new());
        let header = DumpHeader { volume: VolumeId(1), name: b"v".to_vec(), spans: vec![Span::default()] };
        writer.header(&header).expect("a header");
        writer.volume(&VolumeHeader { id: VolumeId(1), ..VolumeHeader::default() }).expect("a header");
        let is_too_long = found.length > MAX_LENGTH;
        assert_eq!(writer.vnode(&record).is_err(), is_too_long, "{record:?}");
    }
    if let Ok(volume) = volume {
        let header = DumpHeader { volume: id, name: volume.name.clone(), spans: vec![Span::default()] };
        let mut writer = Writer::new(Vec::new());
        writer.header(&header).expect("a header");
        writer.volume(&volume).expect("what is read can be written");
        assert!(rewrite(&writer.end().expect("an end")).is_ok(), "what is written can be read");
    }
}

/// A file that OpenAFS or another writer of its formats made.
fn stored(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../afs/tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Dumps of OpenAFS, and one of another writer.
pub fn dumps() -> Vec<Vec<u8>> {
    ["openafs-full.dump", "openafs-incremental.dump", "made.dump"].map(stored).to_vec()
}

/// The directories of these dumps.
pub fn directories() -> Vec<Vec<u8>> {
    parts().into_iter().filter_map(|(is_directory, _, data)| is_directory.then_some(data)).collect()
}

/// Access lists of these dumps, and texts of them.
pub fn acls() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = parts().into_iter().filter_map(|(_, acl, _)| acl).collect();
    seeds.truncate(4);
    let compact: Vec<_> = (seeds.iter())
        .filter_map(|raw| raw.first_chunk().and_then(|raw| Acl::from_raw(raw).ok()))
        .map(|acl| acl.to_compact())
        .collect();
    seeds.extend(compact);
    seeds.push(b"2\n1\nsystem:administrators\t127\njoe\t-2147483639\nsystem:anyuser\t1\n\0".to_vec());
    seeds
}

/// The vnodes of the first dump: whether each is a directory, its access list, its data.
fn parts() -> Vec<(bool, Option<Vec<u8>>, Vec<u8>)> {
    let bytes = stored("openafs-full.dump");
    let mut reader = Reader::new(&bytes[..]);
    let mut parts: Vec<(bool, Option<Vec<u8>>, Vec<u8>)> = Vec::new();
    loop {
        match reader.next_event().expect("the dump is whole") {
            Event::Vnode(record) => {
                let acl = record.attributes.and_then(|attributes| attributes.acl).map(|acl| acl.to_vec());
                parts.push((record.vnode.is_directory(), acl, Vec::new()));
            }
            Event::Data(range) => {
                parts.last_mut().expect("data follow a vnode").2.extend_from_slice(range);
            }
            Event::End => return parts,
            Event::Header(_) | Event::Volume(_) => {}
        }
    }
}

/// Records of a partition that OpenAFS's file server wrote: heads, information, and vnodes.
pub fn records() -> Vec<Vec<u8>> {
    // A volume of it, and its special files.
    const VOLUME: u32 = 536_870_917;
    const SPECIAL: &str = "vicepa/AFSIDat/3/3+++U/special";
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../afs/tests/data/openafs-vicep.tar.zst");
    let dir = tempfile::tempdir().expect("a folder");
    testkit::unpacked(&archive, dir.path());
    let read = |name: String| std::fs::read(dir.path().join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let of = |number: u32, record: &[u8]| [&number.to_le_bytes()[..], record].concat();
    let mut seeds = vec![
        of(VOLUME, &read(format!("vicepa/V{VOLUME:010}.vol"))),
        of(VOLUME, &read(format!("{SPECIAL}/zzzz5I++++0"))),
    ];
    for (name, size, first) in [("zzzzDI++++0", LARGE_SIZE, 1), ("zzzz9I++++0", SMALL_SIZE, 2)] {
        let index = read(format!("{SPECIAL}/{name}"));
        let records = index.chunks_exact(size).skip(1).zip((first..).step_by(2));
        seeds.extend(records.filter(|(record, _)| record[0] & 7 != 0).take(8).map(|(it, n)| of(n, it)));
    }
    seeds
}

/// Requests and replies that programs of OpenAFS exchanged.
pub fn conversations() -> Vec<Vec<u8>> {
    let text = String::from_utf8(stored("openafs-calls.txt")).expect("it is text");
    let mut seeds = Vec::new();
    for row in text.lines().filter(|row| !row.starts_with('#')) {
        let fields: Vec<&str> = row.split(' ').collect();
        let [service, _, request, reply] = fields[..] else { continue };
        let services = ["fileserver", "volserver", "callback", "ptserver", "vlserver"];
        let service = services.iter().position(|known| *known == service).expect("a known service");
        let service = u8::try_from(service).expect("five services");
        let request = unhex(request);
        seeds.push([&[service], &request[..]].concat());
        seeds.push([&[service], &request[..4], &unhex(reply)].concat());
    }
    seeds
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2).filter_map(|two| std::str::from_utf8(two).ok());
    digits.filter_map(|two| u8::from_str_radix(two, 16).ok()).collect()
}

/// Configuration files.
pub fn configs() -> Vec<Vec<u8>> {
    let files: [&[u8]; 4] = [
        b">example.org linked.org #Example\n10.0.0.1 #db1\n[10.0.0.2] #db2\n",
        b"10.0.0.1\n192.168/16 comment\nf 1.2.3.4\n",
        b"joe\njim.admin\n 0 YW5uQGV4YW1wbGUub3Jn ann@example.org\n",
        b"example.org\n",
    ];
    files.map(<[u8]>::to_vec).to_vec()
}
