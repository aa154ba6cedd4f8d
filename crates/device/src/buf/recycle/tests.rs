//! Which memory is used again.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::AlignedBuf;

/// Goal: each size has a class that it fits into, with at most a quarter more.
#[test]
fn classes() {
    assert_eq!(class(31), None);
    assert_eq!(class(32), Some((0, 32)));
    assert_eq!(class(33), Some((1, 40)));
    assert_eq!(class(64), Some((4, 64)));
    assert_eq!(class(256), Some((12, 256)));
    assert_eq!(class(257), Some((13, 320)));
    assert_eq!(class(32 << 10), Some((40, 32 << 10)));
    assert_eq!(class((32 << 10) + 1), None);
    for sectors in 32..5000 {
        let (_, size) = class(sectors).unwrap();
        assert!(size >= sectors && size * 4 <= sectors * 5 + 4, "{sectors}: {size}");
        assert_eq!(class(size).unwrap().1, size);
    }
}

/// Goal: memory that was given back is used again, up to the new length. What stays unused is freed
/// by the second call.
#[test]
fn memory_is_used_again() {
    let all = Recycle::new();
    let mut first = all.take(200);
    first.iter_mut().for_each(|sector| sector.0.fill(7));
    let at = first.as_ptr();
    all.give(first);
    let second = all.take(195);
    assert_eq!((second.as_ptr(), second.len()), (at, 195));
    let third = all.take(200);
    assert!(third.as_ptr() != at && third.iter().all(|sector| sector.0 == [0; SECTOR]));
    all.give(second);
    all.give(third);
    assert_eq!(all.bytes.load(Ordering::Relaxed), 2 * 224 * SECTOR);
    all.shrink();
    // One of the two is used, and one of another class.
    all.give(all.take(200));
    all.give(all.take(40));
    all.shrink();
    assert_eq!(all.bytes.load(Ordering::Relaxed), (224 + 40) * SECTOR);
    all.shrink();
    assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
}

/// Goal: no more memory is kept than the limit, and none that buffers of its class don't fit into.
#[test]
fn memory_is_bounded() {
    let all = Recycle::new();
    let many: Vec<_> = (0..40).map(|_| all.take(2048)).collect();
    many.into_iter().for_each(|sectors| all.give(sectors));
    assert_eq!(all.bytes.load(Ordering::Relaxed), LEAST_LIMIT);
    let other = Recycle::new();
    other.give(Vec::with_capacity(201));
    other.give(Vec::with_capacity(8));
    assert_eq!(other.bytes.load(Ordering::Relaxed), 0);
}

/// Goal: behind the end of a buffer that was used before there are zeros, as in others.
#[test]
fn zeros_behind_the_end() {
    let mut first = AlignedBuf::for_overwrite(100_000);
    first.fill(7);
    drop(first);
    let second = AlignedBuf::for_overwrite(99_000);
    let behind = &second.sectors.last().unwrap().0[99_000 % SECTOR..];
    assert!(behind.iter().all(|byte| *byte == 0));
}

/// Goal: sizes that are no longer used make space for others.
#[test]
fn sizes_change() {
    let all = Recycle::new();
    for sectors in [256, 160] {
        let kept = (LEAST_LIMIT / SECTOR).div_ceil(sectors);
        for _ in 0..3 {
            let many: Vec<_> = (0..kept).map(|_| all.take(sectors)).collect();
            many.into_iter().for_each(|sectors| all.give(sectors));
        }
        let (number, _) = class(sectors).unwrap();
        let have = all.classes[number].lock().unwrap().kept.len();
        assert!(have + 1 >= kept, "{sectors}: {have} of {kept}");
        assert!(all.bytes.load(Ordering::Relaxed) <= LEAST_LIMIT);
    }
}
