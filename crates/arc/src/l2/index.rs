//! Which blocks are where on cache devices.
//!
//! # Theory
//! A block is known here by its pool, its first copy and the txg that wrote it, as in OpenZFS. The
//! index is apart from the headers of blocks in memory. A header that is created, dropped or
//! becomes a ghost does not touch its place. The device's list, which is ordered by address, keeps
//! its order.
//!
//! A place says where bytes are that were a block's. The reader verifies them with the checksum of
//! its own pointer. An entry may outlive its block, as after a rewind of the pool, or by a damaged
//! log. That costs a read, and never serves a block that was written to the same place since. A
//! block that is freed is forgotten here all the same, so that its space shows as free.
//!
//! # Locks
//! A shard's, then the list's of the device.

use super::Disk;
use crate::header::Key;
use observe::lock::Mutex;
use ondisk::Dva;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 64;

/// Memory of a place, in the table and in the list of its device (`HDR_L2ONLY_SIZE`).
pub(crate) const PLACE_OVERHEAD: u64 = 160;

/// The name of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) pool: u32,
    pub(crate) vdev: u32,
    /// The offset, with the bit of gang blocks.
    pub(crate) offset: u64,
    pub(crate) birth: u64,
}

impl Name {
    pub(crate) fn of(key: &Key) -> Name {
        let (vdev, offset) = key.place();
        Name { pool: key.pool, vdev, offset, birth: key.birth() }
    }

    pub(crate) fn of_log(pool: u32, dva: &Dva, birth: u64) -> Name {
        Name { pool, vdev: dva.vdev.0, offset: dva.offset.0 | if dva.gang { 1 << 63 } else { 0 }, birth }
    }
}

/// Where a block is.
#[derive(Clone)]
pub(crate) struct L2Address {
    pub(crate) disk: Arc<Disk>,
    pub(crate) daddr: u64,
    /// Bytes of it without padding.
    pub(crate) psize: u64,
    pub(crate) lsize: u64,
    pub(crate) metadata: bool,
    /// Whether it had been used again when it was written.
    pub(crate) again: bool,
    /// Whether it had been read ahead and not used when it was written.
    pub(crate) ahead: bool,
}

/// The entry of a block in a device's list.
struct Slot {
    name: Name,
    sizes: Sizes,
}

/// What a block adds to the sums.
#[derive(Clone, Copy)]
struct Sizes {
    asize: u64,
    lsize: u64,
    metadata: bool,
    /// Index into [`Sums::states`].
    state: usize,
}

/// The blocks of one device by address, the oldest first from its hand on (`l2ad_buflist`).
#[derive(Default)]
pub(crate) struct List(Mutex<BTreeMap<u64, Slot>>);

/// Sums over all devices.
#[derive(Default)]
pub(crate) struct Sums {
    pub(crate) count: AtomicU64,
    /// Uncompressed bytes (`l2_size`).
    pub(crate) lsize: AtomicU64,
    /// Bytes on devices (`l2_asize`).
    pub(crate) asize: AtomicU64,
    /// Bytes of data and metadata.
    pub(crate) kinds: [AtomicU64; 2],
    /// Bytes of blocks that had been used once, again, and not yet.
    pub(crate) states: [AtomicU64; 3],
}

impl Sums {
    fn count(&self, s: &Sizes, n: i64) {
        let add = |to: &AtomicU64, bytes: u64| match n > 0 {
            true => to.fetch_add(bytes, Ordering::Relaxed),
            false => to.fetch_sub(bytes, Ordering::Relaxed),
        };
        add(&self.count, 1);
        add(&self.lsize, s.lsize);
        add(&self.asize, s.asize);
        add(&self.kinds[usize::from(s.metadata)], s.asize);
        add(&self.states[s.state], s.asize);
    }
}

/// The index of all cache devices; see the module.
#[derive(Default)]
pub(crate) struct Index {
    shards: Box<[Mutex<HashMap<Name, L2Address>>]>,
    seed: RandomState,
    pub(crate) sums: Sums,
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), ..Index::default() }
    }

    fn shard(&self, name: &Name) -> &Mutex<HashMap<Name, L2Address>> {
        &self.shards[self.seed.hash_one(name) as usize % SHARDS]
    }

    /// Where a block is.
    pub(crate) fn find(&self, name: &Name) -> Option<L2Address> {
        self.shard(name).lock().get(name).cloned()
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.shard(name).lock().contains_key(name)
    }

    /// Enters a place; returns false if the block has one, or another block is there.
    pub(crate) fn insert(&self, name: Name, place: L2Address) -> bool {
        let mut shard = self.shard(&name).lock();
        let (disk, daddr) = (place.disk.clone(), place.daddr);
        let mut list = disk.list.0.lock();
        // Only a damaged log has two blocks at one address.
        if shard.contains_key(&name) || list.contains_key(&daddr) {
            return false;
        }
        let asize = disk.round(place.psize);
        let state = if place.ahead { 2 } else { usize::from(place.again) };
        let sizes = Sizes { asize, lsize: place.lsize, metadata: place.metadata, state };
        self.sums.count(&sizes, 1);
        disk.alloc.fetch_add(asize, Ordering::Relaxed);
        list.insert(daddr, Slot { name, sizes });
        shard.insert(name, place);
        true
    }

    /// Forgets where a block is; returns whether that was known.
    pub(crate) fn forget(&self, name: &Name) -> bool {
        let mut shard = self.shard(name).lock();
        let Some(place) = shard.remove(name) else { return false };
        if let Some(slot) = place.disk.list.0.lock().remove(&place.daddr) {
            self.uncount(&place.disk, &slot);
        }
        true
    }

    /// Forgets where a block is, if it is here.
    pub(crate) fn forget_here(&self, name: &Name, disk: &Arc<Disk>, daddr: u64) -> bool {
        let here = |p: &L2Address| Arc::ptr_eq(&p.disk, disk) && p.daddr == daddr;
        let mut shard = self.shard(name).lock();
        if !shard.get(name).is_some_and(here) {
            return false;
        }
        shard.remove(name);
        if let Some(slot) = disk.list.0.lock().remove(&daddr) {
            self.uncount(disk, &slot);
        }
        true
    }

    fn uncount(&self, disk: &Disk, slot: &Slot) {
        self.sums.count(&slot.sizes, -1);
        disk.alloc.fetch_sub(slot.sizes.asize, Ordering::Relaxed);
    }

    /// Forgets the blocks in a range of a device; returns their bytes.
    pub(crate) fn evict(&self, disk: &Arc<Disk>, range: Range<u64>) -> u64 {
        let mut gone = 0;
        loop {
            // A few at a time, since threads that free blocks need the list.
            let some: Vec<(u64, Name)> = {
                let list = disk.list.0.lock();
                list.range(range.clone()).take(256).map(|(at, slot)| (*at, slot.name)).collect()
            };
            if some.is_empty() {
                return gone;
            }
            for (daddr, name) in some {
                gone += u64::from(self.forget_here(&name, disk, daddr));
            }
        }
    }
}
