//! The shard keeps its bound, lets no scan push out what is used again, and hands one read to all who want it.

use crate::cache::Flight;
use crate::shard::{Found, Key, Shard};
use device::{Block, Sparse};
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::*;
use std::sync::Arc;

pub(crate) fn key(n: u64) -> Key {
    Key::of(&pointer(n, DmuType::NONE, false), 1).unwrap()
}

fn pointer(n: u64, kind: DmuType, crypt: bool) -> Blkptr {
    let dva = Dva { vdev: VdevId(0), offset: Offset(n << 12), asize: Asize(4096), gang: false };
    let stored = Stored {
        dvas: [Some(dva), None, None],
        psize: Psize(4096),
        compress: CompressKind::Off,
        checksum: ChecksumKind::Fletcher4,
        sum: [n; 4],
        phys_birth: Txg(1),
        fill: 1,
        dedup: false,
        crypt,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    Blkptr { kind, lsize: Lsize(4096), body: Body::Stored(stored), ..Blkptr::HOLE }
}

fn flight() -> Arc<Flight> {
    Arc::default()
}

fn read(shard: &mut Shard, n: u64) -> bool {
    match shard.find_or_start(&key(n), &flight()) {
        Found::Block(_) => true,
        Found::Flight(_) => panic!("nobody else reads"),
        Found::Nothing => {
            shard.land(&key(n), Some(&Block::zeroed(4096).into()));
            false
        }
    }
}

/// Two datasets share a plain block, but not one that a key made readable.
#[test]
fn keyed_blocks_are_their_datasets_own() {
    let same = |kind, crypt| Key::of(&pointer(1, kind, crypt), 1) == Key::of(&pointer(1, kind, crypt), 2);
    assert!(same(DmuType::PLAIN_FILE_CONTENTS, false));
    assert!(!same(DmuType::PLAIN_FILE_CONTENTS, true), "encrypted");
    assert!(!same(DmuType::OBJSET, true), "authenticated");
}

/// However many blocks pass through, a shard holds no more than its bound.
#[test]
fn bounded() {
    let mut s = Shard::new(64 << 10);
    for n in 0..1000 {
        assert!(!read(&mut s, n));
        assert!(s.size() <= 64 << 10);
    }
    assert!(read(&mut s, 999), "the newest block is there");
}

/// Who asks whether a block is there does not use it: it goes before others as if nobody had asked.
#[test]
fn asking_is_no_use() {
    let mut s = Shard::new(64 << 10);
    assert!(!s.holds(&key(1)));
    assert!(!read(&mut s, 1));
    assert!(s.holds(&key(1)) && !s.holds(&key(2)));
    for n in 2..100 {
        s.holds(&key(1));
        read(&mut s, n);
    }
    assert!(!s.holds(&key(1)), "it was used once");
}

/// Blocks that were used twice outlive a scan of many that are used once.
#[test]
fn scan_resistant() {
    let mut s = Shard::new(64 << 10);
    for _ in 0..2 {
        (0..4).for_each(|n| {
            read(&mut s, n);
        });
    }
    (100..1000).for_each(|n| {
        read(&mut s, n);
    });
    assert!((0..4).all(|n| read(&mut s, n)));
}

/// A block that was written with zeros at its end takes what it holds, and all of it once it was read.
#[test]
fn sparse() {
    let mut s = Shard::new(64 << 10);
    let half = Sparse::new(Block::copy_of(&[7; 512]), 16 << 10);
    s.insert(&key(1), &half);
    let before = s.size();
    assert!(before < 1024);
    let Found::Block(found) = s.find_or_start(&key(1), &flight()) else { panic!("it is not there") };
    s.complete(&key(1), &found.whole());
    s.complete(&key(1), &found.whole());
    assert_eq!(s.size(), before - 512 + (16 << 10));
    let Found::Block(found) = s.find_or_start(&key(1), &flight()) else { panic!("it is not there") };
    assert!(found.is_whole() && found.whole() == half.whole());
    s.complete(&key(2), &found.whole());
    assert!(!read(&mut s, 2));
}

/// A second reader joins the first one's flight; a block read while the cache was purged is not kept.
#[test]
fn flights() {
    let mut s = Shard::new(64 << 10);
    let first = flight();
    assert!(matches!(s.find_or_start(&key(1), &first), Found::Nothing));
    let Found::Flight(joined) = s.find_or_start(&key(1), &flight()) else { panic!("did not join") };
    assert!(Arc::ptr_eq(&first, &joined));
    s.purge();
    s.land(&key(1), Some(&Block::zeroed(4096).into()));
    assert_eq!(s.size(), 0);
    assert!(!read(&mut s, 1));
}

/// A block that was freed takes no memory, nor does one that was on its way when it was freed; others stay. A shard with less room holds less.
#[test]
fn freed() {
    let mut s = Shard::new(64 << 10);
    read(&mut s, 1);
    let of_one = s.size();
    read(&mut s, 2);
    assert!(read(&mut s, 2));
    read(&mut s, 3);
    s.forget(&key(2));
    s.forget(&key(3));
    s.forget(&key(4));
    assert_eq!(s.size(), of_one);
    assert!(matches!(s.find_or_start(&key(5), &flight()), Found::Nothing));
    s.forget(&key(5));
    s.land(&key(5), Some(&Block::zeroed(4096).into()));
    assert_eq!(s.size(), of_one);
    assert!(read(&mut s, 1) && !read(&mut s, 5));
    (10..20).for_each(|n| {
        read(&mut s, n);
    });
    s.limit(of_one);
    assert!(s.size() <= of_one);
}
