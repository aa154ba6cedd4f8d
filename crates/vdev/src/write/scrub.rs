//! Examining every piece of a block, and repairing what is wrong.
//!
//! # Theory
//! A read takes the first candidate that is right, and so never sees a second copy, nor parity.
//! [`Tree::examine`] reads each piece that the block has on a device: every child of a mirror,
//! every column with its parity. These pieces make one guess at the block, at no further I/O.
//!
//! When the right bytes are known, from here or from elsewhere, [`Tree::repair_examined`] lays them
//! out again and compares. A device that returned something else counts a checksum error and is
//! rewritten. A device that is known to have missed the block is not judged, only written
//! ([`Tree::lay_out_missed`]).
//!
//! # Life
//! A device that was missing, or refused the write, still lacks the txg in which the block was
//! born. It is named in [`RepairOutcome::behind`], so that the caller's walk does not count it as
//! repaired.
//!
//! # Locks
//! None. The caller keeps the block from being freed meanwhile. Otherwise a repair could overwrite
//! a newer block.
//!
//! # See
//! OpenZFS `vdev_mirror_io_done`, `vdev_raidz_io_done_unrecoverable`, `ZIO_FLAG_SCRUB`,
//! `ZIO_FLAG_RESILVER`.

use device::{AlignedBuf, Block};
use ondisk::{Guid, Psize, Txg, VdevId};

use super::{Extent, Laid, MAX_VISITS, Piece};
use crate::columns::Col;
use crate::request::Request;
use crate::tree::{Layout, NodeId, Tree};
use crate::{Result, VdevError};

/// A part of a block on one vdev, as its devices have it.
struct Part {
    /// Where it begins in the block.
    at: usize,
    len: usize,
    vdev: VdevId,
    offset: u64,
    laid: Laid,
    /// What each piece holds; `None` where that could not be read.
    have: Vec<Option<AlignedBuf>>,
}

/// Every piece of one copy of a block, as it is on the devices.
pub struct Examined {
    parts: Vec<Part>,
    psize: usize,
    birth: Txg,
    guess: Option<Block>,
    /// A piece of the guess is from a device that missed the block.
    stale: bool,
}

/// The outcome of a repair of one copy of a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairOutcome {
    /// Bytes that were wrong or missing, and are now right.
    pub repaired: u64,
    /// Pieces that were read and were wrong.
    pub wrong: u64,
    /// Pieces that an open device refused to write.
    pub refused: u64,
    /// Part of it was not examined, or not repaired, for another reason than a device's.
    pub incomplete: bool,
    /// Devices that still lack pieces: they are missing, or refused the write.
    pub behind: Vec<Guid>,
}

impl RepairOutcome {
    /// Adds the outcome of another copy.
    pub fn add(&mut self, other: RepairOutcome) {
        self.repaired += other.repaired;
        self.wrong += other.wrong;
        self.refused += other.refused;
        self.incomplete |= other.incomplete;
        self.behind.extend(other.behind);
    }
}

impl Examined {
    /// The block that the pieces give, without reconstruction; `None` if one is missing.
    pub fn guess(&self) -> Option<&Block> {
        self.guess.as_ref()
    }

    /// The same, if all pieces are from devices that did not miss the block. Where no checksum can
    /// tell, only this guess is trusted.
    pub fn fresh_guess(&self) -> Option<&Block> {
        self.guess.as_ref().filter(|_| !self.stale)
    }
}

impl Tree {
    /// Whether a piece's device missed the txg, or the spare that stands for it did.
    pub(super) fn piece_missed(&self, piece: &Piece, birth: Txg) -> bool {
        self.node(piece.leaf).missed(birth) || self.node(piece.account).missed(birth)
    }

    /// Whether an open device has missed blocks of this txg that lie on a vdev
    /// (`vdev_dtl_need_resilver`).
    pub fn is_behind(&self, vdev: VdevId, birth: Txg) -> bool {
        if self.top(vdev).is_ok_and(|id| matches!(self.node(id).layout, Layout::Indirect(_))) {
            // Its blocks may be anywhere.
            return self.nodes().any(|node| node.missed(birth));
        }
        let mut todo: Vec<NodeId> = self.top(vdev).into_iter().collect();
        while let Some(id) = todo.pop() {
            let node = self.node(id);
            if node.is_here() && node.missed(birth) {
                return true;
            }
            todo.extend(&node.children);
        }
        false
    }

    /// Whether an open device lacks a part of a copy of a block (`vdev_raidz_need_resilver`,
    /// `vdev_draid_need_resilver`).
    ///
    /// Where columns lie on some of a vdev's devices, only those count. For a raidz, the devices
    /// with the sectors behind the block count too. Where the columns are not known, all devices
    /// count.
    pub fn lacks(&self, copy: &Extent) -> bool {
        let birth = copy.birth;
        self.is_behind(copy.vdev, birth)
            && self.columns_of(copy).is_none_or(|columns| {
                columns.iter().any(|(id, offset)| self.lacks_there(*id, *offset, birth, &mut { MAX_VISITS }))
            })
    }

