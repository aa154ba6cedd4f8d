//! Cursors over ZAPs (`zap_cursor_t`).

use super::{Key, MicroSlot, Shape, Value, View, Zap};
use crate::Result;
use device::Block;
use ondisk::Corrupt;
use ondisk::zap::{FatHeader, HashBits, Leaf, LeafEntry, MicroZap};

/// A position in a ZAP that a caller can store and resume (`zap_cursor_serialize`).
///
/// The low bits are the kept bits of the hash, and the differentiator is above them. So a 32-bit
/// program can usually hold it. Cookies are not in the order of entries; only equality has a
/// meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before the first entry.
    pub const START: Self = Self(0);
    /// After the last entry.
    pub const END: Self = Self(u64::MAX);

    fn pack(hash: u64, cd: u32, bits: HashBits) -> Self {
        Self((hash >> (64 - bits.get())) | (u64::from(cd) << bits.get()))
    }

    fn unpack(self, bits: HashBits) -> (u64, u32) {
        let cd = self.0 >> bits.get();
        (self.0 << (64 - bits.get()), u32::try_from(cd).unwrap_or(u32::MAX))
    }
}

/// An entry that a cursor found (`zap_attribute_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// Its value.
    pub value: Value,
    /// The position after it.
    pub next: Cookie,
}

impl Entry {
    /// The name. Empty if the key is words.
    pub fn name(&self) -> &[u8] {
        self.key.name().unwrap_or_default()
    }
}

/// A cursor (`zap_cursor_t`). It keeps its current leaf.
#[derive(Debug)]
pub struct Cursor {
    zap: Zap,
    /// The next entry is the first at or after this position. `None` after the last.
    at: Option<(u64, u32)>,
    leaf: Option<Held>,
}

/// A leaf with its entries in order.
#[derive(Debug)]
struct Held {
    block: Block,
    entries: Vec<LeafEntry>,
    next: usize,
}

impl Cursor {
    pub(super) fn new(zap: Zap, cookie: Cookie) -> Self {
        let at = (cookie != Cookie::END).then(|| cookie.unpack(zap.see().hash_bits()));
        Self { zap, at, leaf: None }
    }

    /// The position of the next entry (`zap_cursor_serialize`).
    pub fn cookie(&self) -> Cookie {
        self.at.map_or(Cookie::END, |(hash, cd)| Cookie::pack(hash, cd, self.zap.see().hash_bits()))
    }

