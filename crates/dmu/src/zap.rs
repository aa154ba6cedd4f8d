//! ZAP objects: maps from names, or arrays of words, to arrays of integers.
//!
//! # Theory
//! [`Zap`] hides which of the two shapes an object has (`ondisk::zap` describes them). A lookup in
//! a fat ZAP costs the header, one leaf, and a block of the pointer table if that is external.
//!
//! Cursors follow hash and collision differentiator, in the order of leaves, as in OpenZFS. A
//! [`Cookie`] names a position, and stays valid while entries come and go. Resuming at a cookie
//! costs one leaf, so listing a large directory in small parts is linear.
//!
//! Names are hashed in the normalized form of the object (`normflags`), but stored as given. An
//! exact lookup compares the stored name. A normalized lookup compares normalized forms, with or
//! without case folding.
//!
//! All users of a ZAP in a live object set share one state: its header, and the index of a micro
//! ZAP. A lock protects it, which writers hold alone (`crate::zap::change`).
//!
//! # Absent
//! This module doesn't know what a value means. It splits leaves but never joins them, so a ZAP
//! that was large once stays large. OpenZFS joins leaves (`zap_shrink`).

mod change;
mod cursor;
mod fat;
mod micro;
mod room;
mod stats;
mod textprep;
mod value;

pub use cursor::{Cookie, Cursor, Entry};
pub use room::{Add, new_has_room};
pub use stats::FatStats;
pub use textprep::{Normalization, normalize};
pub use value::{Key, Value};

use crate::{Dnode, Result};
use device::Block;
use observe::lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use ondisk::zap::{
    BlockType, FatHeader, HashBits, Leaf, LeafEntry, MicroZap, PtrTable, hash_bytes, hash_words,
};
use ondisk::{BlkId, Corrupt};
use std::sync::{Arc, OnceLock};
use zio::ReadOptions;

/// How a lookup compares a name with stored ones (`matchtype_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Byte for byte.
    Exact,
    /// By the object's normalization, with its case folding if it has one (`MT_NORMALIZE`).
    Normalized,
    /// By the object's normalization, but without case folding (`MT_NORMALIZE | MT_MATCH_CASE`).
    NormalizedCase,
}

/// An open ZAP (`zap_t`). Clones share it.
#[derive(Debug, Clone)]
pub struct Zap(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dn: Dnode,
    state: State,
}

#[derive(Debug)]
enum State {
    Fixed(Arc<View>),
    LiveObjset(Arc<Shared>),
}

/// The state that users of a live ZAP share.
///
/// # Locks
/// Held for a whole operation, across the read of its leaf, so that no reader sees half of a
/// change. Lookups don't wait for each other, only for changes.
#[derive(Debug)]
struct Shared(RwLock<View>);

impl Shared {
    fn write(shared: &Arc<Shared>) -> RwLockWriteGuard<'_, View> {
        shared.0.write()
    }
}

/// What is known of a ZAP without a read.
#[derive(Debug)]
struct View {
    /// Block 0, of a ZAP that doesn't change.
    head: Option<Block>,
    shape: Shape,
    norm: Normalization,
}

#[derive(Debug)]
enum Shape {
    /// The slots in cursor order, computed when first needed.
    Micro {
        salt: u64,
        index: OnceLock<Vec<MicroSlot>>,
        /// The slot where the search for a free one begins.
        hint: usize,
    },
    Fat(FatHeader),
}

/// A view that is in use.
enum Seen<'a> {
    Fixed(&'a View),
    LiveObjset(RwLockReadGuard<'a, View>),
}

impl std::ops::Deref for Seen<'_> {
    type Target = View;

    fn deref(&self) -> &View {
        match self {
            Self::Fixed(v) => v,
            Self::LiveObjset(v) => v,
        }
    }
}

