//! Repair of what reads have found wrong on devices, in blocks that were readable from elsewhere.
//!
//! # Theory
//! A reader follows a pointer that may be txgs old. So a place with other contents may be another
//! block's by now. So the pipeline only records a block that is wrong on a device
//! ([`zio::Zio::unhealed`]). The place may be a child of a mirror, a column, or another copy.
//! Before the next txg, when nothing is freed, the block is looked up again at its bookmark, and
//! what differs is rewritten. A block that is gone is forgotten. Log blocks are in no tree, and are
//! not repaired.
//!
//! # See
//! OpenZFS `vdev_mirror_io_done`, `vdev_raidz_io_done` (`ZIO_FLAG_SELF_HEAL`).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use zio::{Priority, ReadOptions, Request};

use crate::damaged::Search;
use crate::scan::SCRUB_MS;
use crate::scan::Scans;
use crate::scan::slice::HURRIED;

impl Scans {
    /// Repairs some of what reads have found since the last txg. What is left causes another txg.
    pub(crate) fn heal_slice(&self) {
        let zio = self.core.cache.zio();
        let mut met = zio.unhealed().pending();
        if met.is_empty() {
            return;
        }
        // What it reads no caller waits for; its writes are asynchronous ones too.
        let options = ReadOptions::new(Request::new(Priority::AsyncRead));
        let (since, search) = (Instant::now(), Search::on_disk(&self.core.mos));
        let mut done = 0;
        for (bookmark, birth) in &met {
            for bp in search
                .blocks(bookmark)
                .iter()
                .filter(|bp| bp.stored().is_some_and(|s| s.phys_birth == *birth))
            {
                // No copy is good now: its next reader gets the error.
                let _ = zio.heal(bp, bookmark, &options);
            }
            done += 1;
            let took = since.elapsed();
            let hurried = took >= HURRIED && self.scan.waiters.load(Ordering::Relaxed) > 0;
            if took >= Duration::from_millis(SCRUB_MS) || hurried {
                break;
            }
        }
        met.truncate(done);
        zio.unhealed().seen_to(&met);
    }
}