    /// The next entry (`zap_cursor_retrieve` and `zap_cursor_advance`). `None` at the end.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading). The cursor then stays where it is.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let Some(at) = self.at else { return Ok(None) };
        let zap = self.zap.clone();
        let v = zap.see();
        let found = match &v.shape {
            Shape::Micro { .. } => self.next_micro(&v, at)?,
            // A leaf of a ZAP that doesn't change need not be looked up again.
            Shape::Fat(h) => self.next_fat(&v, h, at, v.head.is_some())?,
        };
        if found.is_none() {
            self.at = None;
        }
        Ok(found)
    }

    /// All entries from here on. The ZAP doesn't change meanwhile.
    pub(super) fn rest(mut self) -> Result<Vec<Entry>> {
        let zap = self.zap.clone();
        let v = zap.see();
        let mut all = Vec::new();
        while let Some(at) = self.at {
            let found = match &v.shape {
                Shape::Micro { .. } => {
                    self.rest_micro(&v, at, &mut all)?;
                    None
                }
                Shape::Fat(h) => self.next_fat(&v, h, at, true)?,
            };
            match found {
                Some(entry) => all.push(entry),
                None => break,
            }
        }
        Ok(all)
    }

    /// Moves past an entry, and checks that its position differs from that of the next one.
    fn step(&mut self, v: &View, hash: u64, cd: u32) -> Result<Cookie> {
        let bits = v.hash_bits();
        if bits.mask(hash) != hash || cd >= bits.max_cd() {
            let e =
                Corrupt::Shape { what: "ZAP", why: "an entry's hash or differentiator has too many bits" };
            return Err(self.zap.corrupt(e));
        }
        self.at = Some((hash, cd + 1));
        Ok(Cookie::pack(hash, cd + 1, bits))
    }

    fn next_micro(&mut self, v: &View, at: (u64, u32)) -> Result<Option<Entry>> {
        let zap = self.zap.clone();
        let index = zap.micro_index(v)?;
        let i = index.partition_point(|s| (s.hash, s.cd) < at);
        let Some(s) = index.get(i) else { return Ok(None) };
        let head = zap.head(v)?;
        let micro = MicroZap::parse(&head).map_err(|e| zap.corrupt(e))?;
        self.micro_entry(v, &micro, s).map(Some)
    }

    fn rest_micro(&mut self, v: &View, at: (u64, u32), all: &mut Vec<Entry>) -> Result<()> {
        let zap = self.zap.clone();
        let (index, head) = (zap.micro_index(v)?, zap.head(v)?);
        let micro = MicroZap::parse(&head).map_err(|e| zap.corrupt(e))?;
        for s in &index[index.partition_point(|s| (s.hash, s.cd) < at)..] {
            all.push(self.micro_entry(v, &micro, s)?);
        }
        Ok(())
    }

    fn micro_entry(&mut self, v: &View, micro: &MicroZap<'_>, s: &MicroSlot) -> Result<Entry> {
        let gone = || Corrupt::Shape { what: "micro ZAP", why: "an indexed slot is free" };
        let e = micro.entry(s.slot).and_then(|e| e.ok_or_else(gone)).map_err(|e| self.zap.corrupt(e))?;
        let next = self.step(v, s.hash, s.cd)?;
        Ok(Entry { key: Key::Name(e.name.to_vec()), value: Value::word(e.value), next })
    }

    /// The next entry of a fat ZAP. `fixed` says that the current leaf has not changed.
    fn next_fat(
        &mut self,
        v: &View,
        header: &FatHeader,
        mut at: (u64, u32),
        fixed: bool,
    ) -> Result<Option<Entry>> {
        let zap = self.zap.clone();
        loop {
            let now = match &self.leaf {
                Some(_) if fixed => None,
                _ => Some(zap.leaf_block(v, header, at.0)?.1),
            };
            let held = self.leaf.take();
            let mut held = match (held, now) {
                (Some(held), None) => held,
                (Some(held), Some(block)) if block.ptr_eq(&held.block) => held,
                (_, block) => {
                    let block = match block {
                        Some(block) => block,
                        None => zap.leaf_block(v, header, at.0)?.1,
                    };
                    let leaf = Leaf::parse(&block).map_err(|e| zap.corrupt(e))?;
                    if !leaf.covers(at.0) {
                        let why = "the pointer table names a leaf of other hashes";
                        return Err(zap.corrupt(Corrupt::Shape { what: "fat ZAP", why }));
                    }
                    let entries = leaf.entries().map_err(|e| zap.corrupt(e))?;
                    let next = entries.partition_point(|e| (e.hash, e.cd) < at);
                    Held { block, entries, next }
                }
            };
            let leaf = Leaf::parse(&held.block).map_err(|e| zap.corrupt(e))?;
            let Some(e) = held.entries.get(held.next).copied() else {
                // A leaf covers its own hashes only, so the loop ends after at most all leaves.
                match leaf.next_hash() {
                    None => return Ok(None),
                    Some(hash) => {
                        at = (hash, 0);
                        self.at = Some(at);
                        continue;
                    }
                }
            };
            let key = if header.flags.uint64_key() {
                leaf.words_key(&e).map(Key::Words)
            } else {
                leaf.name(&e).map(Key::Name)
            };
            let entry = Entry {
                key: key.map_err(|e| zap.corrupt(e))?,
                value: zap.value(&leaf, &e)?,
                next: self.step(v, e.hash, e.cd)?,
            };
            held.next += 1;
            self.leaf = Some(held);
            return Ok(Some(entry));
        }
    }
}
