//! Blocks that are held compressed: more of them fit, each hit has the right bytes, and the
//! counters match the contents.

use super::*;
use crate::tunables::{COMPRESSED_ARC_ENABLED, DBUF_CACHE_SHIFT, STEERING};
use codec::compress::{ZstdLevel, compress};

const LSIZE: usize = 8192;

/// The contents of the block of this number: half of it compresses to nearly nothing.
fn contents(n: u64) -> Block {
    let mut bytes = vec![0; LSIZE];
    let mut x = n + 1;
    for byte in &mut bytes[..LSIZE / 2] {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (x >> 56) as u8;
    }
    Block::copy_of(&bytes)
}

fn packed(n: u64) -> Block {
    let mut out = vec![0; LSIZE];
    let len = compress(CompressKind::Lz4, ZstdLevel::default(), &contents(n), &mut out).unwrap();
    Block::copy_of(&out[..len.next_multiple_of(512)])
}

/// The memory of one block in both forms, and compressed alone.
fn rooms() -> (u64, u64) {
    let packed = packed(1).len() as u64 + HELD_OVERHEAD;
    (packed + LSIZE as u64 + BOTH_OVERHEAD, packed)
}

pub(super) fn lz4(rig: &Rig, n: u64) -> Key {
    let mut bp = pointer(n, DmuType::PLAIN_FILE_CONTENTS, false);
    bp.lsize = Lsize(LSIZE as u64);
    let Body::Stored(s) = &mut bp.body else { panic!("it is stored") };
    (s.compress, s.psize) = (CompressKind::Lz4, Psize(packed(n).len() as u64));
    rig.store.key(&bp, 1, 0).unwrap()
}

/// Reads a block, and checks its bytes; returns whether it was there.
pub(super) fn read(rig: &Rig, n: u64) -> bool {
    match rig.store.find_or_start(&lz4(rig, n), false, Arc::default, None) {
        Found::Block(block, _) => {
            assert!(block.whole() == contents(n), "block {n}");
            true
        }
        Found::PendingRead(..) => panic!("nobody else reads"),
        Found::Nothing => {
            rig.store.land(&lz4(rig, n), Some(&contents(n).into()), Some(&packed(n)), false);
            false
        }
    }
}

/// Goal: a working set that is larger than the limit plain, and smaller compressed, is all there
/// from the second pass on. The sums are exact at every step, and hot blocks are plain.
#[test]
fn more_has_room() {
    let _on = STEERING.lock();
    let (both, alone) = rooms();
    let blocks = 100;
    // All of them compressed, and a quarter of them plain.
    let rig = Rig::new(alone * blocks + LSIZE as u64 * blocks / 4);
    assert!(rig.store.max() < blocks * (LSIZE as u64 + HELD_OVERHEAD), "too small for all plain ones");
    for n in 0..blocks {
        assert!(!read(&rig, n));
        rig.settle();
        rig.check();
    }
    assert!(both * blocks > rig.store.max());
    for pass in 0..3 {
        rig.later();
        for n in 0..blocks {
            assert!(read(&rig, n), "block {n} in pass {pass}");
            if n % 10 == 0 {
                rig.settle();
                rig.check();
            }
        }
    }
    rig.settle();
    rig.check();
    let (unpacked, cooled) = rig.store.unpacked();
    assert!(unpacked > 0 && cooled > 0);
    assert_eq!(rig.named("uncompressed_size"), blocks * LSIZE as u64);
    assert_eq!(rig.named("compressed_size"), blocks * packed(1).len() as u64);
    assert_eq!(rig.named("deleted"), 0, "nothing was evicted");
    // What was used just now is plain, and is found so again.
    assert!(read(&rig, blocks - 1));
    let before = rig.store.unpacked();
    assert!(read(&rig, blocks - 1));
    assert_eq!(rig.store.unpacked(), before);
}

/// Goal: while all blocks fit plain, nothing is ever decompressed.
#[test]
fn without_pressure_nothing_is_unpacked() {
    let _on = STEERING.lock();
    let (both, _) = rooms();
    let rig = Rig::new(both * 100);
    for _ in 0..3 {
        (0..50).for_each(|n| {
            read(&rig, n);
        });
        rig.later();
    }
    assert_eq!(rig.store.unpacked(), (0, 0));
    assert_eq!(rig.named("overhead_size"), 50 * LSIZE as u64);
    assert_eq!(rig.store.stats().size, 50 * both);
    rig.check();
}

