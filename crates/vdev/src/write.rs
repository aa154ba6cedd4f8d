//! Writing: from a block to the ranges of devices that hold it.
//!
//! # Theory
//! A write has steps, so that threads can share a batch of blocks, and neighbours can be joined:
//!
//! 1. [`Tree::lay_out`] turns one block into pieces. Its parity is computed, short sectors are
//!    filled with zeros, and each column finds the devices that hold it. A *piece* is a range of a
//!    leaf with its bytes.
//! 2. [`join`] sorts the pieces of many blocks by device and offset, and makes contiguous runs of
//!    those that touch.
//! 3. [`Tree::issue`] writes a run with one system call.
//! 4. [`Tree::conclude`] tells for each block whether enough of it was written.
//!
//! # Life
//! A piece that could not be written, or whose device is missing, reduces the redundancy. The
//! failure counts as an error of the device. The txg is added to the device's DTL, so that reads
//! use it last and a resilver repairs it. A block is lost only when it lacks more columns than
//! there is parity, or its last copy.
//!
//! # Crash
//! A write is durable only when the devices have been flushed.
//!
//! # See
//! OpenZFS `vdev_mirror_io_start`, `vdev_raidz_io_start_write`, `vdev_draid_map_alloc_write`,
//! `vdev_stat_update`.

mod batch_reader;
mod fault;
mod fetch;
mod flush;
mod refill;
mod repair;
mod run;
mod scrub;
pub(crate) mod shared_flush;
mod stretch;
mod wipe;

use std::ops::Range;
use std::sync::Arc;

use device::{AlignedBuf, Block, DeviceError};
use ondisk::{Guid, Psize, Txg, VdevId};

use crate::columns::Map;
use crate::parity;
use crate::request::Request;
use crate::tree::{Layout, NodeId, Tree};
use crate::{Result, VdevError};

/// Most vdevs visited for the copies of one column.
const MAX_VISITS: u32 = 1024;
/// The column of bytes that are only written to join runs.
const PADDING: usize = usize::MAX;

pub use batch_reader::BatchReader;
pub use fault::takes_writes;
pub use fetch::{Extent, Fetched};
pub use flush::FlushError;
pub(crate) use flush::OPEN_GROUPS;
pub use repair::Repaired;
pub use run::{Run, by_device, join};
pub use scrub::{Examined, RepairOutcome};
pub use stretch::StretchError;
pub(crate) use stretch::TXG_UNKNOWN;
pub use wipe::WipeError;

/// Why a write did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// No block can be written there.
    #[error(transparent)]
    Place(#[from] VdevError),
    /// More of the block failed than the vdev's redundancy makes up for.
    #[error(
        "vdev {vdev}: {failed} parts of a block at {offset:#x} were not written, and {tolerated} may fail"
    )]
    Lost {
        /// The top-level vdev.
        vdev: VdevId,
        /// The block's offset.
        offset: u64,
        /// Columns or copies that failed or whose devices are missing.
        failed: usize,
        /// How many may fail.
        tolerated: usize,
        /// The last failure of a device, if one was accessed.
        #[source]
        source: Option<Arc<DeviceError>>,
    },
}

/// The outcome of a block that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Pieces that were not written, though enough were.
    pub missed: usize,
}

/// A range of a leaf and the bytes for it.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// The leaf whose device is written.
    pub(crate) leaf: NodeId,
    /// The vdev that has missed the txg if the write fails: the leaf, or the distributed spare on
    /// it.
    pub(crate) account: NodeId,
    pub(crate) offset: u64,
    pub(crate) bytes: Block,
    pub(crate) range: Range<usize>,
    /// Number of the column that it is a copy of.
    pub(crate) column: usize,
}

/// A block as it will lie on its devices.
#[derive(Debug)]
pub struct Laid {
    vdev: VdevId,
    offset: u64,
    txg: Txg,
    /// Columns that may fail in each row.
    tolerated: usize,
    /// Columns in each row.
    width: usize,
    pub(crate) pieces: Vec<Piece>,
    /// Leaves that should hold a part of a column and can't be written.
    absent: Vec<(NodeId, usize)>,
}

