//! Cache devices of the pools that share a memory, and the thread that feeds them.

use super::feed::FeedOutcome;
use super::{Inner, Store};
use crate::l2::index::{L2Address, Name, PLACE_OVERHEAD};
use crate::l2::{Disk, L2};
use crate::tunables::{L2ARC_FEED_AGAIN, L2ARC_FEED_MIN_MS, L2ARC_FEED_SECS};
use std::time::{Duration, Instant};

/// Shortest pause: the tunable times may be 0.
const LEAST: Duration = Duration::from_millis(10);

impl Store {
    pub(crate) fn l2(&self) -> &L2 {
        &self.inner.l2
    }

    /// Stops using the devices for which `meant` returns true; returns their number.
    pub(crate) fn remove_disks(&self, meant: impl Fn(&Disk) -> bool) -> usize {
        let (disks, places) = self.inner.l2.remove(meant);
        self.inner.pressure.give(places * PLACE_OVERHEAD);
        disks
    }

    /// Forgets a place; returns false if it was forgotten meanwhile.
    pub(crate) fn forget_place(&self, name: &Name, place: &L2Address) -> bool {
        let forgot = self.inner.l2.index.forget_here(name, &place.disk, place.daddr);
        if forgot {
            self.inner.pressure.give(PLACE_OVERHEAD);
        }
        forgot
    }

    /// Forgets where a block is.
    pub(crate) fn forget_name(&self, name: &Name) {
        if self.inner.l2.index.forget(name) {
            self.inner.pressure.give(PLACE_OVERHEAD);
        }
    }

    /// Feeds each cache device once, now, instead of at its time; returns the bytes that were
    /// written.
    pub fn feed_cache_devices(&self) -> u64 {
        self.inner.l2.disks().iter().map(|disk| self.inner.feed(disk).wrote).sum()
    }

    pub(super) fn start_feeding(&self) {
        let mut feeder = self.feeder.lock();
        if feeder.is_some() {
            return;
        }
        let inner = self.inner.clone();
        let spawned = std::thread::Builder::new().name("l2arc_feed".into()).spawn(move || inner.feed_on());
        // Without it nothing is written to cache devices, and reads still find their contents.
        *feeder = spawned.ok();
    }
}

impl Inner {
    /// Feeds one device after the other, until it is to end.
    fn feed_on(&self) {
        let mut time = pace(None);
        while self.l2.rest(time.max(LEAST)) {
            let began = Instant::now();
            let fed = self.l2.next().map(|disk| self.feed(&disk));
            time = pace(fed).saturating_sub(began.elapsed());
        }
    }
}

/// Time from one write to the next: shorter if half of the allowed bytes were written
/// (`l2arc_write_interval`).
fn pace(fed: Option<FeedOutcome>) -> Duration {
    match fed {
        Some(fed) if L2ARC_FEED_AGAIN.get() != 0 && fed.wrote > fed.wanted / 2 => {
            Duration::from_millis(L2ARC_FEED_MIN_MS.get())
        }
        Some(_) | None => Duration::from_secs(L2ARC_FEED_SECS.get()),
    }
}
