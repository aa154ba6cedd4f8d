//! The thread that goes through the free space of a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use observe::{Counter, Tunable, Unit};
use ondisk::{Guid, VdevId};
use pool::alloc::{DisableOutcome, DisabledMetaslab};
use pool::range::RangeSet;
use vdev::{Pace, Priority, Request, WipeError};

use crate::initialize_trim::{Control, InitializeTrim, Key, WorkKind, WorkState, progress};
use crate::pool_core::PoolCore;

/// The value that initialize writes (`zfs_initialize_value`).
pub static VALUE: Tunable = Tunable::new(
    "zfs_initialize_value",
    0xdead_beef_dead_beee,
    0..=u64::MAX,
    Unit::Pattern,
    "value that zpool initialize writes",
);
/// Bytes that initialize writes at once (`zfs_initialize_chunk_size`): whole sectors, and at least
/// one.
pub static CHUNK: Tunable = Tunable::new(
    "zfs_initialize_chunk_size",
    1 << 20,
    512..=16 << 20,
    Unit::Bytes,
    "size of one write of zpool initialize",
);
/// Most bytes discarded at once (`zfs_trim_extent_bytes_max`, there 128 MiB). An allocation may
/// have to wait for one such discard.
pub static TRIM_MAX: Tunable = Tunable::new(
    "zfs_trim_extent_bytes_max",
    32 << 20,
    1 << 16..=1 << 30,
    Unit::Bytes,
    "largest single TRIM",
);
/// Ranges below this size are not discarded, bytes (`zfs_trim_extent_bytes_min`).
pub static TRIM_MIN: Tunable =
    Tunable::new("zfs_trim_extent_bytes_min", 32 << 10, 0..=1 << 30, Unit::Bytes, "smallest range to TRIM");
/// Whether TRIM skips metaslabs that were never written to (`zfs_trim_metaslab_skip`).
pub static TRIM_SKIP: Tunable = Tunable::new(
    "zfs_trim_metaslab_skip",
    0,
    0..=1,
    Unit::Flag,
    "1: zpool trim skips metaslabs that were never allocated from",
);
/// Most that is written at once, whatever [`CHUNK`] says.
const CHUNK_MAX: u64 = 16 << 20;
/// Interval of the check whether more may be discarded.
const DISCARD_LOOK: Duration = Duration::from_millis(10);
/// Wait before a metaslab is tried again whose space map could not be read.
const LATER: Duration = Duration::from_millis(500);

/// How the work on a metaslab, or on all of them, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    /// An allocation needs the metaslab; the rest is done later.
    GivenBack,
    /// The metaslab is not available now.
    Later,
    /// The thread must end.
    Stopped,
    /// The device is not writable, or the pool is suspended and may be another host's. An active
    /// work resumes when the pool is cleared.
    Gone,
}

struct Worker<'a> {
    works: &'a InitializeTrim,
    key: Key,
    control: &'a Control,
    top: VdevId,
    filler: Vec<u8>,
    /// The priority of writes: they yield to foreground I/O.
    request: Request,
    /// Bytes of a sector of the top-level vdev.
    sector: u64,
    rate: u64,
    partial: bool,
    /// The next byte to do, in the space behind the labels.
    next: u64,
    /// When it began, and the bytes discarded since: the rate limit applies to the average.
    /// (OpenZFS takes the average of each metaslab, so that one that is discarded at once costs no
    /// time.)
    since: Instant,
    discarded: u64,
}

/// Bytes to write or discard at once: whole sectors, at least one.
pub(crate) fn whole(bytes: u64, sector: u64) -> u64 {
    (bytes - bytes % sector).max(sector)
}

