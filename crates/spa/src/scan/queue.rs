//! Blocks that are to be looked at, in the order of their places.
//!
//! # Theory
//! What was written in any order lies in any order, so that sorting helps as far as it reaches. So what a walk meets waits here, over as many slices as that takes, until there is no
//! more room or the walk has come to its end, and is then looked at from one end of each top-level vdev to the other.
//!
//! That is safe only while a block has its places. Who frees one tells the allocator, through [`Watched`], which takes it out of here before the allocator knows: so nothing that is here has
//! a place that may be given to another. A block that is freed by its last reference only, as it is shared, stays until then.
//!
//! A block is what a look needs of its pointer, and its bookmark. One that several refer to is here once for each, since what is wrong with it is told of each.
//!
//! # Locks
//! One, for a few instructions, taken with none of this room's held but `walk` of [`crate::scan::Scan`], and none taken while it is. Who frees takes it only if there is something here.
//!
//! # See
//! OpenZFS `scan_io_queue_insert_impl`, `dsl_scan_freed_dva`, `dsl_scan_should_clear`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use observe::{Tunable, Unit};
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::{BlkId, Blkptr, Dva, ObjNum, Txg, VdevId};
use parking_lot::Mutex;
use zio::{Bookmark, NoSpace, Space, Want};

use crate::scan::issue::Item;

/// What part of the machine's memory the blocks of all scans may take that wait, as a divisor (`zfs_scan_mem_lim_fact`).
pub static SCAN_MEM_LIM_FACT: Tunable = Tunable::new(
    "zfs_scan_mem_lim_fact",
    20,
    1..=1 << 20,
    Unit::Divisor,
    "share of memory for the blocks that scrubs and resilvers have found and not yet issued",
);
/// Seconds after which all that waits is looked at, so that the scan's progress can be recorded (`zfs_scan_checkpoint_intval`).
pub static SCAN_CHECKPOINT_INTVAL: Tunable = Tunable::new(
    "zfs_scan_checkpoint_intval",
    7200,
    1..=1 << 32,
    Unit::Seconds,
    "longest time between two points from which a scrub or resilver can resume",
);
/// They may take so much however little memory there is (`zfs_scan_mem_lim_min`).
const MEM_LIM_MIN: u64 = 16 << 20;
/// Bytes of memory that the blocks of all pools take which wait.
static OF_ALL_POOLS: AtomicU64 = AtomicU64::new(0);
/// Bytes of memory that a block takes at most, in a map that is half full.
const BLOCK: u64 = 256;
/// And if it has several copies.
const LARGE: u64 = BLOCK + 16 + 8 * LARGE_WORDS as u64;

/// A block that waits: its first copy's vdev and offset, and its number among those there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub(crate) struct Entry {
    vdev: VdevId,
    offset: u64,
    n: u32,
}

/// The words of a pointer that matter where there is one copy: its place, properties, births and checksum. What only decrypting needs is not kept.
const SMALL: [usize; SMALL_WORDS] = [0, 1, 6, 9, 10, 12, 13, 14, 15];
const SMALL_WORDS: usize = 9;
/// The same with the other copies, or salt and IV.
const LARGE_OF: [usize; LARGE_WORDS] = [0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15];
const LARGE_WORDS: usize = 14;

/// A pointer and a bookmark; the bookmark's level is the pointer's.
#[derive(Debug, PartialEq, Eq)]
struct Packed {
    pointer: Pointer,
    objset: u64,
    object: u64,
    blkid: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Pointer {
    Small([u64; SMALL_WORDS]),
    Large(Box<[u64; LARGE_WORDS]>),
}

impl Packed {
    fn of(bp: &Blkptr, bookmark: &Bookmark) -> Packed {
        let raw = bp.encode();
        let word = |i: usize| u64::from_le_bytes(raw[8 * i..8 * i + 8].try_into().expect("it has 16 words"));
        let pointer = match bp.stored().is_some_and(|s| s.copies().count() > 1) {
            true => Pointer::Large(Box::new(LARGE_OF.map(word))),
            false => Pointer::Small(SMALL.map(word)),
        };
        Packed { pointer, objset: bookmark.objset, object: bookmark.object.0, blkid: bookmark.blkid.0 }
    }

