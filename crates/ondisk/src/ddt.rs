//! The deduplication tables: blocks by checksum and size, one table for each checksum function.
//!
//! # On disk
//! A table has up to three ZAPs, one for each class: ditto, duplicate, unique. A ZAP maps a key of
//! five words ([`DdtKey`]) to a byte string. The first byte of the string names compressor and byte
//! order ([`DdtPacking`]). The rest is a [`DdtPhys`], usually compressed with ZLE.
//!
//! * Legacy tables store four [`DdtPhysSlot`]s, one for each number of copies.
//! * `fast_dedup` tables store one slot, with a time.
//! * `fast_dedup` tables also have two logs of entries that are not in the ZAPs yet
//!   ([`DdtLogHeader`], [`log_entries`]).

use crate::blkptr::{Body, CryptParams, DVAS_PER_BP, Stored};
use crate::words::words;
use crate::{
    Blkptr, ByteOrder, ChecksumKind, CompressKind, Corrupt, DmuType, Dva, Level, Lsize, Psize, Result, Txg,
};

/// Words of a key (`DDT_KEY_WORDS`).
pub const DDT_KEY_WORDS: usize = 5;
/// Bytes of a legacy value.
pub const DDT_TRAD_PHYS_SIZE: usize = 4 * 64;
/// Bytes of a flat value.
pub const DDT_FLAT_PHYS_SIZE: usize = 72;
/// Names of the classes, in order (`ddt_class_name`).
pub const DDT_CLASS_NAMES: [&str; 3] = ["ditto", "duplicate", "unique"];
/// Flag of a fast table: its values are flat.
pub const DDT_FLAG_FLAT: u64 = 1;
/// Flag of a fast table: it has logs.
pub const DDT_FLAG_LOG: u64 = 2;
const WHAT: &str = "DDT entry";

/// What all copies of a block have in common (`ddt_key_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DdtKey {
    /// Checksum of the block (`ddk_cksum`).
    pub cksum: [u64; 4],
    /// Sizes, compressor and encryption, packed (`ddk_prop`).
    pub prop: u64,
}

impl DdtKey {
    /// Decodes the five words of a ZAP key.
    pub fn from_words(w: [u64; DDT_KEY_WORDS]) -> Self {
        Self { cksum: [w[0], w[1], w[2], w[3]], prop: w[4] }
    }

    /// The key of a block (`ddt_key_fill`); `None` if the block is not on devices.
    pub fn of(bp: &Blkptr) -> Option<Self> {
        let s = bp.stored()?;
        let sectors = |n: u64| ((n >> crate::SPA_MINBLOCKSHIFT).saturating_sub(1)) & 0xffff;
        let (lsize, psize) = (sectors(bp.lsize.0), sectors(s.psize.0));
        let how = (s.compress as u64) << 32 | u64::from(s.crypt) << 39;
        Some(Self { cksum: s.sum, prop: lsize | psize << 16 | how })
    }

    /// Encodes the key as the five words of a ZAP key.
    pub fn to_words(self) -> [u64; DDT_KEY_WORDS] {
        let [a, b, c, d] = self.cksum;
        [a, b, c, d, self.prop]
    }

    /// Logical size in bytes (`DDK_GET_LSIZE`).
    pub fn lsize(&self) -> Lsize {
        Lsize(((self.prop & 0xffff) + 1) << crate::SPA_MINBLOCKSHIFT)
    }

    /// Stored size in bytes (`DDK_GET_PSIZE`).
    pub fn psize(&self) -> Psize {
        Psize(((self.prop >> 16 & 0xffff) + 1) << crate::SPA_MINBLOCKSHIFT)
    }

    /// Compressor of the block (`DDK_GET_COMPRESS`).
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: OpenZFS 2.3 has no compressor with this number.
    pub fn compress(&self) -> Result<CompressKind> {
        CompressKind::from_disk((self.prop >> 32 & 0x7f) as u8)
    }

