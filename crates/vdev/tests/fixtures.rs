//! Pools that OpenZFS wrote, walked block by block: each block pointer says where its copies are, how much space they
//! take and what their checksum is, and every one of the three must hold.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use codec::compress::decompress;
use codec::{Checksum, Checksummer};
use device::{AlignedBuf, Device, Fault, Faulty, FileDevice, Mode, Op};
use ondisk::blkptr::{Blkptr, Stored};
use ondisk::config::{PoolConfig, VdevConfig, VdevKind};
use ondisk::dnode::DnodePhys;
use ondisk::dsl::DslDatasetPhys;
use ondisk::label::{LABELS, uberblock_shift};
use ondisk::objset::ObjsetPhys;
use ondisk::uberblock::Uberblock;
use ondisk::{Ashift, ByteOrder, CompressKind, DmuType, Guid, Txg};
use vdev::label::Labels;
use vdev::{Tree, VdevAux};

struct Pool {
    tree: Tree,
    devices: BTreeMap<Guid, Arc<Faulty>>,
}

/// Opens a pool by its labels alone: each tells of its own top-level vdev.
fn open(images: &[PathBuf]) -> Pool {
    let mut devices = BTreeMap::new();
    let mut tops: BTreeMap<u64, VdevConfig> = BTreeMap::new();
    for path in images {
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(path, Mode::Peek).unwrap());
        let Ok((_, nv)) = Labels::new(&*device).best_config(Txg(u64::MAX)) else { continue };
        let config = PoolConfig::from_nvlist(&nv).unwrap();
        devices.insert(config.guid.unwrap(), Arc::new(Faulty::new(device, 0)));
        if let Some(top) = config.vdev_tree {
            tops.insert(top.id, top);
        }
    }
    let children = (0..=*tops.keys().last().unwrap())
        .map(|id| tops.remove(&id).unwrap_or(VdevConfig { id, ..VdevConfig::new(VdevKind::Hole, Guid(0)) }))
        .collect();
    let root = VdevConfig { children, ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let tree = Tree::open(&root, &mut |leaf| {
        devices.get(&leaf.guid).map(|d| d.clone() as Arc<dyn Device>).ok_or(VdevAux::OpenFailed)
    });
    Pool { tree: tree.unwrap(), devices }
}

/// The newest uberblock that any device has.
fn root_bp(pool: &Pool) -> Blkptr {
    let ashift = Ashift(pool.tree.describe().children.iter().map(|c| c.ashift).max().unwrap());
    let uberblocks = pool.devices.values().flat_map(|device| {
        let labels = Labels::new(&**device);
        (0..LABELS).flat_map(|l| labels.uberblocks(l, uberblock_shift(ashift)).unwrap()).collect::<Vec<_>>()
    });
    let newest = uberblocks.map(|(_, u)| u).max_by(Uberblock::newer).unwrap();
    Blkptr::decode(&newest.rootbp).unwrap()
}

/// Every block that the pool reaches and that lies on its vdevs, once: from the uberblock through the object set
/// of objects, all datasets and snapshots.
fn walk(pool: &Pool) -> Vec<(Blkptr, Stored)> {
    let mut todo = vec![root_bp(pool)];
    let (mut seen, mut all) = (HashSet::new(), Vec::new());
    while let Some(bp) = todo.pop() {
        let Some(stored) = bp.stored().cloned() else { continue };
        let first = *stored.copies().next().unwrap();
        if !seen.insert((first.vdev, first.offset)) {
            continue;
        }
        let inner = bp.level.0 > 0 || matches!(bp.kind, DmuType::DNODE | DmuType::OBJSET);
        if inner {
            let (raw, _) = read(pool, &stored, 0).unwrap();
            let mut block = vec![0; bp.lsize.0 as usize];
            match stored.compress {
                CompressKind::Off => block.copy_from_slice(&raw),
                kind => decompress(kind, &raw, &mut block).unwrap(),
            }
            if bp.level.0 > 0 {
                todo.extend(block.chunks(128).map(|b| Blkptr::decode(b).unwrap()));
            } else if bp.kind == DmuType::OBJSET {
                let os = ObjsetPhys::decode(&block).unwrap();
                let nodes = [Some(os.meta_dnode), os.userused, os.groupused, os.projectused];
                todo.extend(nodes.into_iter().flatten().flat_map(|dn| dn.blkptrs));
            } else {
                dnodes(&block, &mut todo);
            }
        }
        all.push((bp, stored));
    }
    all
}

/// What the dnodes of a block point to, a dataset's object set included.
fn dnodes(block: &[u8], todo: &mut Vec<Blkptr>) {
    let mut at = 0;
    while at < block.len() {
        let Some(dn) = DnodePhys::decode(&block[at..]).unwrap() else {
            at += 512;
            continue;
        };
        at += 512 * dn.num_slots();
        if dn.bonus_kind.name() == "DSL dataset" {
            todo.push(DslDatasetPhys::decode(&dn.bonus).unwrap().bp);
        }
        todo.extend(dn.blkptrs);
        todo.extend(dn.spill);
    }
}

/// Reads a copy until the checksum is right; the bytes, and how many candidates that took.
fn read(pool: &Pool, stored: &Stored, copy: usize) -> Option<(AlignedBuf, usize)> {
    let dva = stored.copies().nth(copy).unwrap();
    let mut attempts = pool.tree.attempts(dva.vdev, dva.offset.0, stored.psize, stored.phys_birth).unwrap();
    let sums = Checksummer::new(&[0; 32]);
    let mut tries = 0;
    let good = attempts.find(|c| {
        tries += 1;
        assert_eq!(c.len() as u64, stored.psize.0);
        sums.verify(stored.checksum, ByteOrder::Little, c, Checksum(stored.sum), false).is_ok()
    });
    attempts.settle(good.as_deref());
    good.map(|buf| (buf, tries))
}

