//! Incremental dumps, and restores over contents.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use super::*;
use afs::types::VolumeType;
use afs::volume::restored_header;
use dsl::ops::snapshot::Snapshot;
use zpl::{Kind, NewFile, Place, Rename, SpaceKind};

/// Since when the tests change volumes. All times of [`small`] are before.
pub(super) const THEN: u64 = 2_500_000;
const SINCE: DumpScope =
    DumpScope { since: Date(THEN as u32), omit_unchanged_directories: false, version_base: 0 };
const CHANGED: DumpScope = DumpScope { omit_unchanged_directories: true, ..SINCE };

/// A vnode that is only named.
pub(super) fn named(vnode: u32, unique: u32) -> Made {
    (VnodeRecord { vnode: Vnode(vnode), unique: Unique(unique), attributes: None }, Vec::new())
}

/// The dump that only names each vnode.
pub(super) fn all_named(vnodes: &[Made]) -> Vec<Made> {
    vnodes.iter().map(|(record, _)| named(record.vnode.0, record.unique.0)).collect()
}

/// What a dump makes of a volume that had the contents of another one.
pub(super) fn merged(old: &[u8], new: &[u8]) -> BTreeMap<Vnode, Made> {
    let old = parse(old);
    let mut all = parse(new);
    for (vnode, made) in &mut all {
        if made.0.attributes.is_none() {
            made.clone_from(&old[vnode]);
        }
    }
    all
}

/// A rig whose clock is at [`THEN`] and goes on by a second with each look.
pub(super) fn rig() -> Rig {
    let seconds = Arc::new(AtomicU64::new(THEN));
    Rig::at(move || UNIX_EPOCH + Duration::from_secs(seconds.fetch_add(1, Ordering::Relaxed)))
}

fn place(vnode: u32, unique: u64) -> Place {
    Place { object: object(Vnode(vnode)), generation: unique }
}

/// Changes of all kinds in a volume with the contents of [`small`].
pub(super) fn change(fs: &FileSystem) {
    let fs = fs.by_afs_user(12);
    let root = fs.root();
    let many = fs.lookup(root, b"d").unwrap();
    fs.write(fs.lookup(many, b"file7").unwrap(), 0, &vec![b'x'; 700_000], false).unwrap();
    fs.truncate(object(Vnode(2)), 1_000_001, false).unwrap();
    // A number that gets another use, and one that gets another type.
    let reused = fs.unlink(many, b"file1").unwrap().unwrap();
    fs.reap(reused).unwrap();
    let new = |kind| NewFile { uid: 12, ..NewFile::new(kind, 0o640) };
    fs.create_at(many, b"again", &new(Kind::Regular), Place { object: reused, generation: 6001 }, None)
        .unwrap();
    let gone = fs.unlink(root, b"mount").unwrap().unwrap();
    fs.reap(gone).unwrap();
    fs.create_at(root, b"mount", &new(Kind::Regular), Place { object: gone, generation: 6002 }, None)
        .unwrap();
    let target = Kind::Symlink(b"%root.afs.".to_vec());
    fs.create_at(root, b"other", &new(target), place(6, 6003), None).unwrap();
    fs.create_at(root, b"sub", &new(Kind::Directory), place(5, 6004), None).unwrap();
    let sub = object(Vnode(5));
    fs.create_at(sub, b"in", &new(Kind::Regular), place(8, 6005), None).unwrap();
    fs.write(object(Vnode(8)), 5_000_000, b"sparse", false).unwrap();
    let gone = fs.unlink(many, b"file200").unwrap().unwrap();
    fs.reap(gone).unwrap();
    for (from, to) in [(&b"file9"[..], &b"renamed"[..]), (b"file10", b"file11")] {
        let replaced = fs.rename((many, from), (many, to), Rename::Replace).unwrap();
        if let Some(object) = replaced {
            fs.reap(object).unwrap();
        }
    }
    fs.link(fs.lookup(many, b"file30").unwrap(), many, b"twice").unwrap();
}

