//! The second level: cache devices (L2ARC).
//!
//! # Theory
//! Blocks that the cache is about to evict are written to devices that are faster than the pool.
//! That happens in the background and at a limited rate. Later reads find them there. Nothing
//! depends on a cache device: every failure of one is counted, and costs a read of the pool.
//!
//! - *Feeding* (`store::feed`): a thread walks the old ends of the cache's lists. It writes blocks
//!   that are not on a device yet, at the hand of the next device (`hands`).
//! - *Reading*: a block that is not in memory is looked up by its place and birth (`index`). Its
//!   bytes are verified like the pool's own, with the checksum of the reader's pointer, before they
//!   are decrypted and decompressed. So nothing that a device says is trusted, not even which block
//!   it holds.
//! - *Stored form*: a block is written as the pool has it, compressed and encrypted. The cache
//!   holds blocks decrypted, and some only uncompressed. So they are compressed and encrypted
//!   again, with the recorded parameters (`recipe`). The pointer's checksum shows whether the same
//!   bytes result. If not, as for blocks that another implementation compressed, the block is not
//!   written.
//! - *Persistence* (`rebuild`): after a number of blocks, a log block lists them. After each write,
//!   the device's header points at the newest log block. So an import finds the contents again.
//!
//! These rules are known from OpenZFS:
//!
//! - A header whose block is being written to a device is not evicted meanwhile. It is skipped, and
//!   counted as `evict_l2_skip`.
//! - A header that is created anew does not lose its place on a device: places are not part of
//!   headers.
//! - The end of a write waits for the lock of each header's bucket, so that no header stays marked
//!   as being written. A lock that was taken is counted as `l2_writes_lock_retry`.
//!
//! # Life
//! A disk is added with its pool, and removed with it or before. Its places can then no longer be
//! found, and the removal has waited for a write under way. A disk that fails is not used until it
//! is added anew.
//!
//! # Locks
//! The lock of a disk's writer, held across writes to it, is taken only to feed, rebuild or remove
//! the disk. Then a bucket's, then that of a shard of the index, then that of a disk's list.
//!
//! # Crash
//! Nothing is flushed. A header may point at log blocks that were not written, or these at blocks
//! that were not. Their checksums then don't match.
//!
//! # See
//! OpenZFS `arc.c`, "Level 2 ARC".

mod disk;
pub(crate) mod index;
mod write_hand;

pub use disk::{CacheDevice, CacheDeviceStats};
pub(crate) use disk::{Disk, HeaderRead, Writer};

use index::{Index, L2Address, Name};
use observe::Counter;
use observe::lock::{Condvar, Mutex, RwLock};
use ondisk::Guid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vdev::TreeCell;
use zio::Remaker;

/// Counters, by the names of `arcstats` without the prefix `l2_`.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) feeds: Counter,
    pub(crate) rw_clash: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) write_bytes: Counter,
    pub(crate) writes_sent: Counter,
    pub(crate) writes_done: Counter,
    pub(crate) writes_error: Counter,
    pub(crate) writes_lock_retry: Counter,
    pub(crate) evict_reading: Counter,
    pub(crate) abort_lowmem: Counter,
    pub(crate) cksum_bad: Counter,
    pub(crate) io_error: Counter,
    pub(crate) log_blk_writes: Counter,
    pub(crate) log_blk_asize: AtomicU64,
    pub(crate) log_blk_count: AtomicU64,
    pub(crate) rebuild_success: Counter,
    pub(crate) rebuild_unsupported: Counter,
    pub(crate) rebuild_io_errors: Counter,
    pub(crate) rebuild_dh_errors: Counter,
    pub(crate) rebuild_cksum_lb_errors: Counter,
    pub(crate) rebuild_lowmem: Counter,
    pub(crate) rebuild_size: Counter,
    pub(crate) rebuild_asize: Counter,
    pub(crate) rebuild_bufs: Counter,
    pub(crate) rebuild_bufs_precached: Counter,
    pub(crate) rebuild_log_blks: Counter,
    /// Headers that were not evicted because they were being written.
    pub(crate) evict_skip: Counter,
}