/// A piece that a device refused.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Number of its block among those that were joined.
    pub block: usize,
    column: usize,
    leaf: NodeId,
    account: NodeId,
    /// Its bytes.
    len: usize,
    /// `None` if the device had been given up before the write.
    source: Option<Arc<DeviceError>>,
}

/// Where a piece of a block is: a range of the bytes of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceAt {
    /// The device.
    pub device: Guid,
    /// Its bytes; the labels count.
    pub range: Range<u64>,
    /// Number of the column that it holds, over all rows. Pieces of one column are copies of each
    /// other; a mirror has one column.
    pub column: usize,
}

/// What is to be written somewhere: a range of a column's bytes.
struct Part<'a> {
    column: usize,
    bytes: &'a Block,
    range: Range<usize>,
}

impl Laid {
    /// Where the block begins.
    pub fn place(&self) -> (VdevId, u64) {
        (self.vdev, self.offset)
    }

    /// Bytes of all its pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.range.len() as u64).sum()
    }
}

impl Tree {
    /// Writes a block and waits for it: parity, padding and all copies. `txg` is the group that it
    /// is born in.
    ///
    /// # Errors
    /// * [`WriteError::Place`]: no block can be there; one of the errors of [`Tree::lay_out`].
    /// * [`WriteError::Lost`]: more columns or copies failed than the vdev's redundancy makes up
    ///   for.
    pub fn write(
        &self,
        vdev: VdevId,
        offset: u64,
        data: &[u8],
        txg: Txg,
        request: &Request,
    ) -> std::result::Result<Written, WriteError> {
        self.write_block(vdev, offset, &Block::copy_of(data), txg, request)
    }

    /// Writes a block like [`Tree::write`], without a copy of its bytes.
    ///
    /// # Errors
    /// * [`WriteError::Place`]: no block can be there; one of the errors of [`Tree::lay_out`].
    /// * [`WriteError::Lost`]: more columns or copies failed than the vdev's redundancy makes up
    ///   for.
    pub fn write_block(
        &self,
        vdev: VdevId,
        offset: u64,
        data: &Block,
        txg: Txg,
        request: &Request,
    ) -> std::result::Result<Written, WriteError> {
        let laid = [self.lay_out(vdev, offset, data, txg)?];
        let refused: Vec<Refused> = join(&laid).iter().flat_map(|run| self.issue(run, request)).collect();
        self.conclude(&laid[0], &refused)
    }

    /// Lays out a block at `offset` of a top-level vdev. Computes its parity; writes nothing.
    ///
    /// # Errors
    /// No block can be written there:
    ///
    /// * [`VdevError::NoSuchVdev`]: the pool has no top-level vdev of this number.
    /// * [`VdevError::Size`]: no block has this size.
    /// * [`VdevError::Range`]: the block passes the end of the vdev.
    /// * [`VdevError::Misaligned`]: no block begins at this offset.
    /// * [`VdevError::RaidzSides`]: the vdev is a mirror of raidz.
    /// * [`VdevError::Expanding`]: the vdev is a raidz that is being expanded.
    /// * [`VdevError::Absent`]: the vdev is a hole, is missing or was removed.
    pub fn lay_out(&self, vdev: VdevId, offset: u64, data: &Block, txg: Txg) -> Result<Laid> {
        self.lay_out_as(vdev, offset, data, txg, true)
    }

    /// Lays out a block with zeros for the sectors that a raidz leaves behind it. These belong to
    /// the block, and with them a run of many blocks does not end there.
    ///
    /// # Errors
    /// Those of [`Tree::lay_out`].
    pub fn lay_out_padded(&self, vdev: VdevId, offset: u64, data: &Block, txg: Txg) -> Result<Laid> {
        let mut laid = self.lay_out(vdev, offset, data, txg)?;
        self.pad(&mut laid, data.len(), txg);
        Ok(laid)
    }