/// Goal: an incremental dump of a changed volume, restored over a volume that has the older state,
/// makes both volumes equal, whether it has all directories or only the changed ones.
#[test]
fn an_increment_makes_volumes_equal() {
    let mut base = small();
    base[0] = directory(1, 0, 4, &[("big", 2), ("hard", 2), ("mount", 4), ("d", 3), ("quiet", 7)]);
    base.push(directory(7, 1, 2, &[]));
    let base = write(&base);
    let changed = rig();
    changed.restore(&base).unwrap();
    assert!(parse(&changed.dump(CHANGED)).values().all(|(record, _)| record.attributes.is_none()));
    change(&changed.fs);
    let full = changed.dump(DumpScope::FULL);
    for (scope, whole) in [(SINCE, 13), (CHANGED, 12)] {
        let increment = changed.dump(scope);
        let made = parse(&increment);
        assert_eq!(made.values().filter(|(record, _)| record.attributes.is_some()).count(), whole);
        let copy = rig();
        copy.restore(&base).unwrap();
        let restored = copy.restore(&increment).unwrap();
        assert_same(&parse(&copy.dump(DumpScope::FULL)), &parse(&full));
        let lengths =
            parse(&full).into_values().map(|(record, _)| record.attributes.unwrap().length.unwrap());
        let kib: Vec<u64> = lengths.map(|length| length.div_ceil(1024).max(1)).collect();
        let counted = (restored.file_count as usize, u64::from(restored.disk_used));
        assert_eq!(counted, (kib.len(), kib.iter().sum()));
        let large = copy.fs.node(object(Vnode(8))).unwrap();
        assert_eq!(large.seek_data(0).unwrap() / (1 << 20), 4, "what is zero takes no space");
        drop(large);
        copy.end();
    }
    changed.end();
}

/// Goal: a full dump replaces all contents of a volume, whatever they are.
#[test]
fn a_full_dump_replaces_everything() {
    let rig = rig();
    rig.restore(&write(&small())).unwrap();
    change(&rig.fs);
    rig.restore(&write(&small())).unwrap();
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&write(&small())));
    let openafs = include_bytes!("../../data/openafs-full.dump");
    rig.restore(openafs).unwrap();
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(openafs));
    let made = include_bytes!("../../data/made.dump");
    rig.restore(made).unwrap();
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(made));
    rig.end();
}

/// Goal: large directories shrink and grow in place, and whatever is not in the dump is freed.
#[test]
fn many_files_come_and_go() {
    let rig = rig();
    let many = |numbers: std::ops::Range<u32>| {
        let names: Vec<(String, u32)> =
            numbers.map(|n| (format!("a file with the number {n}"), 10 + 2 * n)).collect();
        let names: Vec<(&str, u32)> = names.iter().map(|(name, vnode)| (name.as_str(), *vnode)).collect();
        let mut all = vec![directory(1, 0, 3, &[("d", 3)]), directory(3, 1, 2, &names)];
        all.extend(names.iter().map(|(name, vnode)| file(*vnode, 3, name.as_bytes().to_vec())));
        write(&all)
    };
    let files = |fs: &FileSystem| fs.objset().objects(object(Vnode::ROOT)).count();
    for numbers in [0..3000, 2900..3100, 0..1, 0..2500] {
        let full = many(numbers.clone());
        rig.restore(&full).unwrap();
        assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&full));
        assert_eq!(files(&rig.fs), 2 + numbers.len());
    }
    rig.end();
}

/// Goal: incremental dumps of OpenAFS are restored over its full dump.
#[test]
fn increments_of_openafs() {
    let full = include_bytes!("../../data/openafs-full.dump");
    let increments: [&[u8]; 2] = [
        include_bytes!("../../data/openafs-incremental.dump"),
        include_bytes!("../../data/openafs-omitted.dump"),
    ];
    for increment in increments {
        let rig = Rig::new();
        rig.restore(full).unwrap();
        rig.restore(increment).unwrap();
        let expected = merged(full, increment);
        assert_same(&parse(&rig.dump(DumpScope::FULL)), &expected);
        // The same vnodes are whole in our dump.
        for (scope, dump) in [(false, increments[0]), (true, increments[1])] {
            let since = Date(1_795_824_000);
            let scope = DumpScope { since, omit_unchanged_directories: scope, version_base: 0 };
            assert_same(&parse(&rig.dump(scope)), &parse(dump));
        }
        rig.end();
    }
}

