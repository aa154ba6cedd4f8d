//! Block trees built by hand, which no file system writes. Every walk through them must end.

use arc::Cache;
use device::{Device, MemDevice};
use dmu::{Error, Extent, Objset};
use ondisk::blkptr::{BLKPTR_SIZE, Body, CryptParams, Stored};
use ondisk::label::LABEL_START_SIZE;
use ondisk::*;
use std::sync::Arc;
use zio::{ReadOptions, Zio};

const BIRTH: Txg = Txg(7);
const DNODES: u64 = 16 << 10;

/// A pointer to an uncompressed block at this offset, without a checksum.
fn pointer(kind: DmuType, level: u8, offset: u64, size: u64) -> Blkptr {
    let dva = Dva { vdev: VdevId(0), offset: Offset(offset), asize: Asize(size), gang: false };
    let stored = Stored {
        dvas: [Some(dva), None, None],
        psize: Psize(size),
        compress: CompressKind::Off,
        checksum: ChecksumKind::Off,
        sum: [0; 4],
        phys_birth: BIRTH,
        fill: 1,
        dedup: false,
        crypt: false,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    let body = Body::Stored(stored);
    Blkptr { kind, level: Level(level), lsize: Lsize(size), birth: BIRTH, body, ..Blkptr::HOLE }
}

/// The 512 bytes of a dnode.
fn dnode(kind: DmuType, levels: u8, indblkshift: u8, block: u64, maxblkid: u64, root: &Blkptr) -> Vec<u8> {
    let mut raw = vec![0; 512];
    (raw[0], raw[1], raw[2], raw[3]) = (kind.to_disk(), indblkshift, levels, 1);
    raw[8..10].copy_from_slice(&((block >> 9) as u16).to_le_bytes());
    raw[16..24].copy_from_slice(&maxblkid.to_le_bytes());
    raw[64..192].copy_from_slice(&root.encode());
    raw
}

struct Pool {
    device: Arc<MemDevice>,
    next: u64,
}

impl Pool {
    fn new() -> Pool {
        Pool { device: Arc::new(MemDevice::new("d", 64 << 20)), next: 0 }
    }

    /// Writes a block to free space, and returns its offset.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.next;
        self.device.write_at(bytes, LABEL_START_SIZE + at).unwrap();
        self.next += bytes.len().next_multiple_of(512) as u64;
        at
    }

    /// Writes an indirect block of `size` bytes with `bp` in the slots that `which` selects.
    fn indirect(&mut self, size: usize, bp: &Blkptr, which: impl Fn(usize) -> bool) -> u64 {
        let mut raw = vec![0; size];
        for (_, slot) in raw.chunks_mut(BLKPTR_SIZE).enumerate().filter(|(i, _)| which(*i)) {
            slot.copy_from_slice(&bp.encode());
        }
        self.put(&raw)
    }

    /// The object set with this meta dnode.
    fn objset(mut self, meta: &[u8]) -> Objset {
        let mut raw = vec![0; 1024];
        raw[..512].copy_from_slice(meta);
        raw[704] = 2;
        let at = self.put(&raw);
        let mut root = VdevConfig::new(VdevKind::Root, Guid(1));
        let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
        leaf.ashift = Some(Ashift(9));
        root.children = vec![leaf];
        let device = self.device.clone();
        let tree = vdev::Tree::open(&root, &mut |_| Ok(device.clone() as Arc<dyn Device>)).unwrap();
        let cache = Arc::new(Cache::new(Zio::new(Arc::new(tree)), 8 << 20));
        Objset::open(cache, 5, &pointer(DmuType::OBJSET, 0, at, 1024), ReadOptions::demand()).unwrap()
    }
}

/// A block of dnodes with an empty plain file in each slot.
fn dnodes() -> Vec<u8> {
    dnode(DmuType::PLAIN_FILE_CONTENTS, 1, 17, 512, 0, &Blkptr::HOLE).repeat(DNODES as usize / 512)
}

