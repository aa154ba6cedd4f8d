//! The deduplication tables: one per checksum, of blocks by checksum and size.
//!
//! # On disk
//! A table is up to three ZAPs (by class: ditto, duplicate, unique), each from a five-word key ([`DdtKey`]) to one byte
//! string: a first byte that names compressor and byte order, then [`DdtPhys`], usually
//! compressed with ZLE. Legacy tables store four [`DdtPhysSlot`]s (one a number of copies); `fast_dedup` ones
//! store one, with a time. Fast tables also have two logs of entries not yet in the ZAPs ([`DdtLogHeader`], [`log_entries`]).

use crate::blkptr::{Body, CryptParams, DVAS_PER_BP, Stored};
use crate::words::words;
use crate::{
    Blkptr, ByteOrder, ChecksumKind, CompressKind, Corrupt, DmuType, Dva, Level, Lsize, Psize, Result, Txg,
};

/// Words of a key.
pub const DDT_KEY_WORDS: usize = 5;
/// Bytes of a legacy value.
pub const DDT_TRAD_PHYS_SIZE: usize = 4 * 64;
/// Bytes of a flat value.
pub const DDT_FLAT_PHYS_SIZE: usize = 72;
/// Names of the classes, in order (`ddt_class_name`).
pub const DDT_CLASS_NAMES: [&str; 3] = ["ditto", "duplicate", "unique"];
/// Flag of a fast table: flat values (`DDT_FLAG_FLAT`).
pub const DDT_FLAG_FLAT: u64 = 1;
/// Flag of a fast table: it has logs (`DDT_FLAG_LOG`).
pub const DDT_FLAG_LOG: u64 = 2;
const WHAT: &str = "DDT entry";

/// What is the same for all copies of a block (`ddt_key_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DdtKey {
    /// Its checksum.
    pub cksum: [u64; 4],
    /// Sizes, compressor and encryption, packed.
    pub prop: u64,
}

impl DdtKey {
    /// The key of a ZAP's five words.
    pub fn from_words(w: [u64; DDT_KEY_WORDS]) -> Self {
        Self { cksum: [w[0], w[1], w[2], w[3]], prop: w[4] }
    }

    /// The key of a block that is written with dedup (`ddt_key_fill`); `None` if it takes no space.
    pub fn of(bp: &Blkptr) -> Option<Self> {
        let s = bp.stored()?;
        let sectors = |n: u64| ((n >> crate::SPA_MINBLOCKSHIFT).saturating_sub(1)) & 0xffff;
        let (lsize, psize) = (sectors(bp.lsize.0), sectors(s.psize.0));
        let how = (s.compress as u64) << 32 | u64::from(s.crypt) << 39;
        Some(Self { cksum: s.sum, prop: lsize | psize << 16 | how })
    }

    /// The words by which a ZAP finds it.
    pub fn to_words(self) -> [u64; DDT_KEY_WORDS] {
        let [a, b, c, d] = self.cksum;
        [a, b, c, d, self.prop]
    }

    /// Logical size in bytes.
    pub fn lsize(&self) -> Lsize {
        Lsize(((self.prop & 0xffff) + 1) << crate::SPA_MINBLOCKSHIFT)
    }

    /// Stored size in bytes.
    pub fn psize(&self) -> Psize {
        Psize(((self.prop >> 16 & 0xffff) + 1) << crate::SPA_MINBLOCKSHIFT)
    }

    /// Compressor.
    ///
    /// # Errors
    /// [`Corrupt::Range`].
    pub fn compress(&self) -> Result<CompressKind> {
        CompressKind::from_disk((self.prop >> 32 & 0x7f) as u8)
    }

    /// True for encrypted blocks.
    pub fn crypt(&self) -> bool {
        self.prop >> 39 & 1 != 0
    }
}

/// One stored form of a block (`ddt_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DdtPhysSlot {
    /// DVA words as stored; see [`DdtPhysSlot::dvas`].
    words: [u64; 6],
    /// References.
    pub refcnt: u64,
    /// The txg that allocated it; 0 in unused slots.
    pub phys_birth: Txg,
    /// When it entered its class, seconds since 1970; flat values only.
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

    /// Sets its copies, and of an encrypted block salt and IV (`ddt_phys_extend`); an unused slot gets the block's birth.
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

    /// Sets its copies alone.
    pub fn set_dvas(&mut self, dvas: [Option<Dva>; DVAS_PER_BP], crypt: bool) {
        let n = if crypt { 2 } else { 3 };
        for (i, dva) in dvas.iter().enumerate().take(n) {
            (self.words[2 * i], self.words[2 * i + 1]) = dva.map_or((0, 0), Dva::encode);
        }
    }

    /// Its copies. In an encrypted entry the third holds salt and IV.
    ///
    /// # Errors
    /// [`Corrupt`] for a DVA out of range.
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
    /// [`Corrupt`] when the entry has no valid block.
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
    /// Ditto, single, double, triple.
    Trad(Box<[DdtPhysSlot; 4]>),
    /// The one of `fast_dedup`.
    Flat(DdtPhysSlot),
}

