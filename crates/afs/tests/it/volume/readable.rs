//! Dumps of damaged volumes.

use super::*;
use afs::volume::{Loss, LostPart, dump_readable};
use poolhouse::{OpenOptions, Pool};
use vdev::inject::{self, ALWAYS, Bad, Blocks, Fault, Target};

/// The object that has the dnodes of an object set.
const DNODES: u64 = 0;
/// Dnodes of a block.
const OF_BLOCK: u64 = 32;

/// A volume of a pool that is only read, and its damage.
struct Damaged {
    fs: FileSystem,
    pool: Pool,
    _dir: tempfile::TempDir,
}

impl Damaged {
    /// A volume with these vnodes.
    fn new(vnodes: &[Made]) -> Self {
        let rig = Rig::new();
        rig.restore(&write(vnodes)).unwrap();
        let Rig { fs, source, spa, dir } = rig;
        drop((fs, source));
        spa.writer().unwrap().export().unwrap();
        drop(spa);
        let scan = spa::discover(&[dir.path()]);
        let options = OpenOptions { force: true, no_read_ahead: true, ..OpenOptions::default() };
        let pool = Pool::import(&scan.pools[0], &options, &testpools::host()).unwrap();
        let fs = pool.dataset("tank/536870915").unwrap().filesystem().unwrap();
        Self { fs, pool, _dir: dir }
    }

    /// Makes blocks of an object unreadable.
    fn lose(&self, object: u64, blkid: std::ops::Range<u64>) {
        let objset = self.fs.objset().id();
        let blocks = Blocks { objset, object, level: 0, blkid, copies: 0, how: Bad::Checksum };
        let fault = Fault { pool: self.pool.spa().guid(), target: Target::Data(blocks), often: ALWAYS };
        inject::add(fault).unwrap();
    }

    /// The vnodes of the dump, which a new volume accepts, and what it lacks.
    fn dump(&self) -> (BTreeMap<Vnode, Made>, VolumeHeader, Vec<Loss>) {
        let mut losses = Vec::new();
        // The header may be lost as well.
        let bytes =
            dump_readable(&self.fs, &volume_header(), 0, Vec::new(), &mut |loss| losses.push(loss)).unwrap();
        let restored = Rig::new().restore(&bytes).unwrap();
        (parse(&bytes), restored, losses)
    }

    /// Why the plain dump fails.
    fn refusal(&self) -> Error {
        dump(&self.fs, &volume_header(), DumpScope::FULL, Vec::new()).unwrap_err()
    }
}

impl Drop for Damaged {
    fn drop(&mut self) {
        inject::forget(self.pool.spa().guid());
    }
}

/// Where the losses of names say that the vnodes are now.
fn moved(losses: &[Loss]) -> BTreeMap<Vnode, String> {
    let now = |loss: &Loss| match &loss.part {
        LostPart::Name { now } => Some((loss.vnode?, String::from_utf8(now.clone()).unwrap())),
        _ => None,
    };
    losses.iter().filter_map(now).collect()
}

/// Goal: of a volume without damage, the dump is the plain one.
#[test]
fn no_damage() {
    let volume = Damaged::new(&small());
    let (found, header, losses) = volume.dump();
    assert!(losses.is_empty(), "{losses:?}");
    assert_same(&found, &parse(&write(&small())));
    assert_eq!(header, VolumeHeader { disk_used: 3731, file_count: 304, ..volume_header() });
}

/// Goal: lost bytes of a file are zeros, and are reported with its path, once for each range.
#[test]
fn lost_bytes() {
    let volume = Damaged::new(&small());
    let block = volume.fs.node(object(Vnode(2))).unwrap().dnode().block_size();
    volume.lose(object(Vnode(2)).0, 3..5);
    volume.lose(object(Vnode(2)).0, 9..10);
    assert!(matches!(volume.refusal(), Error::FileSystem { .. }));
    let (found, _, losses) = volume.dump();
    let ranges: Vec<LostPart> = losses.iter().map(|loss| loss.part.clone()).collect();
    let bytes = |from, to| LostPart::Bytes { from: from * block, to: to * block };
    assert_eq!(ranges, [bytes(3, 5), bytes(9, 10)]);
    for loss in &losses {
        assert!(matches!(loss.path.as_deref(), Some(b"/big" | b"/hard")) && loss.why.is_some(), "{loss:?}");
    }
    let mut expected = parse(&write(&small()));
    let data = &mut expected.get_mut(&Vnode(2)).unwrap().1;
    for lost in [3 * block..5 * block, 9 * block..10 * block] {
        data[lost.start as usize..lost.end as usize].fill(0);
    }
    assert_same(&found, &expected);
}

