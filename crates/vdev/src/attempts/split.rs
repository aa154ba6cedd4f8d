//! Blocks of a removed vdev.
//!
//! # Theory
//! Each part of a split block may have several copies, and no part has a checksum of its own. Only
//! the whole block shows whether it is right.
//!
//! 1. The first candidate takes the best copy of each part.
//! 2. Then every copy of every part is read, and equal copies are taken once.
//! 3. The combinations are tried: all of them when they are few, otherwise random ones up to a
//!    limit.
//!
//! The random sequence follows from the block's place, so that a run can be repeated.
//!
//! # See
//! OpenZFS `vdev_indirect_reconstruct_io_done`.

use device::AlignedBuf;
use ondisk::{Psize, Txg, VdevId};

use super::{Attempts, Failure};
use crate::indirect::Segment;
use crate::read::Copy;
use crate::request::Request;
use crate::tree::{Layout, Tree};
use crate::{Result, VdevError};

/// Most combinations of copies that are tried (`zfs_reconstruct_indirect_combinations_max`).
const COMBINATIONS_MAX: u64 = 4096;
/// Most bytes of these combinations. So many of the largest blocks would keep a reader busy for a
/// minute over one block.
const COMBINED_BYTES_MAX: u64 = 8 << 30;

/// The candidates of a block in parts.
pub(crate) struct Split<'t> {
    tree: &'t Tree,
    request: &'t Request,
    birth: Txg,
    size: usize,
    parts: Vec<Part>,
    stage: Stage,
    seed: u64,
}

struct Part {
    segment: Segment,
    at: usize,
    /// What each copy gave. A part that is itself in columns has no single leaf to count errors
    /// against.
    reads: Vec<(AlignedBuf, Option<Copy>)>,
    /// The reads that differ from all before them.
    distinct: Vec<usize>,
}

enum Stage {
    First,
    /// The combination of this number comes next, of so many.
    Every(u64, u64),
    /// So many random ones are left.
    Random(u64),
    Done,
}

impl<'t> Split<'t> {
    pub(crate) fn new(
        tree: &'t Tree,
        segments: Vec<Segment>,
        size: usize,
        birth: Txg,
        request: &'t Request,
    ) -> Self {
        let seed = segments.first().map_or(0, |s| s.offset);
        let mut at = 0;
        let parts = segments
            .into_iter()
            .map(|segment| {
                let part = Part { segment, at, reads: Vec::new(), distinct: Vec::new() };
                at += segment.size as usize;
                part
            })
            .collect();
        Self { tree, request, birth, size, parts, stage: Stage::First, seed }
    }

    pub(crate) fn next(&mut self, failure: &mut Failure) -> Option<AlignedBuf> {
        loop {
            match self.stage {
                Stage::First => {
                    self.stage = Stage::Every(0, 0);
                    if let Some(buf) = self.first(failure) {
                        return Some(buf);
                    }
                    // If no copy of a part can be read, there is nothing to combine.
                    self.stage = Stage::Done;
                }
                Stage::Every(_, 0) => {
                    let count = self.read_all(failure);
                    let most = COMBINATIONS_MAX.min(COMBINED_BYTES_MAX / self.size.max(1) as u64);
                    self.stage = match count {
                        None => Stage::Done,
                        Some(n) if n <= most => Stage::Every(0, n),
                        Some(_) => Stage::Random(most),
                    };
                }
                Stage::Every(number, count) if number < count => {
                    self.stage = Stage::Every(number + 1, count);
                    let mut left = number;
                    return Some(self.combine(|n| {
                        let pick = left % n;
                        left /= n;
                        pick
                    }));
                }
                Stage::Random(left) if left > 0 => {
                    self.stage = Stage::Random(left - 1);
                    let mut seed = self.seed;
                    let buf = self.combine(|n| split_mix(&mut seed) % n);
                    self.seed = seed;
                    return Some(buf);
                }
                Stage::Every(..) | Stage::Random(_) | Stage::Done => return None,
            }
        }
    }

