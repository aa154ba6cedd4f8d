//! Pools that OpenZFS wrote, opened and walked with this crate alone.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "not every test uses all of it, and one says where it failed by panicking"
)]

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use codec::compress::decompress;
use codec::{Checksum, Checksummer};
use device::{AlignedBuf, Device, Faulty, FileDevice, Mode};
use ondisk::blkptr::{Blkptr, Stored};
use ondisk::config::{PoolConfig, VdevConfig, VdevKind};
use ondisk::dnode::DnodePhys;
use ondisk::dsl::DslDatasetPhys;
use ondisk::label::{LABELS, uberblock_shift};
use ondisk::objset::ObjsetPhys;
use ondisk::uberblock::Uberblock;
use ondisk::{Ashift, ByteOrder, CompressKind, DmuType, Guid, Txg};
use vdev::label::Labels;
use vdev::{Priority, Request, Tree, VdevAux};

pub struct Pool {
    pub tree: Tree,
    pub root: VdevConfig,
    pub devices: BTreeMap<Guid, Arc<Faulty>>,
}

/// Opens a pool by its labels alone. Each label describes its own top-level vdev.
pub fn open(images: &[PathBuf]) -> Pool {
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
    Pool { tree: tree.unwrap(), root, devices }
}

/// The block pointer of the newest uberblock on any device.
fn root_bp(pool: &Pool) -> Blkptr {
    let ashift = Ashift(pool.tree.describe().children.iter().map(|c| c.ashift).max().unwrap());
    let uberblocks = pool.devices.values().flat_map(|device| {
        let labels = Labels::new(&**device);
        (0..LABELS).flat_map(|l| labels.uberblocks(l, uberblock_shift(ashift)).unwrap()).collect::<Vec<_>>()
    });
    let newest = uberblocks.map(|(_, u)| u).max_by(Uberblock::newer).unwrap();
    Blkptr::decode(&newest.rootbp).unwrap()
}

/// Every block that the pool reaches and that lies on its vdevs, once.
///
/// The walk starts at the uberblock and covers the MOS, all datasets and all snapshots.
pub fn walk(pool: &Pool) -> Vec<(Blkptr, Stored)> {
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

/// Adds the block pointers in the dnodes of a block, including those of dataset object sets.
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

/// Reads a copy until its checksum is right. Returns the bytes and the number of candidates tried.
pub fn read(pool: &Pool, stored: &Stored, copy: usize) -> Option<(AlignedBuf, usize)> {
    let dva = stored.copies().nth(copy).unwrap();
    let (size, birth, request) = (stored.psize, stored.phys_birth, Request::new(Priority::SyncRead));
    let mut attempts = pool.tree.attempts(dva.vdev, dva.offset.0, size, birth, &request).unwrap();
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

/// Real pools of every layout, and how many children each can lose.
pub const LAYOUTS: [(&str, usize); 6] =
    [("mirror2", 1), ("raidz1-3", 1), ("raidz2-5", 2), ("raidz3-7", 3), ("raidz-expanded", 1), ("draid1", 1)];
