//! Pools whose devices fail during writes. The result may be a faulted device or a suspended pool,
//! never an inconsistent one.

use testpools::ward;

use std::os::unix::fs::FileExt;

use device::{Fault, Op};
use dmu::Objset;
use ondisk::label::LABEL_START_SIZE;
use ondisk::{BlkId, DmuType, Level, ObjNum};
use spa::create::VdevShape;
use spa::engine::CheckpointError;
use testpools::ward::{LEN, live, no_flushes, ward};
use testpools::{import, judge, noise, own, read_file, write_file};
use vdev::VdevState;
use zio::Reason;

/// Goal: a pool without redundancy loses no data, at whichever write of a txg its device begins to
/// fail, once or for long. Blocks go elsewhere, or the pool waits until the device works.
#[test]
fn one_device_fails_at_any_write() {
    let mut waited = 0;
    for (n, length) in (0..16u64).step_by(5).flat_map(|n| [(n, 1), (n, 1000)]) {
        let ward = ward(VdevShape::Single, 1);
        let first = ward.write(1).0;
        let from = ward.patients[0].count() + n;
        ward.patients[0].inject(Fault::Numbered { range: from..from + length });
        let (second, suspended) = ward.write(2);
        waited += u64::from(suspended);
        ward.patients[0].heal();
        ward.discharge(&[(1, first), (2, second)]);
    }
    assert!(waited > 0);
}

/// Goal: a needed device that fails its flushes or disappears suspends the pool. When it is
/// available again, nothing is lost.
#[test]
fn a_needed_device_flushes_no_more_or_goes() {
    for (shape, count, sick) in
        [(VdevShape::Single, 1, 1), (VdevShape::Mirror, 2, 2), (VdevShape::Raidz(1), 3, 2)]
    {
        for ill in [no_flushes(), Fault::Gone] {
            let ward = ward(shape, count);
            let first = ward.write(1).0;
            ward.patients[..sick].iter().for_each(|p| p.inject(ill.clone()));
            let (second, suspended) = ward.write(2);
            assert!(suspended, "{ill:?}");
            let third = ward.write(3).0;
            ward.discharge(&[(1, first), (2, second), (3, third)]);
        }
    }
}

/// Goal: a device that the pool does not need is faulted when it fails, and the pool continues.
#[test]
fn a_spare_device_is_faulted() {
    for (shape, count) in [(VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3)] {
        for ill in [no_flushes(), Fault::Gone] {
            let ward = ward(shape, count);
            let first = ward.write(1).0;
            ward.patients[0].inject(ill);
            let (second, suspended) = ward.write(2);
            assert_eq!((suspended, ward.states()[0]), (false, VdevState::Faulted));
            ward.discharge(&[(1, first), (2, second)]);
        }
    }
}

/// Goal: a suspended pool refuses operations. A pool that is abandoned then is at the state of its
/// last synced txg.
#[test]
fn a_suspended_pool_can_be_let_go() {
    let ward = ward(VdevShape::Single, 1);
    let first = ward.write(1).0;
    ward.patients[0].inject(Fault::Gone);
    {
        let live = live(&ward.spa);
        let owned = own(live, "tank");
        write_file(live, &owned, &noise(2, 1 << 20)).unwrap();
        std::thread::scope(|s| {
            let waker = s.spawn(|| live.sync_all());
            while live.suspended() != Some(Reason::Io) {
                std::thread::yield_now();
            }
            let refused = live.run(testpools::file_system("tank/a", Vec::new())).unwrap_err();
            assert!(matches!(refused, spa::engine::TaskError::Stopped(s) if s.suspended().is_some()));
            // Readers are not blocked.
            assert!(live.read(|dsl| dsl.list_sorted(None, &dsl::ListOptions::default()).is_ok()));
            assert!(ward.spa.mos().features().is_ok());
            assert!(live.export().unwrap_err().suspended().is_some());
            live.txgs().abandon();
            assert!(waker.join().unwrap().is_err());
        });
    }
    drop((ward.spa, ward.patients));
    let spa = import(ward.dir.path()).unwrap();
    let owned = own(live(&spa), "tank");
    assert!(read_file(&owned, first, 1 << 20) == noise(1, 1 << 20));
    drop(owned);
    live(&spa).export().unwrap();
    drop(spa);
    judge(ward.dir.path(), "tank");
}

/// Goal: an abandoned pool ends and releases its devices, even if a change waits in a txg that is
/// never written.
#[test]
fn a_change_that_waits_keeps_no_device() {
    let ward = ward(VdevShape::Single, 1);
    ward.dirty(1);
    let device = &ward.patients[0];
    device.inject(Fault::Stalled);
    {
        let live = live(&ward.spa);
        let syncing = live.txgs().open();
        std::thread::scope(|s| {
            let syncer = s.spawn(|| live.sync_all());
            while device.waiting() == 0 {
                std::thread::yield_now();
            }
            let change = s.spawn(|| live.checkpoints().take());
            // The change is in the next txg, which has been closed for it and waits for this one.
            while live.txgs().open().0 < syncing.0 + 2 {
                std::thread::yield_now();
            }
            live.txgs().abandon();
            device.heal();
            device.inject(Fault::Gone);
            assert!(syncer.join().unwrap().is_err());
            assert!(matches!(change.join().unwrap(), Err(CheckpointError::Stopped(_))));
        });
    }
    let held = std::sync::Arc::downgrade(device);
    drop((ward.spa, ward.patients));
    assert!(held.upgrade().is_none());
}

