//! Metaslabs with unreadable space maps.

use crate::common::{Opened, open_through};
use device::{Device, Fault, Faulty, Mode, Op};
use ondisk::{DmuType, Level, Psize, Txg};
use pool::alloc::Allocator;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use zio::{ClassHint, IoFlags, Space, Want};

const SIZE: u64 = 128 << 10;

/// A pool that OpenZFS wrote, on a device that can inject faults. Nothing of it is cached.
fn sick() -> (Opened, Allocator, Arc<Faulty>) {
    let fixture = testkit::load("single-lz4");
    let device = Mutex::new(None);
    let wrap = |inner: Arc<dyn Device>| {
        let faulty = Arc::new(Faulty::new(inner, 1));
        *device.lock().unwrap() = Some(faulty.clone());
        faulty as Arc<dyn Device>
    };
    let o = open_through(fixture.images(), Mode::Peek, &wrap).unwrap();
    let alloc = Allocator::open(&o.mos, o.cache.zio().tree(), &o.vdevs()).unwrap();
    o.cache.purge();
    (o, alloc, device.into_inner().unwrap().unwrap())
}

fn want(o: &Opened) -> Want {
    Want {
        psize: Psize(SIZE),
        copies: 1,
        txg: Txg(o.txg + 2),
        kind: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        class: ClassHint::default(),
        gang_header: false,
        flags: IoFlags::NONE,
    }
}

/// Allocates all free space. Returns the metaslabs that it came from.
fn take_all(o: &Opened, alloc: &Allocator, shift: u8) -> BTreeSet<u64> {
    let all = std::iter::from_fn(|| alloc.allocate(&want(o)).ok());
    all.map(|dvas| dvas[0].unwrap().offset.0 >> shift).collect()
}

/// Goal: a metaslab with a space map that a device error makes unreadable is not used. After the
/// next sync, or after `zpool clear`, it is used again.
#[test]
fn a_map_is_read_another_time() {
    for cleared in [false, true] {
        is_read_another_time(cleared);
    }
}

fn is_read_another_time(cleared: bool) {
    let (o, alloc, device) = sick();
    let top = o.vdevs()[0];
    let maps = o.mos.metaslab_objects(&top).unwrap();
    o.cache.purge();
    let with_map: BTreeSet<u64> = (0..maps.len() as u64).filter(|n| maps[*n as usize] != 0).collect();
    assert!(!with_map.is_empty());
    device.inject(Fault::Error { op: Op::Read, range: 0..u64::MAX });
    let taken = take_all(&o, &alloc, top.ms_shift);
    assert!(taken.is_disjoint(&with_map), "{taken:?} of {with_map:?}");
    device.heal();
    assert!(alloc.allocate(&want(&o)).is_err());
    if cleared {
        alloc.retry();
    } else {
        alloc.sync_done(Txg(o.txg + 1), &o.mos);
    }
    let taken = take_all(&o, &alloc, top.ms_shift);
    assert!(!taken.is_empty() && taken.is_subset(&with_map), "{taken:?} of {with_map:?}");
}

/// Goal: a read of a space map blocks only the threads that need that map.
#[test]
fn others_go_on_meanwhile() {
    let (o, alloc, device) = sick();
    device.inject(Fault::Stalled);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| while alloc.allocate(&want(&o)).is_ok() {});
        while device.waiting() == 0 {
            std::thread::yield_now();
        }
        let before = alloc.totals().alloc();
        assert!(before > 0 && !alloc.is_dirty(Txg(o.txg + 3)) && !reader.is_finished());
        device.heal();
    });
}