/// Goal: the same number with another use or type is another file: entries have its type, and
/// nothing of the old one is left.
#[test]
fn another_use_of_a_number() {
    let rig = rig();
    let mut vnodes = vec![
        directory(1, 0, 3, &[("a", 2), ("b", 4), ("d", 3)]),
        directory(3, 1, 2, &[("c", 6)]),
        file(2, 1, vec![1; 300_000]),
        (record(4, VnodeType::Symlink, 1, 1, b"target"), b"target".to_vec()),
        file(6, 3, b"six".to_vec()),
    ];
    rig.restore(&write(&vnodes)).unwrap();
    let kinds = || {
        let all = rig.fs.read_dir(rig.fs.root(), DirCookie(2)).unwrap().map(Result::unwrap);
        all.map(|entry| (entry.name, entry.kind)).collect::<BTreeMap<_, _>>()
    };
    let (link, regular) = (FileType::Symlink, FileType::Regular);
    // The type of one vnode changes, then that of another, and then the first one's again.
    let changes = [
        (3, file(4, 1, vec![2; 2_000_000]), [regular, regular]),
        (2, (record(2, VnodeType::Symlink, 1, 1, b"new"), b"new".to_vec()), [link, regular]),
        (3, (record(4, VnodeType::Symlink, 1, 1, b"old"), b"old".to_vec()), [link, link]),
        (3, file(4, 1, vec![2; 2_000_000]), [link, regular]),
    ];
    for (i, made, expected) in changes {
        vnodes[i] = made;
        // The directory stays, or it is whole.
        let mut increment = all_named(&vnodes);
        increment[i].clone_from(&vnodes[i]);
        if i == 3 {
            increment[0].clone_from(&vnodes[0]);
        }
        rig.restore(&write(&increment)).unwrap();
        assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&write(&vnodes)));
        let kinds = kinds();
        assert_eq!([kinds[&b"a"[..]], kinds[&b"b"[..]]], expected);
    }
    // Another use of the directory's number, with other entries.
    let unique = Unique(900);
    let mut other = directory(3, 1, 2, &[]);
    other.0.unique = unique;
    let mut builder = Builder::new((Vnode(3), unique), (Vnode(1), Unique(101)));
    builder.add(Entry { name: b"x", vnode: Vnode(8), unique: Unique(108) }).unwrap();
    other.1 = builder.finish();
    let mut builder = Builder::new((Vnode(1), Unique(101)), (Vnode(1), Unique(101)));
    for (name, vnode, unique) in [("a", 2, 102), ("b", 4, 104), ("d", 3, 900)] {
        builder.add(Entry { name: name.as_bytes(), vnode: Vnode(vnode), unique: Unique(unique) }).unwrap();
    }
    vnodes[0].1 = builder.finish();
    vnodes[1] = other;
    vnodes[4] = file(8, 3, b"eight".to_vec());
    let mut increment = all_named(&vnodes);
    for i in [0, 1, 4] {
        increment[i].clone_from(&vnodes[i]);
    }
    let header = rig.restore(&write(&increment)).unwrap();
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&write(&vnodes)));
    assert_eq!((header.file_count, header.disk_used), (5, 2 + 2 + 1 + 1954 + 1));
    rig.end();
}

