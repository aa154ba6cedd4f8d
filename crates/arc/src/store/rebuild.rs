//! Restoring the contents of a cache device (`l2arc_rebuild`).
//!
//! # Theory
//! The header points at the newest log block, and each log block at an older one, until one was
//! given up since. All of it is checked:
//!
//! * the place and age of each log block, so that the walk ends;
//! * its checksum;
//! * the place of each block that it names.
//!
//! A log is only a hint where a read looks for a block: see [`crate::l2`].
//!
//! Each device has a thread of its own, and takes no more memory than places may have. Nothing is
//! written to the device meanwhile.

use super::{Inner, Store};
use crate::l2::index::{L2Address, Name, PLACE_OVERHEAD};
use crate::l2::{CacheDevice, Disk, HeaderRead, Writer};
use crate::tunables::L2ARC_REBUILD_ENABLED;
use ondisk::SPA_MAXBLOCKSIZE;
use ondisk::l2arc::{DevHeader, LogBlock, LogEntry, LogPointer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::TreeCell;
use zio::Remaker;

/// Why a rebuild ended before the chain did.
enum Cut {
    Io,
    Checksum,
    Memory,
    /// The device is no longer used.
    Gone,
}

impl Store {
    /// Begins to use a device, and restores its contents; returns false if it is too small.
    pub(crate) fn add_disk(&self, pool: u32, device: CacheDevice, remaker: Remaker, trees: TreeCell) -> bool {
        let Some(disk) = self.inner.l2.add(pool, device, remaker, trees) else { return false };
        let counters = &self.inner.l2.counters;
        match disk.read_header() {
            HeaderRead::Ours(header) => {
                let (inner, kept) = (self.inner.clone(), disk.clone());
                let run = move || {
                    inner.rebuild(&disk, &header);
                    disk.end_rebuild();
                };
                let spawned = std::thread::Builder::new().name("l2arc_rebuild".into()).spawn(run);
                if spawned.is_err() {
                    // As if the device were empty.
                    begin_anew(&kept);
                }
            }
            HeaderRead::Unsupported => {
                counters.rebuild_unsupported.inc();
                begin_anew(&disk);
            }
            HeaderRead::Unread => {
                counters.rebuild_dh_errors.inc();
                begin_anew(&disk);
            }
        }
        self.start_feeding();
        true
    }
}

/// Writes a header that points nowhere.
fn begin_anew(disk: &Disk) {
    if disk.write_header(&disk.writer.lock()).is_err() {
        disk.suspect();
    }
    disk.end_rebuild();
}

impl Inner {
    /// Enters the blocks of a device from its log.
    fn rebuild(&self, disk: &Arc<Disk>, header: &DevHeader) {
        let counters = &self.l2.counters;
        let mut writer = disk.writer.lock();
        if !disk.resume(&mut writer, header) {
            counters.rebuild_unsupported.inc();
            let _ = disk.write_header(&writer);
            return;
        }
        if L2ARC_REBUILD_ENABLED.get() == 0 || writer.log_entries == 0 {
            return;
        }
        match self.follow(disk, &mut writer) {
            Ok(()) if !writer.logs.is_empty() => counters.rebuild_success.inc(),
            // The header points nowhere.
            Ok(()) => {
                writer.newest = Default::default();
                let _ = disk.write_header(&writer);
            }
            Err(Cut::Io) => counters.rebuild_io_errors.inc(),
            Err(Cut::Checksum) => counters.rebuild_cksum_lb_errors.inc(),
            Err(Cut::Memory) => counters.rebuild_lowmem.inc(),
            Err(Cut::Gone) => {}
        }
    }

    /// Follows the chain of log blocks, from the newest on.
    fn follow(&self, disk: &Arc<Disk>, writer: &mut Writer) -> Result<(), Cut> {
        let counters = &self.l2.counters;
        let [mut at, mut next] = writer.newest;
        let mut bound = u64::MAX;
        while !at.is_none()
            && writer.write_hand.valid(&at)
            && disk.is_aligned(at.daddr)
            && disk.is_aligned(at.asize)
            && writer.write_hand.older(at.daddr, at.asize, &mut bound)
        {
            if !disk.is_there() || self.l2.is_closing() {
                return Err(Cut::Gone);
            }
            let block = disk
                .read_log(&at, writer.log_entries)
                .map_err(|unread| if unread { Cut::Io } else { Cut::Checksum })?;
            self.restore(disk, writer, &at, &block, &mut bound)?;
            writer.logs.push_front(at);
            disk.alloc.fetch_add(at.asize, Ordering::Relaxed);
            counters.log_blk_count.fetch_add(1, Ordering::Relaxed);
            counters.log_blk_asize.fetch_add(at.asize, Ordering::Relaxed);
            counters.rebuild_log_blks.inc();
            (at, next) = (next, block.prev);
        }
        Ok(())
    }

    /// Enters the blocks that a log block names, the youngest first. An entry that overlaps an
    /// earlier one, or is not at a sector, was never written.
    fn restore(
        &self,
        disk: &Arc<Disk>,
        writer: &Writer,
        log: &LogPointer,
        block: &LogBlock,
        bound: &mut u64,
    ) -> Result<(), Cut> {
        let counters = &self.l2.counters;
        let sane = |e: &&LogEntry| {
            let sizes = e.psize.0 <= e.lsize.0 && e.lsize.0 <= SPA_MAXBLOCKSIZE;
            sizes
                && e.birth.0 > 0
                && disk.is_aligned(e.daddr)
                && writer.write_hand.named_by(log, e.daddr, disk.round(e.psize.0))
        };
        for e in block.entries.iter().rev().filter(sane) {
            if !writer.write_hand.older(e.daddr, disk.round(e.psize.0), bound) {
                continue;
            }
            if !self.room_for_place() {
                return Err(Cut::Memory);
            }
            let place = L2Address {
                disk: disk.clone(),
                daddr: e.daddr,
                psize: e.psize.0,
                lsize: e.lsize.0,
                metadata: e.metadata,
                again: e.again,
                ahead: e.prefetch,
            };
            counters.rebuild_bufs.inc();
            if self.l2.index.insert(Name::of_log(disk.pool, &e.dva, e.birth.0), place) {
                counters.rebuild_size.add(e.lsize.0);
                counters.rebuild_asize.add(disk.round(e.psize.0));
            } else {
                self.pressure.give(PLACE_OVERHEAD);
                counters.rebuild_bufs_precached.inc();
            }
        }
        Ok(())
    }
}