    /// Lays out a block. Without `sums` only the places count, and parity need not be right.
    fn lay_out_as(&self, vdev: VdevId, offset: u64, data: &Block, txg: Txg, sums: bool) -> Result<Laid> {
        let top = self.top(vdev)?;
        let node = self.node(top);
        if data.is_empty() || data.len() as u64 > ondisk::SPA_MAXBLOCKSIZE {
            return Err(VdevError::Size { vdev, size: data.len() as u64 });
        }
        crate::attempts::check_range(self, top, vdev, offset, Psize(data.len() as u64), txg)?;
        let sector = 1 << node.ashift().0;
        let misaligned = VdevError::Misaligned { vdev, offset };
        if !offset.is_multiple_of(sector as u64) {
            return Err(misaligned);
        }
        let data = whole_sectors(data, sector);
        let mut laid =
            Laid { vdev, offset, txg, tolerated: 0, width: 1, pieces: Vec::new(), absent: Vec::new() };
        match &node.layout {
            Layout::Mirrored if self.raidz_children(node).next().is_some() => {
                return Err(VdevError::RaidzSides { vdev });
            }
            Layout::Leaf(_) | Layout::Mirrored | Layout::DraidSpare { .. } => {
                let part = Part { column: 0, bytes: &data, range: 0..data.len() };
                self.place(&mut laid, top, None, offset, &part, &mut { MAX_VISITS });
            }
            Layout::Raidz(raidz) if raidz.is_expanding() => return Err(VdevError::Expanding { vdev }),
            Layout::Raidz(raidz) => {
                let map = raidz.map(offset, data.len() as u64, txg);
                self.place_columns(&mut laid, top, &map, &data, None, sums);
            }
            Layout::Draid(draid) if draid.aligned(offset) => {
                let map = draid.map(offset, data.len() as u64);
                self.place_columns(&mut laid, top, &map, &data, Some(sector), sums);
            }
            Layout::Draid(_) => return Err(misaligned),
            Layout::Indirect(_) | Layout::Absent | Layout::Root => return Err(VdevError::Absent { vdev }),
        }
        Ok(laid)
    }

    /// Where the pieces of a block are, parity and filling too, on the devices that can be
    /// accessed.
    ///
    /// # Errors
    /// Those of [`Tree::lay_out`].
    pub fn pieces_of(&self, vdev: VdevId, offset: u64, psize: Psize, birth: Txg) -> Result<Vec<PieceAt>> {
        if psize.0 > ondisk::SPA_MAXBLOCKSIZE {
            return Err(VdevError::Size { vdev, size: psize.0 });
        }
        let laid = self.lay_out_as(vdev, offset, &Block::zeroed(psize.0 as usize), birth, false)?;
        let at = |piece: Piece| {
            let start = crate::tree::device_offset(piece.offset);
            let range = start..start + piece.range.len() as u64;
            PieceAt { device: self.node(piece.leaf).guid, range, column: piece.column }
        };
        Ok(laid.pieces.into_iter().map(at).collect())
    }

