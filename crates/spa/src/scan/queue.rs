//! The blocks that wait to be verified, in the order of their places.
//!
//! # Theory
//! Blocks written in any order lie in any order, so that sorting helps as far as it reaches. So the
//! blocks that a walk finds wait here, over as many slices as needed. They wait until memory is
//! full or the walk is at its end. Then they are verified from one end of each top-level vdev to
//! the other.
//!
//! That is safe only while a block keeps its place. A free goes to the allocator through
//! [`Watched`], which removes the block from the queue before the allocator knows. So no queued
//! block has a place that may be reused. A shared block is freed only by its last reference, and
//! stays until then.
//!
//! An entry is the needed part of the block pointer, and the bookmark. A block with several
//! references has an entry for each, because damage is reported for each.
//!
//! # Locks
//! One, for a few instructions. It is taken with no other lock of this module held but `walk` of
//! [`crate::scan::Scan`], and none is taken under it. A free takes it only if the queue is not
//! empty.
//!
//! # See
//! OpenZFS `scan_io_queue_insert_impl`, `dsl_scan_freed_dva`, `dsl_scan_should_clear`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use observe::lock::Mutex;
use observe::{Tunable, Unit};
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::{BlkId, Blkptr, Dva, ObjNum, Txg, VdevId};
use zio::{Bookmark, NoSpace, Space, Want};

use crate::scan::issue::Item;

/// Part of the machine's memory for the queued blocks of all scans, as a divisor
/// (`zfs_scan_mem_lim_fact`).
pub static SCAN_MEM_LIM_FACT: Tunable = Tunable::new(
    "zfs_scan_mem_lim_fact",
    20,
    1..=1 << 20,
    Unit::Divisor,
    "share of memory for the blocks that scrubs and resilvers have found and not yet issued",
);
/// Seconds after which all queued blocks are verified, so that the scan's progress can be recorded
/// (`zfs_scan_checkpoint_intval`).
pub static SCAN_CHECKPOINT_INTVAL: Tunable = Tunable::new(
    "zfs_scan_checkpoint_intval",
    7200,
    1..=1 << 32,
    Unit::Seconds,
    "longest time between two points from which a scrub or resilver can resume",
);
/// Memory that the queue may take on any machine (`zfs_scan_mem_lim_min`).
const MEM_LIM_MIN: u64 = 16 << 20;
/// Bytes of memory of the queued blocks of all pools.
static OF_ALL_POOLS: AtomicU64 = AtomicU64::new(0);
/// Most bytes of memory of an entry, in a map that is half full.
const BLOCK: u64 = 256;
/// The same for a block with several copies.
const LARGE: u64 = BLOCK + 16 + 8 * LARGE_WORDS as u64;

/// A queued block: its first copy's vdev and offset, and its number among those there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub(crate) struct Entry {
    vdev: VdevId,
    offset: u64,
    n: u32,
}

/// The needed words of a pointer with one copy: its place, properties, births and checksum. What
/// only decryption needs is not kept.
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

/// Space of a block's copies.
pub(crate) fn asize(bp: &Blkptr) -> u64 {
    let copies = bp.stored().into_iter().flat_map(|s| s.copies());
    copies.fold(0u64, |n, dva| n.saturating_add(dva.asize.0))
}

#[derive(Debug, Default)]
struct Places {
    by_vdev: BTreeMap<VdevId, BTreeMap<(u64, u32), Packed>>,
    /// Bytes of memory that the blocks take.
    memory: u64,
    /// Stored bytes of the blocks.
    bytes: u64,
    /// Space of those that were freed since [`Queue::take_freed`].
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

/// The blocks of a scan that wait to be verified.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    places: Mutex<Places>,
    /// Number of blocks; changed under the lock.
    len: AtomicU64,
}

impl Queue {
    /// Adds a block; false if it has no place, or is there already with this bookmark.
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

    /// Whether a block is queued, with any bookmark.
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

    /// Whether the blocks take so much memory, or those of all pools do and these more than the
    /// minimum. A machine whose pools are all scrubbed at once has no more memory for that.
    pub(crate) fn takes(&self, memory: u64) -> bool {
        let own = self.size().0;
        own >= memory || own >= MEM_LIM_MIN && OF_ALL_POOLS.load(Ordering::Relaxed) >= memory
    }

    /// Bytes of memory of the entries, and stored bytes of the blocks.
    pub(crate) fn size(&self) -> (u64, u64) {
        let places = self.places.lock();
        (places.memory, places.bytes)
    }

    /// The first of each top-level vdev in order, without removing them: about so many blocks and
    /// bytes, but at least one of each.
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

    /// Removes verified blocks.
    pub(crate) fn remove(&self, entries: &[Entry]) {
        let mut places = self.places.lock();
        let gone = entries.iter().filter(|entry| places.take(**entry).is_some()).count();
        self.len.fetch_sub(gone as u64, Ordering::Relaxed);
    }

    /// Removes all.
    pub(crate) fn clear(&self) {
        let mut places = self.places.lock();
        OF_ALL_POOLS.fetch_sub(places.memory, Ordering::Relaxed);
        *places = Places::default();
        self.len.store(0, Ordering::Relaxed);
    }

    /// Space of the blocks that were freed since the last call.
    pub(crate) fn take_freed(&self) -> u64 {
        std::mem::take(&mut self.places.lock().freed)
    }

    /// Removes all blocks at a place that is freed, with any bookmark.
    fn forget(&self, dva: &Dva) {
        if self.is_empty() {
            return;
        }
        let mut places = self.places.lock();
        let Some(there) = places.by_vdev.get(&dva.vdev) else { return };
        // One place, except in a pool whose blocks overlap. The members of a gang block are freed
        // separately.
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

/// Bytes of memory for queued blocks, on a machine with so much memory.
pub(crate) fn memory_limit(memory: u64) -> u64 {
    (memory / SCAN_MEM_LIM_FACT.get().max(1)).max(MEM_LIM_MIN)
}

/// An allocator that reports frees to a queue before it does them.
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
