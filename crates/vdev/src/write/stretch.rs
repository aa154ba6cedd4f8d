//! Stretches of a vdev's space, put onto devices that lack them, without anybody knowing what blocks lie there.
//!
//! # Theory
//! On a mirror every byte lies at the same place of each side; on a dRAID a stripe has its parity in its own row, whatever block it is part of. So what a device lacks can
//! be computed of any whole stripes, without checksums: from devices that have missed nothing at all ([`Tree::read_stretch`]), since what another has missed of a stretch that may hold blocks of any group
//! nobody knows. A raidz can't be done so: which sectors are parity depends on where its blocks begin.
//!
//! # Locks
//! None. Whoever calls keeps blocks in the stretch from being written meanwhile ([`crate::Cordon`]).
//!
//! # See
//! OpenZFS `vdev_rebuild_range`, `vdev_draid_rebuild_asize`, `vdev_mirror_rebuild_asize`.

use std::collections::BTreeMap;

use device::Block;
use ondisk::{Guid, Psize, SPA_MAXBLOCKSIZE, Txg, VdevId};

use super::fetch::SMALL_GAP;
use super::{Fetched, Laid, Mended, Piece};
use crate::request::Request;
use crate::tree::{Layout, NodeId, Tree};
use crate::{Attempts, Result, VdevError};

/// The birth of what nobody knows the group of: who has missed any group may lack it (`TXG_UNKNOWN`). No block is born in this one.
pub(crate) const TXG_UNKNOWN: Txg = Txg(0);

/// Why a stretch was not read.
#[derive(Debug, thiserror::Error)]
pub enum StretchError {
    /// Nothing can be there.
    #[error(transparent)]
    Place(#[from] VdevError),
    /// Devices that have missed nothing don't have it, or don't give it.
    #[error("vdev {vdev}: nothing that is known to be whole has {size} bytes at {offset:#x}")]
    Unread {
        /// The top-level vdev.
        vdev: VdevId,
        /// Where.
        offset: u64,
        /// Bytes of the vdev's space.
        size: u64,
        /// The last failure of a device, if one failed.
        #[source]
        source: Option<device::DeviceError>,
    },
}

impl Tree {
    /// Whether what a device of this top-level vdev lacks can be had without knowing its blocks (`vdev_op_rebuild_asize`).
    pub fn is_sequential(&self, vdev: VdevId) -> bool {
        let Ok(top) = self.top(vdev) else { return false };
        match &self.node(top).layout {
            Layout::Leaf(_) | Layout::Draid(_) => true,
            Layout::Mirrored => self.raidz_sides(self.node(top)).next().is_none(),
            _ => false,
        }
    }

    /// Of `size` bytes at `start` of such a vdev's space, how many are read at once, when each device is to be read by `segment` bytes at most: whole stripes, within
    /// one group of a dRAID.
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

    /// The devices below a top-level vdev that are there, take writes and have missed groups.
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

    /// What `size` bytes of such a vdev's space hold, as devices have it that have missed nothing.
    ///
    /// # Errors
    /// [`StretchError`].
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

    /// Whether any device that is there lacks something of a stretch, and which ones are not there that have a part in it.
    ///
    /// # Errors
    /// As [`Tree::lay_out`].
    pub fn lacks_of_stretch(&self, vdev: VdevId, offset: u64, size: u64) -> Result<(bool, Vec<Guid>)> {
        let laid = self.lay_out_stretch(vdev, offset, size)?;
        let mut away = Mended::default();
        self.name_absent(&laid, &mut away);
        Ok((laid.pieces.iter().any(|piece| self.piece_missed(piece, TXG_UNKNOWN)), away.behind))
    }

    /// Where the parts of a stretch lie.
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

    /// Reads what [`Tree::read_stretch`] needs of these stretches of a dRAID, given by place and
    /// size, all devices at once; the requests for those are answered from it
    /// ([`Request::with_fetched`]). Of other vdevs, which have all of a stretch on each device,
    /// nothing is read.
    pub fn fetch_stretches(&self, vdev: VdevId, stretches: &[(u64, u64)], request: &Request) -> Fetched {
        let mut wanted: BTreeMap<NodeId, Vec<(u64, u64)>> = BTreeMap::new();
        let is_draid = self.top(vdev).is_ok_and(|top| matches!(self.node(top).layout, Layout::Draid(_)));
        for (offset, size) in stretches.iter().filter(|_| is_draid) {
            let Ok(laid) = self.lay_out_stretch(vdev, *offset, *size) else { continue };
            // Of each column the first copy that is whole.
            let mut columns: BTreeMap<usize, &Piece> = BTreeMap::new();
            for piece in laid.pieces.iter().filter(|piece| !self.piece_missed(piece, TXG_UNKNOWN)) {
                columns.entry(piece.column).or_insert(piece);
            }
            let is_parity = |column: &usize| column % laid.width < laid.tolerated;
            let data = columns.keys().filter(|column| !is_parity(column)).count();
            // A stretch is of one row.
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

    /// Writes what stretches hold, given by their places, to the devices that have missed anything: each in the order of its places, all devices at once. What became of each.
    ///
    /// # Errors
    /// Of each, as [`Tree::lay_out`].
    pub fn fill_stretches(
        &self,
        vdev: VdevId,
        stretches: &[(u64, &Block)],
        request: &Request,
    ) -> Vec<Result<Mended>> {
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
        let each = |known: Result<(usize, Mended)>| {
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
