//! Persistent L2ARC: the header of a cache device, and the log of its blocks.
//!
//! # On disk
//! The header is behind the front labels, at 4 MiB. It has 512 bytes, or one sector if that is
//! more. An embedded checksum at the end of the sector seals it, as in labels. Blocks follow in the
//! order in which they were written, in a ring.
//!
//! After every so many blocks comes a log block, which names them. It has 64 KiB before its
//! compression with LZ4. The header points to the two newest log blocks, and each log block to the
//! one two before it. So two chains interleave.
//!
//! All words have the writer's byte order, which the magic numbers tell.
//!
//! # See
//! OpenZFS: `l2arc_dev_hdr_phys_t`, `l2arc_log_blk_phys_t`, `l2arc_log_ent_phys_t` in `arc_impl.h`.

use crate::bytes::{le64, swap64};
use crate::words::put_words;
use crate::{ByteOrder, CompressKind, Corrupt, Dva, Guid, Lsize, Psize, Result, SPA_MINBLOCKSHIFT, Txg};

/// Offset of a cache device's header (`VDEV_LABEL_START_SIZE`).
pub const L2ARC_HDR_OFFSET: u64 = 4 << 20;
/// Bytes of the header without its padding to a sector (`sizeof (l2arc_dev_hdr_phys_t)`).
pub const L2ARC_HDR_SIZE: usize = 512;
/// Bytes of a log block before its compression (`sizeof (l2arc_log_blk_phys_t)`).
pub const L2ARC_LOG_BLK_SIZE: usize = 65536;
/// Entries of a log block.
pub const L2ARC_LOG_BLK_MAX_ENTRIES: usize = 1022;
/// The only version.
pub const L2ARC_PERSISTENT_VERSION: u64 = 1;

/// `L2ARC_DEV_HDR_MAGIC`.
const HDR_MAGIC: u64 = 0x5a46_5343_4143_4845;
/// `L2ARC_LOG_BLK_MAGIC`.
const LOG_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
/// `L2ARC_DEV_HDR_EVICT_FIRST`.
const FLAG_FIRST: u64 = 1;
/// Fletcher-4, the checksum of log blocks.
const CHECKSUM_FLETCHER_4: u64 = 7;
const HEAD_WORDS: usize = 16;
const ENTRY_WORDS: usize = 8;

const _: () = assert!((HEAD_WORDS + L2ARC_LOG_BLK_MAX_ENTRIES * ENTRY_WORDS) * 8 == L2ARC_LOG_BLK_SIZE);

/// Pointer to a log block; all zeros if there is none (`l2arc_log_blkptr_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPointer {
    /// Offset of the log block on the device (`lbp_daddr`).
    pub daddr: u64,
    /// Bytes of the blocks that the log block names, in whole sectors (`lbp_payload_asize`).
    pub payload_asize: u64,
    /// Offset of the first of these blocks (`lbp_payload_start`).
    pub payload_start: u64,
    /// Bytes of the log block on the device, in whole sectors; 0 if there is none
    /// (`L2BLK_GET_PSIZE`).
    pub asize: u64,
    /// True if the log block is compressed with LZ4 (`L2BLK_GET_COMPRESS`).
    pub packed: bool,
    /// Fletcher-4 checksum of the log block as stored (`lbp_cksum`).
    pub sum: [u64; 4],
}

const POINTER_WORDS: usize = 8;

fn sectors(bytes: u64) -> u64 {
    (bytes >> SPA_MINBLOCKSHIFT).wrapping_sub(1) & 0xffff
}

fn bytes_of(word: u64, shift: u32) -> u64 {
    ((word >> shift & 0xffff) + 1) << SPA_MINBLOCKSHIFT
}

impl LogPointer {
    /// True if the pointer points to nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn decode(w: &[u64]) -> Result<LogPointer> {
        if w[..POINTER_WORDS].iter().all(|w| *w == 0) {
            return Ok(LogPointer::default());
        }
        const WHAT: &str = "pointer to a log block of a cache device";
        let prop = w[3];
        let packed = match CompressKind::from_disk((prop >> 32 & 0x7f) as u8)? {
            CompressKind::Off => false,
            CompressKind::Lz4 => true,
            other => {
                return Err(Corrupt::Range { what: WHAT, field: "compression", value: other as u64 });
            }
        };
        let sum = prop >> 40 & 0xff;
        if sum != CHECKSUM_FLETCHER_4 {
            return Err(Corrupt::Range { what: WHAT, field: "checksum", value: sum });
        }
        let asize = bytes_of(prop, 16);
        if asize > L2ARC_LOG_BLK_SIZE as u64 || !packed && asize != L2ARC_LOG_BLK_SIZE as u64 {
            return Err(Corrupt::Range { what: WHAT, field: "asize", value: asize });
        }
        let sum = [w[4], w[5], w[6], w[7]];
        Ok(LogPointer { daddr: w[0], payload_asize: w[1], payload_start: w[2], asize, packed, sum })
    }

    fn encode(&self) -> [u64; POINTER_WORDS] {
        if self.is_none() {
            return [0; POINTER_WORDS];
        }
        let compress = if self.packed { CompressKind::Lz4 } else { CompressKind::Off } as u64;
        let prop = sectors(L2ARC_LOG_BLK_SIZE as u64)
            | sectors(self.asize) << 16
            | compress << 32
            | CHECKSUM_FLETCHER_4 << 40;
        let [a, b, c, d] = self.sum;
        [self.daddr, self.payload_asize, self.payload_start, prop, a, b, c, d]
    }
}

