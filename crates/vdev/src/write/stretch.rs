//! Copying ranges of a vdev's space to devices that lack them, without knowing the blocks there.
//!
//! # Theory
//! On a mirror, every byte is at the same offset of each child. On a dRAID, a stripe has its parity
//! in its own row, whatever block it is part of. So what a device lacks of whole stripes can be
//! computed without checksums.
//!
//! The sources are devices that have missed nothing at all ([`Tree::read_stretch`]). A range may
//! hold blocks of any txg, so it is not known what another device has missed of it.
//!
//! A raidz can't be copied this way: where its blocks begin decides which sectors are parity.
//!
//! # Locks
//! None. The caller keeps blocks in the range from being written meanwhile
//! ([`crate::ClosedRanges`]).
//!
//! # See
//! OpenZFS `vdev_rebuild_range`, `vdev_draid_rebuild_asize`, `vdev_mirror_rebuild_asize`.

use std::collections::BTreeMap;

use device::Block;
use ondisk::{Guid, Psize, SPA_MAXBLOCKSIZE, Txg, VdevId};

use super::fetch::SMALL_GAP;
use super::{Fetched, Laid, Piece, RepairOutcome};
use crate::request::Request;
use crate::tree::{Layout, NodeId, Tree};
use crate::{Attempts, Result, VdevError};

/// The birth of a range whose txgs are not known (`TXG_UNKNOWN`). A device that has missed any txg
/// may lack it. No block is born in this txg.
pub(crate) const TXG_UNKNOWN: Txg = Txg(0);

/// Why a range was not read.
#[derive(Debug, thiserror::Error)]
pub enum StretchError {
    /// No range can be there.
    #[error(transparent)]
    Place(#[from] VdevError),
    /// The devices that have missed nothing don't have it, or could not be read.
    #[error("vdev {vdev}: nothing that is known to be whole has {size} bytes at {offset:#x}")]
    Unread {
        /// The top-level vdev.
        vdev: VdevId,
        /// Its offset.
        offset: u64,
        /// Bytes of the vdev's space.
        size: u64,
        /// The last failure of a device, if one failed.
        #[source]
        source: Option<device::DeviceError>,
    },
}

impl Tree {
    /// Whether a device of this top-level vdev can be filled without knowing its blocks
    /// (`vdev_op_rebuild_asize`).
    pub fn is_sequential(&self, vdev: VdevId) -> bool {
        let Ok(top) = self.top(vdev) else { return false };
        match &self.node(top).layout {
            Layout::Leaf(_) | Layout::Draid(_) => true,
            Layout::Mirrored => self.raidz_children(self.node(top)).next().is_none(),
            _ => false,
        }
    }

    /// How many of `size` bytes at `start` of such a vdev's space are read at once: whole stripes,
    /// within one group of a dRAID (`vdev_op_rebuild_asize`).
    ///
    /// Each device is read by `segment` bytes at most.
    pub fn stretch(&self, vdev: VdevId, start: u64, size: u64, segment: u64) -> u64 {
        let Ok(top) = self.top(vdev) else { return size };
        let node = self.node(top);
        match &node.layout {
            Layout::Draid(draid) => draid.stretch(start, size, segment),
            _ => {
                let sector = 1u64 << node.ashift().0;
                let most = segment.min(SPA_MAXBLOCKSIZE).max(sector);
                size.min(most / sector * sector)
            }
        }
    }

    /// The open devices below a top-level vdev that take writes and have missed txgs.
    pub fn behind_in(&self, vdev: VdevId) -> Vec<Guid> {
        let behind = self.behind();
        let mut below = Vec::new();
        let mut todo: Vec<_> = self.top(vdev).into_iter().collect();
        while let Some(id) = todo.pop() {
            let node = self.node(id);
            below.push(node.guid);
            todo.extend(&node.children);
        }
        behind.into_iter().filter(|guid| below.contains(guid)).collect()
    }

    /// Reads `size` bytes of such a vdev's space from devices that have missed nothing.
    ///
    /// # Errors
    /// * [`StretchError::Place`]: no range can be there; one of the errors of [`Tree::attempts`].
    /// * [`StretchError::Unread`]: the devices that have missed nothing don't have it, or could not
    ///   be read.
    pub fn read_stretch(
        &self,
        vdev: VdevId,
        offset: u64,
        size: u64,
        request: &Request,
    ) -> std::result::Result<Block, StretchError> {
        let psize = match &self.node(self.top(vdev)?).layout {
            Layout::Draid(draid) => draid.psize(size),
            _ => size,
        };
        let mut attempts: Attempts<'_> = self.attempts(vdev, offset, Psize(psize), TXG_UNKNOWN, request)?;
        if let Some(buf) = attempts.fresh() {
            let _ = attempts.let_be();
            return Ok(buf.freeze());
        }
        Err(StretchError::Unread { vdev, offset, size, source: attempts.let_be().io })
    }

