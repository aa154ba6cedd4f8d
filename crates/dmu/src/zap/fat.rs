//! Changes of fat ZAPs.
//!
//! Entries whose hashes begin alike share a leaf until a larger pointer table tells them apart.
//! `crate::zap::room` says how large the table may become.

use super::change::Put;
use super::room::{chunks_alike, most_bits};
use super::{Normalization, Shape, Value, View, Wanted, Zap};
use crate::{Dnode, Result, Tx};
use device::AlignedBuf;
use ondisk::zap::{FatHeader, Leaf, LeafEntry, LeafMut, NewEntry, PtrTable, ZapFlags};
use ondisk::{BlkId, Corrupt};

/// The key of an entry, for lookup and storage.
pub(super) struct FatKey<'a> {
    hash: u64,
    form: Form<'a>,
}

enum Form<'a> {
    Name(Wanted<'a>),
    Words(&'a [u64]),
}

impl<'a> FatKey<'a> {
    pub(super) fn name(hash: u64, wanted: Wanted<'a>) -> Self {
        Self { hash, form: Form::Name(wanted) }
    }

    pub(super) fn words(hash: u64, key: &'a [u64]) -> Self {
        Self { hash, form: Form::Words(key) }
    }

    /// The stored key, and the size of its integers.
    fn stored(&self) -> (Vec<u8>, usize) {
        match &self.form {
            Form::Name(w) => ([w.name, &[0]].concat(), 1),
            Form::Words(words) => (words.iter().flat_map(|w| w.to_be_bytes()).collect(), 8),
        }
    }
}

/// Makes an empty fat ZAP of an object: a header whose pointers all lead to one leaf.
pub(super) fn init(
    tx: &Tx,
    dn: &Dnode,
    salt: u64,
    norm: Normalization,
    flags: ZapFlags,
) -> Result<FatHeader> {
    let size = dn.block_size() as usize;
    assert!(size.is_power_of_two(), "a fat ZAP's blocks are powers of two");
    let block_shift = size.trailing_zeros();
    let h = FatHeader {
        block_shift,
        table: PtrTable::Embedded,
        table_shift: block_shift - 4,
        next_table: 0,
        blocks_copied: 0,
        free_block: 2,
        num_leafs: 1,
        num_entries: 0,
        salt,
        normflags: norm.to_disk(),
        flags,
    };
    let mut head = AlignedBuf::zeroed(size);
    h.write(&mut head);
    head[h.embedded_at(0)..].as_chunks_mut::<8>().0.fill(1u64.to_le_bytes());
    dn.write_block(tx, BlkId(0), head.freeze())?;
    let mut leaf = AlignedBuf::zeroed(size);
    LeafMut::init(&mut leaf, 0, 0, !norm.is_none());
    dn.write_block(tx, BlkId(1), leaf.freeze())?;
    Ok(h)
}

impl Zap {
    fn header(v: &View) -> FatHeader {
        *v.fat_header().expect("a ZAP that is changed as a fat one is one")
    }

    fn change_header(&self, tx: &Tx, v: &mut View, f: impl FnOnce(&mut FatHeader)) -> Result<()> {
        let mut h = Self::header(v);
        f(&mut h);
        self.0.dn.modify_block(tx, BlkId(0), |b| h.write(b))?;
        v.shape = Shape::Fat(h);
        Ok(())
    }

    fn find_key(&self, leaf: &Leaf<'_>, key: &FatKey<'_>) -> Result<Option<LeafEntry>> {
        match &key.form {
            Form::Name(wanted) => Ok(self.find_in_leaf(leaf, key.hash, wanted)?.map(|(e, _)| e)),
            Form::Words(words) => self.find_words(leaf, key.hash, words),
        }
    }

    /// Changes a leaf. If the caller still holds the block, the block is copied.
    fn change_leaf<R>(
        &self,
        tx: &Tx,
        blk: u64,
        f: impl FnOnce(&mut LeafMut<'_>) -> ondisk::Result<R>,
    ) -> Result<R> {
        let r = self.0.dn.modify_block(tx, BlkId(blk), |b| f(&mut LeafMut::parse(b)?))?;
        r.map_err(|e| self.corrupt(e))
    }

    /// The lowest differentiator that no entry of this hash has.
    fn free_cd(&self, leaf: &Leaf<'_>, hash: u64) -> Result<u32> {
        let mut used: Vec<u32> =
            leaf.entries_of(hash).map_err(|e| self.corrupt(e))?.iter().map(|e| e.cd).collect();
        used.sort_unstable();
        Ok(used.iter().zip(0u32..).take_while(|(used, cd)| *used == cd).count() as u32)
    }

    pub(super) fn put_fat(
        &self,
        tx: &Tx,
        v: &mut View,
        key: &FatKey<'_>,
        value: &Value,
        how: Put,
    ) -> Result<()> {
        let raw = value.raw();
        let (name, name_int) = key.stored();
        let new = NewEntry { hash: key.hash, name: &name, name_int, int_size: value.int_size(), value: &raw };
        if new.chunks() > LeafMut::chunks_of(1 << Self::header(v).block_shift) {
            return Err(self.bad_value(raw.len()));
        }
        loop {
            let h = Self::header(v);
            let (blk, block) = self.leaf_block(v, &h, key.hash)?;
            let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
            let found = self.find_key(&leaf, key)?;
            let cd = match (found, how) {
                (Some(_), Put::Add) => return Err(self.exists()),
                (None, Put::Add | Put::Update) => self.free_cd(&leaf, key.hash)?,
                (_, Put::Move(cd)) => cd,
                (Some(e), Put::Update) => e.cd,
            };
            drop(block);
            let fits = match found {
                Some(e) => self.change_leaf(tx, blk, |l| l.set_value(&e, new.int_size, new.value))?,
                None => {
                    let fits = self.change_leaf(tx, blk, |l| l.insert(&new, cd))?;
                    if fits {
                        self.change_header(tx, v, |h| h.num_entries += 1)?;
                    }
                    fits
                }
            };
            if fits {
                return Ok(());
            }
            self.expand(tx, v, blk, &new, found.as_ref())?;
        }
    }

    pub(super) fn remove_fat(&self, tx: &Tx, v: &mut View, key: &FatKey<'_>) -> Result<()> {
        let h = Self::header(v);
        let (blk, block) = self.leaf_block(v, &h, key.hash)?;
        let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
        let found = self.find_key(&leaf, key)?.ok_or_else(|| self.missing())?;
        drop(block);
        let name_int = if h.flags.uint64_key() { 8 } else { 1 };
        self.change_leaf(tx, blk, |l| l.remove(&found, name_int))?;
        self.change_header(tx, v, |h| h.num_entries = h.num_entries.saturating_sub(1))
    }

    /// Splits a leaf that has no space for `new`, which replaces `old`. If necessary, the pointer
    /// table grows first (`zap_expand_leaf`).
    ///
    /// If no number of splits makes space, this changes nothing.
    fn expand(
        &self,
        tx: &Tx,
        v: &mut View,
        blk: u64,
        new: &NewEntry<'_>,
        old: Option<&LeafEntry>,
    ) -> Result<()> {
        let mut h = Self::header(v);
        let (hash, name_int, most) = (new.hash, new.name_int, most_bits(&h));
        let prefix_len = {
            let block = self.block(v, blk)?;
            let leaf = Leaf::parse(&block).map_err(|e| self.corrupt(e))?;
            let others = chunks_alike(&leaf, (hash, most), name_int, old).map_err(|e| self.corrupt(e))?;
            if leaf.prefix_len >= most || others + new.chunks() > LeafMut::chunks_of(block.len()) {
                return Err(self.full());
            }
            leaf.prefix_len
        };
        // A table that OpenZFS began to grow must grow first, because its old half must not change
        // any more.
        while h.next_table != 0 || prefix_len >= h.table_shift {
            self.grow_table(tx, v)?;
            h = Self::header(v);
        }
        let new_blk = h.free_block;
        let mut sibling = AlignedBuf::zeroed(1 << h.block_shift);
        let sorted = !v.norm.is_none();
        self.change_leaf(tx, blk, |l| l.split(&mut sibling, sorted, name_int))?;
        self.0.dn.write_block(tx, BlkId(new_blk), sibling.freeze())?;
        let diff = h.table_shift - (prefix_len + 1);
        let first = (hash >> (63 - prefix_len) | 1) << diff;
        self.set_table(tx, &h, first..first + (1 << diff), (blk, new_blk))?;
        self.change_header(tx, v, |h| {
            h.free_block += 1;
            h.num_leafs += 1;
        })
    }

    /// Changes entries of the pointer table from one leaf to another.
    fn set_table(
        &self,
        tx: &Tx,
        h: &FatHeader,
        range: std::ops::Range<u64>,
        (old, new): (u64, u64),
    ) -> Result<()> {
        let bad = || {
            let why = "two pointers that should name one leaf don't";
            self.corrupt(Corrupt::Shape { what: "ZAP pointer table", why })
        };
        let set = |b: &mut [u8], at: usize, n: u64| {
            let entries = b[at..at + n as usize * 8].as_chunks_mut::<8>().0;
            let ok = entries.iter().all(|e| *e == old.to_le_bytes());
            entries.fill(new.to_le_bytes());
            ok
        };
        let mut index = range.start;
        while index < range.end {
            let (blk, at, room) = match h.table {
                PtrTable::Embedded => (0, h.embedded_at(index), range.end - index),
                PtrTable::External { start, .. } => {
                    let (blk, at) = h.external(start, index).map_err(|e| self.corrupt(e))?;
                    (blk, at, ((1u64 << h.block_shift) - at as u64) / 8)
                }
            };
            let n = room.min(range.end - index);
            if !self.0.dn.modify_block(tx, BlkId(blk), |b| set(b, at, n))? {
                return Err(bad());
            }
            index += n;
        }
        Ok(())
    }

    /// Doubles the pointer table (`zap_grow_ptrtbl`).
    ///
    /// It moves from the header to a block of its own, and later to twice as many blocks.
    fn grow_table(&self, tx: &Tx, v: &mut View) -> Result<()> {
        let h = Self::header(v);
        // Near the last bit of the hash, a larger table would separate no more names.
        if h.table_shift >= h.hash_bits().get() - 2 {
            return Err(self.full());
        }
        let size = 1usize << h.block_shift;
        let dn = &self.0.dn;
        // Each entry twice, from half a block into a block.
        let doubled = |half: &[u8]| {
            let mut to = AlignedBuf::zeroed(size);
            for (pair, e) in to.as_chunks_mut::<16>().0.iter_mut().zip(half.as_chunks::<8>().0) {
                pair[..8].copy_from_slice(e);
                pair[8..].copy_from_slice(e);
            }
            to.freeze()
        };
        let PtrTable::External { start, blocks } = h.table else {
            let block = doubled(&self.head(v)?[h.embedded_at(0)..]);
            dn.write_block(tx, BlkId(h.free_block), block)?;
            return self.change_header(tx, v, |h| {
                h.table = PtrTable::External { start: h.free_block, blocks: 1 };
                h.table_shift += 1;
                h.free_block += 1;
            });
        };
        let (to, free_block) = match h.next_table {
            0 => (h.free_block, h.free_block + 2 * blocks),
            to => (to, h.free_block),
        };
        if to.checked_add(2 * blocks).is_none_or(|end| end > free_block) || h.blocks_copied > blocks {
            let why = "the table that it grows into lies outside the object";
            return Err(self.corrupt(Corrupt::Shape { what: "fat ZAP header", why }));
        }
        for b in h.blocks_copied..blocks {
            let old = self.block(v, start + b)?;
            dn.write_block(tx, BlkId(to + 2 * b), doubled(&old[..size / 2]))?;
            dn.write_block(tx, BlkId(to + 2 * b + 1), doubled(&old[size / 2..]))?;
        }
        dn.free_range(tx, start << h.block_shift, blocks << h.block_shift)?;
        self.change_header(tx, v, |h| {
            h.table = PtrTable::External { start: to, blocks: 2 * blocks };
            h.table_shift += 1;
            h.next_table = 0;
            h.blocks_copied = 0;
            h.free_block = free_block;
        })
    }
}
