//! ZAP objects: maps from names, or arrays of words, to arrays of integers.
//!
//! # Theory
//! [`Zap`] hides which of the two shapes an object has (`ondisk::zap` describes them). A lookup in a fat one costs the
//! header, one block of the pointer table if that is external, and one leaf. Cursors go by hash and collision
//! differentiator, in leaf order, as OpenZFS's do: a [`Cookie`] names a position, stays valid when entries come
//! and go, and resuming at one costs one leaf, so that listing a large directory in small pieces is linear.
//!
//! Names are hashed in the normalized form that the object asks for (`normflags`) but stored as given. An exact lookup
//! compares the stored name; a normalized one compares normalized forms, with or without folding case.
//!
//! # Absent
//! What a value means: the callers know. Changing a ZAP comes with the write path.

mod cursor;
mod stats;
mod textprep;
mod value;

pub use cursor::{Cookie, Cursor, Entry};
pub use stats::FatStats;
pub use textprep::{Normalization, normalize};
pub use value::{Key, Value};

use crate::{Dnode, Result};
use device::Block;
use ondisk::zap::{
    BlockType, FatHeader, HashBits, Leaf, LeafEntry, MicroZap, PtrTable, hash_bytes, hash_words,
};
use ondisk::{BlkId, Corrupt};
use std::sync::{Arc, OnceLock};

/// How a name is compared with stored ones (`matchtype_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Byte for byte.
    Exact,
    /// By the object's normalization, case folded if that says so (`MT_NORMALIZE`).
    Normalized,
    /// By the object's normalization, but never folding case (`MT_NORMALIZE | MT_MATCH_CASE`).
    NormalizedCase,
}

/// An open ZAP; clones share it (`zap_t`).
#[derive(Debug, Clone)]
pub struct Zap(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dn: Dnode,
    head: Block,
    shape: Shape,
    norm: Normalization,
}

#[derive(Debug)]
enum Shape {
    /// The slots in cursor order, made when first needed.
    Micro {
        salt: u64,
        index: OnceLock<Vec<MicroSlot>>,
    },
    Fat(FatHeader),
}

/// Where an entry of a micro ZAP is in cursor order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MicroSlot {
    hash: u64,
    cd: u32,
    slot: usize,
}

impl Zap {
    /// The ZAP that `dn` holds.
    ///
    /// # Errors
    /// As reading fails; [`crate::Error::Corrupt`] if block 0 is no ZAP.
    pub fn open(dn: &Dnode) -> Result<Zap> {
        let head = dn
            .block(BlkId(0))?
            .ok_or_else(|| dn.corrupt(Corrupt::Shape { what: "ZAP", why: "the first block is a hole" }))?;
        let bad = |e| dn.corrupt(e);
        let (shape, flags) = match BlockType::of(&head).map_err(bad)? {
            BlockType::Micro => {
                let z = MicroZap::parse(&head).map_err(bad)?;
                (Shape::Micro { salt: z.salt, index: OnceLock::new() }, z.normflags)
            }
            BlockType::Header => {
                let h = FatHeader::parse(&head).map_err(bad)?;
                (Shape::Fat(h), h.normflags)
            }
        };
        let norm = Normalization::from_disk(flags).map_err(bad)?;
        Ok(Zap(Arc::new(Inner { dn: dn.clone(), head, shape, norm })))
    }

    /// The object.
    pub fn dnode(&self) -> &Dnode {
        &self.0.dn
    }

    /// How names are normalized before they are hashed.
    pub fn normalization(&self) -> Normalization {
        self.0.norm
    }

    /// True if it is a single block of short names and 64-bit values.
    pub fn is_micro(&self) -> bool {
        matches!(self.0.shape, Shape::Micro { .. })
    }

    /// The header of a fat ZAP.
    pub fn fat_header(&self) -> Option<&FatHeader> {
        match &self.0.shape {
            Shape::Micro { .. } => None,
            Shape::Fat(h) => Some(h),
        }
    }

    /// Number of entries (`zap_count`).
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if a micro ZAP's entries are.
    pub fn count(&self) -> Result<u64> {
        match &self.0.shape {
            Shape::Micro { .. } => Ok(self.micro_index()?.len() as u64),
            Shape::Fat(h) => Ok(h.num_entries),
        }
    }