    /// Children of a raidz or dRAID that hold a part of a copy, with the offsets. `None` where no
    /// copy can be, or the columns are not known.
    fn columns_of(&self, copy: &Extent) -> Option<Vec<(NodeId, u64)>> {
        let (vdev, offset, psize, birth) = (copy.vdev, copy.offset, copy.psize.0, copy.birth);
        let top = self.top(vdev).ok()?;
        let node = self.node(top);
        if psize == 0 || psize > ondisk::SPA_MAXBLOCKSIZE {
            return None;
        }
        crate::attempts::check_range(self, top, vdev, offset, copy.psize, birth).ok()?;
        let sector = 1u64 << node.ashift().0;
        let size = psize.next_multiple_of(sector);
        let at = |col: &Col| (node.children[col.child], col.offset);
        match &node.layout {
            Layout::Raidz(raidz) if !raidz.is_expanding() && offset.is_multiple_of(sector) => {
                let map = raidz.map(offset, size, birth);
                let behind = raidz.skipped(offset, size, birth).map(|(child, at)| (node.children[child], at));
                Some(map.cols.iter().filter(|col| col.size > 0).map(at).chain(behind).collect())
            }
            // Its stripes are whole.
            Layout::Draid(draid) if draid.aligned(offset) => {
                Some(draid.map(offset, size).cols.iter().map(at).collect())
            }
            _ => None,
        }
    }

    /// Whether a device below a vdev, or one that stands in for it at `offset`, is open and missed
    /// the txg.
    // As deep as the tree. But in a hostile configuration a distributed spare may lead to itself.
    fn lacks_there(&self, id: NodeId, offset: u64, birth: Txg, budget: &mut u32) -> bool {
        let node = self.node(id);
        if *budget == 0 || node.is_here() && node.missed(birth) {
            return true;
        }
        *budget -= 1;
        if let Layout::DraidSpare { draid, spare } = &node.layout
            && let Layout::Draid(geometry) = &self.node(*draid).layout
        {
            let child = self.node(*draid).children[geometry.spare_child(*spare, offset)];
            return self.lacks_there(child, offset, birth, budget);
        }
        node.children.iter().any(|child| self.lacks_there(*child, offset, birth, budget))
    }

    /// The parts of a block on existing vdevs: one, unless its vdev was removed.
    pub(super) fn parts_of(
        &self,
        vdev: VdevId,
        offset: u64,
        psize: usize,
    ) -> Result<Vec<(usize, VdevId, u64, usize)>> {
        if !matches!(self.node(self.top(vdev)?).layout, Layout::Indirect(_)) {
            return Ok(vec![(0, vdev, offset, psize)]);
        }
        let mut at = 0;
        let segments = crate::indirect::remap(self, vdev, offset, psize as u64)?;
        Ok(segments
            .into_iter()
            .map(|s| {
                let part = (at, s.vdev, s.offset, s.size as usize);
                at += s.size as usize;
                part
            })
            .collect())
    }

    /// Reads every piece of a block at `offset` of a top-level vdev, parity too (`ZIO_FLAG_SCRUB`).
    /// `birth` is its physical birth.
    ///
    /// # Errors
    /// * Those of [`Tree::lay_out`], for any part of the block.
    /// * [`VdevError::Unmapped`]: the vdev was removed, and its mapping does not lead to the block.
    pub fn examine(
        &self,
        vdev: VdevId,
        offset: u64,
        psize: Psize,
        birth: Txg,
        request: &Request,
    ) -> Result<Examined> {
        if psize.0 == 0 || psize.0 > ondisk::SPA_MAXBLOCKSIZE {
            return Err(VdevError::Size { vdev, size: psize.0 });
        }
        let psize = psize.0 as usize;
        let mut parts = Vec::new();
        let mut guess = Some(AlignedBuf::zeroed(psize));
        let mut stale = false;
        for (at, vdev, offset, len) in self.parts_of(vdev, offset, psize)? {
            let sector = 1usize << self.node(self.top(vdev)?).ashift().0;
            let blank = AlignedBuf::zeroed(len.next_multiple_of(sector)).freeze();
            let laid = self.lay_out_as(vdev, offset, &blank, birth, false)?;
            let have: Vec<Option<AlignedBuf>> = laid
                .pieces
                .iter()
                .map(|piece| {
                    let mut buf = AlignedBuf::zeroed(piece.range.len());
                    self.read_leaf(piece.leaf, piece.offset, &mut buf, request).ok().map(|()| buf)
                })
                .collect();
            let whole = self.assemble(&laid, &have, &blank, birth);
            match (&mut guess, whole) {
                (Some(guess), Some((whole, missed))) => {
                    guess[at..at + len].copy_from_slice(&whole[..len]);
                    stale |= missed;
                }
                _ => guess = None,
            }
            parts.push(Part { at, len, vdev, offset, laid, have });
        }
        let guess = guess.map(AlignedBuf::freeze);
        Ok(Examined { parts, psize, birth, guess, stale })
    }

