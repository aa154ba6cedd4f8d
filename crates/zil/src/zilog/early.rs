//! Data that is not copied into the log: its blocks are written to their final location, and the
//! log names them (`WR_INDIRECT`).

use super::Zilog;
use super::fill::{Piece, What};
use super::pending::{Body, Itx};
use crate::tunables::IMMEDIATE_WRITE_SZ;
use crate::{Bytes, Source};
use dmu::{DirtyBlock, Tx};
use ondisk::zil::{RecordBody, TxKind, Write};
use ondisk::{Blkptr, ObjNum, Txg};
use zio::EarlyWrite;

/// An input of a batch.
pub(super) enum BatchInput {
    /// A record.
    Piece(Piece),
    /// Data that this block holds.
    Block { object: u64, offset: u64, length: u64, block: DirtyBlock },
}

impl BatchInput {
    /// Turns the input back into the record that it was made from. Its data is fetched again later.
    pub(super) fn into_itx(self) -> Itx {
        match self {
            BatchInput::Block { object, offset, length, block } => {
                Itx { txg: block.txg(), body: Body::Data { object, offset, length } }
            }
            BatchInput::Piece(Piece { txg, what }) => {
                let body = match what {
                    What::Whole(raw) => Body::Whole(raw),
                    What::Clones(raw) => Body::Clones(raw),
                    What::Data { object, offset, bytes } => {
                        Body::Data { object, offset, length: bytes.len() as u64 }
                    }
                };
                Itx { txg, body }
            }
        }
    }
}

/// Blocks that were allocated for a flight.
#[derive(Default)]
pub(super) struct EarlyBlocks(Vec<(DirtyBlock, Blkptr)>);

impl EarlyBlocks {
    /// Undoes the allocations after a failed flight: the blocks' txgs write them like all others.
    pub(super) fn displace(&mut self) {
        self.0.drain(..).for_each(|(block, bp)| block.displace(&bp));
    }
}

impl Zilog {
    /// True if the log names the blocks of large writes instead of copying them. With a log device,
    /// copying to it is faster.
    pub(super) fn names_blocks(&self) -> bool {
        let without = || !self.os.cache().zio().tree().has_logs();
        self.early.is_some() && (self.policy().throughput || without())
    }

    /// The block in which the data of a write begins, and how many bytes of the write it covers.
    ///
    /// `None` if the data is to be copied. Without a block, only that many bytes are copied.
    pub(super) fn early_block(
        &self,
        source: &dyn Source,
        (object, offset, length): (u64, u64, u64),
        txg: Txg,
    ) -> Option<(Option<DirtyBlock>, u64)> {
        let throughput = self.policy().throughput;
        if !self.names_blocks() || !throughput && length < IMMEDIATE_WRITE_SZ.get() {
            return None;
        }
        let block = source.dirty(ObjNum(object), offset, txg)?;
        let size = block.block().len() as u64;
        let within = offset.checked_sub(block.offset()).filter(|at| *at < size)?;
        let now = length.min(size - within);
        // The whole block is written for this data.
        let worth = throughput || (now >= IMMEDIATE_WRITE_SZ.get() && now >= size / 2);
        Some((worth.then_some(block), now))
    }

    /// Makes records of a batch in the txg of `tx`: allocates blocks of that txg, and copies the
    /// data of other txgs.
    pub(super) fn board(
        &self,
        tx: &Tx,
        gathered: Vec<BatchInput>,
    ) -> (Vec<Piece>, EarlyBlocks, Vec<EarlyWrite>) {
        let mut placed = self.place(tx, &gathered).into_iter();
        let (mut pieces, mut boarding, mut writes) = (Vec::new(), EarlyBlocks::default(), Vec::new());
        for one in gathered {
            let (object, offset, length, block) = match one {
                BatchInput::Piece(piece) => {
                    pieces.push(piece);
                    continue;
                }
                BatchInput::Block { object, offset, length, block } => (object, offset, length, block),
            };
            let mut named = block.placed().copied().filter(|_| block.txg() == tx.txg());
            let mut fresh = None;
            if let Some(early) = placed.next().flatten() {
                if block.place(early.pointer()) {
                    (named, fresh) = (Some(*early.pointer()), Some(*early.pointer()));
                    writes.push(early);
                } else {
                    self.os.cache().zio().give_back_early(tx.txg(), &early);
                }
            }
            let txg = block.txg();
            let what = match named {
                Some(bp) => {
                    self.counters.itx_indirect_count.inc();
                    self.counters.itx_indirect_bytes.add(length);
                    let write = Write { foid: object, offset, length, blkptr: Some(bp), data: Vec::new() };
                    What::Whole(RecordBody::Write(write).encode(TxKind::Write, false))
                }
                None => {
                    self.counters.itx_needcopy_count.inc();
                    self.counters.itx_needcopy_bytes.add(length);
                    let at = (offset - block.offset()) as usize;
                    let bytes = Bytes::new(block.block().clone(), at..at + length as usize);
                    What::Data { object, offset, bytes }
                }
            };
            pieces.push(Piece { txg, what });
            boarding.0.extend(fresh.map(|bp| (block, bp)));
        }
        (pieces, boarding, writes)
    }

    /// Allocates space for the blocks that have none, in their order; `None` for a block without a
    /// new allocation.
    fn place(&self, tx: &Tx, gathered: &[BatchInput]) -> Vec<Option<EarlyWrite>> {
        let Some(policy) = &self.early else { return Vec::new() };
        let (mut at, mut reqs) = (Vec::new(), Vec::new());
        let blocks = gathered.iter().filter_map(|g| match g {
            BatchInput::Block { block, .. } => Some(block),
            BatchInput::Piece(_) => None,
        });
        for block in blocks {
            let wants = block.txg() == tx.txg() && block.placed().is_none();
            let req = if wants { block.request(&**policy) } else { None };
            at.push(req.is_some());
            reqs.extend(req);
        }
        if reqs.is_empty() {
            return Vec::new();
        }
        let mut placed = self.os.cache().zio().place_early(tx.txg(), reqs).into_iter();
        at.into_iter().map(|asked| if asked { placed.next().flatten() } else { None }).collect()
    }
}
