//! Restoring dumps into volumes of a pool, and dumping these again.

mod changed;
mod in_place;
mod increments;
mod random;
mod readable;

use std::collections::BTreeMap;
use std::io::BufReader;
use std::sync::Arc;
use std::time::SystemTime;

use afs::Error;
use afs::acl::{Acl, AclEntry, Rights};
use afs::dir::{Builder, Directory, Entry};
use afs::dump::{Attributes, Event, Header, Reader, Span, VnodeRecord, VolumeHeader, Writer};
use afs::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType, VolumeId};
use afs::volume::{DumpScope, dump, dump_size, header, new_volume, object, restore, vnode};
use dsl::ops::create::Create;
use ondisk::ObjNum;
use spa::create::VdevShape;
use spa::{OpenHead, Spa};
use testpools::{HookedSource, images, new_pool, read_all};
use zpl::{DirCookie, FileSystem, FileType, Policies, Policy};

/// A vnode of a test, with its data.
type Made = (VnodeRecord, Vec<u8>);

fn access_list(who: i32) -> Acl {
    let entry = AclEntry { who: PrincipalId(who), rights: Rights::READ.with(Rights::LOOKUP) };
    Acl::new(vec![entry], Vec::new()).unwrap()
}

fn record(number: u32, kind: VnodeType, parent: u32, links: u16, data: &[u8]) -> VnodeRecord {
    let acl = (kind == VnodeType::Directory).then(|| access_list(-101 - number.cast_signed()).to_raw());
    VnodeRecord {
        vnode: Vnode(number),
        unique: Unique(number + 100),
        attributes: Some(Attributes {
            kind,
            link_count: links,
            data_version: DataVersion(number * 3),
            modify_time: Date(1_000_000 + number),
            author: PrincipalId(7),
            owner: PrincipalId(if number == 2 { -205 } else { 1000 }),
            group: 0,
            mode: 0o644,
            parent: Vnode(parent),
            server_modify_time: Date(2_000_000 + number),
            acl,
            length: Some(data.len() as u64),
        }),
    }
}

fn directory(number: u32, parent: u32, links: u16, names: &[(&str, u32)]) -> Made {
    let named = |vnode: u32| (Vnode(vnode), Unique(vnode + 100));
    let mut builder = Builder::new(named(number), named(if parent == 0 { number } else { parent }));
    for (name, vnode) in names {
        let (vnode, unique) = named(*vnode);
        builder.add(Entry { name: name.as_bytes(), vnode, unique }).unwrap();
    }
    let blob = builder.finish();
    (record(number, VnodeType::Directory, parent, links, &blob), blob)
}

fn file(number: u32, parent: u32, data: Vec<u8>) -> Made {
    (record(number, VnodeType::File, parent, 1, &data), data)
}

/// The vnodes of a small volume.
fn small() -> Vec<Made> {
    let many: Vec<(String, u32)> = (0..300).map(|n| (format!("file{n}"), 1000 + 2 * n)).collect();
    let many: Vec<(&str, u32)> = many.iter().map(|(name, vnode)| (name.as_str(), *vnode)).collect();
    let mut all = vec![
        directory(1, 0, 3, &[("big", 2), ("hard", 2), ("mount", 4), ("d", 3)]),
        directory(3, 1, 2, &many),
    ];
    let mut big = file(2, 1, (0..3_500_000u32).map(|i| ((i * 7) >> 3) as u8).collect());
    big.0.attributes.as_mut().unwrap().link_count = 2;
    let target = b"#root.cell.".to_vec();
    all.extend([big, (record(4, VnodeType::Symlink, 1, 1, &target), target)]);
    all.extend(many.iter().map(|(name, vnode)| file(*vnode, 3, name.as_bytes().to_vec())));
    all
}

fn volume_header() -> VolumeHeader {
    VolumeHeader {
        id: VolumeId(536_870_915),
        version: 1,
        name: b"home.someone".to_vec(),
        in_service: true,
        blessed: true,
        next_unique: Unique(5000),
        quota: 5000,
        update_date: Date(3_000_000),
        ..VolumeHeader::default()
    }
}