    /// Whether any open device lacks something of a range, and which missing devices have a part of
    /// it.
    ///
    /// # Errors
    /// Those of [`Tree::lay_out`].
    pub fn lacks_of_stretch(&self, vdev: VdevId, offset: u64, size: u64) -> Result<(bool, Vec<Guid>)> {
        let laid = self.lay_out_stretch(vdev, offset, size)?;
        let mut away = RepairOutcome::default();
        self.name_absent(&laid, &mut away);
        Ok((laid.pieces.iter().any(|piece| self.piece_missed(piece, TXG_UNKNOWN)), away.behind))
    }

    /// Where the parts of a range are.
    fn lay_out_stretch(&self, vdev: VdevId, offset: u64, size: u64) -> Result<Laid> {
        let psize = match &self.node(self.top(vdev)?).layout {
            Layout::Draid(draid) => draid.psize(size),
            _ => size,
        };
        if psize > SPA_MAXBLOCKSIZE {
            return Err(VdevError::Size { vdev, size: psize });
        }
        self.lay_out_as(vdev, offset, &Block::zeroed(psize as usize), TXG_UNKNOWN, false)
    }

    /// Reads what [`Tree::read_stretch`] needs of these ranges of a dRAID, all devices at once.
    /// Each range is an offset and a size.
    ///
    /// Requests with the result are answered from it ([`Request::with_fetched`]). For other vdevs,
    /// which have all of a range on each device, nothing is read.
    pub fn fetch_stretches(&self, vdev: VdevId, stretches: &[(u64, u64)], request: &Request) -> Fetched {
        let mut wanted: BTreeMap<NodeId, Vec<(u64, u64)>> = BTreeMap::new();
        let is_draid = self.top(vdev).is_ok_and(|top| matches!(self.node(top).layout, Layout::Draid(_)));
        for (offset, size) in stretches.iter().filter(|_| is_draid) {
            let Ok(laid) = self.lay_out_stretch(vdev, *offset, *size) else { continue };
            // Of each column the first copy from a device that missed nothing.
            let mut columns: BTreeMap<usize, &Piece> = BTreeMap::new();
            for piece in laid.pieces.iter().filter(|piece| !self.piece_missed(piece, TXG_UNKNOWN)) {
                columns.entry(piece.column).or_insert(piece);
            }
            let is_parity = |column: &usize| column % laid.width < laid.tolerated;
            let data = columns.keys().filter(|column| !is_parity(column)).count();
            // A range is within one row.
            let mut parity = (laid.width - laid.tolerated).saturating_sub(data);
            for (column, piece) in columns {
                if is_parity(&column) {
                    if parity == 0 {
                        continue;
                    }
                    parity -= 1;
                }
                let range = (piece.offset, piece.offset + piece.range.len() as u64);
                wanted.entry(piece.leaf).or_default().push(range);
            }
        }
        self.fetch_ranges(wanted, SMALL_GAP, request)
    }

    /// Writes ranges, given by their offsets, to the devices that have missed anything. Returns the
    /// outcome of each.
    ///
    /// Each device is written in the order of offsets, all devices at once.
    ///
    /// # Errors
    /// Of each range: those of [`Tree::lay_out_missed`].
    pub fn fill_stretches(
        &self,
        vdev: VdevId,
        stretches: &[(u64, &Block)],
        request: &Request,
    ) -> Vec<Result<RepairOutcome>> {
        let mut all = Vec::new();
        let mut known = Vec::with_capacity(stretches.len());
        for (offset, good) in stretches {
            let laid = self.lay_out_missed(vdev, *offset, good, TXG_UNKNOWN);
            known.push(laid.map(|(laid, away)| {
                all.extend(laid);
                (all.len(), away)
            }));
        }
        let filled = self.refill(&all, request);
        let mut from = 0;
        let each = |known: Result<(usize, RepairOutcome)>| {
            let (until, mut done) = known?;
            filled[from..until].iter().for_each(|more| done.add(more.clone()));
            from = until;
            Ok(done)
        };
        known.into_iter().map(each).collect()
    }
}

#[cfg(test)]
mod tests;