    /// The best copy of each part.
    fn first(&self, failure: &mut Failure) -> Option<AlignedBuf> {
        let mut buf = AlignedBuf::zeroed(self.size);
        for part in &self.parts {
            let Segment { vdev, offset, size } = part.segment;
            let mut attempts =
                self.tree.attempts(vdev, offset, Psize(size), self.birth, self.request).ok()?;
            let bytes = attempts.next();
            failure.merge(attempts.failure);
            buf[part.at..part.at + size as usize].copy_from_slice(&bytes?);
        }
        Some(buf)
    }

    /// Reads every copy of every part, and gives the number of combinations of different ones;
    /// `None` when a part has none.
    fn read_all(&mut self, failure: &mut Failure) -> Option<u64> {
        let mut count: u64 = 1;
        for part in &mut self.parts {
            let Segment { vdev, offset, size } = part.segment;
            let top = self.tree.top(vdev).ok()?;
            let node = self.tree.node(top);
            let whole = matches!(node.layout, Layout::Leaf(_) | Layout::Mirrored);
            if whole && self.tree.raidz_children(node).next().is_none() {
                for copy in self.tree.copies(top, offset, self.birth) {
                    let mut buf = AlignedBuf::zeroed(size as usize);
                    match self.tree.read_leaf(copy.leaf, offset, &mut buf, self.request) {
                        Ok(()) => part.reads.push((buf, Some(copy))),
                        Err(why) => failure.note(why),
                    }
                }
            } else {
                // Without the block's checksum, columns can't be judged. So there is one guess.
                let mut attempts =
                    self.tree.attempts(vdev, offset, Psize(size), self.birth, self.request).ok()?;
                part.reads.extend(attempts.next().map(|buf| (buf, None)));
                failure.merge(attempts.failure);
            }
            let reads = &part.reads;
            part.distinct = (0..reads.len())
                .filter(|i| reads[..*i].iter().all(|(b, _)| b[..] != reads[*i].0[..]))
                .collect();
            count = count.saturating_mul(part.distinct.len() as u64);
        }
        (count > 0).then_some(count)
    }

    /// The block of the copies that `pick` chooses, given how many there are of each part.
    fn combine(&self, mut pick: impl FnMut(u64) -> u64) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(self.size);
        for part in &self.parts {
            let chosen = part.distinct[pick(part.distinct.len() as u64) as usize];
            let bytes = &part.reads[chosen].0;
            buf[part.at..part.at + bytes.len()].copy_from_slice(bytes);
        }
        buf
    }

    pub(crate) fn settle(self, good: Option<&[u8]>) {
        for part in &self.parts {
            let right = good.map(|g| &g[part.at..g.len().min(part.at + part.segment.size as usize)]);
            for (bytes, copy) in &part.reads {
                let Some(copy) = copy.filter(|c| !c.stale) else { continue };
                if right.is_none_or(|r| r != &bytes[..r.len()]) {
                    self.tree.lied(copy.leaf, None);
                }
            }
        }
    }
}

/// The candidates of a block of a removed vdev: those of its only segment, or combinations of its
/// parts.
pub(crate) fn attempts<'t>(
    tree: &'t Tree,
    segments: Vec<Segment>,
    psize: usize,
    birth: Txg,
    request: &'t Request,
) -> Result<Attempts<'t>> {
    if let [Segment { vdev, offset, .. }] = segments[..] {
        return tree.attempts(vdev, offset, Psize(psize as u64), birth, request);
    }
    for Segment { vdev, offset, size } in &segments {
        check(tree, (*vdev, *offset, *size), birth, request)?;
    }
    let size = segments.iter().map(|s| s.size as usize).sum();
    Ok(Attempts::parts(Split::new(tree, segments, size, birth, request), psize))
}

/// Checks that a part can be where the mapping says.
fn check(tree: &Tree, (vdev, offset, size): (VdevId, u64, u64), birth: Txg, request: &Request) -> Result<()> {
    // Creating the candidates makes all checks, and reads nothing yet.
    tree.attempts(vdev, offset, Psize(size), birth, request).map(drop).map_err(|e| match e {
        VdevError::Size { .. } => VdevError::Unmapped { vdev, offset, size },
        other => other,
    })
}

/// The next number of the SplitMix64 sequence.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
