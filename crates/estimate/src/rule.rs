//! How a pool stores a record.
//!
//! # See
//! `zio::write::prepare`, OpenZFS `zio_write_compress`.

use crate::Compressor;
use codec::compress;
use ondisk::CompressKind;
use ondisk::blkptr::EMBEDDED_PAYLOAD;

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Zeros: it is not stored.
    Hole,
    /// It fits into its pointer.
    Embedded {
        /// Bytes in the pointer.
        payload: u8,
        /// Bytes as stored if it may not be in the pointer (`psize`).
        apart: u64,
    },
    /// It is stored in so many bytes (`psize`).
    Stored(u64),
}

/// The outcome for a record or a block of metadata. `zero`: all of its bytes are zeros.
pub(crate) fn fate(by: &Compressor, sector: u64, data: &[u8], zero: bool, scratch: &mut Vec<u8>) -> Fate {
    let (len, sector) = (data.len(), sector as usize);
    if by.kind == CompressKind::Off {
        return Fate::Stored(len as u64);
    }
    if zero {
        return Fate::Hole;
    }
    let max = compress::max_size(by.kind, sector, sector, len);
    if scratch.len() < max {
        scratch.resize(max, 0);
    }
    match compress::compress(by.kind, by.level, data, &mut scratch[..max]).filter(|n| *n < len) {
        Some(packed) => {
            let apart = compress::alloc_size(sector, sector, packed).min(len) as u64;
            match u8::try_from(packed) {
                Ok(payload) if (1..=EMBEDDED_PAYLOAD).contains(&packed) => Fate::Embedded { payload, apart },
                _ => Fate::Stored(apart),
            }
        }
        None => Fate::Stored(len as u64),
    }
}

/// Bytes of a block of metadata, as stored: LZ4 (`psize`). `None` if it needs no place.
pub(crate) fn metadata(sector: u64, block: &[u8], embed: bool, scratch: &mut Vec<u8>) -> Option<u64> {
    let lz4 =
        Compressor { name: String::new(), kind: CompressKind::Lz4, level: compress::ZstdLevel::DEFAULT };
    match fate(&lz4, sector, block, compress::is_zero(block), scratch) {
        Fate::Hole => None,
        Fate::Embedded { .. } if embed => None,
        Fate::Embedded { apart, .. } => Some(apart),
        Fate::Stored(size) => Some(size),
    }
}

/// Space that blocks take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Space {
    /// Bytes on devices, with all copies (`asize`).
    pub(crate) asize: u64,
    /// Bytes as stored, of one copy (`psize`).
    pub(crate) psize: u64,
    /// Bytes before compression, as `logicalused` counts them.
    pub(crate) logical: u64,
}

impl Space {
    /// Adds a block of data.
    pub(crate) fn data(&mut self, sector: u64, psize: u64, lsize: u64) {
        self.asize += psize.next_multiple_of(sector);
        self.psize += psize;
        self.logical += lsize;
    }

    /// Adds a block of metadata, which has two copies. Its size before compression doesn't count.
    pub(crate) fn metadata(&mut self, sector: u64, psize: u64) {
        self.asize += 2 * psize.next_multiple_of(sector);
        self.psize += psize;
        self.logical += psize;
    }

    pub(crate) fn add(&mut self, other: Space) {
        self.asize += other.asize;
        self.psize += other.psize;
        self.logical += other.logical;
    }
}