fn tries(pool: &Pool, stored: &Stored, copy: usize) -> Option<usize> {
    read(pool, stored, copy).map(|(_, tries)| tries)
}

const LAYOUTS: [(&str, usize); 6] =
    [("mirror2", 1), ("raidz1-3", 1), ("raidz2-5", 2), ("raidz3-7", 3), ("raidz-expanded", 1), ("draid1", 1)];

/// Every copy of every block is where the geometry says, has the space that it says, and comes at once.
#[test]
fn every_block_reads() {
    for (name, _) in LAYOUTS {
        let Some(fixture) = testkit::find(name) else { continue };
        let pool = open(fixture.images());
        let blocks = walk(&pool);
        for (bp, stored) in &blocks {
            for (i, dva) in stored.copies().enumerate() {
                let takes = pool.tree.psize_to_asize(dva.vdev, stored.psize, stored.phys_birth).unwrap();
                assert_eq!(takes, dva.asize, "{name}: {dva:x?}");
                assert_eq!(tries(&pool, stored, i), Some(1), "{name}: {bp:x?}");
            }
        }
        // None was missed: `zdb` counts as many block pointers, and as much space. It says how many are embedded.
        let zdb = fixture.output("zdb-blocks.txt").unwrap();
        let count = |what: &str| -> u64 {
            let line = zdb.lines().find(|l| l.contains(what)).unwrap_or("0");
            line.rsplit(what).next().unwrap().split_whitespace().next().unwrap().parse().unwrap()
        };
        let embedded = count("non-pointer bps of type 0:");
        assert_eq!(blocks.len() as u64 + embedded, count("bp count:"), "{name}");
        let space: u64 = blocks.iter().flat_map(|(_, s)| s.copies()).map(|d| d.asize.0).sum();
        assert_eq!(space, count("bp allocated:"), "{name}");
    }
}

/// OpenZFS's parity gives every block back, whichever children are lost, as many as there is parity.
#[test]
fn real_parity_reconstructs() {
    for (name, nparity) in LAYOUTS {
        let Some(fixture) = testkit::find(name) else { continue };
        let pool = open(fixture.images());
        let blocks = walk(&pool);
        let all: Vec<_> = pool.devices.values().cloned().collect();
        for set in 0..1u32 << all.len() {
            if set.count_ones() as usize != nparity {
                continue;
            }
            for (d, device) in all.iter().enumerate() {
                device.heal();
                if set >> d & 1 == 1 {
                    device.inject(Fault::Error { op: Op::Read, range: 0..u64::MAX });
                }
            }
            // Every tenth block under each set of losses, another tenth each time.
            for (_, stored) in blocks.iter().skip(set as usize % 10).step_by(10) {
                assert_eq!(tries(&pool, stored, 0), Some(1), "{name} without {set:b}");
            }
        }
    }
}

/// In a damaged pool everything still reads, and only the damaged device is charged.
#[test]
fn damage_is_survived_and_charged() {
    for name in ["mirror2-damaged", "raidz1-3-damaged"] {
        let Some(fixture) = testkit::find(name) else { continue };
        let pool = open(fixture.images());
        let blocks = walk(&pool);
        for (bp, stored) in &blocks {
            for i in 0..stored.copies().count() {
                assert!(tries(&pool, stored, i).is_some(), "{name}: {bp:x?}");
            }
        }
        let top = &pool.tree.describe().children[0];
        let sums: Vec<u64> = top.children.iter().map(|c| c.stats.checksum_errors).collect();
        assert!(sums[1] > 0);
        assert!(sums.iter().enumerate().all(|(i, n)| i == 1 || *n == 0));
        assert_eq!(top.stats.checksum_errors, 0);
    }
}

/// All four labels of every device can be read, agree, and hold the uberblocks that lead to the pool; a damaged
/// device's zeroed labels are noticed and its others used.
#[test]
fn labels() {
    for (name, _) in LAYOUTS {
        let Some(fixture) = testkit::find(name) else { continue };
        for path in fixture.images() {
            let device = FileDevice::open(path, Mode::Peek).unwrap();
            let labels = Labels::new(&device);
            let configs: Vec<_> = (0..LABELS).map(|l| labels.config(l).unwrap()).collect();
            assert!(configs.windows(2).all(|w| w[0] == w[1]));
            let config = PoolConfig::from_nvlist(&configs[0]).unwrap();
            assert_eq!(config.name.as_deref(), Some(fixture.pool()));
            let ashift = config.vdev_tree.unwrap().ashift.unwrap();
            let rings: Vec<_> =
                (0..LABELS).map(|l| labels.uberblocks(l, uberblock_shift(ashift)).unwrap()).collect();
            assert!(rings.windows(2).all(|w| w[0] == w[1]));
            let newest = rings[0].iter().map(|(_, u)| u.txg).max().unwrap();
            assert!(newest >= config.txg);
        }
    }
    if let Some(fixture) = testkit::find("mirror2-damaged") {
        let device = FileDevice::open(&fixture.images()[1], Mode::Peek).unwrap();
        let labels = Labels::new(&device);
        let good: Vec<bool> = (0..LABELS).map(|l| labels.config(l).is_ok()).collect();
        assert_eq!(good, [false, true, true, false]);
        assert_eq!(labels.best_config(Txg(u64::MAX)).unwrap().0, 1);
        assert!(labels.best_config(Txg(0)).is_err());
        assert!(labels.uberblocks(0, uberblock_shift(Ashift(12))).unwrap().is_empty());
    }
}
