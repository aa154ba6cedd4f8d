use std::io::Read;

use proptest::prelude::*;

use super::*;
use crate::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType, VolumeId, VolumeType};
use crate::{Error, Record};

/// A vnode with all its data.
type Whole = (VnodeRecord, Vec<u8>);

/// A dump in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dump {
    header: Header,
    volume: VolumeHeader,
    vnodes: Vec<Whole>,
}

/// The dump without its first `skip` bytes.
fn write_from(dump: &Dump, skip: u64) -> Vec<u8> {
    let mut writer = Writer::skipping(Vec::new(), skip);
    writer.header(&dump.header).unwrap();
    writer.volume(&dump.volume).unwrap();
    for (record, data) in &dump.vnodes {
        writer.vnode(record).unwrap();
        let begun = writer.offset();
        let skipped = writer.skip_data().unwrap();
        assert_eq!(skipped, skip.saturating_sub(begun).min(data.len() as u64));
        for range in data[skipped as usize..].chunks(777) {
            writer.data(range).unwrap();
        }
    }
    writer.end().unwrap()
}

/// The same, with the data in blocks.
fn write_blocks_from(dump: &Dump, skip: u64) -> Vec<u8> {
    let mut writer = Writer::skipping(Plain(Vec::new()), skip);
    writer.header(&dump.header).unwrap();
    writer.volume(&dump.volume).unwrap();
    for (record, data) in &dump.vnodes {
        writer.vnode(record).unwrap();
        for begin in (0..data.len()).step_by(100) {
            writer.block(data, begin..data.len().min(begin + 100)).unwrap();
        }
    }
    writer.end().unwrap().0
}

fn write(dump: &Dump) -> Vec<u8> {
    let bytes = write_from(dump, 0);
    let size = dump_size(&dump.header, &dump.volume, dump.vnodes.iter().map(|(record, _)| record));
    assert_eq!(size, bytes.len() as u64);
    bytes
}

fn read(bytes: impl Read) -> crate::Result<Dump> {
    let mut reader = Reader::new(bytes);
    let (mut header, mut volume, mut vnodes) = (None, None, Vec::<Whole>::new());
    loop {
        match reader.next_event()? {
            Event::Header(read) => header = Some(read),
            Event::Volume(read) => volume = Some(*read),
            Event::Vnode(record) => vnodes.push((*record, Vec::new())),
            Event::Data(data) => vnodes.last_mut().unwrap().1.extend_from_slice(data),
            Event::End => break,
        }
    }
    assert_eq!(reader.next_event().unwrap(), Event::End, "the end is for ever");
    for (record, data) in &vnodes {
        let length = record.attributes.as_ref().and_then(|a| a.length).unwrap_or(0);
        assert_eq!(length, data.len() as u64);
    }
    Ok(Dump { header: header.unwrap(), volume: volume.unwrap(), vnodes })
}

/// Input that gives one byte at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let one = to.len().min(1);
        self.0.read(&mut to[..one])
    }
}

fn text(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1..=255u8, 0..=max)
}

prop_compose! {
    fn any_header()(volume in 1..=u32::MAX, name in text(MAX_NAME),
                    spans in prop::collection::vec((any::<u32>(), any::<u32>()), 1..=MAX_SPANS)) -> Header {
        let spans = spans.into_iter().map(|(from, to)| Span { from: Date(from), to: Date(to) }).collect();
        Header { volume: VolumeId(volume), name, spans }
    }
}

prop_compose! {
    fn any_volume()(name in text(MAX_NAME), words in any::<[u32; 18]>(), week_use in any::<[u32; 7]>(),
                    flags in any::<[bool; 2]>(), kind in 0..3u32,
                    offline_message in text(MAX_MESSAGE), motd in text(MAX_MESSAGE)) -> VolumeHeader {
        VolumeHeader {
            id: VolumeId(words[0]),
            version: words[1],
            name,
            in_service: flags[0],
            blessed: flags[1],
            next_unique: Unique(words[2]),
            kind: VolumeType::from_number(kind).unwrap(),
            parent: VolumeId(words[3]),
            clone: VolumeId(words[4]),
            quota: words[5],
            min_quota: words[6],
            disk_used: words[7],
            file_count: words[8],
            account: words[9],
            owner: PrincipalId(words[10].cast_signed()),
            creation_date: Date(words[11]),
            access_date: Date(words[12]),
            update_date: Date(words[13]),
            expiration_date: Date(words[14]),
            backup_date: Date(words[15]),
            offline_message,
            motd,
            week_use,
            day_use_date: Date(words[16]),
            day_use: words[17],
        }
    }
}

