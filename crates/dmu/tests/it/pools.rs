//! Pools that OpenZFS wrote, read from the uberblock to every block of every MOS object.

use arc::Cache;
use device::{Device, FileDevice, Mode};
use dmu::{Extent, Objset};
use ondisk::label::{uberblock_count, uberblock_offset, uberblock_shift};
use ondisk::{Ashift, BlkId, Blkptr, DmuType, Guid, Level, ObjNum, Uberblock};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vdev::{Tree, VdevConfig, VdevKind};
use zio::{ReadOptions, Zio};

/// The newest uberblock in the first label of a pool on one disk with small sectors.
fn uberblock(device: &FileDevice, ashift: Ashift) -> Uberblock {
    let shift = uberblock_shift(ashift);
    (0..uberblock_count(shift))
        .filter_map(|slot| {
            let mut buf = vec![0; 1 << shift];
            device.read_at(&mut buf, uberblock_offset(shift, slot)).unwrap();
            Uberblock::decode(&buf).ok()
        })
        .max_by(Uberblock::newer)
        .expect("a pool has an uberblock")
}

fn mos(image: &Path, ashift: Ashift) -> Objset {
    let device = FileDevice::open(image, Mode::Peek).unwrap();
    let ub = uberblock(&device, ashift);
    let device: Arc<dyn Device> = Arc::new(device);
    let mut root = VdevConfig::new(VdevKind::Root, Guid(1));
    let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
    leaf.ashift = Some(ashift);
    root.children = vec![leaf];
    let tree = Tree::open(&root, &mut |_| Ok(device.clone())).unwrap();
    let cache = Arc::new(Cache::new(Zio::new(Arc::new(tree)), 64 << 20));
    Objset::open(cache, 0, &Blkptr::decode(&ub.rootbp).unwrap(), ReadOptions::demand()).unwrap()
}

/// Goal: every block of every MOS object of a real pool verifies, and the object directory is at
/// its place.
#[test]
fn whole_mos() {
    let image = &testkit::fixture("single-lz4")[0];
    let mos = mos(image, Ashift(9));
    assert_eq!(mos.dnode(ObjNum(1)).unwrap().kind(), DmuType::OBJECT_DIRECTORY);
    let mut objects = 0;
    for dnode in mos.objects(ObjNum(1)) {
        let dnode = dnode.unwrap();
        objects += 1;
        let mut next = dnode.next_data_block(BlkId(0)).unwrap();
        while let Some(blkid) = next {
            let block = dnode.block(blkid).unwrap().expect("data, not a hole");
            assert_eq!(block.len() as u64, dnode.block_size());
            next = dnode.next_data_block(BlkId(blkid.0 + 1)).unwrap();
        }
    }
    assert!(objects > 300, "only {objects} objects in the MOS");
}

/// Goal: free object numbers, and those inside a larger dnode, don't exist. Iteration finds the
/// same objects as opening by number.
#[test]
fn absent_objects() {
    let mos = mos(&testkit::fixture("gang")[0], Ashift(9));
    let listed: Vec<u64> = mos.objects(ObjNum(1)).map(|d| d.unwrap().object().0).collect();
    let opened: Vec<u64> = (1..2048).filter(|n| mos.dnode(ObjNum(*n)).is_ok()).collect();
    assert_eq!(listed.iter().copied().filter(|n| *n < 2048).collect::<Vec<_>>(), opened);
    assert!(mos.dnode(ObjNum(u64::MAX / 2)).is_err());
}

/// Goal: the walk over bonuses finds the same objects as the one that opens each, from any number
/// on, and bonuses have the same bytes. Those that it doesn't have are beside a spill block.
#[test]
fn bonuses_in_place() {
    let mos = mos(&testkit::fixture("single-lz4")[0], Ashift(9));
    let all: Vec<dmu::Dnode> = mos.objects(ObjNum(1)).map(Result::unwrap).collect();
    for first in [0, 1, 33, 100, all.last().unwrap().object().0, u64::MAX] {
        let mut opened = all.iter().filter(|dnode| dnode.object().0 >= first);
        for block in mos.bonuses(ObjNum(first)) {
            let block = block.unwrap();
            assert!(!block.is_empty() && block.get(block.len()).is_none());
            for (object, bonus) in (0..block.len()).map(|index| block.get(index).unwrap()) {
                let dnode = opened.next().unwrap();
                let expected = Some((dnode.bonus_kind(), dnode.bonus()));
                let has_spill = dnode.phys().spill.is_some();
                assert_eq!((object, bonus), (dnode.object(), expected.filter(|_| !has_spill)));
            }
        }
        assert!(opened.next().is_none(), "the walk from {first} ends early");
    }
    assert!(all.len() > 100 && all.iter().any(|dnode| !dnode.bonus().is_empty()));
}

/// Goal: data and holes partition an object: each search ends where the other one starts.
#[test]
fn data_and_holes() {
    let mos = mos(&testkit::fixture("single-lz4")[0], Ashift(9));
    for dnode in mos.objects(ObjNum(1)) {
        let dnode = dnode.unwrap();
        let mut at = 0;
        while let Some(data) = dnode.next_offset(at, Extent::Data).unwrap() {
            assert!(data >= at);
            let hole = dnode.next_offset(data, Extent::Hole).unwrap().expect("there is a hole at the end");
            assert!(hole > data && hole <= dnode.max_size(), "{dnode:?}: hole {hole} after data {data}");
            at = hole;
        }
    }
}

/// Goal: repeated reads of a block bypass the cache's table and return the same bytes. After the
/// cache evicts the blocks, they are read again.
#[test]
fn by_ref() {
    let mos = mos(&testkit::fixture("single-lz4")[0], Ashift(9));
    let objects = mos.objects(ObjNum(1)).map(|d| d.unwrap());
    let several = |d: &dmu::Dnode| d.nlevels() > 1 && d.next_data_block(BlkId(1)).is_ok_and(|b| b.is_some());
    let one = |d: &dmu::Dnode| d.nlevels() == 1 && d.next_data_block(BlkId(0)).is_ok_and(|b| b.is_some());
    let objects: Vec<_> = objects.filter(|d| several(d) || one(d)).collect();
    assert!(objects.iter().any(several) && objects.iter().any(one));
    for dnode in objects {
        let read = || -> Vec<_> {
            let blocks = (0..=dnode.max_blkid().0).map(|n| dnode.block(BlkId(n)).unwrap());
            blocks.map(|b| b.map(|b| b.to_vec())).collect()
        };
        let first = read();
        // Embedded blocks are in no cache.
        let stored = |n: &u64| dnode.bp(Level(0), BlkId(*n)).unwrap().stored().is_some();
        let there = (0..=dnode.max_blkid().0).filter(stored).count() as u64;
        let stats = || mos.cache().stats();
        // A use counts as another one only after a while.
        let began = std::time::Instant::now();
        loop {
            let before = stats().by_ref;
            assert!(read() == first);
            if stats().by_ref == before + there {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{there} blocks of {}", dnode.object());
            std::thread::yield_now();
        }
        mos.cache().purge();
        let (before, last) = (stats(), read());
        assert!(last == first);
        assert_eq!((stats().by_ref, stats().misses > before.misses), (before.by_ref, there > 0));
    }
}