/// The cache devices of all pools that share a memory; see the module.
pub(crate) struct L2 {
    disks: RwLock<Vec<Arc<Disk>>>,
    any: AtomicBool,
    pub(crate) index: Index,
    pub(crate) counters: Counters,
    next: AtomicU64,
    /// Number of recipes of blocks in memory.
    pub(crate) recipes: AtomicU64,
    /// Something was evicted (`arc_warm`). Until then young blocks are written, since all would
    /// stay in memory.
    pub(crate) warm: AtomicBool,
    closing: Mutex<bool>,
    bell: Condvar,
}

impl L2 {
    pub(crate) fn new() -> L2 {
        L2 {
            disks: RwLock::default(),
            any: AtomicBool::new(false),
            index: Index::new(),
            counters: Counters::default(),
            next: AtomicU64::new(0),
            recipes: AtomicU64::new(0),
            warm: AtomicBool::new(false),
            closing: Mutex::new(false),
            bell: Condvar::new(),
        }
    }

    /// Whether there are cache devices.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn disks(&self) -> Vec<Arc<Disk>> {
        self.disks.read().clone()
    }

    pub(crate) fn disk(&self, pool: u32, guid: Guid) -> Option<Arc<Disk>> {
        self.disks.read().iter().find(|d| d.pool == pool && d.guid == guid).cloned()
    }

    /// Adds a device; `None` if it is too small.
    pub(crate) fn add(
        &self,
        pool: u32,
        spec: CacheDevice,
        remaker: Remaker,
        trees: TreeCell,
    ) -> Option<Arc<Disk>> {
        let disk = Arc::new(Disk::new(spec, pool, remaker, trees)?);
        let mut disks = self.disks.write();
        disks.push(disk.clone());
        self.any.store(true, Ordering::Relaxed);
        Some(disk)
    }

    /// Removes the devices for which `meant` returns true, and waits for writes under way. Returns
    /// their number, and how many blocks were on them.
    pub(crate) fn remove(&self, meant: impl Fn(&Disk) -> bool) -> (usize, u64) {
        let mut gone = Vec::new();
        let mut disks = self.disks.write();
        disks.retain(|disk| {
            let stays = !meant(disk);
            if !stays {
                disk.gone.store(true, Ordering::Release);
                gone.push(disk.clone());
            }
            stays
        });
        self.any.store(!disks.is_empty(), Ordering::Relaxed);
        drop(disks);
        let close = |disk: &Arc<Disk>| {
            let mut writer = disk.writer.lock();
            disk.close();
            self.clear(disk, &mut writer)
        };
        let places = gone.iter().map(close).sum();
        (gone.len(), places)
    }

    /// Forgets all blocks on a device; returns how many.
    pub(crate) fn clear(&self, disk: &Arc<Disk>, writer: &mut Writer) -> u64 {
        let gone = self.index.evict(disk, 0..u64::MAX);
        let (count, asize) = (writer.logs.len() as u64, writer.logs.iter().map(|l| l.asize).sum());
        writer.logs.clear();
        writer.log.clear();
        disk.alloc.fetch_sub(asize, Ordering::Relaxed);
        self.counters.log_blk_count.fetch_sub(count, Ordering::Relaxed);
        self.counters.log_blk_asize.fetch_sub(asize, Ordering::Relaxed);
        gone
    }

    /// The next device that takes blocks, in turns.
    pub(crate) fn next(&self) -> Option<Arc<Disk>> {
        let disks = self.disks.read();
        let first = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        let turn = (0..disks.len()).map(|n| &disks[(first + n) % disks.len()]);
        turn.into_iter().find(|d| d.takes_blocks()).cloned()
    }

    /// Where a block can be read now.
    pub(crate) fn find(&self, name: &Name) -> Option<L2Address> {
        self.index.find(name).filter(|place| place.disk.is_there())
    }

    /// Waits for this time; returns false at once when the feeding is to end.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let mut closing = self.closing.lock();
        if !*closing {
            self.bell.wait_for(&mut closing, time);
        }
        !*closing
    }

    pub(crate) fn close(&self) {
        *self.closing.lock() = true;
        self.bell.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.lock()
    }
}