/// Continues a device's work until it is done or must stop.
pub(crate) fn run(works: &InitializeTrim, key: Key, control: &Arc<Control>) {
    let tree = works.core.tree();
    let Ok(top) = tree.top_of(key.0) else { return };
    let (next, rate, partial) = {
        let all = works.works.all.lock();
        let Some(work) = all.get(&key) else { return };
        (work.next, work.rate, work.partial)
    };
    let (done, all) = progress(&works.core, &tree, top, key.0, next);
    drop(tree);
    let config = works.core.config_now();
    let vdev = config.root().children.get(top.0 as usize);
    let ashift = vdev.and_then(|vdev| vdev.ashift).unwrap_or_default();
    let sector = 1 << ashift.0.clamp(9, 16);
    let (since, discarded) = (Instant::now(), 0);
    let filler = match key.1 {
        WorkKind::Initialize => {
            let chunk = whole(CHUNK.get().min(CHUNK_MAX), sector);
            VALUE.get().to_ne_bytes().repeat((chunk / 8) as usize)
        }
        WorkKind::Trim => Vec::new(),
    };
    let request = Request::paced(Priority::Initialize, pace(&works.core, control));
    let mut worker =
        Worker { works, key, control, top, filler, request, sector, rate, partial, next, since, discarded };
    worker.note(next, done, all);
    let end = worker.metaslabs();
    let tree = works.core.tree();
    let path = path_of(&works.core, key.0);
    match end {
        End::Done if tree.is_writable(key.0) => {
            worker.note(worker.next, all, all);
            works.change_work(key, &path, WorkState::Complete);
        }
        End::Done | End::Gone => {
            works.cancel_if_faulted(key);
        }
        End::Stopped | End::GivenBack | End::Later => {}
    }
    works.core.txgs().touch();
}

/// The pace of its writes: they yield to foreground I/O, and scans don't yield to them. They don't
/// yield if the thread must stop, an allocation waits for space, or the pool is suspended.
fn pace(core: &PoolCore, control: &Arc<Control>) -> Pace {
    let (allocator, cache, control) =
        (Arc::clone(&core.allocator), Arc::clone(&core.cache), Arc::clone(control));
    let hurries = move || {
        control.is_stopped() || allocator.is_room_wanted() || cache.zio().suspension().reason().is_some()
    };
    // Its waiting time is not reported.
    Pace::new(Arc::clone(&core.clock), Arc::new(Counter::new()), hurries)
}

pub(crate) fn path_of(core: &PoolCore, leaf: Guid) -> String {
    let config = core.config_now();
    let leaf = config.root().find(leaf).and_then(|v| v.path.clone());
    leaf.map_or_else(|| "-".to_owned(), |path| String::from_utf8_lossy(&path).into_owned())
}