/// The bytes of a full dump.
fn write(vnodes: &[Made]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    let volume = volume_header();
    let spans = vec![Span { from: Date(0), to: volume.update_date }];
    writer.header(&Header { volume: volume.id, name: volume.name.clone(), spans }).unwrap();
    writer.volume(&volume).unwrap();
    for (record, data) in vnodes {
        writer.vnode(record).unwrap();
        writer.data(data).unwrap();
    }
    writer.end().unwrap()
}

/// The vnodes of a dump; of directories, the sorted entries instead of the blob.
fn parse(bytes: &[u8]) -> BTreeMap<Vnode, (VnodeRecord, Vec<u8>)> {
    let mut all: BTreeMap<Vnode, Made> = BTreeMap::new();
    let mut reader = Reader::new(bytes);
    let mut last = Vnode(0);
    loop {
        match reader.next_event().unwrap() {
            Event::Vnode(record) => {
                last = record.vnode;
                all.insert(last, (*record, Vec::new()));
            }
            Event::Data(data) => all.get_mut(&last).unwrap().1.extend_from_slice(data),
            Event::End => break,
            _ => {}
        }
    }
    let directories =
        all.values_mut().filter(|(record, data)| record.vnode.is_directory() && !data.is_empty());
    for (_, data) in directories {
        let mut names: Vec<String> = Directory::new(data)
            .unwrap()
            .entries()
            .map(|e| format!("{:?} {} {}", e.name, e.vnode, e.unique))
            .collect();
        names.sort();
        *data = names.join("\n").into_bytes();
    }
    all
}

/// Checks that two dumps have the same vnodes. The message has no data.
#[track_caller]
fn assert_same(left: &BTreeMap<Vnode, Made>, right: &BTreeMap<Vnode, Made>) {
    assert!(left.keys().eq(right.keys()), "{:?} {:?}", left.keys(), right.keys());
    for (vnode, (record, data)) in left {
        assert_eq!(record, &right[vnode].0);
        assert!(data == &right[vnode].1, "vnode {vnode} has other data");
    }
}

/// A pool with a new volume.
struct Rig {
    fs: FileSystem,
    source: Arc<HookedSource>,
    spa: Arc<Spa>,
    dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        Rig::at(SystemTime::now)
    }

    /// With another clock.
    fn at(clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let spa = Arc::new(new_pool(VdevShape::Single, &images(dir.path(), 1, 256 << 20)));
        let live = spa.writer().unwrap();
        let contents = Arc::new(new_volume((1_700_000_000, 0), Vec::new()));
        let name = "tank/536870915".to_owned();
        live.run(Box::new(Create { name, contents, props: Vec::new(), crypt: None, enforce_limits: false }))
            .unwrap();
        let head = OpenHead::open(&spa, &live.dsl().dataset("tank/536870915").unwrap()).unwrap();
        let os = head.objset().clone();
        let source = Arc::new(HookedSource::new(head, clock));
        let fs = FileSystem::open_live(&os, source.clone(), Policies::new(Policy::default())).unwrap();
        Rig { fs, source, spa, dir }
    }

    /// Restores a dump, and keeps the header that it has.
    fn restore(&self, dump: &[u8]) -> Result<VolumeHeader, Error> {
        Ok(restore(&self.fs, &mut Reader::new(dump), 0, |restored| restored.volume.clone())?.volume)
    }

    /// A dump with the stored header, of the size that was announced.
    fn dump(&self, scope: DumpScope) -> Vec<u8> {
        let stored = header(&self.fs).unwrap().unwrap();
        let bytes = dump(&self.fs, &stored, scope, Vec::new()).unwrap();
        assert_eq!(dump_size(&self.fs, &stored, scope).unwrap(), bytes.len() as u64);
        bytes
    }

    /// Exports the pool, and checks all of it.
    fn end(self) {
        let Rig { fs, source, spa, dir } = self;
        drop((fs, source));
        spa.writer().unwrap().export().unwrap();
        drop(spa);
        read_all(dir.path());
        testpools::judge(dir.path(), "tank");
    }
}

