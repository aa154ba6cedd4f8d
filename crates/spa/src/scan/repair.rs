//! What reads have found wrong on devices of blocks that could be read.
//!
//! # Theory
//! Who reads a block goes by a pointer that may be groups old, so that a place with something else in it may be another block's by now. So the pipeline only remembers a block of which it
//! found something wrong on a device, be it a side of a mirror, a column, or a copy elsewhere ([`zio::Zio::unhealed`]). Before the next group, when nothing is freed, it is looked up where
//! it was met, and all that differs is written again. What is not there any more is forgotten. Log blocks are in no tree, and left as they are.
//!
//! # See
//! OpenZFS `vdev_mirror_io_done`, `vdev_raidz_io_done` (`ZIO_FLAG_SELF_HEAL`).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use zio::{Priority, ReadOptions, Request};

use crate::damaged::Search;
use crate::engine::Engine;
use crate::scan::SCRUB_MS;
use crate::scan::slice::HURRIED;

impl Engine {
    /// Heals some of what reads have found since the last group. What is left makes a group of its own.
    pub(crate) fn heal_slice(&self) {
        let zio = self.cache.zio();
        let mut met = zio.unhealed().pending();
        if met.is_empty() {
            return;
        }
        let options = ReadOptions::new(Request::new(Priority::AsyncWrite));
        let (since, search) = (Instant::now(), Search::on_disk(&self.mos));
        let mut done = 0;
        for (bookmark, birth) in &met {
            for bp in search
                .blocks(bookmark)
                .iter()
                .filter(|bp| bp.stored().is_some_and(|s| s.phys_birth == *birth))
            {
                // No copy is right now: whoever reads it next is told so.
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
