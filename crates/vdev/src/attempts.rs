//! Reading a block: candidates go up, the verdict comes down.

mod copies;
mod mirror_children;
mod split;
mod stripes;

use device::{AlignedBuf, DeviceError};
use ondisk::{Psize, SPA_MAXBLOCKSIZE, Txg, VdevId};

use crate::request::Request;
use crate::tree::{Layout, MAX_ASIZE, NodeId, Tree};
use crate::{Result, VdevError};

use copies::Copies;
use mirror_children::MirrorChildren;
use split::Split;
use stripes::Stripes;

/// Successive guesses at the bytes of one copy of a block, the cheapest first.
///
/// As an iterator it yields candidates of exactly the requested size until none is left. A call of
/// `next` says that the last candidate was wrong. The caller must end with
/// [`settle`](Self::settle); otherwise no checksum error is counted against devices that returned
/// wrong bytes.
pub struct Attempts<'t> {
    way: Method<'t>,
    psize: usize,
    failure: Failure,
}

/// How the block lies on its vdev.
enum Method<'t> {
    Copies(Copies<'t>),
    Stripes(Box<Stripes<'t>>),
    Split(Box<Split<'t>>),
    MirrorChildren(MirrorChildren<'t>),
}

/// Why there were no further candidates.
#[derive(Debug, Default)]
pub struct Failure {
    /// The cause of the last read that failed.
    pub io: Option<DeviceError>,
    /// Copies or columns that could not be read: their device is missing or failed.
    pub unread: u32,
}

impl Failure {
    pub(crate) fn note(&mut self, why: crate::read::Unread) {
        self.unread += 1;
        if let crate::read::Unread::Device(e) = why {
            self.io = Some(e);
        }
    }

    fn merge(&mut self, other: Failure) {
        self.unread += other.unread;
        self.io = other.io.or(self.io.take());
    }
}

impl<'t> Attempts<'t> {
    pub(crate) fn new(
        tree: &'t Tree,
        (vdev, offset, psize): (VdevId, u64, Psize),
        birth: Txg,
        request: &'t Request,
    ) -> Result<Self> {
        let top = tree.top(vdev)?;
        if psize.0 == 0 || psize.0 > SPA_MAXBLOCKSIZE {
            return Err(VdevError::Size { vdev, size: psize.0 });
        }
        check_range(tree, top, vdev, offset, psize, birth)?;
        let node = tree.node(top);
        let psize = psize.0 as usize;
        let sector = 1 << node.ashift().0;
        // A pool may mix vdevs of different sectors; the last sector of a block is read whole.
        let size = psize.next_multiple_of(sector);
        let aligned = offset.is_multiple_of(sector as u64);
        let misaligned = VdevError::Misaligned { vdev, offset };
        let way = match &node.layout {
            Layout::Mirrored if tree.raidz_children(node).next().is_some() => {
                if !aligned {
                    return Err(misaligned);
                }
                Method::MirrorChildren(MirrorChildren::new(tree, top, offset, psize, birth, request))
            }
            Layout::Leaf(_) | Layout::Mirrored | Layout::DraidSpare { .. } => {
                Method::Copies(Copies::new(tree, top, offset, psize, birth, request))
            }
            Layout::Raidz(raidz) if aligned => {
                let map = raidz.map(offset, size as u64, birth);
                Method::Stripes(Box::new(Stripes::new((tree, request), top, Some(raidz), map, size, birth)))
            }
            Layout::Draid(draid) if draid.aligned(offset) => {
                let map = draid.map(offset, size as u64);
                Method::Stripes(Box::new(Stripes::new((tree, request), top, None, map, size, birth)))
            }
            Layout::Raidz(_) | Layout::Draid(_) => return Err(misaligned),
            Layout::Indirect(_) => {
                let segments = crate::indirect::remap(tree, vdev, offset, psize as u64)?;
                return split::attempts(tree, segments, psize, birth, request);
            }
            Layout::Absent | Layout::Root => return Err(VdevError::Absent { vdev }),
        };
        Ok(Self { way, psize, failure: Failure::default() })
    }

    fn parts(split: Split<'t>, psize: usize) -> Self {
        Self { way: Method::Split(Box::new(split)), psize, failure: Failure::default() }
    }

    /// A candidate from devices that did not miss the block; `None` if others would be needed.
    /// Valid only before the first candidate, and no candidate may follow.
    pub(crate) fn fresh(&mut self) -> Option<AlignedBuf> {
        let mut buf = match &mut self.way {
            Method::Copies(copies) => copies.fresh(&mut self.failure),
            Method::Stripes(stripes) => stripes.cheap(&mut self.failure),
            Method::Split(_) | Method::MirrorChildren(_) => None,
        }?;
        buf.truncate(self.psize);
        Some(buf)
    }

    /// Ends the reading: `good` are the block's bytes, or `None` when all candidates were wrong.
    ///
    /// The right bytes may come from anywhere, also from another copy of the block. Each device
    /// that returned something else counts a checksum error.
    ///
    /// # Panics
    /// If `good` is not of the block's size.
    pub fn settle(self, good: Option<&[u8]>) {
        assert!(good.is_none_or(|g| g.len() == self.psize), "the right bytes have the block's size");
        match self.way {
            Method::Copies(copies) => copies.settle(good),
            Method::Stripes(stripes) => stripes.settle(good),
            Method::Split(split) => split.settle(good),
            Method::MirrorChildren(children) => children.settle(good),
        }
    }

    /// Ends the reading without the right bytes, and returns what could not be read.
    pub fn give_up(mut self) -> Failure {
        let failure = std::mem::take(&mut self.failure);
        self.settle(None);
        failure
    }

    /// Ends the reading as [`Attempts::give_up`] does, but counts no errors. For callers that do
    /// not know whether a block was ever written there (`ZIO_FLAG_SPECULATIVE`).
    pub fn let_be(self) -> Failure {
        self.failure
    }

    /// What could not be read so far.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }
}

impl Iterator for Attempts<'_> {
    type Item = AlignedBuf;

    fn next(&mut self) -> Option<AlignedBuf> {
        let mut buf = match &mut self.way {
            Method::Copies(copies) => copies.next(&mut self.failure),
            Method::Stripes(stripes) => stripes.next(&mut self.failure),
            Method::Split(split) => split.next(&mut self.failure),
            Method::MirrorChildren(children) => children.next(&mut self.failure),
        }?;
        buf.truncate(self.psize);
        Some(buf)
    }
}

/// Refuses ranges that pass the end of the vdev.
pub(crate) fn check_range(
    tree: &Tree,
    top: NodeId,
    vdev: VdevId,
    offset: u64,
    psize: Psize,
    birth: Txg,
) -> Result<()> {
    let asize = tree.node(top).spec.asize.unwrap_or(0);
    let size = tree.psize_to_asize(vdev, psize, birth)?.0;
    // A configuration that doesn't say how large the vdev is leaves the check to its devices.
    let limit = if asize == 0 { MAX_ASIZE } else { asize };
    let fits = offset.checked_add(size).is_some_and(|end| end <= limit);
    if fits { Ok(()) } else { Err(VdevError::Range { vdev, offset, size, asize }) }
}

#[cfg(test)]
mod tests;
