//! Laying records out in log blocks.

use super::chain::{MAX_BLOCK, MIN_BLOCK, block_size, block_size_of};
use crate::bytes::Bytes;
use device::AlignedBuf;
use ondisk::zil::{LR_WRITE_SIZE, RecordHeader, ZIL_CHAIN_SIZE, ZilChain, put_write, set_place};
use ondisk::{Blkptr, Txg};

/// A write is split between two blocks if at least this many bytes fit into the first.
const SPLIT_MIN: usize = 1024;
/// Largest record that fits into a block (`zil_max_log_data`).
pub(super) const RECORD_MAX: usize = MAX_BLOCK as usize - ZIL_CHAIN_SIZE;

/// A record with all of its data.
pub(super) struct Piece {
    pub(super) txg: Txg,
    pub(super) what: What,
}

pub(super) enum What {
    /// One record, or several, that must not be split.
    Whole(Vec<u8>),
    /// As `Whole`, but it may go only into a block of its own txg.
    Clones(Vec<u8>),
    /// A write, which may be split.
    Data { object: u64, offset: u64, bytes: Bytes },
}

impl What {
    /// Least bytes that the record takes.
    pub(super) fn len(&self) -> usize {
        match self {
            What::Whole(raw) | What::Clones(raw) => raw.len(),
            What::Data { bytes, .. } => LR_WRITE_SIZE + bytes.len().next_multiple_of(8),
        }
    }
}

/// A block being filled.
pub(super) struct Draft {
    pub(super) bp: Blkptr,
    pub(super) bytes: AlignedBuf,
    used: usize,
    pub(super) max_txg: Txg,
}

impl Draft {
    pub(super) fn new(bp: Blkptr) -> Draft {
        let size = usize::try_from(bp.lsize.0).expect("a log block is at most 128 KiB large");
        Draft { bp, bytes: AlignedBuf::zeroed(size), used: ZIL_CHAIN_SIZE, max_txg: Txg(0) }
    }

    fn room(&self) -> usize {
        self.bytes.len() - self.used
    }

    fn put(&mut self, txg: Txg, seq: &mut u64, raw: &mut [u8]) {
        let mut rest = &mut raw[..];
        while !rest.is_empty() {
            let len = RecordHeader::decode(rest).expect("it was encoded here").reclen;
            let (record, more) = rest.split_at_mut(len);
            *seq += 1;
            set_place(record, txg.0, *seq);
            rest = more;
        }
        self.bytes[self.used..self.used + raw.len()].copy_from_slice(raw);
        self.note(txg, raw.len());
    }

    /// Counts `len` more bytes in use, of txg `txg`.
    fn note(&mut self, txg: Txg, len: usize) {
        self.used += len;
        self.max_txg = self.max_txg.max(txg);
    }

    /// Adds as much of a record as fits; returns the rest, which goes into the next block.
    fn take(&mut self, seq: &mut u64, piece: Piece) -> Option<Piece> {
        let Piece { txg, what } = piece;
        let fits = what.len() <= self.room();
        match what {
            What::Whole(mut raw) | What::Clones(mut raw) if fits => {
                self.put(txg, seq, &mut raw);
                None
            }
            What::Data { object, offset, mut bytes } => {
                let most = self.room().saturating_sub(LR_WRITE_SIZE) & !7;
                let n = if fits { bytes.len() } else { most };
                if n < bytes.len() && n < SPLIT_MIN {
                    return Some(Piece { txg, what: What::Data { object, offset, bytes } });
                }
                *seq += 1;
                let record = &mut self.bytes[self.used..];
                let len = put_write(record, object, offset, bytes.take(n));
                set_place(record, txg.0, *seq);
                self.note(txg, len);
                let offset = offset + n as u64;
                (bytes.len() > 0).then_some(Piece { txg, what: What::Data { object, offset, bytes } })
            }
            what => Some(Piece { txg, what }),
        }
    }

    /// Writes the chain header, with the pointer to the next block.
    pub(super) fn close(&mut self, next: Blkptr) {
        ZilChain { next, nused: self.used as u64 }.put(&mut self.bytes);
    }

    pub(super) fn used(&self) -> u64 {
        self.used as u64
    }
}

/// The result of `lay_out`: full blocks that know their successors, and the empty block after them.
pub(super) struct Laid {
    pub(super) full: Vec<Draft>,
    pub(super) next: Blkptr,
}

/// Lays records out from the empty block `first` on.
///
/// `allocate` gives the next block, of a given size. The last block, which stays empty, has `guess`
/// bytes.
///
/// # Errors
/// The error of `allocate`, with the blocks that it had given before.
pub(super) fn lay_out<E>(
    first: Blkptr,
    pieces: Vec<Piece>,
    seq: &mut u64,
    guess: u64,
    mut allocate: impl FnMut(&Blkptr, u64) -> Result<Blkptr, E>,
) -> Result<Laid, (E, Vec<Blkptr>)> {
    let mut left: usize = pieces.iter().map(|p| p.what.len()).sum();
    let mut full: Vec<Draft> = Vec::new();
    let mut draft = Draft::new(first);
    let mut given = Vec::new();
    for piece in pieces {
        let mut rest = Some(piece);
        while let Some(piece) = rest {
            let before = piece.what.len();
            rest = draft.take(seq, piece);
            let after = rest.as_ref().map_or(0, |p| p.what.len());
            left = left.saturating_sub(before - after.min(before));
            let Some(more) = &rest else { continue };
            // As large as the rest, and at least as large as this record if it can't be split.
            let whole = match &more.what {
                What::Whole(raw) | What::Clones(raw) => block_size_of((raw.len() + ZIL_CHAIN_SIZE) as u64),
                What::Data { .. } => 0,
            };
            let size = block_size((left.max(more.what.len()) + ZIL_CHAIN_SIZE) as u64).max(whole);
            let next = match allocate(&draft.bp, size) {
                Ok(next) => next,
                Err(e) => return Err((e, given)),
            };
            given.push(next);
            draft.close(next);
            full.push(std::mem::replace(&mut draft, Draft::new(next)));
        }
    }
    match allocate(&draft.bp, guess.max(MIN_BLOCK)) {
        Ok(next) => {
            draft.close(next);
            full.push(draft);
            Ok(Laid { full, next })
        }
        Err(e) => Err((e, given)),
    }
}

#[cfg(test)]
mod tests;
