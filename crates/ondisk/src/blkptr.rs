//! Block pointers: where a block is, its encoding, and its checksum (`blkptr_t`).
//!
//! # On disk
//! A block pointer has 128 bytes, which are sixteen words:
//!
//! | words | content |
//! |---|---|
//! | 0 to 5 | three DVAs |
//! | 6 | properties |
//! | 7, 8 | padding |
//! | 9 | physical birth |
//! | 10 | logical birth |
//! | 11 | fill |
//! | 12 to 15 | checksum |
//!
//! A pointer with the embedded bit keeps up to 112 bytes of data in all words but 6 and 10. An
//! encrypted block keeps its salt and IV in the third DVA and the upper half of the fill. The last
//! two words of its checksum are its MAC. See `docs/internals/format/blkptr.md`.

use crate::bytes::le64;
use crate::{ByteOrder, ChecksumKind, CompressKind, Corrupt, DmuType, Result};
use crate::{SPA_MAXBLOCKSIZE, SPA_MINBLOCKSHIFT, num::*};

/// Bytes of a block pointer (`sizeof (blkptr_t)`).
pub const BLKPTR_SIZE: usize = 128;
/// log2 of [`BLKPTR_SIZE`] (`SPA_BLKPTRSHIFT`).
pub const BLKPTR_SHIFT: u32 = 7;
/// The number of DVAs in a pointer (`SPA_DVAS_PER_BP`).
pub const DVAS_PER_BP: usize = 3;
/// The most bytes that an embedded pointer holds (`BPE_PAYLOAD_SIZE`).
pub const EMBEDDED_PAYLOAD: usize = 112;

const WHAT: &str = "block pointer";
/// The words of an embedded pointer that hold payload, in order.
const PAYLOAD_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

/// Data virtual address: the location of a block on a top-level vdev (`dva_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dva {
    /// The top-level vdev (`DVA_GET_VDEV`).
    pub vdev: VdevId,
    /// Byte offset in the vdev's allocatable space (`DVA_GET_OFFSET`).
    pub offset: Offset,
    /// Bytes allocated there, parity and padding included (`DVA_GET_ASIZE`).
    pub asize: Asize,
    /// True if the location holds a gang header instead of the block (`DVA_GET_GANG`).
    pub gang: bool,
}

impl Dva {
    pub(crate) fn decode(w0: u64, w1: u64) -> Option<Dva> {
        if w0 == 0 && w1 == 0 {
            return None;
        }
        Some(Dva {
            vdev: VdevId((w0 >> 32 & 0xff_ffff) as u32),
            offset: Offset((w1 & !(1 << 63)) << SPA_MINBLOCKSHIFT),
            asize: Asize((w0 & 0xff_ffff) << SPA_MINBLOCKSHIFT),
            gang: w1 >> 63 != 0,
        })
    }

    pub(crate) fn encode(self) -> (u64, u64) {
        let w0 = u64::from(self.vdev.0) << 32 | self.asize.0 >> SPA_MINBLOCKSHIFT;
        (w0, self.offset.0 >> SPA_MINBLOCKSHIFT | u64::from(self.gang) << 63)
    }
}

/// Salt and IV of an encrypted block (`zio_crypt_decode_params_bp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CryptParams {
    /// Salt from which the block's key is derived.
    pub salt: [u8; 8],
    /// Initialisation vector.
    pub iv: [u8; 12],
}

/// A block that is on devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The block's copies; the first always exists (`blk_dva`).
    pub dvas: [Option<Dva>; DVAS_PER_BP],
    /// Bytes as stored (`BP_GET_PSIZE`).
    pub psize: Psize,
    /// Compressor (`BP_GET_COMPRESS`).
    pub compress: CompressKind,
    /// Checksum function (`BP_GET_CHECKSUM`).
    pub checksum: ChecksumKind,
    /// Expected checksum; of an encrypted block the last two words are the MAC (`blk_cksum`).
    pub sum: [u64; 4],
    /// Transaction group that allocated the block; only of dedup and clones it is not the birth
    /// (`BP_GET_PHYSICAL_BIRTH`).
    pub phys_birth: Txg,
    /// Allocated blocks or dnodes below it (`blk_fill`).
    pub fill: u64,
    /// The block is in the dedup table (`BP_GET_DEDUP`).
    pub dedup: bool,
    /// Encryption bit: the block is encrypted or authenticated, or an indirect block above such
    /// blocks (`BP_USES_CRYPT`).
    pub crypt: bool,
    /// Salt and IV; only valid when [`Blkptr::is_encrypted`].
    pub crypt_params: CryptParams,
}

