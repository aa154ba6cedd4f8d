//! The second level: cache devices (L2ARC).
//!
//! # Theory
//! What the cache is about to evict is written to devices that are faster than the pool, in the background and at a bounded pace, and read from there when it is asked for again. A cache device
//! is a copy that nobody relies on: all that goes wrong with one is counted, and costs a read of the pool.
//!
//! - *Feeding* (`store::feed`): a thread looks at the old ends of the cache's lists and writes what is not on a device yet, where the hand of the next device stands (`hands`).
//! - *Reading*: a block that is not in memory is looked up by its place and birth (`index`), and what is read is verified as the pool's own bytes are, with the checksum of the pointer that its
//!   reader came with, before it is decrypted and unpacked. So nothing that a device says is believed, also not which block it holds.
//! - *What is written* is the block as the pool has it: packed, and encrypted. The cache holds blocks decrypted, and some unpacked only, so they are packed and encrypted again, with what was kept of how that was
//!   done (`recipe`), and the pointer's checksum says whether the same bytes came out; where they did not, as with what another implementation packed, the block is not written.
//! - *Persistence* (`rebuild`): after so many blocks a log block says what they are, and after each write the device's header leads to the newest, so that an import finds again what was there.
//!
//! The rules that OpenZFS learned the hard way: a header whose block is being written to a device is not evicted meanwhile (it is passed over, and counted as `evict_l2_skip`); a
//! header that is made anew does not lose its place on a device (places are no part of headers); and whoever ends a write waits for the lock of each header's bucket, counted as `l2_writes_lock_retry`
//! where it was taken, rather than leave one marked as being written.
//!
//! # Life
//! A disk is added with its pool and goes with it, or before; then nobody finds its places, and whoever removed it has waited for a write under way. One that fails is passed over until it is added anew.
//!
//! # Locks
//! A disk's writer's, held across writes to it: only who feeds, rebuilds or removes it takes that. Then a bucket's, then a shard's of the index, then the list's of a disk.
//!
//! # Crash
//! Nothing is flushed: a header that leads to log blocks that were not written, or these to blocks that were not, leads to what does not match its checksum.
//!
//! # See
//! OpenZFS `arc.c`, "Level 2 ARC".

mod disk;
mod hands;
pub(crate) mod index;

pub use disk::{CacheDevice, CacheDeviceStats};
pub(crate) use disk::{Disk, HeaderRead, Writer};

use index::{Index, L2Address, Name};
use observe::Counter;
use ondisk::Guid;
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vdev::TreeCell;
use zio::Remaker;

/// What is counted, by the names that `arcstats` has with `l2_` before them.
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
    /// Headers that were not evicted since they were being written.
    pub(crate) evict_skip: Counter,
}

/// See the module.
pub(crate) struct L2 {
    disks: RwLock<Vec<Arc<Disk>>>,
    any: AtomicBool,
    pub(crate) index: Index,
    pub(crate) counters: Counters,
    next: AtomicU64,
    /// Recipes of blocks in memory, which are with their headers.
    pub(crate) recipes: AtomicU64,
    /// Something was evicted (`arc_warm`): before, what is young is written, since it would all stay.
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

    /// Whether there are cache devices at all.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn disks(&self) -> Vec<Arc<Disk>> {
        self.disks.read().clone()
    }

    pub(crate) fn disk(&self, pool: u32, guid: Guid) -> Option<Arc<Disk>> {
        self.disks.read().iter().find(|d| d.pool == pool && d.guid == guid).cloned()
    }

    /// Adds a device that is large enough.
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

    /// Forgets the devices that are meant, and waits for what is being written to them. How many these were, and how many blocks lay there.
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

    /// Forgets all that lies on a device: how many blocks.
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

    /// Where a block lies that can be read now.
    pub(crate) fn find(&self, name: &Name) -> Option<L2Address> {
        self.index.find(name).filter(|place| place.disk.is_there())
    }

    /// Waits so long, or until there is no more to do: false then.
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