fn any_acl() -> impl Strategy<Value = Option<[u8; ACL_SIZE]>> {
    let bytes = prop::collection::vec(any::<u8>(), ACL_SIZE);
    prop::option::of(bytes.prop_map(|bytes| bytes.try_into().unwrap()))
}

prop_compose! {
    fn any_vnode()(number in 1..=u32::MAX, unique in any::<u32>(), words in any::<[u32; 8]>(),
                   link in any::<[u16; 2]>(), acl in any_acl(), is_symlink in any::<bool>(), named in any::<bool>(),
                   data in prop::option::of(prop::collection::vec(any::<u8>(), 0..3000))) -> Whole {
        let vnode = Vnode(number);
        let kind = match (vnode.is_directory(), is_symlink) {
            (true, _) => VnodeType::Directory,
            (false, true) => VnodeType::Symlink,
            (false, false) => VnodeType::File,
        };
        let attributes = Attributes {
            kind,
            link_count: link[0],
            data_version: DataVersion(words[0]),
            modify_time: Date(words[1]),
            author: PrincipalId(words[2].cast_signed()),
            owner: PrincipalId(words[3].cast_signed()),
            group: words[4].cast_signed(),
            mode: link[1],
            parent: Vnode(words[5]),
            server_modify_time: Date(words[6]),
            acl: acl.filter(|_| vnode.is_directory()),
            length: data.as_ref().map(|data| data.len() as u64),
        };
        let attributes = (!named).then_some(attributes);
        let data = data.filter(|_| !named).unwrap_or_default();
        (VnodeRecord { vnode, unique: Unique(unique), attributes }, data)
    }
}

prop_compose! {
    fn any_dump()(header in any_header(), volume in any_volume(),
                  vnodes in prop::collection::vec(any_vnode(), 0..6)) -> Dump {
        Dump { header, volume, vnodes }
    }
}