impl Worker<'_> {
    /// Records the progress for the next txg.
    fn note(&mut self, next: u64, done: u64, all: u64) {
        let mut works = self.works.works.all.lock();
        if let Some(work) = works.get_mut(&self.key) {
            (work.next, work.stat.done, work.stat.estimate) = (next, done.min(all), all);
            work.dirty = true;
        }
    }

    /// Records that a range is done.
    fn advance(&mut self, next: u64, bytes: u64, failed: bool) {
        self.next = self.next.max(next);
        let mut works = self.works.works.all.lock();
        if let Some(work) = works.get_mut(&self.key) {
            work.next = self.next;
            work.stat.done = (work.stat.done + bytes).min(work.stat.estimate);
            work.stat.errors += u64::from(failed);
            work.dirty = true;
        }
        drop(works);
        self.works.core.txgs().touch();
    }

    fn metaslabs(&mut self) -> End {
        let count = self.works.core.allocator.metaslab_figures(self.top).len();
        for (id, figures) in (0..).zip(self.works.core.allocator.metaslab_figures(self.top)).take(count) {
            let range = (figures.start, figures.start + figures.size);
            if self.is_behind(range) {
                continue;
            }
            loop {
                if self.control.is_stopped() {
                    return End::Stopped;
                }
                if self.is_suspended() {
                    return End::Gone;
                }
                match self.metaslab(id) {
                    End::Done => break,
                    End::GivenBack => {}
                    End::Later => {
                        // The metaslab may be available after the next txg.
                        self.works.core.txgs().touch();
                        let mut stop = self.control.stop.lock();
                        if !*stop {
                            self.control.stopped.wait_for(&mut stop, LATER);
                        }
                    }
                    end => return end,
                }
            }
        }
        End::Done
    }

    fn is_suspended(&self) -> bool {
        self.works.core.cache.zio().suspension().reason().is_some()
    }

    /// Whether everything that a range covers of the device has been done.
    fn is_behind(&self, (start, end): (u64, u64)) -> bool {
        let mut behind = true;
        let mut look = |_: u64, end: u64| behind &= end <= self.next;
        let tree = self.works.core.tree();
        tree.translate(self.key.0, start, end, &mut look).is_ok() && behind && self.next > 0
    }

    /// The ranges of a metaslab that are free, not done yet, and on this device.
    fn left(&self, aside: &DisabledMetaslab<'_>) -> Result<Vec<(u64, u64)>, vdev::VdevError> {
        let tree = self.works.core.tree();
        let mut left = RangeSet::new();
        for (start, end) in aside.free() {
            tree.translate(self.key.0, *start, *end, &mut |start, end| {
                let start = start.max(self.next);
                // Each range of a device occurs once.
                let fresh = start >= end || left.add(start, end);
                assert!(fresh, "two addresses lead to one byte of the device {}", self.key.0.0);
            })?;
        }
        Ok(left.iter().collect())
    }

    fn metaslab(&mut self, id: u32) -> End {
        let core = &self.works.core;
        let stop = || self.control.is_stopped() || self.is_suspended();
        let aside = match core.allocator.disable_metaslab(self.top, id, &stop) {
            Ok(DisableOutcome::Disabled(aside)) => aside,
            Ok(DisableOutcome::Later) | Err(_) => return End::Later,
            // Space whose state is unknown is left alone.
            Ok(DisableOutcome::Never) => return End::Done,
        };
        let skip = self.partial || self.key.1 == WorkKind::Trim && TRIM_SKIP.get() != 0;
        if skip && aside.never_used() {
            return End::Done;
        }
        let Ok(left) = self.left(&aside) else { return End::Gone };
        for (start, end) in left {
            let trim = self.key.1 == WorkKind::Trim;
            if trim && end - start < TRIM_MIN.get() {
                self.advance(end, end - start, false);
                continue;
            }
            let mut at = start;
            while at < end {
                let most = if trim { whole(TRIM_MAX.get(), self.sector) } else { self.filler.len() as u64 };
                let len = (end - at).min(most);
                if let Some(end) = self.pause(&aside) {
                    return end;
                }
                let failed = match self.wipe(at, len) {
                    Ok(()) => false,
                    Err(WipeError::Device { .. }) => true,
                    Err(WipeError::Gone { .. } | WipeError::Range { .. }) => return End::Gone,
                };
                // What failed because the device disappeared is repeated when it is available
                // again.
                if failed && !core.tree().is_writable(self.key.0) {
                    return End::Gone;
                }
                at += len;
                self.advance(at, len, failed);
            }
        }
        End::Done
    }

    fn wipe(&mut self, at: u64, len: u64) -> Result<(), WipeError> {
        let tree = self.works.core.tree();
        match self.key.1 {
            WorkKind::Initialize => tree.fill(self.key.0, at, &self.filler[..len as usize], &self.request),
            WorkKind::Trim => {
                self.discarded += len;
                tree.discard(self.key.0, at, len)
            }
        }
    }

    /// Whether it must stop here, finally or because an allocation needs the metaslab. Waits while
    /// the rate limit is exceeded.
    fn pause(&self, aside: &DisabledMetaslab<'_>) -> Option<End> {
        loop {
            let mut stop = self.control.stop.lock();
            if *stop {
                return Some(End::Stopped);
            }
            // A thread that waits for its rate limit notices here that the device has disappeared.
            if self.is_suspended() || !self.works.core.tree().is_writable(self.key.0) {
                return Some(End::Gone);
            }
            if aside.is_wanted() {
                return Some(End::GivenBack);
            }
            let took = self.since.elapsed().as_millis() as u64 + 1;
            if self.rate == 0 || self.discarded.saturating_mul(1000) / took <= self.rate {
                return None;
            }
            self.control.stopped.wait_for(&mut stop, DISCARD_LOOK);
        }
    }
}

#[cfg(test)]
mod tests;