impl Stored {
    /// The copies that exist, in the order of their DVAs.
    pub fn copies(&self) -> impl Iterator<Item = &Dva> + '_ {
        self.dvas.iter().flatten()
    }
}

/// Data inside its block pointer (`BP_IS_EMBEDDED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Embedded {
    payload: [u8; EMBEDDED_PAYLOAD],
    psize: u8,
    /// Compressor of the payload.
    pub compress: CompressKind,
}

impl Embedded {
    /// Makes an embedded block of `payload`, which `compress` has packed
    /// (`encode_embedded_bp_compressed`).
    ///
    /// `None` if `payload` is empty or longer than [`EMBEDDED_PAYLOAD`].
    pub fn new(compress: CompressKind, payload: &[u8]) -> Option<Self> {
        let psize = u8::try_from(payload.len()).ok().filter(|n| *n > 0)?;
        let mut bytes = [0; EMBEDDED_PAYLOAD];
        bytes.get_mut(..payload.len())?.copy_from_slice(payload);
        Some(Self { payload: bytes, psize, compress })
    }

    /// The bytes as stored (`decode_embedded_bp_compressed`).
    pub fn payload(&self) -> &[u8] {
        &self.payload[..usize::from(self.psize)]
    }
}

/// What a pointer points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Body {
    /// Nothing: the block reads as zeros (`BP_IS_HOLE`).
    Hole,
    /// A redacted send stream left the data out; a read of it is an error (`BP_IS_REDACTED`).
    Redacted,
    /// The data are in the pointer.
    Embedded(Embedded),
    /// The data are on devices.
    Stored(Stored),
}

/// A checked block pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blkptr {
    /// Type of the object that the block belongs to (`BP_GET_TYPE`).
    pub kind: DmuType,
    /// Level of the block; 0 is data (`BP_GET_LEVEL`).
    pub level: Level,
    /// Bytes as the object sees them; 0 in a hole that never was a block (`BP_GET_LSIZE`).
    pub lsize: Lsize,
    /// Transaction group in which the pointer was made; 0 in holes of pools without `hole_birth`
    /// (`BP_GET_LOGICAL_BIRTH`).
    pub birth: Txg,
    /// Byte order of the block's contents (`BP_GET_BYTEORDER`).
    pub order: ByteOrder,
    /// What it points at.
    pub body: Body,
}

impl Blkptr {
    /// A hole that never was a block: 128 zero bytes.
    pub const HOLE: Blkptr = Blkptr {
        kind: DmuType::NONE,
        level: Level(0),
        lsize: Lsize(0),
        birth: Txg(0),
        order: ByteOrder::Little,
        body: Body::Hole,
    };

    /// Decodes the first 128 bytes of `raw`, little-endian.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `raw` has fewer than 128 bytes.
    /// * [`Corrupt::Range`]: a number is impossible:
    ///   * OpenZFS 2.3 has no such type, compressor, checksum or embedded type
    ///   * a size is above 16 MiB
    ///   * the embedded data is larger than [`EMBEDDED_PAYLOAD`]
    /// * [`Corrupt::Shape`]: a later copy exists without a first copy.
    pub fn decode(raw: &[u8]) -> Result<Blkptr> {
        if raw.len() < BLKPTR_SIZE {
            return Err(Corrupt::Truncated { what: WHAT, need: BLKPTR_SIZE, have: raw.len() });
        }
        let w: [u64; 16] = std::array::from_fn(|i| le64(raw, i * 8));
        let prop = w[6];
        let embedded = prop >> 39 & 1 != 0;
        // A pointer of zeros has no byte order of its own.
        let order = if prop >> 63 != 0 || prop == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let level = Level((prop >> 56 & 0x1f) as u8);
        if w[..6].iter().all(|&x| x == 0) && !embedded {
            return Self::decode_hole(&w, level, order);
        }
        let kind = DmuType::from_disk((prop >> 48 & 0xff) as u8)?;
        let compress = CompressKind::from_disk((prop >> 32 & 0x7f) as u8)?;
        let (lsize, body) = if embedded {
            Self::decode_embedded(&w, compress)?
        } else {
            Self::decode_stored(&w, order, kind, compress)?
        };
        Ok(Blkptr { kind, level, lsize, birth: Txg(w[10]), order, body })
    }