proptest! {
    /// Goal: what the writer makes, the reader takes apart into the same parts, however slowly the
    /// bytes arrive.
    #[test]
    fn a_dump_comes_back(dump in any_dump()) {
        let bytes = write(&dump);
        prop_assert_eq!(&read(&bytes[..]).unwrap(), &dump);
        prop_assert_eq!(&read(Slow(&bytes)).unwrap(), &dump);
    }

    /// Goal: a writer that skips puts out the end of the same dump.
    #[test]
    fn the_rest_of_a_dump(dump in any_dump(), at in any::<prop::sample::Index>()) {
        let bytes = write(&dump);
        let at = at.index(bytes.len());
        prop_assert_eq!(&write_from(&dump, at as u64)[..], &bytes[at..]);
        prop_assert_eq!(&write_blocks_from(&dump, at as u64)[..], &bytes[at..]);
    }

    /// Goal: a dump that ends early is refused at its end.
    #[test]
    fn a_cut_dump_is_refused(dump in any_dump(), at in any::<prop::sample::Index>()) {
        let bytes = write(&dump);
        let at = at.index(bytes.len());
        match read(&bytes[..at]) {
            Err(Error::Truncated { place, .. }) => prop_assert_eq!(place.at, at as u64),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    /// Goal: no change of a dump makes the reader fail otherwise than by an error.
    #[test]
    fn a_changed_dump_never_panics(dump in any_dump(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = write(&dump);
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(again) = read(&bytes[..]) {
            prop_assert_eq!(read(&write(&again)[..]).unwrap(), again);
        }
    }
}

fn small() -> Dump {
    let attributes = Attributes {
        kind: VnodeType::File,
        link_count: 1,
        data_version: DataVersion(3),
        modify_time: Date(1_700_000_000),
        author: PrincipalId(7),
        owner: PrincipalId(8),
        group: 0,
        mode: 0o644,
        parent: Vnode::ROOT,
        server_modify_time: Date(1_700_000_001),
        acl: None,
        length: Some(5),
    };
    let root = Attributes {
        kind: VnodeType::Directory,
        link_count: 2,
        acl: Some([1; ACL_SIZE]),
        length: None,
        parent: Vnode(0),
        ..attributes.clone()
    };
    let vnode = |number, attributes| VnodeRecord { vnode: Vnode(number), unique: Unique(number), attributes };
    Dump {
        header: Header {
            volume: VolumeId(5),
            name: b"v".to_vec(),
            spans: vec![Span { from: Date(0), to: Date(9) }],
        },
        volume: VolumeHeader { id: VolumeId(5), name: b"v".to_vec(), ..VolumeHeader::default() },
        vnodes: vec![
            (vnode(1, Some(root)), Vec::new()),
            (vnode(2, Some(attributes)), b"hello".to_vec()),
            (vnode(4, None), Vec::new()),
        ],
    }
}

/// The small dump, with `from` in its bytes changed to `to`.
fn changed(from: &[u8], to: &[u8]) -> Vec<u8> {
    let bytes = write(&small());
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the dump has it");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

/// The beginning of vnode 2 in the small dump.
const FILE: &[u8] = &[3, 0, 0, 0, 2, 0, 0, 0, 2, b't', 1];
/// The data of vnode 2 in the small dump.
const DATA: &[u8] = &[b'f', 0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o'];

fn place_of(part: &[u8]) -> u64 {
    let bytes = write(&small());
    bytes.windows(part.len()).position(|window| window == part).expect("the dump has it") as u64
}

fn message(bytes: Vec<u8>) -> String {
    read(&bytes[..]).unwrap_err().to_string()
}

/// Goal: each kind of damage of a header has its error, with the record and the offset.
#[test]
fn damage_is_named_with_its_place() {
    assert_eq!(
        message(changed(&[0xB3, 0xA1, 0x13, 0x22], &[0xB3, 0xA1, 0x13, 0x23])),
        "the dump header at byte 4: 0xb3a11323 is not the magic number"
    );
    assert_eq!(
        message(changed(&[0, 0, 0, 1, b'v'], &[0, 0, 0, 2, b'v'])),
        "the dump header at byte 8: the version is 2, which is out of range"
    );
    assert_eq!(
        message(changed(&[b't', 0, 2], &[b't', 0, 3])),
        "the dump header at byte 19: the dates of the dump are not pairs"
    );
    assert_eq!(
        message(changed(&[b't', 0, 2], &[b't', 1, 2])),
        "the dump header at byte 19: the list of dates is longer than 100"
    );
    assert_eq!(
        message(changed(&[b'v', 0, 0, 0, 5, b'n'], &[b'v', 0, 0, 0, 0, b'n'])),
        "the dump header at byte 28: the dump header has no volume, or no dates"
    );
    assert_eq!(
        message(changed(&[2, b'i', 0, 0, 0, 5], &[4, b'i', 0, 0, 0, 5])),
        "the dump header at byte 28: no volume header follows the dump header"
    );
    let long = [b"n".as_slice(), &[b'x'; MAX_NAME + 1], &[0]].concat();
    assert_eq!(
        message(changed(b"nv\0", &long)),
        format!("the dump header at byte {}: the volume's name is longer than 31", 15 + MAX_NAME)
    );
}

/// Goal: damage of vnodes and of the end has its error, too.
#[test]
fn damaged_vnodes_are_named_with_their_place() {
    let (file, data) = (place_of(FILE), place_of(DATA));
    assert_eq!(
        message(changed(FILE, &[3, 0, 0, 0, 0, 0, 0, 0, 2, b't', 1])),
        format!("vnode 0 at byte {}: the vnode's number is 0, which is out of range", file + 4)
    );
    assert_eq!(
        message(changed(FILE, &[3, 0, 0, 0, 2, 0, 0, 0, 2, b't', 4])),
        format!("vnode 2 at byte {}: the vnode's type is 4, which is out of range", file + 10)
    );
    let end = data + DATA.len() as u64;
    assert_eq!(
        message(changed(FILE, &[3, 0, 0, 0, 2, 0, 0, 0, 2, b't', 2])),
        format!("vnode 2 at byte {}: the vnode's number is not one of its type", data + 4)
    );
    assert_eq!(
        message(changed(FILE, &[3, 0, 0, 0, 2, 0, 0, 0, 2])),
        format!("vnode 2 at byte {}: the vnode has no type", data + 2)
    );
    assert_eq!(
        message(changed(DATA, &[b'h', 0x80, 0, 0, 0, 0, 0, 0, 0])),
        format!("vnode 2 at byte {}: the length is 9223372036854775808, which is out of range", data + 8)
    );
    assert_eq!(
        message(changed(DATA, &[DATA, b"l\0\x01"].concat())),
        format!("vnode 2 at byte {end}: an attribute follows the vnode's data")
    );
    let acl = [b"A".as_slice(), &[0; ACL_SIZE], DATA].concat();
    assert_eq!(
        message(changed(DATA, &acl)),
        format!(
            "vnode 2 at byte {}: a vnode that is no directory has an access list",
            data + 1 + ACL_SIZE as u64 + 4
        )
    );
    assert_eq!(
        message(changed(&[4, 0x3A], &[5, 0x3A])),
        format!("vnode 4 at byte {}: the section is 5, which is out of range", end + 9)
    );
    assert_eq!(
        message(changed(&[4, 0x3A], &[4, 0x3B])),
        format!("the end of the dump at byte {}: 0x3b214b6e is not the magic number", end + 13)
    );
    assert_eq!(
        message([write(&small()), vec![0]].concat()),
        format!("the end of the dump at byte {}: bytes follow the end of the dump", end + 14)
    );
}

/// Goal: an error of the input is passed on, and the reader stays in error.
#[test]
fn a_failing_input_is_an_error_for_ever() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::TimedOut.into())
        }
    }
    let bytes = write(&small());
    let mut reader = Reader::new(bytes[..bytes.len() - 14].chain(Failing));
    let error = loop {
        match reader.next_event() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, Error::Read { place, .. } if place.record == Record::Vnode(Vnode(2))),
        "{error:?}"
    );
    assert!(matches!(reader.next_event(), Err(Error::Shape { .. })));
}

