//! The cache releases memory to others down to its bound, takes what is free again, and answers no
//! lack twice.

use super::*;
use crate::store::limit::Memory;
use crate::tunables::ARC_META_BALANCE;

/// All memory of the machine of these tests, of which 640 entries are for others.
const ALL: u64 = 20480 * ENTRY;

impl Rig {
    /// Reports so many bytes more than the machine should leave to others.
    fn left(&self, available: i64) {
        let free = (ALL / 32).saturating_add_signed(available);
        self.store.adapt(Memory { all: ALL, free });
        self.settle();
    }
}

fn full() -> Rig {
    let rig = Rig::new(640 * ENTRY);
    rig.store.set_bounds(160 * ENTRY, 640 * ENTRY);
    (0..640).for_each(|n| assert!(!rig.read(n)));
    rig.settle();
    rig
}

/// Goal: what others lack is released at once, but not below the lower bound. The kstats show it.
#[test]
fn gives_way_down_to_its_floor() {
    let rig = full();
    let size = rig.store.stats().size;
    assert_eq!((rig.named("c_min"), rig.named("c_max")), (160 * ENTRY, 640 * ENTRY));
    rig.left(-(100 * ENTRY as i64));
    let now = rig.store.stats().size;
    assert!(now <= size - 100 * ENTRY && now > 160 * ENTRY, "{now} of {size}");
    assert!(rig.store.max() < 640 * ENTRY);
    let told = ["arc_no_grow", "arc_need_free", "memory_indirect_count", "c_max"].map(|name| rig.named(name));
    assert_eq!(told, [1, 100 * ENTRY, 1, 640 * ENTRY]);
    rig.left(-(320 * ENTRY as i64));
    rig.left(-(320 * ENTRY as i64));
    for _ in 0..100 {
        rig.left(-(320 * ENTRY as i64));
    }
    assert_eq!(rig.store.max(), 160 * ENTRY, "the lower bound");
    let counted = rig.named("memory_indirect_count");
    rig.left(-(320 * ENTRY as i64));
    assert_eq!(rig.named("memory_indirect_count"), counted, "nothing was given back");
    (1000..2000).for_each(|n| assert!(!rig.read(n)));
    rig.settle();
    let size = rig.store.stats().size;
    assert!(size <= 160 * ENTRY && size > 120 * ENTRY, "{size} in use of what it may keep");
    rig.check();
}

/// Goal: the cache takes what is free, and no more than that, up to its upper bound.
#[test]
fn takes_what_is_free() {
    let rig = full();
    rig.left(-(300 * ENTRY as i64));
    let size = rig.store.stats().size;
    rig.left(50 * ENTRY as i64);
    assert_eq!(rig.store.max(), (size + 50 * ENTRY).max(160 * ENTRY));
    (1000..2000).for_each(|n| assert!(!rig.read(n)));
    assert!(rig.store.stats().size <= size + 50 * ENTRY);
    rig.left(10000 * ENTRY as i64);
    assert_eq!(rig.store.max(), 640 * ENTRY);
    assert_eq!((rig.named("arc_no_grow"), rig.named("arc_need_free")), (0, 0));
    rig.check();
}

/// Goal: a lack that is reported again, though as much was released, costs an eighth of it, not all
/// again. A larger one is answered.
#[test]
fn no_lack_is_answered_twice() {
    let rig = full();
    rig.left(-(80 * ENTRY as i64));
    let once = rig.store.max();
    rig.left(-(80 * ENTRY as i64));
    assert_eq!(rig.store.max(), once, "it was answered");
    let size = rig.store.stats().size;
    for _ in 0..6 {
        rig.left(-(80 * ENTRY as i64));
    }
    let later = rig.store.max();
    assert!(later < once && later > once - 160 * ENTRY, "it stays: {once} and {later}, {size} held");
    rig.left(-(250 * ENTRY as i64));
    assert!(rig.store.max() < later - 40 * ENTRY, "{later} and {}", rig.store.max());
}

/// Goal: the upper bound takes precedence over the lower, and the settings hold whatever the
/// machine reported before.
#[test]
fn bounds() {
    let rig = full();
    rig.store.set_bounds(1000 * ENTRY, 320 * ENTRY);
    assert_eq!(rig.store.bounds(), (320 * ENTRY, 320 * ENTRY));
    rig.left(-(10000 * ENTRY as i64));
    assert_eq!(rig.store.max(), 320 * ENTRY);
    rig.store.set_bounds(80 * ENTRY, 320 * ENTRY);
    rig.left(-(10000 * ENTRY as i64));
    let small = rig.store.max();
    assert!(small < 320 * ENTRY);
    rig.store.set_bounds(200 * ENTRY, 320 * ENTRY);
    assert_eq!(rig.store.max(), small.max(200 * ENTRY));
    rig.check();
}

/// Goal: ghosts of metadata count more than those of data (`zfs_arc_meta_balance`). The more they
/// count, the more of a full cache is metadata when ghosts of both are found.
#[test]
fn the_balance_steers_what_is_held() {
    let _set = crate::tunables::STEERING.lock();
    let metadata = |balance: u64| {
        ARC_META_BALANCE.set(balance);
        let rig = Rig::new(64 * ENTRY);
        let read = |n: u64, kind: DmuType| {
            let key = rig.store.key(&pointer(n, kind, false), 1, 0).unwrap();
            if let Found::Nothing = rig.store.find_or_start(&key, false, Arc::default, None) {
                rig.store.land(&key, Some(&Block::zeroed(4096).into()), None, false);
            }
        };
        for _ in 0..20 {
            for n in 0..60 {
                read(n, DmuType::PLAIN_FILE_CONTENTS);
                read(1000 + n, DmuType::DIRECTORY_CONTENTS);
            }
            rig.later();
            rig.settle();
        }
        rig.check();
        rig.named("metadata_size")
    };
    let (little, much) = (metadata(20), metadata(2000));
    ARC_META_BALANCE.set(ARC_META_BALANCE.default());
    assert!(much > little + 16 * 4096, "{little} and {much}");
}