/// Goal: an incremental dump that contradicts the volume is refused, and the error names a vnode.
#[test]
fn increments_that_do_not_fit() {
    type Change = dyn Fn(&mut Vec<Made>);
    let old = vec![
        directory(1, 0, 4, &[("a", 2), ("b", 4), ("d", 3), ("e", 5)]),
        directory(3, 1, 3, &[("c", 6), ("s", 7)]),
        directory(5, 1, 2, &[]),
        directory(7, 3, 2, &[]),
        file(2, 1, vec![1; 3000]),
        file(4, 1, vec![1; 3000]),
        file(6, 3, vec![1; 3000]),
    ];
    let with = |change: &Change| {
        let mut vnodes = all_named(&old);
        change(&mut vnodes);
        let (rig, bytes) = (Rig::new(), write(&vnodes));
        rig.restore(&write(&old)).unwrap();
        let own = VolumeHeader { name: b"before".to_vec(), ..volume_header() };
        afs::volume::set_header(&rig.fs, &own).unwrap();
        let error = rig.restore(&bytes).expect_err("the dump contradicts the volume");
        assert_eq!(header(&rig.fs).unwrap().as_ref(), Some(&own), "the header stays");
        with_vnodes(error.to_string(), &bytes)
    };
    let cases: [(&str, &Change); 11] = [
        ("vnode 8 at 8: the dump only names it, and the volume lacks it", &|all| all.push(named(8, 108))),
        ("vnode 2 at 2: the dump only names it, and the volume has another use of its number", &|all| {
            all[4] = named(2, 5);
        }),
        ("vnode 2 at 2: the dump has a vnode twice", &|all| all.push(file(2, 1, Vec::new()))),
        ("vnode 1 at the end: the dump lacks the root directory", &|all| drop(all.remove(0))),
        ("vnode 6 at 3: a directory names it, but the dump lacks it", &|all| drop(all.remove(6))),
        ("vnode 2 at 2: a directory that stays names another use of its number", &|all| {
            all[4] = file(2, 1, Vec::new());
            all[4].0.unique = Unique(5);
        }),
        ("vnode 2 at 2: no directory names it", &|all| {
            all[0] = directory(1, 0, 4, &[("b", 4), ("d", 3), ("e", 5)]);
        }),
        ("vnode 2 at 2: its parent is not the directory that names it", &|all| {
            all[0] = directory(1, 0, 4, &[("b", 4), ("d", 3), ("e", 5)]);
            all[2] = directory(5, 1, 2, &[("moved", 2)]);
        }),
        ("vnode 4 at 4: its link count is not the number of its names", &|all| {
            all[0] = directory(1, 0, 4, &[("a", 2), ("b", 4), ("again", 4), ("d", 3), ("e", 5)]);
        }),
        ("vnode 1 at 1: its link count is not 2 and the number of its subdirectories", &|all| {
            all[1] = directory(3, 1, 2, &[("c", 6)]);
            all[2] = directory(5, 1, 3, &[("s", 7)]);
            all[3] = directory(7, 5, 2, &[]);
            all[0] = directory(1, 0, 3, &[("a", 2), ("b", 4), ("d", 3), ("e", 5)]);
        }),
        // 7 stays below 3, which comes below 7.
        ("vnode 3 at 3: its parents run in a circle", &|all| {
            all[0] = directory(1, 0, 3, &[("a", 2), ("b", 4), ("e", 5)]);
            all[1] = directory(3, 7, 3, &[("c", 6), ("s", 7)]);
            all[3] = directory(7, 3, 3, &[("up", 3)]);
        }),
    ];
    for (expected, change) in cases {
        // Of a circle any vnode is named.
        assert_eq!(with(change).replace("vnode 7 at 7: its parents", "vnode 3 at 3: its parents"), expected);
    }
}

/// Goal: a restore that failed in the middle is repeated, and leaves nothing of the first one.
#[test]
fn a_restore_is_repeated() {
    let rig = Rig::new();
    let whole = write(&small());
    let cut = rig.restore(&whole[..whole.len() - 300]).unwrap_err();
    assert!(matches!(cut, Error::Truncated { .. }), "{cut}");
    assert_eq!(header(&rig.fs).unwrap(), None);
    let small = write(&[directory(1, 0, 2, &[("only", 2)]), file(2, 1, b"2".to_vec())]);
    rig.restore(&small).unwrap();
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&small));
    rig.end();
}

/// Goal: a snapshot is dumped as the volume that it is served as, and stays as it is while the head
/// changes. It guards a restore that fails.
#[test]
fn a_snapshot_is_another_volume() {
    let rig = rig();
    let base = write(&small());
    let stored = rig.restore(&base).unwrap();
    let live = rig.spa.writer().unwrap();
    live.run(Box::new(Snapshot { names: vec!["tank/536870915@1".to_owned()], ..Snapshot::default() }))
        .unwrap();
    change(&rig.fs);
    rig.restore(&base[..base.len() / 2]).unwrap_err();
    let os = live.dsl().dataset("tank/536870915@1").unwrap().objset().unwrap().unwrap();
    let snapshot = FileSystem::open(&os).unwrap();
    assert_eq!(header(&snapshot).unwrap().as_ref(), Some(&stored));
    let served = VolumeHeader {
        id: VolumeId(536_870_917),
        name: b"home.someone.backup".to_vec(),
        kind: VolumeType::Backup,
        backup_date: Date(3_000_009),
        ..stored
    };
    let bytes = dump(&snapshot, &served, DumpScope::FULL, Vec::new()).unwrap();
    assert_same(&parse(&bytes), &parse(&base));
    assert_eq!(dump_size(&snapshot, &served, DumpScope::FULL).unwrap(), bytes.len() as u64);
    let restored = rig.restore(&bytes).unwrap();
    assert_eq!((restored.id, restored.kind), (served.id, served.kind));
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&base));
    drop((snapshot, os));
    rig.end();
}