/// Goal: unknown tags are skipped by their standard lengths; critical ones and those without a
/// length are refused.
#[test]
fn unknown_tags_follow_their_rule() {
    let with = |tags: &[u8]| read(&changed(FILE, &[FILE, tags].concat())[..]);
    let skipped: [&[u8]; 9] = [
        &[0x15, 3, 1, 2, 3],
        &[b'C', 0],
        &[0x60, 0x81, 2, 9, 9],
        &[0x60, 0x88, 0, 0, 0, 0, 0, 0, 0, 1, 9],
        &[0x20, 0xfe],
        &[b'u', 1, 2, 3, 4],
        &[b'z', 1, 2, 3, 4],
        &[0x7b],
        // A critical tag that is known.
        &[126, b'o', 0, 0, 0, 8],
    ];
    for tags in skipped {
        assert_eq!(with(tags).unwrap(), small(), "{tags:x?}");
    }
    let refused: [(&[u8], u8); 5] = [
        (&[126, b'u', 1, 2, 3, 4], b'u'),
        (&[0x80], 0x80),
        (&[0xff, 0], 0xff),
        (&[0x30, 0x80, 1], 0x30),
        (&[0x30, 0x89, 0, 0, 0, 0, 0, 0, 0, 0, 1], 0x30),
    ];
    for (tags, which) in refused {
        let error = with(tags).unwrap_err();
        assert!(matches!(error, Error::Tag { tag, .. } if tag == which), "{tags:x?}: {error}");
    }
}