    fn memory(&self) -> u64 {
        if matches!(self.pointer, Pointer::Large(_)) { LARGE } else { BLOCK }
    }

    fn open(&self) -> (Blkptr, Bookmark) {
        let mut raw = [0; BLKPTR_SIZE];
        let mut put = |at: &[usize], words: &[u64]| {
            for (i, word) in at.iter().zip(words) {
                raw[8 * i..8 * i + 8].copy_from_slice(&word.to_le_bytes());
            }
        };
        match &self.pointer {
            Pointer::Small(words) => put(&SMALL, words),
            Pointer::Large(words) => put(&LARGE_OF, words.as_slice()),
        }
        let bp = Blkptr::decode(&raw).expect("it was one when it was packed");
        let (object, blkid) = (ObjNum(self.object), BlkId(self.blkid));
        (bp, Bookmark { objset: self.objset, object, level: bp.level, blkid })
    }
}

/// Space that the copies of a block take.
pub(crate) fn asize(bp: &Blkptr) -> u64 {
    let copies = bp.stored().into_iter().flat_map(|s| s.copies());
    copies.fold(0u64, |n, dva| n.saturating_add(dva.asize.0))
}

#[derive(Debug, Default)]
struct Places {
    by_vdev: BTreeMap<VdevId, BTreeMap<(u64, u32), Packed>>,
    /// Bytes of memory that they take.
    memory: u64,
    /// Stored bytes of those that wait.
    bytes: u64,
    /// Space of those that were freed since somebody asked.
    freed: u64,
}

impl Places {
    fn take(&mut self, entry: Entry) -> Option<Blkptr> {
        let there = self.by_vdev.get_mut(&entry.vdev)?;
        let packed = there.remove(&(entry.offset, entry.n))?;
        if there.is_empty() {
            self.by_vdev.remove(&entry.vdev);
        }
        let bp = packed.open().0;
        self.memory -= packed.memory();
        OF_ALL_POOLS.fetch_sub(packed.memory(), Ordering::Relaxed);
        self.bytes -= bp.stored().map_or(0, |s| s.psize.0);
        Some(bp)
    }
}

/// The blocks of a scan that wait to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    places: Mutex<Places>,
    /// How many they are; changed under the lock.
    len: AtomicU64,
}