/// Goal: a dump that is restored and dumped again has the same header, vnodes and data, and its
/// directories have the same entries.
#[test]
fn a_dump_comes_back() {
    let rig = Rig::new();
    let vnodes = small();
    // 12 KiB of directories, 3,418 of the large file, one each for the link and the small files.
    let expected = VolumeHeader { disk_used: 3731, file_count: 304, ..volume_header() };
    assert_eq!(rig.restore(&write(&vnodes)).unwrap(), expected);
    assert_eq!(header(&rig.fs).unwrap(), Some(expected));
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&write(&vnodes)));
    rig.end();
}

/// Goal: a large file is restored whole, whatever the parts in which its data come.
#[test]
fn a_large_file_comes_in_any_parts() {
    let made = write(&small());
    for part in [1_000, 64 << 10, 333_333, 8 << 20] {
        let rig = Rig::new();
        let mut reader = Reader::buffered(BufReader::with_capacity(part, &made[..]));
        restore(&rig.fs, &mut reader, 0, |restored| restored.volume.clone()).unwrap();
        assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&made));
        rig.end();
    }
}

/// Goal: a restored volume is a file system like any other: names, types, contents, owners, times,
/// and the versions that go on from those of the dump.
#[test]
fn a_restored_volume_is_a_file_system() {
    let rig = Rig::new();
    rig.restore(&write(&small())).unwrap();
    let fs = &rig.fs;
    let root = fs.root();
    assert_eq!(root, object(Vnode::ROOT));
    let mut names: Vec<(String, FileType)> = fs
        .read_dir(root, DirCookie(2))
        .unwrap()
        .map(|e| e.map(|e| (String::from_utf8(e.name).unwrap(), e.kind)).unwrap())
        .collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("big", FileType::Regular),
        ("d", FileType::Directory),
        ("hard", FileType::Regular),
        ("mount", FileType::Symlink),
    ];
    assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
    let big = fs.lookup(root, b"big").unwrap();
    assert_eq!((big, vnode(big)), (object(Vnode(2)), Some(Vnode(2))));
    let node = fs.node(big).unwrap();
    let attr = node.attr();
    assert_eq!((attr.generation, attr.nlink, attr.size, attr.mode), (102, 2, 3_500_000, 0o100_644));
    assert_eq!((attr.uid.0 as u32).cast_signed(), -205);
    assert_eq!(attr.mtime.secs, 1_000_002);
    let mut data = vec![0; 100];
    assert_eq!(node.read(1_234_567, &mut data).unwrap(), 100);
    assert!(data.iter().zip(1_234_567u32..).all(|(byte, i)| *byte == ((i * 7) >> 3) as u8));
    drop(node);
    let link = fs.lookup(root, b"mount").unwrap();
    assert_eq!(fs.node(link).unwrap().readlink().unwrap(), b"#root.cell.");
    let sub = fs.lookup(root, b"d").unwrap();
    let list = fs.node(sub).unwrap().afs_status().unwrap().unwrap().access_list;
    assert_eq!(Acl::from_compact(&list).unwrap(), access_list(-104));
    fs.by_afs_user(9).write(big, 0, b"new", false).unwrap();
    let status = fs.node(big).unwrap().afs_status().unwrap().unwrap();
    assert_eq!((status.data_version, status.author), (7, 9));
    fs.unlink(sub, b"file7").unwrap();
    assert_eq!(fs.node(sub).unwrap().afs_status().unwrap().unwrap().data_version, 10);
    rig.end();
}

fn links(all: &mut [Made], i: usize, links: u16) {
    all[i].0.attributes.as_mut().unwrap().link_count = links;
}

/// Goal: a dump that OpenAFS made comes back, too.
#[test]
fn a_dump_of_openafs_comes_back() {
    let bytes = include_bytes!("../data/openafs-full.dump");
    let rig = Rig::new();
    let restored = rig.restore(bytes).unwrap();
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(bytes));
    let mut reader = Reader::new(&bytes[..]);
    let own = loop {
        if let Event::Volume(own) = reader.next_event().unwrap() {
            break *own;
        }
    };
    // OpenAFS counts the same.
    assert_eq!((restored.disk_used, restored.file_count), (own.disk_used, own.file_count));
    rig.end();
}