    /// Assembles the pieces that hold data. Those of devices that missed the block are used only if
    /// there are no others; the flag says so.
    fn assemble(
        &self,
        laid: &Laid,
        have: &[Option<AlignedBuf>],
        blank: &Block,
        birth: Txg,
    ) -> Option<(AlignedBuf, bool)> {
        let mut whole = AlignedBuf::zeroed(blank.len());
        let (mut covered, mut stale) = (0, false);
        let mut columns: Vec<(usize, bool)> = Vec::new();
        let mut order: Vec<usize> = (0..laid.pieces.len()).collect();
        order.sort_by_key(|n| self.piece_missed(&laid.pieces[*n], birth));
        for n in order {
            let piece = &laid.pieces[n];
            // Parity and filling have buffers of their own.
            if piece.bytes.as_ptr() != blank.as_ptr() || columns.iter().any(|(col, _)| *col == piece.column) {
                continue;
            }
            let Some(buf) = &have[n] else { continue };
            whole[piece.range.clone()].copy_from_slice(buf);
            covered += piece.range.len();
            stale |= self.piece_missed(piece, birth);
            columns.push((piece.column, true));
        }
        (covered == blank.len()).then_some((whole, stale))
    }

    /// Compares examined pieces with the right bytes, counts checksum errors, and rewrites what
    /// differs.
    ///
    /// Unless `sure`, only what is known to be missing is written. A block without a checksum is
    /// not sure: the piece that differs may be the right one.
    ///
    /// # Errors
    /// Those of [`Tree::lay_out`], for any part of the block.
    ///
    /// # Panics
    /// If `good` is not of the block's size.
    pub fn repair_examined(
        &self,
        examined: &Examined,
        good: &Block,
        sure: bool,
        request: &Request,
    ) -> Result<RepairOutcome> {
        assert_eq!(good.len(), examined.psize, "the right bytes have the block's size");
        let (mut done, request) = (RepairOutcome::default(), &request.for_repair());
        for part in &examined.parts {
            let laid =
                self.lay_part(part.vdev, part.offset, &good[part.at..part.at + part.len], examined.birth)?;
            for piece in &laid.pieces {
                let known = part.laid.pieces.iter().position(|p| {
                    (p.leaf, p.offset, p.range.len()) == (piece.leaf, piece.offset, piece.range.len())
                });
                let have = known.and_then(|n| part.have[n].as_ref());
                let want = &piece.bytes[piece.range.clone()];
                if have.is_some_and(|have| have[..] == *want) {
                    continue;
                }
                if have.is_some() && !self.piece_missed(piece, examined.birth) {
                    if !sure {
                        continue;
                    }
                    let at = crate::tree::device_offset(piece.offset);
                    // Raises no alarm: while the pool is being repaired, its devices stay in use.
                    let lied = self.node(piece.leaf);
                    lied.stats.checksum_errors.inc();
                    lied.report(crate::Trouble::Checksum, Some((at, want.len() as u64)));
                    done.wrong += 1;
                }
                self.put_right(piece, want, &mut done, request);
            }
            self.name_absent(&laid, &mut done);
        }
        Ok(done)
    }

    pub(super) fn lay_part(&self, vdev: VdevId, offset: u64, good: &[u8], birth: Txg) -> Result<Laid> {
        self.lay_out(vdev, offset, &Block::copy_of(good), birth)
    }

    pub(super) fn put_right(&self, piece: &Piece, want: &[u8], done: &mut RepairOutcome, request: &Request) {
        let node = self.node(piece.leaf);
        match self.write_leaf(piece.leaf, piece.offset, &[want], request) {
            Ok(()) => {
                node.stats.self_healed.add(want.len() as u64);
                node.stats.scan_repaired.add(want.len() as u64);
                done.repaired += want.len() as u64;
            }
            Err(_) => {
                self.suspect(piece.leaf);
                done.refused += 1;
                done.behind.push(node.guid);
                done.behind.push(self.node(piece.account).guid);
            }
        }
    }

    pub(super) fn name_absent(&self, laid: &Laid, done: &mut RepairOutcome) {
        let guid = |id: &NodeId| self.node(*id).guid;
        done.behind.extend(laid.absent.iter().map(|(id, _)| guid(id)));
    }
}

#[cfg(test)]
mod tests;