/// Goal: a directory that lost names keeps the others. What has no name gets one, where only
/// administrators may see it.
#[test]
fn lost_names() {
    let long = |n: u32| format!("file{n} {}", "x".repeat(60));
    let names: Vec<(String, u32)> = (0..300).map(|n| (long(n), 1000 + 2 * n)).collect();
    let names: Vec<(&str, u32)> = names.iter().map(|(name, vnode)| (name.as_str(), *vnode)).collect();
    let mut vnodes = vec![directory(1, 0, 3, &[("d", 3)]), directory(3, 1, 2, &names)];
    vnodes.extend(names.iter().map(|(name, vnode)| file(*vnode, 3, name.as_bytes().to_vec())));
    let volume = Damaged::new(&vnodes);
    let blocks = volume.fs.node(object(Vnode(3))).unwrap().dnode().max_blkid().0;
    volume.lose(object(Vnode(3)).0, blocks..blocks + 1);
    assert!(matches!(volume.refusal(), Error::FileSystem { .. }));
    let (found, header, losses) = volume.dump();
    let [broken] = &losses.iter().filter(|loss| loss.part == LostPart::Names).collect::<Vec<_>>()[..] else {
        panic!("{losses:?}")
    };
    assert_eq!((broken.path.as_deref(), broken.vnode), (Some(&b"/d"[..]), Some(Vnode(3))));
    let moved = moved(&losses);
    assert!(!moved.is_empty() && moved.len() < 300, "{}", moved.len());
    assert_eq!(losses.len(), moved.len() + 1);
    let orphans = found.keys().copied().find(|vnode| vnode.is_directory() && vnode.0 > 3).unwrap();
    for (vnode, (record, data)) in found.iter().filter(|(vnode, _)| !vnode.is_directory()) {
        assert_eq!(data, names[(vnode.0 as usize - 1000) / 2].0.as_bytes());
        let unique = vnode.0 + 100;
        let parent = match moved.get(vnode) {
            Some(path) => {
                assert_eq!(*path, format!("/__ORPHANS__/__ORPHANFILE__.{vnode}.{unique}"));
                orphans
            }
            None => Vnode(3),
        };
        assert_eq!(record.attributes.as_ref().unwrap().parent, parent);
    }
    let attributes = |vnode| found[&vnode].0.attributes.as_ref().unwrap();
    let own = Acl::from_raw(attributes(orphans).acl.as_ref().unwrap()).unwrap();
    assert_eq!(own, Acl::of_new_volume());
    // Clients must not go on with what they know of it.
    assert_eq!(
        (attributes(Vnode(3)).data_version, attributes(Vnode(1)).data_version),
        (DataVersion(10), DataVersion(4))
    );
    assert_eq!((header.file_count, found.len()), (303, 303));
    assert!(header.next_unique > found[&orphans].0.unique);
}

/// Goal: vnodes that are lost are named by the directories that have them, and left out there.
#[test]
fn lost_vnodes() {
    let volume = Damaged::new(&small());
    let block = object(Vnode(1000)).0 / OF_BLOCK;
    volume.lose(DNODES, block..block + 1);
    let (found, _, losses) = volume.dump();
    let first = block * OF_BLOCK;
    let lost: Vec<u32> = (1000..1600).step_by(2).filter(|v| object(Vnode(*v)).0 < first + OF_BLOCK).collect();
    assert!(lost.len() > 1 && lost.len() < 20, "{lost:?}");
    assert!(losses[0].part == LostPart::Vnodes && losses[0].why.is_some(), "{losses:?}");
    let mut named: Vec<(u32, String)> = losses[1..]
        .iter()
        .map(|loss| {
            assert_eq!(loss.part, LostPart::Whole);
            (loss.vnode.unwrap().0, String::from_utf8(loss.path.clone().unwrap()).unwrap())
        })
        .collect();
    named.sort();
    let expected: Vec<_> = lost.iter().map(|v| (*v, format!("/d/file{}", (v - 1000) / 2))).collect();
    assert_eq!(named, expected);
    assert_eq!(found.len(), 304 - lost.len());
}

/// Goal: a volume that lost its root and all directories still gives its files.
#[test]
fn lost_directories() {
    let volume = Damaged::new(&small());
    let block = object(Vnode(1)).0 / OF_BLOCK;
    volume.lose(DNODES, block..block + 1);
    let (found, header, losses) = volume.dump();
    let root = losses.iter().find(|loss| loss.vnode == Some(Vnode(1))).unwrap();
    assert_eq!((root.path.as_deref(), &root.part), (Some(&b"/"[..]), &LostPart::Whole));
    let moved = moved(&losses);
    // The directory of orphans, and the root, are new.
    assert_eq!((moved.len(), found.len(), header.file_count), (300, 302, 302));
    for (vnode, path) in &moved {
        assert_eq!(*path, format!("/__ORPHANS__/__ORPHANFILE__.{vnode}.{}", vnode.0 + 100));
        assert_eq!(found[vnode].1, format!("file{}", (vnode.0 - 1000) / 2).as_bytes());
    }
}

/// Goal: a directory whose own directory is lost keeps its files, by their names.
#[test]
fn lost_parent() {
    let vnodes = [
        directory(1, 0, 3, &[("above", 41)]),
        directory(41, 1, 3, &[("d", 101), ("lost", 40)]),
        directory(101, 41, 3, &[("deep", 103)]),
        directory(103, 101, 2, &[("file", 100)]),
        file(40, 41, b"lost too".to_vec()),
        file(100, 103, b"found".to_vec()),
    ];
    let volume = Damaged::new(&vnodes);
    let block = object(Vnode(41)).0 / OF_BLOCK;
    volume.lose(DNODES, block..block + 1);
    let (found, _, losses) = volume.dump();
    assert_eq!(moved(&losses), BTreeMap::from([(Vnode(101), "/__ORPHANS__/__ORPHANDIR__.101.201".into())]));
    let lost: Vec<_> = losses.iter().filter(|loss| loss.part == LostPart::Whole).collect();
    assert!(lost.len() == 1 && lost[0].path.as_deref() == Some(b"/above"), "{lost:?}");
    assert_eq!(found[&Vnode(100)], vnodes[5]);
    assert_eq!(found[&Vnode(103)].0.attributes.as_ref().unwrap().parent, Vnode(101));
}
