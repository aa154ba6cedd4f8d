//! Reads that record what they find wrong, and its repair.

use super::{BOOKMARK, Front, READ, noise, req};
use crate::{WritePolicy, Zio};
use device::{Block, Device, MemDevice};
use ondisk::config::DraidShape;
use ondisk::label::{LABEL_START_SIZE, SPA_MINDEVSIZE};
use ondisk::{Ashift, Blkptr, Guid, Txg, VdevConfig, VdevId, VdevKind};
use std::sync::Arc;
use vdev::Tree;

/// Reads the block, and heals it if it was recorded; returns whether it was.
fn reads(zio: &Zio, bp: &Blkptr, want: &Block) -> bool {
    assert_eq!(zio.read(bp, &BOOKMARK, &READ).unwrap(), *want);
    let met = zio.unhealed().pending();
    for (bookmark, birth) in &met {
        assert_eq!((*bookmark, *birth), (BOOKMARK, bp.stored().unwrap().phys_birth));
        zio.heal(bp, bookmark, &READ).unwrap();
    }
    zio.unhealed().seen_to(&met);
    !met.is_empty()
}

/// Goal: a read changes nothing, and records that a child of a mirror was wrong. Healing rewrites
/// that, and nothing else.
#[test]
fn reads_heal() {
    let devices: Vec<_> = (0..2).map(|_| Arc::new(MemDevice::new("d", SPA_MINDEVSIZE))).collect();
    let leaf = |id| VdevConfig { id, ..VdevConfig::new(VdevKind::File, Guid(100 + id)) };
    let mirror = VdevConfig {
        ashift: Some(Ashift(12)),
        children: (0..2).map(leaf).collect(),
        ..VdevConfig::new(VdevKind::Mirror, Guid(10))
    };
    let root = VdevConfig { children: vec![mirror], ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let open = &mut |leaf: &VdevConfig| Ok(devices[leaf.guid.0 as usize - 100].clone() as Arc<dyn Device>);
    let tree = Arc::new(Tree::open(&root, open).unwrap());
    let zio = Zio::new(Arc::clone(&tree));
    zio.set_space(Arc::new(Front::new(tree, 1, u64::MAX)));
    let bp = zio.write_batch(Txg(4), vec![req(noise(8192), WritePolicy::PLAIN)], &zio.workers()).unwrap()[0];
    zio.flush_vdevs(&[VdevId(0)], Txg(4), zio.flush_mark()).unwrap();
    let at = LABEL_START_SIZE + bp.stored().unwrap().dvas[0].unwrap().offset.0;
    let damage = || devices.iter().for_each(|d| d.write_at(&[0; 512], at + 512).unwrap());
    let healthy = || {
        let whole = |d: &Arc<MemDevice>| {
            let mut buf = vec![0; 8192];
            d.read_at(&mut buf, at).unwrap();
            buf == noise(8192)[..]
        };
        devices.iter().filter(|d| whole(d)).count()
    };
    damage();
    assert!(zio.read(&bp, &BOOKMARK, &READ).is_err());
    devices[1].write_at(&noise(8192), at).unwrap();
    // The mirror chooses which child is read first, so each has a block that is only bad there.
    let (first, second) = (&devices[0], &devices[1]);
    for (bad, good) in [(first, second), (second, first)] {
        good.write_at(&noise(8192), at).unwrap();
        bad.write_at(&[0; 512], at + 512).unwrap();
        (0..4).for_each(|_| assert_eq!(zio.read(&bp, &BOOKMARK, &READ).unwrap(), noise(8192)));
        assert_eq!(healthy(), 1, "a read changes nothing");
        if reads(&zio, &bp, &noise(8192)) {
            assert_eq!(healthy(), 2);
        }
    }
    let healed: u64 = zio.tree().describe().children[0].children.iter().map(|c| c.stats.self_healed).sum();
    assert!(healed >= 8192 && healed.is_multiple_of(8192));
    // The block's own group, and the repairs.
    let classes = zio.tree().describe().stats.classes;
    let writes = classes.iter().filter(|one| one.io == vdev::IoType::Write);
    let writes: Vec<_> = writes.map(|one| (one.class, one.bytes)).collect();
    assert_eq!(writes, [(crate::Priority::AsyncWrite, 2 * 8192 + healed)]);
}

/// A pool of one such top-level vdev, with so many devices.
fn pool(top: VdevConfig, leaves: u64) -> (Zio, Vec<Arc<MemDevice>>) {
    let devices: Vec<_> = (0..leaves).map(|_| Arc::new(MemDevice::new("d", SPA_MINDEVSIZE))).collect();
    let leaf = |id| VdevConfig { id, ..VdevConfig::new(VdevKind::File, Guid(100 + id)) };
    let children: Vec<_> = (0..leaves).map(leaf).collect();
    let top = VdevConfig { children, ashift: Some(Ashift(12)), ..top };
    let root = VdevConfig { children: vec![top], ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let open = &mut |leaf: &VdevConfig| Ok(devices[leaf.guid.0 as usize - 100].clone() as Arc<dyn Device>);
    let tree = Arc::new(Tree::open(&root, open).unwrap());
    let zio = Zio::new(Arc::clone(&tree));
    zio.set_space(Arc::new(Front::new(tree, 1, u64::MAX)));
    (zio, devices)
}

/// The front of a device's space, where the only block is.
fn front(device: &MemDevice) -> Vec<u8> {
    let mut bytes = vec![0; 256 << 10];
    device.read_at(&mut bytes, LABEL_START_SIZE).unwrap();
    bytes
}

/// Goal: a column of a raidz or dRAID that a read finds wrong is right on the device after healing,
/// like the whole block. The bytes count as repaired. A column that the read did not need stays as
/// it was until then.
#[test]
fn reads_heal_columns() {
    let raidz = VdevConfig { nparity: Some(1), ..VdevConfig::new(VdevKind::Raidz, Guid(10)) };
    let shape = DraidShape { ndata: 2, nspares: 0, ngroups: 1 };
    let draid =
        VdevConfig { draid: Some(shape), nparity: Some(1), ..VdevConfig::new(VdevKind::Draid, Guid(10)) };
    for (top, leaves, asked) in [(raidz, 3, 2), (draid, 3, 2)] {
        let kind = top.kind;
        let (zio, devices) = pool(top, leaves);
        let len = 32 << 10;
        let bp =
            zio.write_batch(Txg(4), vec![req(noise(len), WritePolicy::PLAIN)], &zio.workers()).unwrap()[0];
        zio.flush_vdevs(&[VdevId(0)], Txg(4), zio.flush_mark()).unwrap();
        let right: Vec<Vec<u8>> = devices.iter().map(|d| front(d)).collect();
        // Where each column begins.
        let begins = |bytes: &Vec<u8>| bytes.iter().position(|b| *b != 0).unwrap();
        let places: Vec<(usize, usize)> = right.iter().map(begins).enumerate().collect();
        let healed = || -> u64 {
            let top = &zio.tree().describe().children[0];
            top.children.iter().map(|c| c.stats.self_healed).sum::<u64>() + top.stats.self_healed
        };
        let mut put_right = 0;
        for (device, at) in places {
            let before = healed();
            let at = at / 4096 * 4096;
            devices[device].write_at(&[0x5a; 512], LABEL_START_SIZE + at as u64 + 1024).unwrap();
            let met = reads(&zio, &bp, &noise(len));
            let whole = front(&devices[device]) == right[device];
            assert_eq!((whole, met), (healed() > before, whole), "{kind:?} {device}");
            put_right += usize::from(whole);
            assert!(
                !whole || healed() - before == len as u64 / 2,
                "{kind:?} {device}: {} bytes",
                healed() - before
            );
            devices[device].write_at(&right[device], LABEL_START_SIZE).unwrap();
        }
        assert_eq!(put_right, asked, "{kind:?}");
        assert!(devices.iter().zip(&right).all(|(d, right)| front(d) == *right));
    }
}