/// The header of a cache device, without the checksum that seals it (`l2arc_dev_hdr_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DevHeader {
    /// Guid of the pool that the device caches (`dh_spa_guid`).
    pub pool: Guid,
    /// Guid of the device (`dh_vdev_guid`).
    pub vdev: Guid,
    /// Used entries of each log block; 0 if there is no log (`dh_log_entries`).
    pub log_entries: u64,
    /// Offset up to which blocks were evicted for the next writes (`dh_evict`).
    pub evict: u64,
    /// True until the device was filled once (`L2ARC_DEV_HDR_EVICT_FIRST`).
    pub first: bool,
    /// Offset of the first block (`dh_start`).
    pub start: u64,
    /// End of the space for blocks (`dh_end`).
    pub end: u64,
    /// The newest log block, and the one before it (`dh_start_lbps`).
    pub newest: [LogPointer; 2],
    /// Bytes of the valid log blocks (`dh_lb_asize`).
    pub log_asize: u64,
    /// Number of the valid log blocks (`dh_lb_count`).
    pub log_count: u64,
    /// Time and state of the last TRIM of the device (`dh_trim_action_time`, `dh_trim_state`).
    pub trim: [u64; 2],
}

impl DevHeader {
    /// Decodes a header, whose checksum the caller has verified.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `raw` has fewer than 512 bytes.
    /// * [`Corrupt::Magic`]: the device has no header.
    /// * [`Corrupt::Range`]: one of these values is impossible:
    ///   * the version
    ///   * the number of log entries, above [`L2ARC_LOG_BLK_MAX_ENTRIES`]
    ///   * the compressor, the checksum or the size of a log pointer
    pub fn decode(raw: &[u8]) -> Result<DevHeader> {
        const WHAT: &str = "header of a cache device";
        let w = words_by_magic::<{ L2ARC_HDR_SIZE / 8 }>(WHAT, raw, HDR_MAGIC)?;
        if w[1] != L2ARC_PERSISTENT_VERSION {
            return Err(Corrupt::Range { what: WHAT, field: "version", value: w[1] });
        }
        if w[4] > L2ARC_LOG_BLK_MAX_ENTRIES as u64 {
            return Err(Corrupt::Range { what: WHAT, field: "log entries", value: w[4] });
        }
        Ok(DevHeader {
            pool: Guid(w[2]),
            vdev: Guid(w[3]),
            log_entries: w[4],
            evict: w[5],
            first: w[6] & FLAG_FIRST != 0,
            start: w[7],
            end: w[8],
            newest: [LogPointer::decode(&w[9..17])?, LogPointer::decode(&w[17..25])?],
            log_asize: w[25],
            log_count: w[26],
            trim: [w[27], w[28]],
        })
    }

    /// Encodes the header, little-endian, without the checksum at the end of the sector.
    pub fn encode(&self) -> [u8; L2ARC_HDR_SIZE] {
        let mut out = [0; L2ARC_HDR_SIZE];
        let flags = if self.first { FLAG_FIRST } else { 0 };
        let head = [HDR_MAGIC, L2ARC_PERSISTENT_VERSION, self.pool.0, self.vdev.0, self.log_entries];
        put_words(&mut out, 0, &head);
        put_words(&mut out, 5, &[self.evict, flags, self.start, self.end]);
        put_words(&mut out, 9, &self.newest[0].encode());
        put_words(&mut out, 17, &self.newest[1].encode());
        put_words(&mut out, 25, &[self.log_asize, self.log_count, self.trim[0], self.trim[1]]);
        out
    }
}

/// A log entry: one block on a cache device (`l2arc_log_ent_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntry {
    /// First copy of the block in the pool (`le_dva`).
    pub dva: Dva,
    /// Transaction group that wrote the block (`le_birth`).
    pub birth: Txg,
    /// Offset of the block on the cache device (`le_daddr`).
    pub daddr: u64,
    /// Bytes as the object sees them (`L2BLK_GET_LSIZE`).
    pub lsize: Lsize,
    /// Bytes on the cache device, without the padding to whole sectors (`L2BLK_GET_PSIZE`).
    pub psize: Psize,
    /// Compressor of the bytes on the cache device (`L2BLK_GET_COMPRESS`).
    pub compress: CompressKind,
    /// Compression level, in OpenZFS's numbers (`le_complevel`).
    pub complevel: u64,
    /// True if the block is metadata (`L2BLK_GET_TYPE`).
    pub metadata: bool,
    /// True if the block is encrypted or authenticated (`L2BLK_GET_PROTECTED`).
    pub protected: bool,
    /// True if the block was prefetched and not used since (`L2BLK_GET_PREFETCH`).
    pub prefetch: bool,
    /// True if the block had been used again when it was written (`L2BLK_GET_STATE` is
    /// `ARC_STATE_MFU`).
    pub again: bool,
}