/// Goal: a removed file that is not freed yet is in no dump, and does not hinder a restore.
#[test]
fn removed_files() {
    let rig = rig();
    rig.restore(&write(&small())).unwrap();
    let removed = rig.fs.unlink(rig.fs.root(), b"mount").unwrap().unwrap();
    let made = parse(&rig.dump(DumpScope::FULL));
    assert!(rig.fs.node(removed).is_ok() && !made.contains_key(&Vnode(4)));
    assert_eq!(rig.fs.unlinked().unwrap(), [removed]);
    rig.restore(&write(&small())).unwrap();
    assert!(rig.fs.unlinked().unwrap().is_empty() && !rig.fs.has_orphans());
    assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&write(&small())));
    rig.end();
}

/// Goal: files that get other owners in place are counted for these, and not for the former ones.
#[test]
fn owners_are_counted() {
    let rig = rig();
    let owned = |all: &mut [Made], owner| {
        for (record, _) in all {
            record.attributes.as_mut().unwrap().owner = PrincipalId(owner);
        }
    };
    let mut vnodes = small();
    owned(&mut vnodes, 50);
    rig.restore(&write(&vnodes)).unwrap();
    rig.fs.sync().unwrap();
    let counted = || {
        let all = rig.fs.space(SpaceKind::UserObjUsed).unwrap().into_iter();
        let mut all: Vec<(u64, u64)> = all.map(|space| (space.id.0, space.value)).collect();
        all.sort_unstable();
        all
    };
    assert!(rig.fs.is_counted());
    assert_eq!(counted(), [(50, 304)]);
    owned(&mut vnodes[2..300], 51);
    rig.restore(&write(&vnodes)).unwrap();
    rig.fs.sync().unwrap();
    assert_eq!(counted(), [(50, 6), (51, 298)]);
    rig.end();
}

/// Goal: a restored volume stays what it is, has the dates of the dump, and its uniques only grow.
#[test]
fn headers() {
    let own = VolumeHeader {
        id: VolumeId(7),
        name: b"mine.readonly".to_vec(),
        kind: VolumeType::ReadOnly,
        parent: VolumeId(6),
        clone: VolumeId(7),
        next_unique: Unique(9000),
        quota: 1,
        day_use: 3,
        ..VolumeHeader::default()
    };
    let dump = VolumeHeader {
        creation_date: Date(11),
        backup_date: Date(13),
        offline_message: b"soon".to_vec(),
        week_use: [4; 7],
        day_use: 4,
        disk_used: 77,
        ..volume_header()
    };
    let expected = VolumeHeader {
        version: 1,
        in_service: true,
        blessed: true,
        quota: 5000,
        disk_used: 77,
        creation_date: Date(11),
        update_date: Date(3_000_000),
        backup_date: Date(13),
        offline_message: b"soon".to_vec(),
        day_use: 0,
        ..own.clone()
    };
    assert_eq!(restored_header(&own, &dump), expected);
    // The last date of a dump is when its volume was last changed, cloned or backed up.
    let rig = Rig::new();
    rig.restore(&write(&small())).unwrap();
    for (kind, backup_date, to) in [
        (VolumeType::ReadWrite, 13, 3_000_000),
        (VolumeType::ReadOnly, 13, 11),
        (VolumeType::Backup, 13, 13),
        (VolumeType::Backup, 0, 11),
    ] {
        let volume = VolumeHeader { kind, backup_date: Date(backup_date), ..dump.clone() };
        let bytes = afs::volume::dump(&rig.fs, &volume, SINCE, Vec::new()).unwrap();
        let mut reader = Reader::new(&bytes[..]);
        let Event::Header(header) = reader.next_event().unwrap() else { panic!("the header comes first") };
        assert_eq!(header.spans, [Span { from: SINCE.since, to: Date(to) }]);
        assert_eq!(reader.next_event().unwrap(), Event::Volume(Box::new(volume)));
    }
    rig.end();
}
