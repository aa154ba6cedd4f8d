//! Reading what many blocks need of a vdev's devices at once, before the blocks are examined one by
//! one.
//!
//! # Theory
//! A walk over all blocks of a pool reaches them in the order of their places. The pieces of
//! neighbours then lie side by side on each device. [`Tree::fetch`] joins them, and small gaps
//! between them, into reads of megabytes, on all devices at once. The result goes with requests
//! ([`Request::with_fetched`]), which are answered from it. So the code that examines or
//! reconstructs a block needs no change. A range that could not be read this way is read by itself,
//! and its failure counts then.
//!
//! Memory use is at most twice the requested bytes, in whole sectors, and one read of each device.
//!
//! # Locks
//! None. Fetched ranges never change.
//!
//! # See
//! OpenZFS `scan_io_queues_run_one`, `vdev_queue_aggregate`.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{AlignedBuf, Block};
use ondisk::{Guid, Psize, Txg, VdevId};

use crate::request::Request;
use crate::tree::{NodeId, Tree};

/// Most bytes of a read. More than `zfs_vdev_aggregation_limit`, since no foreground read waits
/// behind it.
const READ_MAX: u64 = 4 << 20;
/// A gap that is always read over: reading it costs less than a seek. `zfs_vdev_read_gap_limit` is
/// smaller, since other I/O may need the time.
pub(super) const SMALL_GAP: u64 = 128 << 10;
/// Largest gap that is read over.
const LARGE_GAP: u64 = 1 << 20;
/// At most one part in so many of a read is gaps, small gaps apart.
const WASTE: u64 = 5;

/// Where a copy of a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The top-level vdev.
    pub vdev: VdevId,
    /// Its offset on that vdev.
    pub offset: u64,
    /// Its stored size.
    pub psize: Psize,
    /// Its physical birth.
    pub birth: Txg,
}

/// Ranges of devices that have been read.
#[derive(Debug, Default)]
pub struct Fetched {
    /// By device, in the order of their places.
    pub(super) runs: BTreeMap<Guid, Runs>,
    /// Other ranges, searched next.
    others: Vec<Arc<Fetched>>,
}

impl Fetched {
    /// These ranges together with others that were read before.
    #[must_use]
    pub fn with(mut self, others: impl IntoIterator<Item = Arc<Fetched>>) -> Self {
        self.others.extend(others);
        self
    }

    /// Answers a read of a leaf, if it has all bytes of it.
    // As deep as [`Fetched::with`] nested them: once.
    pub(crate) fn get(&self, device: Guid, offset: u64, buf: &mut [u8]) -> bool {
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

/// What is kept of a read: all of it, or, if much of it is gaps, the requested ranges. These come
/// in order.
fn kept(start: u64, read: AlignedBuf, ranges: &[(u64, u64)]) -> Vec<(u64, AlignedBuf)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for (from, until) in ranges.iter().copied() {
        match parts.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => parts.push((from, until)),
        }
    }
    let asked: u64 = parts.iter().map(|(from, until)| until - from).sum();
    if asked * 2 >= read.len() as u64 {
        return vec![(start, read)];
    }
    let part = |(from, until): (u64, u64)| {
        let mut buf = AlignedBuf::zeroed((until - from) as usize);
        buf.copy_from_slice(&read[(from - start) as usize..(until - start) as usize]);
        (from, buf)
    };
    parts.into_iter().map(part).collect()
}

/// Joins ranges, which come in order, into reads. Returns of each its start, its end, and its
/// number of ranges.
fn joined(ranges: &[(u64, u64)], small_gap: u64) -> Vec<(u64, u64, usize)> {
    let mut out: Vec<(u64, u64, usize)> = Vec::new();
    let mut waste = 0;
    for (start, end) in ranges.iter().copied() {
        if let Some((from, until, of)) = out.last_mut() {
            let gap = start.saturating_sub(*until);
            let whole = end.max(*until) - *from;
            let bears = gap <= small_gap || gap <= LARGE_GAP && (waste + gap) * WASTE <= whole;
            if whole <= READ_MAX && bears {
                *until = end.max(*until);
                *of += 1;
                waste += gap;
                continue;
            }
        }
        waste = 0;
        out.push((start, end, 1));
    }
    out
}

/// Ranges of leaves, each from its first byte to before its second.
pub(super) type Wanted = BTreeMap<NodeId, Vec<(u64, u64)>>;
/// What was read of a device, in the order of offsets.
pub(super) type Runs = Vec<(u64, AlignedBuf)>;

impl Tree {
    /// Reads all pieces of these copies of blocks, each device in the order of offsets and all
    /// devices at once.
    ///
    /// With `missed`, devices that are known to have missed the blocks are read too. What can't be
    /// read is left out.
    pub fn fetch(&self, extents: &[Extent], missed: bool, request: &Request) -> Fetched {
        self.fetch_over(extents, missed, SMALL_GAP, request)
    }

    /// Reads like [`Tree::fetch`], and always over gaps of up to `small_gap` bytes.
    pub fn fetch_over(&self, extents: &[Extent], missed: bool, small_gap: u64, request: &Request) -> Fetched {
        self.fetch_ranges(self.wanted(extents, missed), small_gap, request)
    }

    /// Where all pieces of these copies are.
    pub(super) fn wanted(&self, extents: &[Extent], missed: bool) -> Wanted {
        let mut wanted = Wanted::new();
        for e in extents {
            for (_, vdev, offset, len) in
                self.parts_of(e.vdev, e.offset, e.psize.0 as usize).unwrap_or_default()
            {
                let Ok(mut laid) = self.lay_out_as(vdev, offset, &Block::zeroed(len), e.birth, false) else {
                    continue;
                };
                // The sectors that a raidz leaves behind a block are read too. The next read, of
                // what follows, then continues where this one ends.
                self.pad(&mut laid, len, e.birth);
                for piece in laid.pieces.iter().filter(|p| missed || !self.piece_missed(p, e.birth)) {
                    let range = (piece.offset, piece.offset + piece.range.len() as u64);
                    wanted.entry(piece.leaf).or_default().push(range);
                }
            }
        }
        wanted
    }

    /// Reads these ranges of a leaf in the order of offsets.
    pub(super) fn read_ranges(
        &self,
        leaf: NodeId,
        mut ranges: Vec<(u64, u64)>,
        small_gap: u64,
        request: &Request,
    ) -> Runs {
        ranges.sort_unstable();
        let (mut runs, mut left) = (Runs::new(), &ranges[..]);
        for (start, end, of) in joined(&ranges, small_gap) {
            let (asked, others) = left.split_at(of);
            left = others;
            let mut buf = AlignedBuf::zeroed((end - start) as usize);
            if self.read_quietly(leaf, start, &mut buf, of > 1, request).is_ok() {
                runs.extend(kept(start, buf, asked));
            }
        }
        runs
    }

    /// Reads these ranges of leaves: those of each leaf in the order of offsets, and all leaves at
    /// once.
    pub(super) fn fetch_ranges(&self, wanted: Wanted, small_gap: u64, request: &Request) -> Fetched {
        let read = |leaf, ranges| (self.node(leaf).guid, self.read_ranges(leaf, ranges, small_gap, request));
        let read = &read;
        let runs = std::thread::scope(|scope| {
            let mut devices = wanted.into_iter();
            let first = devices.next();
            let spawn = |(leaf, ranges)| scope.spawn(move || read(leaf, ranges));
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