    /// True for encrypted blocks (`DDK_GET_CRYPT`).
    pub fn crypt(&self) -> bool {
        self.prop >> 39 & 1 != 0
    }
}

/// One stored form of a block (`ddt_phys_t` before OpenZFS 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DdtPhysSlot {
    /// DVA words as stored; see [`DdtPhysSlot::dvas`].
    words: [u64; 6],
    /// Number of references (`ddp_refcnt`).
    pub refcnt: u64,
    /// Transaction group that allocated the block; 0 in unused slots (`ddp_phys_birth`).
    pub phys_birth: Txg,
    /// Time at which the entry got its class, in seconds since 1970; flat values only
    /// (`ddp_class_start`).
    pub class_start: u64,
}

impl DdtPhysSlot {
    fn decode(w: &[u64]) -> Self {
        Self {
            words: [w[0], w[1], w[2], w[3], w[4], w[5]],
            refcnt: w[6],
            phys_birth: Txg(w[7]),
            class_start: w.get(8).copied().unwrap_or(0),
        }
    }

    fn encode(&self, w: &mut [u64]) {
        w[..6].copy_from_slice(&self.words);
        (w[6], w[7]) = (self.refcnt, self.phys_birth.0);
        if let Some(start) = w.get_mut(8) {
            *start = self.class_start;
        }
    }

    /// Sets the copies, and salt and IV of an encrypted block (`ddt_phys_extend`).
    ///
    /// An unused slot also gets the birth of the block.
    pub fn set_block(&mut self, bp: &Blkptr) {
        let Some(s) = bp.stored() else { return };
        self.set_dvas(s.dvas, s.crypt);
        if s.crypt {
            let (salt, iv) = (s.crypt_params.salt, s.crypt_params.iv);
            self.words[4] = u64::from_le_bytes(salt);
            self.words[5] = iv.first_chunk().map_or(0, |iv| u64::from_le_bytes(*iv));
        }
        if self.phys_birth.0 == 0 {
            self.phys_birth = s.phys_birth;
        }
    }

    /// Sets the copies alone.
    pub fn set_dvas(&mut self, dvas: [Option<Dva>; DVAS_PER_BP], crypt: bool) {
        let n = if crypt { 2 } else { 3 };
        for (i, dva) in dvas.iter().enumerate().take(n) {
            (self.words[2 * i], self.words[2 * i + 1]) = dva.map_or((0, 0), Dva::encode);
        }
    }

    /// The copies of the block. An encrypted entry has two: salt and IV take the third's words.
    ///
    /// # Errors
    /// None: all words decode.
    pub fn dvas(&self, key: &DdtKey) -> Result<[Option<Dva>; DVAS_PER_BP]> {
        let n = if key.crypt() { 2 } else { 3 };
        let mut out = [None; DVAS_PER_BP];
        for (i, slot) in out.iter_mut().enumerate().take(n) {
            *slot = Dva::decode(self.words[2 * i], self.words[2 * i + 1]);
        }
        Ok(out)
    }

    /// The block pointer that the entry stands for (`ddt_bp_create`).
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: the slot has no first copy.
    /// * [`Corrupt::Range`]: the key has an unknown compressor.
    pub fn blkptr(&self, checksum: ChecksumKind, key: &DdtKey) -> Result<Blkptr> {
        let dvas = self.dvas(key)?;
        if dvas[0].is_none() {
            return Err(Corrupt::Shape { what: WHAT, why: "no first copy" });
        }
        let mut crypt_params = CryptParams { salt: [0; 8], iv: [0; 12] };
        if key.crypt() {
            crypt_params.salt = self.words[4].to_le_bytes();
            crypt_params.iv[..8].copy_from_slice(&self.words[5].to_le_bytes());
        }
        let stored = Stored {
            dvas,
            psize: key.psize(),
            compress: key.compress()?,
            checksum,
            sum: key.cksum,
            phys_birth: self.phys_birth,
            fill: 1,
            dedup: true,
            crypt: key.crypt(),
            crypt_params,
        };
        Ok(Blkptr {
            kind: DmuType::DEDUP,
            level: Level(0),
            lsize: key.lsize(),
            birth: self.phys_birth,
            order: ByteOrder::Little,
            body: Body::Stored(stored),
        })
    }
}