/// Goal: a dump that contradicts itself is refused, and the error names the vnode.
#[test]
fn contradictions() {
    type Change = dyn Fn(&mut Vec<Made>);
    let with = |change: &Change| {
        let mut vnodes = small();
        change(&mut vnodes);
        let bytes = write(&vnodes);
        let error = Rig::new().restore(&bytes).expect_err("the dump contradicts itself").to_string();
        with_vnodes(error, &bytes)
    };
    let cases: [(&str, &Change); 13] = [
        ("vnode 1 at the end: the dump lacks the root directory", &|all| drop(all.remove(0))),
        ("vnode 2 at 1: a directory names it, but the dump lacks it", &|all| drop(all.remove(2))),
        ("vnode 2 at 2: the dump has a vnode twice", &|all| all.push(all[2].clone())),
        ("vnode 2 at 2: a directory names another use of its number", &|all| {
            all[2].0.unique = Unique(5);
        }),
        ("vnode 2 at 2: its link count is not the number of its names", &|all| links(all, 2, 1)),
        ("vnode 1 at 1: its link count is not 2 and the number of its subdirectories", &|all| {
            links(all, 0, 2);
        }),
        ("vnode 5 at 5: its parents run in a circle", &|all| {
            all.extend([directory(5, 7, 3, &[("x", 7)]), directory(7, 5, 3, &[("x", 5)])]);
        }),
        ("vnode 6 at 6: no directory names it", &|all| all.push(file(6, 1, Vec::new()))),
        ("vnode 1 at 1: a directory names the root directory", &|all| {
            all[1] = directory(3, 1, 3, &[("x", 1)]);
        }),
        ("vnode 3 at 3: the dump lacks the access list of a directory", &|all| {
            all[1].0.attributes.as_mut().unwrap().acl = None;
        }),
        ("vnode 3 at 3: the dump only names it, and the volume lacks it", &|all| {
            all[1] = (VnodeRecord { attributes: None, ..all[1].0.clone() }, Vec::new());
        }),
        ("vnode 4 at 4: its parent is not the directory that names it", &|all| {
            all[3].0.attributes.as_mut().unwrap().parent = Vnode(9);
        }),
        ("vnode 3 inside 3: 0x5d2 is not the magic number", &|all| all[1].1[2048 + 2] ^= 1),
    ];
    for (expected, change) in cases {
        // Of a circle any vnode is named.
        assert_eq!(with(change).replace("vnode 7 at 7", "vnode 5 at 5"), expected);
    }
}

/// An error with the vnode in whose record its byte is, instead of that byte.
fn with_vnodes(error: String, dump: &[u8]) -> String {
    let (head, rest) = error.split_once(" at byte ").expect("the error has a byte");
    let (byte, why) = rest.split_once(": ").unwrap();
    let byte: u64 = byte.parse().unwrap();
    let mut reader = Reader::new(dump);
    let mut last = None;
    loop {
        match reader.next_event().unwrap() {
            Event::Vnode(record) => {
                let at = reader.place().at;
                if at <= byte {
                    last = Some((record.vnode, at));
                }
            }
            Event::End => {
                if reader.place().at == byte {
                    return format!("{head} at the end: {why}");
                }
                break;
            }
            _ => {}
        }
    }
    let (vnode, at) = last.expect("the byte is in a vnode");
    format!("{head} {} {vnode}: {why}", if at == byte { "at" } else { "inside" })
}

/// Goal: a new volume has a root directory for administrators, at the object of vnode 1.
#[test]
fn a_new_volume() {
    let rig = Rig::new();
    assert_eq!(header(&rig.fs).unwrap(), None);
    let status = rig.fs.node(ObjNum(257)).unwrap().afs_status().unwrap().unwrap();
    assert_eq!(Acl::from_compact(&status.access_list).unwrap(), Acl::of_new_volume());
    rig.end();
}
