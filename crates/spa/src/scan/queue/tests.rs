use std::sync::Arc;

use observe::lock::Mutex;
use ondisk::blkptr::{Body, CryptParams, Stored};
use ondisk::{
    Asize, BlkId, Blkptr, ByteOrder, ChecksumKind, CompressKind, DmuType, Dva, Level, Lsize, ObjNum, Offset,
    Psize, Txg, VdevId,
};
use proptest::prelude::*;
use zio::{Bookmark, NoSpace, Space, Want};

use crate::scan::queue::{BLOCK, LARGE, MEM_LIM_MIN, Queue, Watched, asize, memory_limit};

const SECTOR: u64 = 4096;

fn dva(vdev: u32, sector: u64, gang: bool) -> Dva {
    Dva { vdev: VdevId(vdev), offset: Offset(sector * SECTOR), asize: Asize(SECTOR), gang }
}

fn block(dvas: [Option<Dva>; 3], birth: u64) -> Blkptr {
    let stored = Stored {
        dvas,
        psize: Psize(SECTOR),
        compress: CompressKind::Lz4,
        checksum: ChecksumKind::Fletcher4,
        sum: [birth, 2, 3, u64::MAX],
        phys_birth: Txg(birth),
        fill: 1,
        dedup: false,
        crypt: false,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    Blkptr {
        kind: DmuType::PLAIN_FILE_CONTENTS,
        level: Level(0),
        lsize: Lsize(2 * SECTOR),
        birth: Txg(birth),
        order: ByteOrder::Little,
        body: Body::Stored(stored),
    }
}

fn one(vdev: u32, sector: u64, birth: u64) -> Blkptr {
    block([Some(dva(vdev, sector, false)), None, None], birth)
}

fn mark(objset: u64, blkid: u64) -> Bookmark {
    Bookmark { objset, object: ObjNum(7), level: Level(0), blkid: BlkId(blkid) }
}

/// An allocator that records frees.
#[derive(Default)]
struct Ledger(Mutex<Vec<Dva>>);

impl Space for Ledger {
    fn allocate(&self, _: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        Err(NoSpace)
    }

    fn free(&self, dva: &Dva, _: Txg, _: Txg) {
        self.0.lock().push(*dva);
    }

    fn unallocate(&self, dva: &Dva, _: Txg) {
        self.0.lock().push(*dva);
    }
}

fn watched() -> (Arc<Queue>, Arc<Ledger>, Watched) {
    let (queue, ledger) = (Arc::new(Queue::default()), Arc::new(Ledger::default()));
    let watched = Watched { space: ledger.clone(), queue: queue.clone() };
    (queue, ledger, watched)
}

fn waiting(queue: &Queue) -> Vec<(Blkptr, Bookmark)> {
    queue.first(usize::MAX, u64::MAX).into_iter().map(|item| (item.bp, item.bookmark)).collect()
}

/// Goal: a freed block leaves the queue, with all of its copies and bookmarks, and no other does;
/// and the allocator gets the free.
#[test]
fn what_is_freed_waits_no_longer() {
    let (queue, ledger, watched) = watched();
    let twice = block([Some(dva(0, 5, false)), Some(dva(1, 9, false)), None], 3);
    assert!(queue.add(&twice, &mark(1, 0)) && queue.add(&twice, &mark(2, 0)));
    assert!(!queue.add(&twice, &mark(1, 0)), "it is there");
    for (vdev, sector) in [(0, 4), (0, 6), (1, 5), (1, 9)] {
        assert!(queue.add(&one(vdev, sector, 4), &mark(1, sector)));
    }
    assert_eq!((queue.len(), queue.size()), (6, (2 * LARGE + 4 * BLOCK, 6 * SECTOR)));
    twice.stored().unwrap().copies().take(1).for_each(|dva| watched.free(dva, Txg(3), Txg(8)));
    assert_eq!((queue.len(), queue.size()), (4, (4 * BLOCK, 4 * SECTOR)));
    assert_eq!((queue.take_freed(), queue.take_freed()), (2 * asize(&twice), 0));
    assert_eq!(ledger.0.lock().as_slice(), [dva(0, 5, false)]);
    assert!(queue.holds(&one(1, 5, 4)) && !queue.holds(&twice));
    watched.unallocate(&dva(1, 5, false), Txg(8));
    assert!(!queue.holds(&one(1, 5, 4)));
    assert_eq!(waiting(&queue).iter().map(|w| w.1.blkid.0).collect::<Vec<_>>(), [4, 6, 9]);
}

/// Goal: a gang block leaves with its header, and the space of its members removes no other block.
#[test]
fn a_gang_block_goes_with_its_header() {
    let (queue, _, watched) = watched();
    let gang = |asize| Dva { asize: Asize(asize), ..dva(0, 5, true) };
    let bp = block([Some(gang(8 * SECTOR)), None, None], 3);
    assert!(queue.add(&bp, &mark(1, 0)) && queue.add(&one(0, 7, 3), &mark(1, 1)));
    watched.free(&gang(8 * SECTOR), Txg(3), Txg(8));
    assert_eq!(waiting(&queue).iter().map(|w| w.1).collect::<Vec<_>>(), [mark(1, 1)]);
}

/// Goal: the first blocks come sorted by place, a share of each vdev, and stay until they are
/// removed.
#[test]
fn in_the_order_of_places() {
    let queue = Queue::default();
    for sector in [9, 1, 5, 3, 7] {
        for vdev in [1, 0] {
            queue.add(&one(vdev, sector, 1), &mark(1, sector));
        }
    }
    let some = queue.first(4, u64::MAX);
    let places: Vec<_> = some.iter().map(|i| i.bookmark.blkid.0).collect();
    assert_eq!(places, [1, 3, 1, 3]);
    assert_eq!(queue.first(usize::MAX, 6 * SECTOR).len(), 6);
    assert_eq!(queue.first(0, 0).len(), 2, "one of each, at least");
    let entries: Vec<_> = some.iter().map(|i| i.entry).collect();
    queue.remove(&entries);
    queue.remove(&entries);
    assert_eq!((queue.len(), queue.first(1, u64::MAX)[0].bookmark.blkid.0), (6, 5));
    queue.clear();
    assert!(queue.is_empty() && queue.first(9, 9).is_empty() && queue.size() == (0, 0));
}

/// Goal: the limit is a part of the machine's memory, and not below the minimum.
#[test]
fn a_part_of_the_memory() {
    assert_eq!(memory_limit(20 << 30), 1 << 30);
    assert_eq!(memory_limit(1 << 20), 16 << 20);
}

/// Goal: the queues of all pools together take no more than one may, except for the minimum of
/// each.
#[test]
fn all_pools_share_the_memory() {
    let full = || {
        let queue = Queue::default();
        for sector in 0..MEM_LIM_MIN / BLOCK {
            queue.add(&one(0, sector, 1), &mark(1, sector));
        }
        queue
    };
    let (queue, little) = (full(), Queue::default());
    little.add(&one(0, 1, 1), &mark(1, 1));
    assert!(queue.takes(MEM_LIM_MIN) && !queue.takes(2 * MEM_LIM_MIN));
    let other = full();
    assert!(queue.takes(2 * MEM_LIM_MIN) && !little.takes(2 * MEM_LIM_MIN));
    drop(other);
    assert!(!queue.takes(2 * MEM_LIM_MIN));
}

proptest! {
    /// Goal: an entry keeps all that verifying needs. Only salt and IV of a block with one copy may
    /// be lost, and the part of the fill that shares their word.
    #[test]
    fn a_block_is_kept(
        birth in 1u64..1 << 40, later in 0u64..9, copies in 1usize..4, crypt in any::<bool>(), big in any::<bool>(),
        dedup in any::<bool>(), sum in any::<[u64; 4]>(), params in any::<([u8; 8], [u8; 12])>(), level in 0u8..6,
        places in any::<[(u32, u32, bool); 3]>(), sizes in (1u64..1 << 15, 1u64..1 << 15), at in any::<(u64, u64, u64)>(),
    ) {
        let place = |(vdev, sector, gang): (u32, u32, bool)| dva(vdev >> 8, u64::from(sector), gang);
        let encrypted = crypt && level == 0;
        let copies = if encrypted { copies.min(2) } else { copies };
        let dvas = std::array::from_fn(|i| (i < copies).then(|| place(places[i])));
        let crypt_params = match encrypted {
            true => CryptParams { salt: params.0, iv: params.1 },
            false => CryptParams { salt: [0; 8], iv: [0; 12] },
        };
        let stored = Stored {
            dvas, psize: Psize(sizes.0 * 512), compress: CompressKind::Lz4, checksum: ChecksumKind::Sha256, sum,
            phys_birth: Txg(birth), fill: 1, dedup, crypt, crypt_params,
        };
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let bp = Blkptr {
            kind: DmuType::PLAIN_FILE_CONTENTS, level: Level(level), lsize: Lsize(sizes.1 * 512),
            birth: Txg(birth + later), order, body: Body::Stored(stored),
        };
        let bookmark =
            Bookmark { objset: at.0, object: ObjNum(at.1), level: Level(level), blkid: BlkId(at.2) };
        let queue = Queue::default();
        prop_assert!(queue.add(&bp, &bookmark));
        let kept = match copies {
            1 => Stored { fill: 0, crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] }, ..stored },
            _ => stored,
        };
        prop_assert_eq!(waiting(&queue), [(Blkptr { body: Body::Stored(kept), ..bp }, bookmark)]);
    }
}