    fn decode_hole(w: &[u64; 16], level: Level, order: ByteOrder) -> Result<Blkptr> {
        let born = w[10] != 0;
        let kind = if born { DmuType::from_disk((w[6] >> 48 & 0xff) as u8)? } else { DmuType::NONE };
        let lsize = if w[6] == 0 { 0 } else { ((w[6] & 0xffff) + 1) << SPA_MINBLOCKSHIFT };
        if lsize > SPA_MAXBLOCKSIZE {
            return Err(Corrupt::Range { what: WHAT, field: "lsize", value: lsize });
        }
        Ok(Blkptr { kind, level, lsize: Lsize(lsize), birth: Txg(w[10]), order, body: Body::Hole })
    }

    fn decode_embedded(w: &[u64; 16], compress: CompressKind) -> Result<(Lsize, Body)> {
        let lsize = Lsize((w[6] & 0x1ff_ffff) + 1);
        if lsize.0 > SPA_MAXBLOCKSIZE {
            return Err(Corrupt::Range { what: WHAT, field: "lsize", value: lsize.0 });
        }
        match w[6] >> 40 & 0xff {
            2 => return Ok((lsize, Body::Redacted)),
            0 => {}
            v => return Err(Corrupt::Range { what: WHAT, field: "embedded type", value: v }),
        }
        let psize = (w[6] >> 25 & 0x7f) + 1;
        if psize as usize > EMBEDDED_PAYLOAD {
            return Err(Corrupt::Range { what: WHAT, field: "embedded psize", value: psize });
        }
        let mut payload = [0; EMBEDDED_PAYLOAD];
        for (chunk, i) in payload.chunks_exact_mut(8).zip(PAYLOAD_WORDS) {
            chunk.copy_from_slice(&w[i].to_le_bytes());
        }
        Ok((lsize, Body::Embedded(Embedded { payload, psize: psize as u8, compress })))
    }

    fn decode_stored(
        w: &[u64; 16],
        order: ByteOrder,
        kind: DmuType,
        compress: CompressKind,
    ) -> Result<(Lsize, Body)> {
        let lsize = ((w[6] & 0xffff) + 1) << SPA_MINBLOCKSHIFT;
        let psize = ((w[6] >> 16 & 0xffff) + 1) << SPA_MINBLOCKSHIFT;
        for (field, value) in [("lsize", lsize), ("psize", psize)] {
            if value > SPA_MAXBLOCKSIZE {
                return Err(Corrupt::Range { what: WHAT, field, value });
            }
        }
        let checksum = ChecksumKind::from_disk((w[6] >> 40 & 0xff) as u8)?;
        let crypt = w[6] >> 61 & 1 != 0;
        let level = w[6] >> 56 & 0x1f;
        // Only blocks that are encrypted themselves keep salt and IV in the third DVA.
        let has_params = crypt && level == 0 && kind.is_encrypted();
        let mut crypt_params = CryptParams { salt: [0; 8], iv: [0; 12] };
        if has_params {
            // Salt and IV are byte strings; the writer of the block put them into words of its own
            // order.
            let (iv, iv2) = (w[5], (w[11] >> 32) as u32);
            let (salt, iv, iv2) = match order {
                ByteOrder::Little => (w[4].to_le_bytes(), iv.to_le_bytes(), iv2.to_le_bytes()),
                ByteOrder::Big => (w[4].to_be_bytes(), iv.to_be_bytes(), iv2.to_be_bytes()),
            };
            crypt_params.salt = salt;
            crypt_params.iv[..8].copy_from_slice(&iv);
            crypt_params.iv[8..].copy_from_slice(&iv2);
        }
        let dvas = [
            Dva::decode(w[0], w[1]),
            Dva::decode(w[2], w[3]),
            if has_params { None } else { Dva::decode(w[4], w[5]) },
        ];
        if dvas[0].is_none() {
            return Err(Corrupt::Shape { what: WHAT, why: "later copies without a first one" });
        }
        let stored = Stored {
            dvas,
            psize: Psize(psize),
            compress,
            checksum,
            sum: [w[12], w[13], w[14], w[15]],
            phys_birth: Txg(if w[9] == 0 { w[10] } else { w[9] }),
            fill: if has_params { w[11] & 0xffff_ffff } else { w[11] },
            dedup: w[6] >> 62 & 1 != 0,
            crypt,
            crypt_params,
        };
        Ok((Lsize(lsize), Body::Stored(stored)))
    }

