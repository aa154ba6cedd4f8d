use super::*;
use ondisk::{BlkId, Level, ObjNum};
use std::sync::atomic::{AtomicU64, Ordering};

fn block(n: u64) -> Bookmark {
    Bookmark { objset: 54, object: ObjNum(2), level: Level(0), blkid: BlkId(n) }
}

/// Goal: a block is remembered once, with its first birth. The listener is called when the first
/// block is entered, and again for blocks found while the log was written.
#[test]
fn each_block_once() {
    let damage = Damage::default();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    damage.listen(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    damage.note(&block(1), Txg(7));
    damage.note(&block(1), Txg(9));
    damage.note(&block(0), Txg(8));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(damage.pending(), vec![(block(0), Txg(8)), (block(1), Txg(7))]);
    let entered = damage.pending();
    damage.note(&block(2), Txg(7));
    assert_eq!((damage.count(), calls.load(Ordering::Relaxed)), (3, 1));
    damage.seen_to(&entered);
    assert_eq!((damage.pending(), calls.load(Ordering::Relaxed)), (vec![(block(2), Txg(7))], 2));
    damage.seen_to(&damage.pending());
    assert_eq!((damage.count(), calls.load(Ordering::Relaxed)), (0, 2));
    damage.note(&block(1), Txg(7));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

/// Goal: the number of remembered blocks has a limit.
#[test]
fn bounded() {
    let damage = Damage::default();
    (0..MOST as u64 + 10).for_each(|n| damage.note(&block(n), Txg(1)));
    assert_eq!(damage.count(), MOST as u64);
}

/// Goal: a missing key, and the end of a log, are no damage.
#[test]
fn what_is_none() {
    let damage = Damage::default();
    let (bookmark, mut bp) = (block(0), Blkptr::HOLE);
    damage.judge(&bp, &bookmark, &Error::Redacted { bookmark });
    damage.judge(&bp, &bookmark, &Error::Suspended { bookmark });
    assert_eq!(damage.count(), 0);
    let source = ondisk::Corrupt::Shape { what: "block", why: "for a test" };
    let error = Error::Corrupt { bookmark, source };
    bp.kind = DmuType::INTENT_LOG;
    damage.judge(&bp, &bookmark, &error);
    assert_eq!(damage.count(), 0);
    bp.kind = DmuType::PLAIN_FILE_CONTENTS;
    damage.judge(&bp, &bookmark, &error);
    assert_eq!(damage.count(), 1);
}

/// Goal: a loss is reported once for each time that the block waits to be logged, with the reason.
/// Losses that are not taken are counted.
#[test]
fn losses_are_told() {
    let damage = Damage::default();
    let bp = Blkptr { kind: DmuType::PLAIN_FILE_CONTENTS, ..Blkptr::HOLE };
    let sealed = |n| {
        let source = codec::Error::Mac { what: "block" };
        damage.judge(&bp, &block(n), &Error::Decode { bookmark: block(n), source });
    };
    let told = || {
        let (losses, dropped) = damage.take_losses();
        (losses.iter().map(|loss| (loss.bookmark, loss.why)).collect::<Vec<_>>(), dropped)
    };
    [1, 1, 2].into_iter().for_each(sealed);
    assert_eq!(told(), (vec![(block(1), Why::Mac), (block(2), Why::Mac)], 0));
    assert_eq!(told(), (Vec::new(), 0));
    sealed(1);
    damage.seen_to(&damage.pending());
    sealed(1);
    assert_eq!(told(), (vec![(block(1), Why::Mac)], 0));
    (10..10 + LOSSES as u64 + 3).for_each(sealed);
    let (losses, dropped) = told();
    assert_eq!((losses.len(), losses[0].0, dropped), (LOSSES, block(13), 3));
}