impl View {
    fn of(dn: &Dnode) -> Result<(View, Block)> {
        let head = dn
            .block(BlkId(0))?
            .ok_or_else(|| dn.corrupt(Corrupt::Shape { what: "ZAP", why: "the first block is a hole" }))?;
        let bad = |e| dn.corrupt(e);
        let (shape, flags) = match BlockType::of(&head).map_err(bad)? {
            BlockType::Micro => {
                let z = MicroZap::parse(&head).map_err(bad)?;
                (Shape::Micro { salt: z.salt, index: OnceLock::new(), hint: 0 }, z.normflags)
            }
            BlockType::Header => {
                let h = FatHeader::parse(&head).map_err(bad)?;
                (Shape::Fat(h), h.normflags)
            }
        };
        let norm = Normalization::from_disk(flags).map_err(bad)?;
        Ok((View { head: None, shape, norm }, head))
    }

    fn fat_header(&self) -> Option<&FatHeader> {
        match &self.shape {
            Shape::Micro { .. } => None,
            Shape::Fat(h) => Some(h),
        }
    }

    fn hash_bits(&self) -> HashBits {
        self.fat_header().map_or(HashBits::Bits28, FatHeader::hash_bits)
    }

    fn hash_name(&self, name: &[u8]) -> u64 {
        let (salt, bits) = match &self.shape {
            Shape::Micro { salt, .. } => (*salt, HashBits::Bits28),
            Shape::Fat(h) => (h.salt, h.hash_bits()),
        };
        if self.norm.is_none() {
            hash_bytes(salt, name, bits)
        } else {
            hash_bytes(salt, &normalize(name, self.norm), bits)
        }
    }
}

/// The hash of a key of words (`zap_hash`).
fn hash_key(h: &FatHeader, key: &[u64]) -> u64 {
    if h.flags.pre_hashed() {
        h.hash_bits().mask(key.first().copied().unwrap_or(0))
    } else {
        hash_words(h.salt, key, h.hash_bits())
    }
}

/// The place of a micro ZAP's entry in cursor order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MicroSlot {
    hash: u64,
    cd: u32,
    slot: usize,
}

impl Zap {
    /// Opens the ZAP that the object `dn` holds.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading). [`crate::Error::Corrupt`] also if block 0 is
    /// no ZAP.
    pub fn open(dn: &Dnode) -> Result<Zap> {
        let state = match dn.live_node() {
            None => {
                let (view, head) = View::of(dn)?;
                State::Fixed(Arc::new(View { head: Some(head), ..view }))
            }
            Some(live) => State::LiveObjset(live.user(|| Ok(Shared(RwLock::new(View::of(dn)?.0))))?),
        };
        Ok(Zap(Arc::new(Inner { dn: dn.clone(), state })))
    }

    /// The same ZAP, but reads through this handle use `options`.
    #[must_use]
    pub fn with_options(&self, options: ReadOptions) -> Zap {
        let state = match &self.0.state {
            State::Fixed(view) => State::Fixed(view.clone()),
            State::LiveObjset(shared) => State::LiveObjset(shared.clone()),
        };
        Zap(Arc::new(Inner { dn: self.0.dn.with_options(options), state }))
    }