    /// Encodes the pointer as its 128 bytes, little-endian.
    ///
    /// # Panics
    /// With overflow checks, if a stored block has fewer than 512 bytes, or embedded or redacted
    /// data has a size of 0. A decoded pointer never does.
    pub fn encode(&self) -> [u8; BLKPTR_SIZE] {
        let mut w = [0u64; 16];
        w[10] = self.birth.0;
        let common = u64::from(self.kind.to_disk()) << 48
            | u64::from(self.level.0) << 56
            | u64::from(self.order == ByteOrder::Little) << 63;
        match &self.body {
            Body::Hole if self.birth.0 == 0 && self.lsize.0 == 0 => {}
            Body::Hole => {
                w[6] = common | (self.lsize.0 >> SPA_MINBLOCKSHIFT).saturating_sub(1);
            }
            Body::Redacted => w[6] = common | 1 << 39 | 2 << 40 | (self.lsize.0 - 1),
            Body::Embedded(e) => {
                w[6] = common
                    | 1 << 39
                    | u64::from(e.compress as u8) << 32
                    | u64::from(e.psize - 1) << 25
                    | (self.lsize.0 - 1);
                for (chunk, i) in e.payload.chunks_exact(8).zip(PAYLOAD_WORDS) {
                    w[i] = le64(chunk, 0);
                }
            }
            Body::Stored(s) => self.encode_stored(s, common, &mut w),
        }
        let mut out = [0; BLKPTR_SIZE];
        for (chunk, v) in out.chunks_exact_mut(8).zip(w) {
            chunk.copy_from_slice(&v.to_le_bytes());
        }
        out
    }

    fn encode_stored(&self, s: &Stored, common: u64, w: &mut [u64; 16]) {
        for (i, d) in s.dvas.iter().enumerate() {
            if let Some(d) = d {
                (w[2 * i], w[2 * i + 1]) = d.encode();
            }
        }
        w[6] = common
            | ((self.lsize.0 >> SPA_MINBLOCKSHIFT) - 1)
            | ((s.psize.0 >> SPA_MINBLOCKSHIFT) - 1) << 16
            | u64::from(s.compress as u8) << 32
            | u64::from(s.checksum as u8) << 40
            | u64::from(s.crypt) << 61
            | u64::from(s.dedup) << 62;
        w[9] = if s.phys_birth == self.birth { 0 } else { s.phys_birth.0 };
        w[11] = s.fill;
        if self.is_encrypted() {
            const WHY: &str = "salt and IV have 20 bytes";
            w[4] = self.order.u64(WHAT, &s.crypt_params.salt, 0).expect(WHY);
            w[5] = self.order.u64(WHAT, &s.crypt_params.iv, 0).expect(WHY);
            let iv2 = self.order.u32(WHAT, &s.crypt_params.iv, 8).expect(WHY);
            w[11] = (s.fill & 0xffff_ffff) | u64::from(iv2) << 32;
        }
        w[12..].copy_from_slice(&s.sum);
    }

    /// True if the pointer is a hole (`BP_IS_HOLE`).
    pub fn is_hole(&self) -> bool {
        matches!(self.body, Body::Hole)
    }

    /// The block on devices; `None` for a hole, embedded or redacted data.
    pub fn stored(&self) -> Option<&Stored> {
        match &self.body {
            Body::Stored(s) => Some(s),
            _ => None,
        }
    }

    /// True for indirect blocks and blocks of metadata types (`BP_IS_METADATA`).
    pub fn is_metadata(&self) -> bool {
        self.level.0 > 0 || self.kind.is_metadata()
    }

    fn crypt_bit(&self) -> bool {
        self.stored().is_some_and(|s| s.crypt)
    }

    /// True if the block's bytes are encrypted (`BP_IS_ENCRYPTED`).
    pub fn is_encrypted(&self) -> bool {
        self.crypt_bit() && self.level.0 == 0 && self.kind.is_encrypted()
    }

    /// True if the block is not encrypted but has a MAC (`BP_IS_AUTHENTICATED`).
    pub fn is_authenticated(&self) -> bool {
        self.crypt_bit() && self.level.0 == 0 && !self.kind.is_encrypted()
    }

    /// True if the pointer's checksum holds a MAC over the MACs of the blocks below
    /// (`BP_HAS_INDIRECT_MAC_CKSUM`).
    pub fn has_indirect_mac(&self) -> bool {
        self.crypt_bit() && self.level.0 > 0
    }

    /// True if the first copy is a gang header (`BP_IS_GANG`).
    pub fn is_gang(&self) -> bool {
        self.stored().is_some_and(|s| s.dvas[0].is_some_and(|d| d.gang))
    }
}

#[cfg(test)]
mod tests;