/// The value of an entry (`ddt_univ_phys_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DdtPhys {
    /// A legacy value, with a slot for each number of copies: ditto, one, two, three (`ddp_trad`).
    Trad(Box<[DdtPhysSlot; 4]>),
    /// A value of `fast_dedup`, with one slot (`ddp_flat`).
    Flat(DdtPhysSlot),
}

impl DdtPhys {
    /// Decodes an uncompressed value of [`DDT_FLAT_PHYS_SIZE`] or [`DDT_TRAD_PHYS_SIZE`] bytes.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `raw` is shorter than that.
    pub fn decode(flat: bool, raw: &[u8]) -> Result<Self> {
        if flat {
            let w: [u64; 9] = words(WHAT, raw)?;
            return Ok(Self::Flat(DdtPhysSlot::decode(&w)));
        }
        let w: [u64; 32] = words(WHAT, raw)?;
        Ok(Self::Trad(Box::new(std::array::from_fn(|i| DdtPhysSlot::decode(&w[i * 8..i * 8 + 8])))))
    }

    /// A value in which all slots are unused.
    pub fn empty(flat: bool) -> Self {
        if flat { Self::Flat(DdtPhysSlot::default()) } else { Self::Trad(Box::default()) }
    }

    /// Encodes the value as its uncompressed bytes, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = vec![0; if let Self::Flat(_) = self { 9 } else { 32 }];
        match self {
            Self::Flat(slot) => slot.encode(&mut w),
            Self::Trad(slots) => slots.iter().zip(w.chunks_exact_mut(8)).for_each(|(s, w)| s.encode(w)),
        }
        w.iter().flat_map(|w: &u64| w.to_le_bytes()).collect()
    }

    /// All slots, mutable.
    pub fn slots_mut(&mut self) -> &mut [DdtPhysSlot] {
        match self {
            Self::Trad(s) => s.as_mut_slice(),
            Self::Flat(s) => std::slice::from_mut(s),
        }
    }

    /// Index of the slot for blocks of this many copies (`DDT_PHYS_FOR_COPIES`).
    pub fn slot_of(&self, copies: usize) -> usize {
        match self {
            Self::Trad(_) => copies.clamp(1, DVAS_PER_BP),
            Self::Flat(_) => 0,
        }
    }

    /// All slots; those with `phys_birth` 0 are unused.
    pub fn slots(&self) -> &[DdtPhysSlot] {
        match self {
            Self::Trad(s) => s.as_slice(),
            Self::Flat(s) => std::slice::from_ref(s),
        }
    }

    /// References through all slots but the ditto slot, which counts none
    /// (`ddt_phys_total_refcnt`).
    pub fn total_refcnt(&self) -> u64 {
        match self {
            Self::Trad(s) => s[1..].iter().fold(0, |n: u64, s| n.saturating_add(s.refcnt)),
            Self::Flat(s) => s.refcnt,
        }
    }
}

/// The first byte of a ZAP value, which tells how the rest is packed
/// (`DDT_ZAP_COMPRESS_FUNCTION_MASK`, `DDT_ZAP_COMPRESS_BYTEORDER_MASK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DdtPacking {
    /// Compressor, ZLE or off.
    pub compress: CompressKind,
    /// Byte order of the words after decompression.
    pub order: ByteOrder,
}

impl DdtPacking {
    /// Encodes the first byte of a packed value.
    pub fn to_disk(self) -> u8 {
        let order = if self.order == ByteOrder::Little { 0x80 } else { 0 };
        self.compress as u8 | order
    }

