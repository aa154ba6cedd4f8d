//! Reading what many blocks need of a vdev's devices at once, before they are looked at one by one.
//!
//! # Theory
//! Who looks at all blocks of a pool meets them in the order of their places, where the pieces of neighbours lie side by side on each device. [`Tree::fetch`] joins
//! them, and small gaps between them, into reads of megabytes, with all devices at work at once. What was read is then *lent* to a thread ([`Fetched::lend`]): a piece that it reads
//! is answered from there. So whoever examines or reconstructs a block knows nothing of it, and what could not be read so is read by itself, and its failure counted
//! then.
//!
//! # Locks
//! None; what is lent belongs to one thread.
//!
//! # See
//! OpenZFS `scan_io_queues_run_one`, `vdev_queue_aggregate`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use device::{AlignedBuf, Block};
use ondisk::{Guid, Psize, Txg, VdevId};

use crate::pace::Pace;
use crate::tree::{NodeId, Tree};

/// Most bytes of a read (`zfs_vdev_aggregation_limit` and beyond: nobody waits behind it).
const READ_MAX: u64 = 4 << 20;
/// A gap that is read over, however little is around it: less than a seek costs (`zfs_vdev_read_gap_limit` is smaller, as others may want the time).
const SMALL_GAP: u64 = 128 << 10;
/// Largest gap that is read over.
const LARGE_GAP: u64 = 1 << 20;
/// At most one part in so many of a read is gaps, but for small ones.
const WASTE: u64 = 5;

/// Where a copy of a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The top-level vdev.
    pub vdev: VdevId,
    /// Its place there.
    pub offset: u64,
    /// Its stored size.
    pub psize: Psize,
    /// Its physical birth.
    pub birth: Txg,
}

/// Ranges of devices, read.
#[derive(Debug, Default)]
pub struct Fetched {
    /// By device, in the order of their places.
    runs: BTreeMap<Guid, Vec<(u64, AlignedBuf)>>,
    /// Where to look for what is not there.
    others: Vec<Arc<Fetched>>,
}

thread_local! {
    static LENT: RefCell<Option<Arc<Fetched>>> = const { RefCell::new(None) };
}

/// While it lives, reads of this thread are answered from what was fetched.
#[derive(Debug)]
pub struct Lent(Option<Arc<Fetched>>);

impl Drop for Lent {
    fn drop(&mut self) {
        LENT.set(self.0.take());
    }
}

impl Fetched {
    /// Lends it to this thread.
    #[must_use]
    pub fn lend(self: &Arc<Self>) -> Lent {
        Lent(LENT.replace(Some(Arc::clone(self))))
    }

    /// The same, and with it others that were read before.
    #[must_use]
    pub fn with(mut self, others: impl IntoIterator<Item = Arc<Fetched>>) -> Self {
        self.others.extend(others);
        self
    }

    // As deep as somebody has put them together: once.
    fn get(&self, device: Guid, offset: u64, buf: &mut [u8]) -> bool {
        self.find(device, offset, buf) || self.others.iter().any(|other| other.get(device, offset, buf))
    }

    fn find(&self, device: Guid, offset: u64, buf: &mut [u8]) -> bool {
        let Some(runs) = self.runs.get(&device) else { return false };
        let after = runs.partition_point(|(start, _)| *start <= offset);
        let Some((start, bytes)) = after.checked_sub(1).map(|n| &runs[n]) else { return false };
        let at = (offset - start) as usize;
        let Some(found) = at.checked_add(buf.len()).and_then(|end| bytes.get(at..end)) else { return false };
        buf.copy_from_slice(found);
        true
    }
}

/// Answers a read of a leaf from what was lent to this thread, if it has all of it.
pub(crate) fn answered(device: Guid, offset: u64, buf: &mut [u8]) -> bool {
    LENT.with_borrow(|lent| lent.as_ref().is_some_and(|fetched| fetched.get(device, offset, buf)))
}

/// Joins ranges, which come in order, into the reads to be made.
fn joined(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    let mut waste = 0;
    for (start, end) in ranges.iter().copied() {
        if let Some((from, until)) = out.last_mut() {
            let gap = start.saturating_sub(*until);
            let whole = end.max(*until) - *from;
            let bears = gap <= SMALL_GAP || gap <= LARGE_GAP && (waste + gap) * WASTE <= whole;
            if whole <= READ_MAX && bears {
                *until = end.max(*until);
                waste += gap;
                continue;
            }
        }
        waste = 0;
        out.push((start, end));
    }
    out
}

impl Tree {
    /// Reads all pieces of these copies of blocks, each device in the order of its places and all devices at once; with `missed`, also of
    /// devices that are known to have missed them. What can't be read is left out.
    pub fn fetch(&self, extents: &[Extent], missed: bool) -> Fetched {
        let mut wanted: BTreeMap<NodeId, Vec<(u64, u64)>> = BTreeMap::new();
        for e in extents {
            for (_, vdev, offset, len) in
                self.parts_of(e.vdev, e.offset, e.psize.0 as usize).unwrap_or_default()
            {
                let Ok(mut laid) = self.lay_out_as(vdev, offset, &Block::zeroed(len), e.birth, false) else {
                    continue;
                };
                // What a raidz leaves behind a block is read too, so that the next read, of what follows, goes on where this one ends.
                self.pad(&mut laid, len, e.birth);
                for piece in laid.pieces.iter().filter(|p| missed || !self.piece_missed(p, e.birth)) {
                    let range = (piece.offset, piece.offset + piece.range.len() as u64);
                    wanted.entry(piece.leaf).or_default().push(range);
                }
            }
        }
        self.fetch_ranges(wanted)
    }

    /// Reads these ranges of leaves, those of each in the order of their places and all at once.
    pub(super) fn fetch_ranges(&self, wanted: BTreeMap<NodeId, Vec<(u64, u64)>>) -> Fetched {
        let read = |leaf: NodeId, mut ranges: Vec<(u64, u64)>| {
            ranges.sort_unstable();
            let mut runs = Vec::new();
            for (start, end) in joined(&ranges) {
                let mut buf = AlignedBuf::zeroed((end - start) as usize);
                if self.read_quietly(leaf, start, &mut buf).is_ok() {
                    runs.push((start, buf));
                }
            }
            (self.node(leaf).guid, runs)
        };
        let (read, pace) = (&read, &Pace::here());
        let runs = std::thread::scope(|scope| {
            let mut devices = wanted.into_iter();
            let first = devices.next();
            let spawn = |(leaf, ranges)| {
                scope.spawn(move || {
                    let _paced = pace.enter();
                    read(leaf, ranges)
                })
            };
            let others: Vec<_> = devices.map(spawn).collect();
            let first = first.map(|(leaf, ranges)| read(leaf, ranges));
            let others = others.into_iter().map(|t| t.join().expect("a panic ends the program"));
            first.into_iter().chain(others).collect()
        });
        Fetched { runs, others: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