/// A tree of `levels` levels, in which all eight pointers of an indirect block lead to the same
/// next block.
fn bush(levels: u8) -> (Pool, Blkptr) {
    let mut pool = Pool::new();
    let at = pool.put(&dnodes());
    let mut bp = pointer(DmuType::DNODE, 0, at, DNODES);
    for level in 1..levels {
        let at = pool.indirect(1024, &bp, |_| true);
        bp = pointer(DmuType::DNODE, level, at, 1024);
    }
    (pool, bp)
}

/// Goal: the objects of a tree whose branches share one block are listed once; then the listing
/// reports corruption.
#[test]
fn objects_of_a_bush_end() {
    let (pool, bp) = bush(10);
    let os = pool.objset(&dnode(DmuType::DNODE, 10, 10, DNODES, (8 << 24) - 1, &bp));
    let seen: Vec<_> = os.objects(ObjNum(1)).take(10_000).collect();
    assert!(seen.len() < 100, "{} objects", seen.len());
    assert!(matches!(seen.last(), Some(Err(Error::Corrupt { .. }))));
}

/// Goal: the listing of objects continues after an unreadable indirect block, and after one that
/// claims another level.
#[test]
fn objects_go_on_behind_damage() {
    let mut pool = Pool::new();
    let mut level1 = Vec::new();
    for _ in 0..2 {
        let at = pool.put(&dnodes());
        let at = pool.indirect(1024, &pointer(DmuType::DNODE, 0, at, DNODES), |i| i == 0);
        level1.push(pointer(DmuType::DNODE, 1, at, 1024));
    }
    let beyond = pointer(DmuType::DNODE, 1, 1 << 40, 1024);
    let misplaced = pointer(DmuType::DNODE, 2, 0, 1024);
    let raw: Vec<u8> = [level1[0], beyond, misplaced, level1[1]].iter().flat_map(|bp| bp.encode()).collect();
    let at = pool.put(&[raw, vec![0; 512]].concat());
    let root = pointer(DmuType::DNODE, 2, at, 1024);
    let os = pool.objset(&dnode(DmuType::DNODE, 3, 10, DNODES, 31, &root));
    let (mut objects, mut errors) = (Vec::new(), 0);
    for found in os.objects(ObjNum(1)).take(1000) {
        match found {
            Ok(dn) => objects.push(dn.object().0),
            Err(_) => errors += 1,
        }
    }
    let per = DNODES / 512;
    let want: Vec<u64> = (1..per).chain(3 * 8 * per..(3 * 8 + 1) * per).collect();
    assert_eq!((objects, errors), (want, 2));
}

/// Goal: a block of dnodes whose object numbers exceed 64 bits is corrupt, and the listing ends.
#[test]
fn objects_beyond_all_numbers() {
    for levels in [6, 7, 16] {
        let mut pool = Pool::new();
        let at = pool.put(&dnodes());
        let mut bp = pointer(DmuType::DNODE, 0, at, DNODES);
        for level in 1..levels {
            let at = pool.indirect(128 << 10, &bp, |i| i == 1023);
            bp = pointer(DmuType::DNODE, level, at, 128 << 10);
        }
        let os = pool.objset(&dnode(DmuType::DNODE, levels, 17, DNODES, u64::MAX, &bp));
        let seen: Vec<_> = os.objects(ObjNum(1)).take(100).collect();
        assert!(seen.iter().flatten().count() == 0, "{levels} levels: {seen:?}");
        assert!(os.dnode(ObjNum(u64::MAX / 2)).is_err());
    }
}