/// The numbers of `ARC_STATE_MRU` and `ARC_STATE_MFU`.
const STATES: [u64; 2] = [1, 3];

impl LogEntry {
    /// `None` for an unused entry of a log block.
    fn decode(w: &[u64]) -> Result<Option<LogEntry>> {
        let Some(dva) = Dva::decode(w[0], w[1]) else { return Ok(None) };
        let prop = w[3];
        let compress = CompressKind::from_disk((prop >> 32 & 0x7f) as u8)?;
        Ok(Some(LogEntry {
            dva,
            birth: Txg(w[2]),
            daddr: w[4],
            lsize: Lsize(bytes_of(prop, 0)),
            psize: Psize(bytes_of(prop, 16)),
            compress,
            complevel: w[5],
            metadata: prop >> 48 & 0xff == 2,
            protected: prop >> 56 & 1 != 0,
            prefetch: prop >> 39 & 1 != 0,
            again: prop >> 57 & 0xf == STATES[1],
        }))
    }

    fn encode(&self) -> [u64; 6] {
        let (w0, w1) = self.dva.encode();
        let prop = sectors(self.lsize.0)
            | sectors(self.psize.0) << 16
            | (self.compress as u64) << 32
            | u64::from(self.prefetch) << 39
            | (1 + u64::from(self.metadata)) << 48
            | u64::from(self.protected) << 56
            | STATES[usize::from(self.again)] << 57;
        [w0, w1, self.birth.0, prop, self.daddr, self.complevel]
    }
}

/// A log block of a cache device (`l2arc_log_blk_phys_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogBlock {
    /// The log block two before this one (`lb_prev_lbp`).
    pub prev: LogPointer,
    /// The blocks, in the order in which they were written (`lb_entries`).
    pub entries: Vec<LogEntry>,
}

impl LogBlock {
    /// Decodes an uncompressed log block, of which the first `log_entries` entries are used.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `raw` has fewer than 64 KiB.
    /// * [`Corrupt::Magic`]: `raw` is no log block.
    /// * [`Corrupt::Range`]: an entry has an unknown compressor, or the pointer to the earlier log
    ///   block has an impossible compressor, checksum or size.
    pub fn decode(raw: &[u8], log_entries: u64) -> Result<LogBlock> {
        const WHAT: &str = "log block of a cache device";
        let head = words_by_magic::<HEAD_WORDS>(WHAT, raw, LOG_MAGIC)?;
        if raw.len() < L2ARC_LOG_BLK_SIZE {
            return Err(Corrupt::Truncated { what: WHAT, need: L2ARC_LOG_BLK_SIZE, have: raw.len() });
        }
        let used = usize::try_from(log_entries).unwrap_or(usize::MAX).min(L2ARC_LOG_BLK_MAX_ENTRIES);
        let order = ByteOrder::by_magic(le64(raw, 0), LOG_MAGIC).unwrap_or(ByteOrder::Little);
        let mut entries = Vec::with_capacity(used);
        for raw in raw[HEAD_WORDS * 8..].chunks_exact(ENTRY_WORDS * 8).take(used) {
            let mut w = [0; ENTRY_WORDS];
            for (n, word) in w.iter_mut().enumerate() {
                *word = le64(raw, n * 8);
                if order == ByteOrder::Big {
                    *word = word.swap_bytes();
                }
            }
            entries.extend(LogEntry::decode(&w)?);
        }
        Ok(LogBlock { prev: LogPointer::decode(&head[1..9])?, entries })
    }

    /// Encodes the log block, little-endian and uncompressed.
    ///
    /// # Panics
    /// If there are more than [`L2ARC_LOG_BLK_MAX_ENTRIES`] entries. The writer counts them.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.len() <= L2ARC_LOG_BLK_MAX_ENTRIES, "whoever fills a log block counts");
        let mut out = vec![0; L2ARC_LOG_BLK_SIZE];
        put_words(&mut out, 0, &[LOG_MAGIC]);
        put_words(&mut out, 1, &self.prev.encode());
        for (n, entry) in self.entries.iter().enumerate() {
            put_words(&mut out, HEAD_WORDS + n * ENTRY_WORDS, &entry.encode());
        }
        out
    }
}

/// The first `N` words, in the byte order that the magic number tells.
fn words_by_magic<const N: usize>(what: &'static str, raw: &[u8], magic: u64) -> Result<[u64; N]> {
    let Some(raw) = raw.get(..N * 8) else {
        return Err(Corrupt::Truncated { what, need: N * 8, have: raw.len() });
    };
    let found = le64(raw, 0);
    let order = ByteOrder::by_magic(found, magic).ok_or(Corrupt::Magic { what, found })?;
    let mut raw = raw.to_vec();
    if order == ByteOrder::Big {
        swap64(&mut raw);
    }
    Ok(std::array::from_fn(|n| le64(&raw, n * 8)))
}

#[cfg(test)]
mod tests;