    fn hash_bits(&self) -> HashBits {
        self.fat_header().map_or(HashBits::Bits28, FatHeader::hash_bits)
    }

    fn corrupt(&self, e: Corrupt) -> crate::Error {
        self.0.dn.corrupt(e)
    }

    fn micro(&self) -> Result<MicroZap<'_>> {
        MicroZap::parse(&self.0.head).map_err(|e| self.corrupt(e))
    }

    /// A micro ZAP's slots in cursor order.
    fn micro_index(&self) -> Result<&[MicroSlot]> {
        let Shape::Micro { salt, index } = &self.0.shape else { return Ok(&[]) };
        if let Some(all) = index.get() {
            return Ok(all);
        }
        let z = self.micro()?;
        let mut all = Vec::new();
        for slot in 0..z.slots() {
            if let Some(e) = z.entry(slot).map_err(|e| self.corrupt(e))? {
                all.push(MicroSlot { hash: self.hash_name(*salt, e.name), cd: e.cd, slot });
            }
        }
        all.sort_unstable();
        Ok(index.get_or_init(|| all))
    }

    fn hash_name(&self, salt: u64, name: &[u8]) -> u64 {
        let bits = self.hash_bits();
        if self.0.norm.is_none() {
            hash_bytes(salt, name, bits)
        } else {
            hash_bytes(salt, &normalize(name, self.0.norm), bits)
        }
    }

    /// The value of exactly this name (`zap_lookup`).
    ///
    /// # Errors
    /// As reading fails; [`crate::Error::Corrupt`] if the object is bad.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<Value>> {
        Ok(self.lookup_matching(name, Match::Exact)?.map(|(_, v)| v))
    }

    /// The value of exactly this name, which must be one 64-bit integer.
    ///
    /// # Errors
    /// As [`Zap::lookup`]; [`crate::Error::Corrupt`] if the value has another shape.
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>> {
        match self.lookup(name)? {
            None => Ok(None),
            Some(v) => v.as_u64().map(Some).ok_or_else(|| self.corrupt(NOT_A_WORD)),
        }
    }

    /// The first entry that matches `name` in this way: its stored name and its value (`zap_lookup_norm`).
    ///
    /// On an object without normalization, every match is exact.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn lookup_matching(&self, name: &[u8], how: Match) -> Result<Option<(Vec<u8>, Value)>> {
        let wanted = Wanted::new(name, how, self.0.norm);
        match &self.0.shape {
            Shape::Micro { salt, .. } => self.lookup_micro(*salt, &wanted),
            Shape::Fat(h) if h.flags.uint64_key() => Ok(None),
            Shape::Fat(h) => {
                let hash = self.hash_name(h.salt, name);
                let block = self.leaf_block(h, hash)?;
                let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
                let mut found = leaf.entries_of(hash).map_err(|e| self.corrupt(e))?;
                found.sort_by_key(|e| e.cd);
                for e in found {
                    let stored = leaf.name(&e).map_err(|e| self.corrupt(e))?;
                    if wanted.is(&stored) {
                        return Ok(Some((stored, self.value(&leaf, &e)?)));
                    }
                }
                Ok(None)
            }
        }
    }

    fn lookup_micro(&self, salt: u64, wanted: &Wanted<'_>) -> Result<Option<(Vec<u8>, Value)>> {
        let z = self.micro()?;
        if wanted.how == Match::Exact {
            for e in z.entries() {
                let e = e.map_err(|e| self.corrupt(e))?;
                if e.name == wanted.name {
                    return Ok(Some((e.name.to_vec(), Value::word(e.value))));
                }
            }
            return Ok(None);
        }
        let hash = self.hash_name(salt, wanted.name);
        let index = self.micro_index()?;
        let from = index.partition_point(|s| s.hash < hash);
        for s in index[from..].iter().take_while(|s| s.hash == hash) {
            if let Some(e) = z.entry(s.slot).map_err(|e| self.corrupt(e))?
                && wanted.is(e.name)
            {
                return Ok(Some((e.name.to_vec(), Value::word(e.value))));
            }
        }
        Ok(None)
    }

    /// The value of a key of words (`zap_lookup_uint64`); `None` too if this ZAP's keys are names.
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn lookup_words(&self, key: &[u64]) -> Result<Option<Value>> {
        let Some(h) = self.fat_header().filter(|h| h.flags.uint64_key()) else { return Ok(None) };
        let hash = if h.flags.pre_hashed() {
            h.hash_bits().mask(key.first().copied().unwrap_or(0))
        } else {
            hash_words(h.salt, key, h.hash_bits())
        };
        let block = self.leaf_block(h, hash)?;
        let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
        for e in leaf.entries_of(hash).map_err(|e| self.corrupt(e))? {
            if leaf.words_key(&e).map_err(|e| self.corrupt(e))? == key {
                return self.value(&leaf, &e).map(Some);
            }
        }
        Ok(None)
    }

    /// A cursor at the start.
    pub fn cursor(&self) -> Cursor {
        self.cursor_at(Cookie::START)
    }

    /// A cursor at the first entry at or after `cookie`.
    pub fn cursor_at(&self, cookie: Cookie) -> Cursor {
        Cursor::new(self.clone(), cookie)
    }

    /// All entries, in cursor order.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry>> {
        let mut cursor = self.cursor();
        let mut over = false;
        std::iter::from_fn(move || {
            if over {
                return None;
            }
            let next = cursor.next_entry();
            over = !matches!(next, Ok(Some(_)));
            next.transpose()
        })
    }

    /// The first entry whose value is one integer that is `value` under `mask` (`zap_value_search`).
    ///
    /// # Errors
    /// As [`Zap::lookup`].
    pub fn search_value(&self, value: u64, mask: u64) -> Result<Option<Key>> {
        for e in self.entries() {
            let e = e?;
            if e.value.first().is_some_and(|v| v & mask == value & mask) {
                return Ok(Some(e.key));
            }
        }
        Ok(None)
    }

    /// The leaf block for `hash`.
    fn leaf_block(&self, h: &FatHeader, hash: u64) -> Result<Block> {
        let index = h.index(hash);
        let blk = match h.table {
            PtrTable::Embedded => h.embedded(&self.0.head, index).map_err(|e| self.corrupt(e))?,
            PtrTable::External { start, .. } => {
                let (blk, at) = h.external(start, index).map_err(|e| self.corrupt(e))?;
                let table = self.block(blk)?;
                h.check_leaf(ondisk::bytes::le64(&table, at)).map_err(|e| self.corrupt(e))?
            }
        };
        self.block(blk)
    }

    fn block(&self, blk: u64) -> Result<Block> {
        self.0
            .dn
            .block(BlkId(blk))?
            .filter(|b| b.len() == self.0.head.len())
            .ok_or_else(|| self.corrupt(Corrupt::Shape { what: "ZAP", why: "a block is a hole" }))
    }

    fn value(&self, leaf: &Leaf<'_>, e: &LeafEntry) -> Result<Value> {
        Ok(Value::ints(e.int_size, leaf.value(e).map_err(|e| self.corrupt(e))?))
    }
}

const NOT_A_WORD: Corrupt = Corrupt::Shape { what: "ZAP entry", why: "the value is not one 64-bit integer" };

/// A name to be found, in the form that it is compared in.
struct Wanted<'a> {
    name: &'a [u8],
    how: Match,
    norm: Normalization,
    form: Vec<u8>,
}

impl<'a> Wanted<'a> {
    fn new(name: &'a [u8], how: Match, norm: Normalization) -> Self {
        let how = if norm.is_none() { Match::Exact } else { how };
        let norm = if how == Match::NormalizedCase { norm.without_case() } else { norm };
        let form = if how == Match::Exact { Vec::new() } else { normalize(name, norm) };
        Self { name, how, norm, form }
    }

    fn is(&self, stored: &[u8]) -> bool {
        match self.how {
            Match::Exact => self.name == stored,
            Match::Normalized | Match::NormalizedCase => {
                self.name == stored || normalize(stored, self.norm) == self.form
            }
        }
    }
}