impl DdtPhys {
    /// Decodes an uncompressed value: [`DDT_FLAT_PHYS_SIZE`] or [`DDT_TRAD_PHYS_SIZE`] bytes.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`].
    pub fn decode(flat: bool, raw: &[u8]) -> Result<Self> {
        if flat {
            let w: [u64; 9] = words(WHAT, raw)?;
            return Ok(Self::Flat(DdtPhysSlot::decode(&w)));
        }
        let w: [u64; 32] = words(WHAT, raw)?;
        Ok(Self::Trad(Box::new(std::array::from_fn(|i| DdtPhysSlot::decode(&w[i * 8..i * 8 + 8])))))
    }

    /// A value without copies.
    pub fn empty(flat: bool) -> Self {
        if flat { Self::Flat(DdtPhysSlot::default()) } else { Self::Trad(Box::default()) }
    }

    /// The words of an uncompressed value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = vec![0; if let Self::Flat(_) = self { 9 } else { 32 }];
        match self {
            Self::Flat(slot) => slot.encode(&mut w),
            Self::Trad(slots) => slots.iter().zip(w.chunks_exact_mut(8)).for_each(|(s, w)| s.encode(w)),
        }
        w.iter().flat_map(|w: &u64| w.to_le_bytes()).collect()
    }

    /// All slots, to be changed.
    pub fn slots_mut(&mut self) -> &mut [DdtPhysSlot] {
        match self {
            Self::Trad(s) => s.as_mut_slice(),
            Self::Flat(s) => std::slice::from_mut(s),
        }
    }

    /// The slot of blocks of so many copies (`DDT_PHYS_FOR_COPIES`).
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

    /// References through all slots (`ddt_phys_total_refcnt`; the ditto slot counts no references).
    pub fn total_refcnt(&self) -> u64 {
        match self {
            Self::Trad(s) => s[1..].iter().fold(0, |n: u64, s| n.saturating_add(s.refcnt)),
            Self::Flat(s) => s.refcnt,
        }
    }
}

/// How the value of a ZAP entry is packed: its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DdtPacking {
    /// Compressor, ZLE or off.
    pub compress: CompressKind,
    /// Order of the words after decompression.
    pub order: ByteOrder,
}

impl DdtPacking {
    /// The first byte of a packed value.
    pub fn to_disk(self) -> u8 {
        let order = if self.order == ByteOrder::Little { 0x80 } else { 0 };
        self.compress as u8 | order
    }

    /// Splits a packed value into how and what.
    ///
    /// # Errors
    /// [`Corrupt`] for an empty value or another compressor.
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

/// The log is being flushed (`DDL_FLAG_FLUSHING`).
pub const DDL_FLAG_FLUSHING: u8 = 1;
/// Entries up to the checkpoint are flushed already (`DDL_FLAG_CHECKPOINT`).
pub const DDL_FLAG_CHECKPOINT: u8 = 2;

/// Header of a DDT log, in its bonus (`ddt_log_header_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DdtLogHeader {
    /// `DDL_FLAG_*`.
    pub flags: u8,
    /// Bytes of log.
    pub length: u64,
    /// The txg in which it became active.
    pub first_txg: u64,
    /// Last flushed key.
    pub checkpoint: Option<DdtKey>,
}

impl DdtLogHeader {
    /// The bonus.
    pub fn encode(&self) -> Vec<u8> {
        let key = self.checkpoint.map_or([0; DDT_KEY_WORDS], DdtKey::to_words);
        let words = [&[1 | u64::from(self.flags) << 8, self.length, self.first_txg], key.as_slice()].concat();
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`]; [`Corrupt::Range`] for a version other than 1.
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

/// An entry of a DDT log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdtLogEntry {
    /// The block.
    pub key: DdtKey,
    /// Index into [`DDT_CLASS_NAMES`]; 3 for an entry with no class yet.
    pub class: u8,
    /// Its value.
    pub phys: DdtPhys,
}

/// Decodes the entries of one block of a DDT log.
///
/// # Errors
/// [`Corrupt`] for an unknown record or one that leaves the block.
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