impl Queue {
    /// Enters a block; false if it is there already, of this bookmark, or has no place.
    pub(crate) fn add(&self, bp: &Blkptr, bookmark: &Bookmark) -> bool {
        let Some(s) = bp.stored() else { return false };
        let Some(first) = s.copies().next() else { return false };
        let packed = Packed::of(bp, bookmark);
        let mut places = self.places.lock();
        let there = places.by_vdev.entry(first.vdev).or_default();
        let offset = first.offset.0;
        let mut n = 0;
        for (key, other) in there.range((offset, 0)..=(offset, u32::MAX)) {
            if *other == packed {
                return false;
            }
            n = key.1.saturating_add(1);
        }
        let memory = packed.memory();
        if there.insert((offset, n), packed).is_none() {
            places.memory += memory;
            OF_ALL_POOLS.fetch_add(memory, Ordering::Relaxed);
            places.bytes += s.psize.0;
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Whether a block is here, whoever refers to it.
    pub(crate) fn holds(&self, bp: &Blkptr) -> bool {
        let Some(first) = bp.stored().and_then(|s| s.copies().next()) else { return false };
        let places = self.places.lock();
        let there = places.by_vdev.get(&first.vdev);
        there.is_some_and(|there| {
            there.range((first.offset.0, 0)..=(first.offset.0, u32::MAX)).next().is_some()
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether they take so much memory, or those of all pools together do and these more than a little: a machine whose pools are all scrubbed at once has no more memory for that.
    pub(crate) fn takes(&self, memory: u64) -> bool {
        let own = self.size().0;
        own >= memory || own >= MEM_LIM_MIN && OF_ALL_POOLS.load(Ordering::Relaxed) >= memory
    }

    /// Bytes of memory that they take, and stored bytes of the blocks.
    pub(crate) fn size(&self) -> (u64, u64) {
        let places = self.places.lock();
        (places.memory, places.bytes)
    }

    /// The first of each top-level vdev in their order, which stay here: about so many blocks, and so many of their bytes, but one of each at least.
    pub(crate) fn first(&self, blocks: usize, bytes: u64) -> Vec<Item> {
        let places = self.places.lock();
        let lanes = places.by_vdev.len().max(1);
        let (blocks, bytes) = ((blocks / lanes).max(1), bytes / lanes as u64);
        let mut out = Vec::new();
        for (vdev, there) in &places.by_vdev {
            let mut sum = 0;
            for ((offset, n), packed) in there.iter().take(blocks) {
                let (bp, bookmark) = packed.open();
                let item = Item { bp, bookmark, entry: Entry { vdev: *vdev, offset: *offset, n: *n } };
                sum += item.bytes();
                out.push(item);
                if sum >= bytes {
                    break;
                }
            }
        }
        out
    }

    /// Takes out what was looked at.
    pub(crate) fn remove(&self, entries: &[Entry]) {
        let mut places = self.places.lock();
        let gone = entries.iter().filter(|entry| places.take(**entry).is_some()).count();
        self.len.fetch_sub(gone as u64, Ordering::Relaxed);
    }

    /// Takes out all.
    pub(crate) fn clear(&self) {
        let mut places = self.places.lock();
        OF_ALL_POOLS.fetch_sub(places.memory, Ordering::Relaxed);
        *places = Places::default();
        self.len.store(0, Ordering::Relaxed);
    }

    /// Space of those that were freed since this was asked last.
    pub(crate) fn take_freed(&self) -> u64 {
        std::mem::take(&mut self.places.lock().freed)
    }

    /// A place is given up: what lies there is taken out, whoever refers to it.
    fn forget(&self, dva: &Dva) {
        if self.is_empty() {
            return;
        }
        let mut places = self.places.lock();
        let Some(there) = places.by_vdev.get(&dva.vdev) else { return };
        // One place, but in a pool whose blocks overlap. What a gang block takes elsewhere is given up by itself.
        let size = if dva.gang { 1 } else { dva.asize.0.max(1) };
        let end = dva.offset.0.saturating_add(size);
        let gone: Vec<Entry> = there
            .range((dva.offset.0, 0)..(end, 0))
            .map(|((offset, n), _)| Entry { vdev: dva.vdev, offset: *offset, n: *n })
            .collect();
        for entry in gone {
            if let Some(bp) = places.take(entry) {
                places.freed = places.freed.saturating_add(asize(&bp));
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Bytes of memory that blocks may take that wait, of a machine that has so much.
pub(crate) fn memory_limit(memory: u64) -> u64 {
    (memory / SCAN_MEM_LIM_FACT.get().max(1)).max(MEM_LIM_MIN)
}

/// An allocator that tells a queue of what is given up, before it is.
pub(crate) struct Watched {
    pub(crate) space: Arc<dyn Space>,
    pub(crate) queue: Arc<Queue>,
}

impl Space for Watched {
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace> {
        self.space.allocate(want)
    }

    fn free(&self, dva: &Dva, born: Txg, txg: Txg) {
        self.queue.forget(dva);
        self.space.free(dva, born, txg);
    }

    fn unallocate(&self, dva: &Dva, txg: Txg) {
        self.queue.forget(dva);
        self.space.unallocate(dva, txg);
    }

    fn is_scarce(&self) -> bool {
        self.space.is_scarce()
    }
}

#[cfg(test)]
mod tests;