/// Goal: a second copy of a vnode's data is skipped.
#[test]
fn data_that_occur_twice_are_read_once() {
    let twice = changed(DATA, &[DATA, b"f\0\0\0\x01x", b"h\0\0\0\0\0\0\0\x02yy"].concat());
    assert_eq!(read(&twice[..]).unwrap(), small());
}

/// Goal: a file of 4 GiB and more has a length of two words, and its data need not be read.
#[test]
fn large_files_have_long_lengths() {
    struct Zeros(u64);
    impl Read for Zeros {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let n = usize::try_from(self.0.min(to.len() as u64)).unwrap();
            to[..n].fill(0);
            self.0 -= n as u64;
            Ok(n)
        }
    }
    let length = 1 << 32;
    let mut dump = small();
    dump.vnodes[1].0.attributes.as_mut().unwrap().length = Some(length);
    let mut start = Vec::new();
    let mut writer = Writer::new(&mut start);
    writer.header(&dump.header).unwrap();
    writer.volume(&dump.volume).unwrap();
    writer.vnode(&dump.vnodes[1].0).unwrap();
    let at = usize::try_from(writer.offset()).unwrap();
    assert!(matches!(writer.vnode(&dump.vnodes[2].0), Err(Error::Shape { .. })), "data are missing");
    let full = write(&small());
    assert_eq!(start.len(), at);
    assert_eq!(start[at - 9..], [b'h', 0, 0, 0, 1, 0, 0, 0, 0]);
    let mut reader = Reader::new(start.chain(Zeros(length)).chain(&full[full.len() - 5..]));
    loop {
        match reader.next_event().unwrap() {
            Event::Vnode(record) => assert_eq!(record.attributes.unwrap().length, Some(length)),
            Event::Data(data) => {
                assert!(!data.is_empty());
                reader.skip_data().unwrap();
            }
            Event::End => break,
            _ => {}
        }
    }
    assert_eq!(reader.offset(), at as u64 + length + 5);
}

/// A dump that another program wrote.
fn stored(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Goal: what OpenAFS 1.8.9 dumped, whole and since a date, is read, and written again it has the
/// same bytes.
#[test]
fn dumps_of_openafs_come_back() {
    for (name, whole, named) in [
        ("openafs-full.dump", 191, 0),
        ("openafs-incremental.dump", 159, 32),
        ("openafs-omitted.dump", 157, 34),
    ] {
        let bytes = stored(name);
        let dump = read(&bytes[..]).unwrap();
        let is_whole = |(record, _): &&Whole| record.attributes.is_some();
        let count = dump.vnodes.iter().filter(is_whole).count();
        assert_eq!((count, dump.vnodes.len() - count), (whole, named), "{name}");
        let numbers: Vec<_> =
            dump.vnodes.iter().map(|(record, _)| (!record.vnode.is_directory(), record.vnode)).collect();
        assert!(numbers.is_sorted(), "{name}: directories come first, in ascending order");
        assert!(write(&dump) == bytes, "{name}: the same bytes");
        assert_eq!(dump.header.name, b"fmt");
        assert_eq!(dump.header.volume, dump.volume.id);
    }
}

/// Goal: a dump of an independent writer of the format is read, with the content that it is known
/// to have.
#[test]
fn a_dump_of_another_writer_is_read() {
    let dump = read(&stored("made.dump")[..]).unwrap();
    let find = |number| dump.vnodes.iter().find(|(record, _)| record.vnode == Vnode(number)).unwrap();
    let (mount, target) = find(2);
    let attributes = mount.attributes.as_ref().unwrap();
    assert_eq!(
        (attributes.kind, attributes.mode, target.as_slice()),
        (VnodeType::Symlink, 0o644, &b"#root.cell."[..])
    );
    let (file, data) = find(4);
    assert_eq!(file.unique, Unique(3));
    let pattern: Vec<u8> = (0..1000).map(|i| u8::try_from((4 * 7 + i) % 256).unwrap()).collect();
    assert_eq!(data, &pattern);
    assert_eq!(dump.volume.file_count as usize, dump.vnodes.len());
}