    /// Makes pieces of the columns of a map. `fill` is the size of a sector: columns shorter than
    /// the parity then get zeros behind them, since dRAID writes whole stripes.
    fn place_columns(
        &self,
        laid: &mut Laid,
        top: NodeId,
        map: &Map,
        data: &Block,
        fill: Option<usize>,
        sums: bool,
    ) {
        let children = &self.node(top).children;
        (laid.tolerated, laid.width) = (map.nparity, map.width);
        let zeros = fill.map(Block::zeroed);
        let mut put = |child: usize, offset, part: Part<'_>| {
            self.place(laid, children[child], None, offset, &part, &mut { MAX_VISITS });
        };
        for (n, row) in map.rows().enumerate() {
            let first = n * map.width;
            let (parity_cols, data_cols) = row.split_at(map.nparity);
            let columns: Vec<&[u8]> = data_cols.iter().map(|c| &data[c.at..c.at + c.size]).collect();
            let height = columns.iter().map(|c| c.len()).max().unwrap_or(0);
            let mut parity: Vec<AlignedBuf> =
                parity_cols.iter().map(|_| AlignedBuf::zeroed(height)).collect();
            if sums {
                parity::encode(&columns, &mut parity.iter_mut().map(|p| &mut **p).collect::<Vec<_>>());
            }
            for ((i, col), bytes) in parity_cols.iter().enumerate().zip(parity) {
                let bytes = bytes.freeze();
                put(col.child, col.offset, Part { column: first + i, bytes: &bytes, range: 0..height });
            }
            for (i, col) in data_cols.iter().enumerate() {
                let column = first + map.nparity + i;
                if col.size > 0 {
                    let range = col.at..col.at + col.size;
                    put(col.child, col.offset, Part { column, bytes: data, range });
                }
                // Columns of one row differ by one sector at most.
                if let Some(bytes) = zeros.as_ref().filter(|_| col.size < height) {
                    let range = 0..height - col.size;
                    put(col.child, col.offset + col.size as u64, Part { column, bytes, range });
                }
            }
        }
    }

    /// Finds the devices below a vdev that hold its bytes at `offset`. `account` is the distributed
    /// spare on the path, if there is one.
    // As deep as the tree. But in a hostile configuration a distributed spare may lead to itself.
    fn place(
        &self,
        laid: &mut Laid,
        id: NodeId,
        account: Option<NodeId>,
        offset: u64,
        part: &Part<'_>,
        budget: &mut u32,
    ) {
        if *budget == 0 {
            return;
        }
        *budget -= 1;
        let node = self.node(id);
        match &node.layout {
            Layout::Leaf(Some(_)) if self.writable(id) => laid.pieces.push(Piece {
                leaf: id,
                account: account.unwrap_or(id),
                offset,
                bytes: part.bytes.clone(),
                range: part.range.clone(),
                column: part.column,
            }),
            Layout::Mirrored => {
                for child in &node.children {
                    self.place(laid, *child, account, offset, part, budget);
                }
            }
            Layout::DraidSpare { draid, spare } if node.readable() => {
                let top = self.node(*draid);
                if let Layout::Draid(geometry) = &top.layout {
                    let child = top.children[geometry.spare_child(*spare, offset)];
                    self.place(laid, child, Some(account.unwrap_or(id)), offset, part, budget);
                }
            }
            Layout::Leaf(_)
            | Layout::DraidSpare { .. }
            | Layout::Raidz(_)
            | Layout::Draid(_)
            | Layout::Indirect(_)
            | Layout::Absent
            | Layout::Root => laid.absent.push((account.unwrap_or(id), part.column)),
        }
    }

    /// The outcome of a block, from every piece of it that was refused. Records which devices have
    /// missed the txg.
    ///
    /// # Errors
    /// * [`WriteError::Lost`]: more columns or copies failed than the vdev's redundancy makes up
    ///   for.
    pub fn conclude<'r>(
        &self,
        laid: &Laid,
        refused: impl IntoIterator<Item = &'r Refused>,
    ) -> std::result::Result<Written, WriteError> {
        // A piece that holds nothing can't be missed.
        let refused: Vec<&Refused> = refused.into_iter().filter(|r| r.column != PADDING).collect();
        let mut missed: Vec<(usize, NodeId)> = laid.absent.iter().map(|(node, col)| (*col, *node)).collect();
        missed.extend(refused.iter().map(|r| (r.column, r.account)));
        if missed.is_empty() {
            return Ok(Written::default());
        }
        missed.sort_unstable();
        missed.dedup();
        for (_, node) in &missed {
            self.node(*node).miss(laid.txg);
        }
        let mut bad: Vec<usize> = missed.iter().map(|(col, _)| *col).collect();
        bad.dedup();
        let whole = |col: usize| {
            let mut copies = laid.pieces.iter().filter(|p| p.column == col);
            copies.any(|p| missed.binary_search(&(col, p.account)).is_err())
        };
        bad.retain(|col| !whole(*col));
        let worst = bad.chunk_by(|a, b| a / laid.width == b / laid.width).map(<[usize]>::len).max();
        let failed = worst.unwrap_or(0);
        if failed <= laid.tolerated {
            return Ok(Written { missed: missed.len() });
        }
        let source = refused.iter().rev().find_map(|r| r.source.clone());
        Err(WriteError::Lost {
            vdev: laid.vdev,
            offset: laid.offset,
            failed,
            tolerated: laid.tolerated,
            source,
        })
    }
}

/// The bytes with zeros up to a whole number of sectors. A pool may mix vdevs of different sectors.
fn whole_sectors(data: &Block, sector: usize) -> Block {
    let whole = data.len().next_multiple_of(sector);
    if whole == data.len() {
        return data.clone();
    }
    let mut padded = AlignedBuf::zeroed(whole);
    padded[..data.len()].copy_from_slice(data);
    padded.freeze()
}

#[cfg(test)]
mod tests;