/// Goal: an export does not wait for devices that fail during it. The pool stays imported, and
/// continues when it is cleared.
#[test]
fn devices_fail_during_an_export() {
    let ward = ward(VdevShape::Single, 1);
    let first = ward.write(1).0;
    let second = {
        let live = live(&ward.spa);
        write_file(live, &own(live, "tank"), &noise(2, 1 << 20)).unwrap()
    };
    ward.patients[0].inject(Fault::Gone);
    assert!(live(&ward.spa).export().unwrap_err().suspended().is_some());
    ward.rescue();
    let third = ward.write(3).0;
    ward.discharge(&[(1, first), (2, second), (3, third)]);
}

/// The ranges of the pool's space maps on its only device.
fn space_maps(ward: &ward::Ward) -> Vec<std::ops::Range<u64>> {
    let os = ward.spa.mos().objset();
    let maps = os.objects(ObjNum(1)).map(|dn| dn.unwrap()).filter(|dn| dn.kind() == DmuType::SPACE_MAP);
    let mut places = Vec::new();
    for dn in maps {
        for blkid in (0..=dn.max_blkid().0).map(BlkId) {
            let bp = dn.bp(Level(0), blkid).unwrap();
            let copies = bp.stored().into_iter().flat_map(|s| s.copies());
            places.extend(copies.map(|dva| {
                let at = LABEL_START_SIZE + dva.offset.0;
                at..at + dva.asize.0
            }));
        }
    }
    assert!(places.len() >= 3, "{places:?}");
    places
}

/// Goal: a sync suspends the pool if it needs an MOS block of which no copy can be read correctly.
/// The copies may be damaged, or fail on a device that is present.
///
/// Meanwhile the pool reports the block. After the repair, the sync completes and nothing is lost.
#[test]
fn wrong_blocks_of_the_pool_are_waited_for() {
    for wrong in [true, false] {
        let ward = ward(VdevShape::Single, 1);
        let first = ward.write(1).0;
        let second = ward.dirty(2);
        ward.sync(|| ());
        testpools::remove_file(live(&ward.spa), &own(live(&ward.spa), "tank"), first).unwrap();
        let third = ward.dirty(3);
        let places = space_maps(&ward);
        let image = std::fs::OpenOptions::new().read(true).write(true).open(ward.dir.path().join("d0.img"));
        let image = image.unwrap();
        let right: Vec<Vec<u8>> = places
            .iter()
            .map(|place| {
                let mut bytes = vec![0; (place.end - place.start) as usize];
                image.read_exact_at(&mut bytes, place.start).unwrap();
                bytes
            })
            .collect();
        for place in &places {
            if wrong {
                image.write_all_at(&vec![0x5a; (place.end - place.start) as usize], place.start).unwrap();
            } else {
                ward.patients[0].inject(Fault::Error { op: Op::Read, range: place.clone() });
            }
        }
        ward.spa.cache().purge();
        let suspended = ward.sync(|| {
            assert_eq!(live(&ward.spa).suspended(), Some(Reason::Io));
            let met = ward.spa.cache().zio().damage().pending();
            assert!(met.iter().any(|(met, _)| met.objset == 0), "{met:?}");
            if wrong {
                places
                    .iter()
                    .zip(&right)
                    .for_each(|(at, bytes)| image.write_all_at(bytes, at.start).unwrap());
            }
            ward.rescue();
        });
        assert!(suspended, "{wrong}");
        assert_eq!(ward.states(), [VdevState::Healthy]);
        let fourth = ward.write(4).0;
        ward.discharge(&[(2, second), (3, third), (4, fourth)]);
    }
}

/// Makes the indirect block of a file unreadable.
fn damage(os: &Objset, object: ObjNum, device: &device::Faulty) {
    let bp = os.dnode(object).unwrap().bp(Level(1), BlkId(0)).unwrap();
    for dva in bp.stored().unwrap().copies() {
        let at = LABEL_START_SIZE + dva.offset.0;
        device.inject(Fault::Corrupt { range: at..at + dva.asize.0 });
    }
    os.cache().purge();
}

/// Goal: a file with a damaged indirect block can be neither written nor freed, and the caller gets
/// an error. The pool continues.
#[test]
fn damaged_files_do_not_stop_the_pool() {
    let ward = ward(VdevShape::Single, 1);
    let first = ward.write(1).0;
    let second = ward.write(2).0;
    let live = live(&ward.spa);
    let owned = own(live, "tank");
    let os = owned.objset();
    damage(os, first, &ward.patients[0]);
    let dn = os.dnode(first).unwrap();
    let tx = live.tx(1 << 20).unwrap();
    assert!(dn.write_at(&tx, 0, &noise(3, 1 << 17)).is_err());
    assert!(dn.write_at(&tx, 100, b"a few bytes").is_err());
    assert!(dn.free_range(&tx, 0, 1 << 18).is_err());
    assert!(dn.free_range(&tx, 0, u64::MAX).is_err());
    assert!(os.free_object(&tx, first).is_err());
    let source = os.dnode(second).unwrap();
    assert!(dn.clone_blocks(&tx, BlkId(2), &source, BlkId(0), 2).is_err());
    drop(tx);
    live.sync_all().unwrap();
    let third = write_file(live, &owned, &noise(3, LEN)).unwrap();
    live.sync_all().unwrap();
    ward.patients[0].heal();
    os.cache().purge();
    testpools::remove_file(live, &owned, first).unwrap();
    drop((dn, source, owned));
    ward.discharge(&[(2, second), (3, third)]);
}