/// Goal: a log that claims more blocks than it has is corrupt at the first missing one, whether
/// holes or one shared block stand there.
#[test]
fn logs_are_as_long_as_their_blocks() {
    let (pool, bp) = bush(10);
    let os = pool.objset(&dnode(DmuType::DNODE, 10, 10, DNODES, u64::MAX, &bp));
    let all: Vec<_> = os.meta_dnode().log_blocks(u64::MAX).take(1000).collect();
    assert!(
        all.len() == 2 && all[0].is_ok() && matches!(all[1], Err(Error::Corrupt { .. })),
        "{}",
        all.len()
    );
    let os = Pool::new().objset(&dnode(DmuType::DNODE, 10, 10, DNODES, u64::MAX, &Blkptr::HOLE));
    let all: Vec<_> = os.meta_dnode().log_blocks(u64::MAX).take(1000).collect();
    assert!(matches!(&all[..], [Err(Error::Corrupt { .. })]));
}

/// Goal: a search for data or a hole through a tree of shared blocks ends at the second path to one
/// block.
#[test]
fn searches_in_a_bush_end() {
    let mut pool = Pool::new();
    let mut bp = Blkptr::HOLE;
    for level in 1..10 {
        let at = pool.indirect(1024, &bp, |_| true);
        bp = pointer(DmuType::DNODE, level, at, 1024);
    }
    let os = pool.objset(&dnode(DmuType::DNODE, 10, 10, DNODES, u64::MAX, &bp));
    assert!(matches!(os.meta_dnode().next_offset(0, Extent::Data), Err(Error::Corrupt { .. })));
}

/// Goal: a walk over data below shared indirect blocks finds what the first path leads to. It
/// reports the rest as damage, in consecutive ranges up to the end.
#[test]
fn walks_through_a_bush_end() {
    const SIZE: u64 = 512;
    let mut pool = Pool::new();
    let at = pool.put(&[7; SIZE as usize]);
    let mut bp = pointer(DmuType::DNODE, 0, at, SIZE);
    for level in 1..10 {
        let at = pool.indirect(1024, &bp, |_| true);
        bp = pointer(DmuType::DNODE, level, at, 1024);
    }
    let blocks = 8u64.pow(9);
    let os = pool.objset(&dnode(DmuType::DNODE, 10, 10, SIZE, blocks - 1, &bp));
    let mut walk = os.meta_dnode().walk();
    assert_eq!(walk.next_offset(0, Extent::Data).unwrap(), Some(0));
    let first = walk.next_offset(0, Extent::Hole).unwrap_err();
    assert_eq!(first.from, 8 * SIZE, "one block of data may be at many places");
    let (mut at, mut stretches) = (first.from, 0);
    while at < blocks * SIZE {
        let damage = walk.next_offset(at, Extent::Data).unwrap_err();
        assert!(damage.from == at && damage.to > at, "{damage:?}");
        (at, stretches) = (damage.to, stretches + 1);
        assert!(stretches < 100);
    }
    assert_eq!(walk.next_offset(at, Extent::Data).unwrap(), None);
}

/// Goal: an indirect block embedded in its pointer, which no writer produces, is corrupt.
#[test]
fn embedded_indirect_blocks_are_corrupt() {
    let mut raw = pointer(DmuType::DNODE, 1, 0, 1024).encode();
    raw[..48].fill(0);
    // The property word: 2 stored bytes of 1024, ZLE of zeros, the embedded bit, and level 1.
    let prop = (1024 - 1)
        | (2 - 1) << 25
        | 14 << 32
        | 1 << 39
        | u64::from(DmuType::DNODE.to_disk()) << 48
        | 1 << 56
        | 1 << 63;
    raw[48..56].copy_from_slice(&prop.to_le_bytes());
    let bp = Blkptr::decode(&raw).unwrap();
    assert!(matches!(bp.body, Body::Embedded(_)));
    let os = Pool::new().objset(&dnode(DmuType::DNODE, 2, 10, DNODES, 7, &bp));
    let all: Vec<_> = os.objects(ObjNum(1)).take(10).collect();
    assert!(matches!(&all[..], [Err(Error::Corrupt { .. })]), "{all:?}");
    assert!(matches!(os.meta_dnode().block(BlkId(0)), Err(Error::Corrupt { .. })));
}