    /// Splits a packed value into its packing and the packed bytes.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the value is empty.
    /// * [`Corrupt::Range`]: the compressor is neither ZLE nor off.
    pub fn split(value: &[u8]) -> Result<(Self, &[u8])> {
        let (&first, rest) =
            value.split_first().ok_or(Corrupt::Truncated { what: WHAT, need: 1, have: 0 })?;
        let compress = CompressKind::from_disk(first & 0x7f)?;
        if !matches!(compress, CompressKind::Zle | CompressKind::Off) {
            return Err(Corrupt::Range { what: WHAT, field: "compressor", value: first.into() });
        }
        let order = if first & 0x80 != 0 { ByteOrder::Little } else { ByteOrder::Big };
        Ok((Self { compress, order }, rest))
    }
}

/// A flush of the log is in progress.
pub const DDL_FLAG_FLUSHING: u8 = 1;
/// Entries up to the checkpoint are already flushed.
pub const DDL_FLAG_CHECKPOINT: u8 = 2;

/// Header of a DDT log, in its bonus (`ddt_log_header_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DdtLogHeader {
    /// Flags, `DDL_FLAG_*` (`dlh_flags`).
    pub flags: u8,
    /// Bytes of log (`dlh_length`).
    pub length: u64,
    /// Transaction group in which the log became active (`dlh_first_txg`).
    pub first_txg: u64,
    /// Key of the last flushed entry (`dlh_checkpoint`).
    pub checkpoint: Option<DdtKey>,
}

impl DdtLogHeader {
    /// Encodes the bonus, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let key = self.checkpoint.map_or([0; DDT_KEY_WORDS], DdtKey::to_words);
        let words = [&[1 | u64::from(self.flags) << 8, self.length, self.first_txg], key.as_slice()].concat();
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// Decodes the bonus.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the bonus is shorter than the header.
    /// * [`Corrupt::Range`]: the version is not 1.
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        let w: [u64; 8] = words("DDT log", bonus)?;
        if w[0] & 0xff != 1 {
            return Err(Corrupt::Range { what: "DDT log", field: "version", value: w[0] & 0xff });
        }
        let flags = (w[0] >> 8) as u8;
        let checkpoint =
            (flags & DDL_FLAG_CHECKPOINT != 0).then(|| DdtKey::from_words([w[3], w[4], w[5], w[6], w[7]]));
        Ok(Self { flags, length: w[1], first_txg: w[2], checkpoint })
    }
}

/// An entry of a DDT log (`ddt_log_record_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdtLogEntry {
    /// Key of the block.
    pub key: DdtKey,
    /// Index into [`DDT_CLASS_NAMES`]; 3 for an entry with no class yet.
    pub class: u8,
    /// Value of the entry.
    pub phys: DdtPhys,
}

/// Decodes the entries of one block of a DDT log.
///
/// # Errors
/// * [`Corrupt::Range`]: a record has an unknown type or class, is shorter than its entry, or
///   passes the end of the block.
pub fn log_entries(flat: bool, block: &[u8]) -> Result<Vec<DdtLogEntry>> {
    const LOG: &str = "DDT log record";
    let size = 8 + 40 + if flat { DDT_FLAT_PHYS_SIZE } else { DDT_TRAD_PHYS_SIZE };
    let mut out = Vec::new();
    let mut rest = block;
    while rest.len() >= 8 {
        let [info] = words::<1>(LOG, rest)?;
        match info & 0xff {
            0 => break,
            1 => {}
            v => return Err(Corrupt::Range { what: LOG, field: "type", value: v }),
        }
        let len = (info >> 8 & 0xffff) as usize;
        if len < size || len > rest.len() {
            return Err(Corrupt::Range { what: LOG, field: "length", value: len as u64 });
        }
        let class = (info >> 56) as u8;
        if class > 3 {
            return Err(Corrupt::Range { what: LOG, field: "class", value: class.into() });
        }
        let key = DdtKey::from_words(words(LOG, &rest[8..])?);
        out.push(DdtLogEntry { key, class, phys: DdtPhys::decode(flat, &rest[48..])? });
        rest = &rest[len..];
    }
    Ok(out)
}