/// Goal: the plain form alone is held with `zfs_compressed_arc_enabled=0`, and of blocks that
/// compress too little.
#[test]
fn off_and_not_worth_it() {
    let _on = STEERING.lock();
    let rig = Rig::new(1 << 20);
    let most = Block::zeroed(LSIZE - LSIZE / 8 + 1);
    rig.store.insert(&lz4(&rig, 1), &contents(1).into(), Some(&most));
    assert_eq!(rig.store.stats().size, LSIZE as u64 + HELD_OVERHEAD);
    COMPRESSED_ARC_ENABLED.set(0);
    assert!(!read(&rig, 2));
    COMPRESSED_ARC_ENABLED.set(1);
    assert_eq!(rig.named("compressed_size"), 2 * LSIZE as u64);
    assert_eq!((rig.named("uncompressed_size"), rig.named("overhead_size")), (2 * LSIZE as u64, 0));
    rig.check();
    assert!(!read(&rig, 3));
    assert_eq!(rig.named("overhead_size"), LSIZE as u64);
    rig.check();
}

/// Goal: under pressure, plain forms are released first: those of used blocks stay, those of a scan
/// go.
#[test]
fn what_is_used_stays_plain() {
    let _on = STEERING.lock();
    let (_, alone) = rooms();
    let rig = Rig::new(400 * alone);
    (0..4).for_each(|n| assert!(!read(&rig, n)));
    for n in 100..400 {
        read(&rig, n);
        rig.settle();
        let before = rig.store.unpacked().0;
        assert!((0..4).all(|n| read(&rig, n)), "at {n}");
        assert_eq!(rig.store.unpacked().0, before, "at {n}");
    }
    assert!(rig.store.unpacked().1 > 0, "some were let go");
    rig.check();
}

/// Goal: a hand finds a block that is held compressed, and nothing once that is gone. A compressed
/// form that is damaged in memory is no block, and is read again.
#[test]
fn hands_and_damage() {
    let _on = STEERING.lock();
    let rig = Rig::new(1 << 20);
    assert!(!read(&rig, 1));
    rig.later();
    assert!(read(&rig, 1));
    let kept = std::cell::RefCell::new(None);
    let keep = |hand| *kept.borrow_mut() = Some(hand);
    rig.store.find_or_start(&lz4(&rig, 1), false, Arc::default, Some(&keep));
    let hand = kept.take().unwrap();
    DBUF_CACHE_SHIFT.set(63);
    let cold = |n: u64| {
        // Marked by its use, it is skipped once.
        assert!(rig.store.inner.cool(u64::MAX) > 0);
        let bucket = rig.store.inner.bucket(&lz4(&rig, n)).lock();
        matches!(bucket.entries.get(&lz4(&rig, n)).unwrap().0.forms.get(), Form::Packed(_))
    };
    assert!(cold(1));
    rig.check();
    assert!(rig.store.by_ref(&hand).is_some_and(|block| block == contents(1)));
    assert_eq!(rig.named("overhead_size"), LSIZE as u64, "it is plain again");
    rig.check();
    assert!(cold(1));
    rig.store.forget(&lz4(&rig, 1));
    assert!(rig.store.by_ref(&hand).is_none());
    rig.store.insert(&lz4(&rig, 2), &contents(2).into(), Some(&Block::copy_of(&[0xff; 512])));
    assert!(cold(2));
    assert!(!read(&rig, 2), "it was forgotten");
    assert!(read(&rig, 2));
    DBUF_CACHE_SHIFT.set(DBUF_CACHE_SHIFT.default());
    rig.check();
}

/// Goal: with readers, droppers and the evict thread at the same time, each hit has the right
/// bytes. In the end all sums are right.
#[test]
fn at_the_same_time() {
    let _on = STEERING.lock();
    let (_, alone) = rooms();
    let rig = Rig::new(40 * alone);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let rig = &rig;
            scope.spawn(move || {
                for step in 0..3000u64 {
                    let n = (step * (thread + 7)) % 60;
                    match rig.store.find_or_start(&lz4(rig, n), false, Arc::default, None) {
                        Found::Block(block, _) => assert!(block.whole() == contents(n)),
                        Found::PendingRead(..) => {}
                        Found::Nothing => {
                            let (block, packed) = (contents(n).into(), packed(n));
                            rig.store.land(&lz4(rig, n), Some(&block), Some(&packed), false);
                        }
                    }
                    if step % 17 == 0 {
                        rig.store.forget(&lz4(rig, step % 60));
                    }
                    rig.now.fetch_add(1, Ordering::Relaxed);
                    assert!(rig.store.stats().size <= rig.store.max());
                }
            });
        }
    });
    rig.settle();
    rig.check();
    let (unpacked, cooled) = rig.store.unpacked();
    assert!(unpacked > 0 && cooled > 0);
    rig.store.purge(0);
    assert_eq!((rig.named("compressed_size"), rig.named("overhead_size")), (0, 0));
    rig.check();
}