    fn see(&self) -> Seen<'_> {
        match &self.0.state {
            State::Fixed(v) => Seen::Fixed(v),
            State::LiveObjset(v) => Seen::LiveObjset(v.0.read()),
        }
    }

    /// Block 0.
    fn head(&self, v: &View) -> Result<Block> {
        match &v.head {
            Some(b) => Ok(b.clone()),
            None => self.block(v, 0),
        }
    }

    /// The object.
    pub fn dnode(&self) -> &Dnode {
        &self.0.dn
    }

    /// The normalization of names before they are hashed.
    pub fn normalization(&self) -> Normalization {
        self.see().norm
    }

    /// True if it is a micro ZAP: a single block of short names and 64-bit values.
    pub fn is_micro(&self) -> bool {
        matches!(self.see().shape, Shape::Micro { .. })
    }

    /// The header of a fat ZAP (`zap_phys_t`).
    pub fn fat_header(&self) -> Option<FatHeader> {
        self.see().fat_header().copied()
    }

    /// The number of entries (`zap_count`).
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading), for a micro ZAP.
    pub fn count(&self) -> Result<u64> {
        let v = self.see();
        match &v.shape {
            Shape::Micro { .. } => Ok(self.micro_index(&v)?.len() as u64),
            Shape::Fat(h) => Ok(h.num_entries),
        }
    }

    fn corrupt(&self, e: Corrupt) -> crate::Error {
        self.0.dn.corrupt(e)
    }

    /// The slots of a micro ZAP, in cursor order.
    fn micro_index<'v>(&self, v: &'v View) -> Result<&'v [MicroSlot]> {
        let Shape::Micro { index, .. } = &v.shape else { return Ok(&[]) };
        if let Some(all) = index.get() {
            return Ok(all);
        }
        let head = self.head(v)?;
        let z = MicroZap::parse(&head).map_err(|e| self.corrupt(e))?;
        let mut all = Vec::new();
        for slot in 0..z.slots() {
            if let Some(e) = z.entry(slot).map_err(|e| self.corrupt(e))? {
                all.push(MicroSlot { hash: v.hash_name(e.name), cd: e.cd, slot });
            }
        }
        all.sort_unstable();
        Ok(index.get_or_init(|| all))
    }

    /// The value of exactly this name (`zap_lookup`).
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn lookup(&self, name: &[u8]) -> Result<Option<Value>> {
        Ok(self.lookup_matching(name, Match::Exact)?.map(|(_, v)| v))
    }

    /// The value of exactly this name, which must be one 64-bit integer.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading). [`crate::Error::Corrupt`] also if the value
    /// has another shape.
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>> {
        match self.lookup(name)? {
            None => Ok(None),
            Some(v) => v.as_u64().map(Some).ok_or_else(|| self.corrupt(NOT_A_WORD)),
        }
    }

    /// The stored name and the value of the first entry that matches `name` (`zap_lookup_norm`).
    ///
    /// On an object without normalization, every match is exact.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn lookup_matching(&self, name: &[u8], how: Match) -> Result<Option<(Vec<u8>, Value)>> {
        self.lookup_in(&self.see(), name, how)
    }

    fn lookup_in(&self, v: &View, name: &[u8], how: Match) -> Result<Option<(Vec<u8>, Value)>> {
        let wanted = Wanted::new(name, how, v.norm);
        match &v.shape {
            Shape::Micro { .. } => {
                Ok(self.find_micro(v, &wanted)?.map(|(_, name, value)| (name, Value::word(value))))
            }
            Shape::Fat(h) if h.flags.uint64_key() => Ok(None),
            Shape::Fat(h) => {
                let block = self.leaf_block(v, h, v.hash_name(name))?.1;
                let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
                match self.find_in_leaf(&leaf, v.hash_name(name), &wanted)? {
                    Some((e, stored)) => Ok(Some((stored, self.value(&leaf, &e)?))),
                    None => Ok(None),
                }
            }
        }
    }

    /// The wanted entry of a leaf, and its stored name.
    fn find_in_leaf(
        &self,
        leaf: &Leaf<'_>,
        hash: u64,
        wanted: &Wanted<'_>,
    ) -> Result<Option<(LeafEntry, Vec<u8>)>> {
        let mut found = leaf.entries_of(hash).map_err(|e| self.corrupt(e))?;
        found.sort_by_key(|e| e.cd);
        for e in found {
            let stored = leaf.name(&e).map_err(|e| self.corrupt(e))?;
            if wanted.is(&stored) {
                return Ok(Some((e, stored)));
            }
        }
        Ok(None)
    }

    /// The wanted entry of a micro ZAP: its slot, its stored name, its value.
    fn find_micro(&self, v: &View, wanted: &Wanted<'_>) -> Result<Option<(usize, Vec<u8>, u64)>> {
        let head = self.head(v)?;
        let z = MicroZap::parse(&head).map_err(|e| self.corrupt(e))?;
        // A single lookup in a ZAP that doesn't change need not hash all names.
        if wanted.how == Match::Exact && v.head.is_some() {
            for (slot, e) in (0..z.slots()).filter_map(|i| z.entry(i).transpose().map(|e| (i, e))) {
                let e = e.map_err(|e| self.corrupt(e))?;
                if e.name == wanted.name {
                    return Ok(Some((slot, e.name.to_vec(), e.value)));
                }
            }
            return Ok(None);
        }
        let hash = v.hash_name(wanted.name);
        let index = self.micro_index(v)?;
        let from = index.partition_point(|s| s.hash < hash);
        for s in index[from..].iter().take_while(|s| s.hash == hash) {
            if let Some(e) = z.entry(s.slot).map_err(|e| self.corrupt(e))?
                && wanted.is(e.name)
            {
                return Ok(Some((s.slot, e.name.to_vec(), e.value)));
            }
        }
        Ok(None)
    }

    /// The value of a key of words (`zap_lookup_uint64`). `None` also if the keys of this ZAP are
    /// names.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn lookup_words(&self, key: &[u64]) -> Result<Option<Value>> {
        let v = self.see();
        let Some(h) = v.fat_header().filter(|h| h.flags.uint64_key()) else { return Ok(None) };
        let block = self.leaf_block(&v, h, hash_key(h, key))?.1;
        let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
        match self.find_words(&leaf, hash_key(h, key), key)? {
            Some(e) => self.value(&leaf, &e).map(Some),
            None => Ok(None),
        }
    }

    fn find_words(&self, leaf: &Leaf<'_>, hash: u64, key: &[u64]) -> Result<Option<LeafEntry>> {
        for e in leaf.entries_of(hash).map_err(|e| self.corrupt(e))? {
            if leaf.words_key(&e).map_err(|e| self.corrupt(e))? == key {
                return Ok(Some(e));
            }
        }
        Ok(None)
    }

    /// A cursor at the start (`zap_cursor_init`).
    pub fn cursor(&self) -> Cursor {
        self.cursor_at(Cookie::START)
    }

    /// A cursor at the first entry at or after `cookie` (`zap_cursor_init_serialized`).
    pub fn cursor_at(&self, cookie: Cookie) -> Cursor {
        Cursor::new(self.clone(), cookie)
    }

    /// All entries, in cursor order, read at once. For a ZAP that is known to fit into memory, this
    /// is faster than [`Zap::entries`].
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn all(&self) -> Result<Vec<Entry>> {
        self.cursor().rest()
    }

    /// All entries, in cursor order. Ends after an error.
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

    /// The key of the first entry whose value is one integer that equals `value` under `mask`
    /// (`zap_value_search`).
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
    pub fn search_value(&self, value: u64, mask: u64) -> Result<Option<Key>> {
        for e in self.entries() {
            let e = e?;
            if e.value.first().is_some_and(|v| v & mask == value & mask) {
                return Ok(Some(e.key));
            }
        }
        Ok(None)
    }

    /// The leaf block for `hash`, and its number.
    fn leaf_block(&self, v: &View, h: &FatHeader, hash: u64) -> Result<(u64, Block)> {
        let blk = self.table_entry(v, h, h.index(hash))?;
        Ok((blk, self.block(v, blk)?))
    }

    /// The leaf block that an entry of the pointer table names.
    fn table_entry(&self, v: &View, h: &FatHeader, index: u64) -> Result<u64> {
        match h.table {
            PtrTable::Embedded => h.embedded(&self.head(v)?, index).map_err(|e| self.corrupt(e)),
            PtrTable::External { start, .. } => {
                let (blk, at) = h.external(start, index).map_err(|e| self.corrupt(e))?;
                let table = self.block(v, blk)?;
                h.check_leaf(ondisk::bytes::le64(&table, at)).map_err(|e| self.corrupt(e))
            }
        }
    }

    fn block(&self, v: &View, blk: u64) -> Result<Block> {
        self.0
            .dn
            .block(BlkId(blk))?
            .filter(|b| v.fat_header().is_none_or(|h| b.len() == 1 << h.block_shift))
            .ok_or_else(|| self.corrupt(Corrupt::Shape { what: "ZAP", why: "a block is a hole" }))
    }

    fn value(&self, leaf: &Leaf<'_>, e: &LeafEntry) -> Result<Value> {
        Ok(Value::ints(e.int_size, leaf.value(e).map_err(|e| self.corrupt(e))?))
    }
}

const NOT_A_WORD: Corrupt = Corrupt::Shape { what: "ZAP entry", why: "the value is not one 64-bit integer" };

/// A wanted name, in the form in which it is compared.
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
