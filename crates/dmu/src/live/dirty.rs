//! The changes of one transaction group to one object.

use crate::live::header::Header;
use device::Block;
use ondisk::{BlkId, Blkptr, CompressKind, Txg};
use std::collections::BTreeMap;
use zio::Encrypted;

/// A set of block numbers, as ranges that neither overlap nor touch. Each goes from its first to
/// its last number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds `first..=last`. Costs O(log n) and the ranges that it absorbs.
    pub(crate) fn insert(&mut self, mut first: u64, mut last: u64) {
        let before = self.0.range(..first).next_back().map(|(f, l)| (*f, *l));
        if let Some((f, l)) = before.filter(|(_, l)| l.saturating_add(1) >= first) {
            first = f;
            last = last.max(l);
        }
        while let Some((f, l)) = self.0.range(first..=last.saturating_add(1)).next().map(|(f, l)| (*f, *l)) {
            self.0.remove(&f);
            last = last.max(l);
        }
        self.0.insert(first, last);
    }

    /// True if `n` is in the set.
    pub(crate) fn has(&self, n: u64) -> bool {
        self.end_of(n).is_some()
    }

    /// The last number of the range that `n` is in.
    pub(crate) fn end_of(&self, n: u64) -> Option<u64> {
        self.0.range(..=n).next_back().map(|(_, l)| *l).filter(|l| *l >= n)
    }

    /// The first number of the first range that begins after `n`.
    pub(crate) fn start_after(&self, n: u64) -> Option<u64> {
        self.0.range(n.checked_add(1)?..).next().map(|(f, _)| *f)
    }

    /// The first and last number of each range, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(f, l)| (*f, *l))
    }
}

/// A data block that is compressed already, or encrypted, as another pool stored it.
#[derive(Debug, Clone)]
pub struct PackedBlock {
    /// Its stored bytes, not more than its contents.
    pub bytes: Block,
    /// How they are compressed. `Off` only if they are encrypted.
    pub compress: CompressKind,
    /// How they are encrypted or authenticated, if their object set is received raw.
    pub encrypted: Option<Encrypted>,
}

/// A spill block that was written.
#[derive(Debug, Clone)]
pub(crate) enum SpillBlock {
    /// Its contents.
    Plain(Block),
    /// A block of this size, as another pool stored it.
    Packed(PackedBlock, u64),
}

/// The changes of one transaction group to one object.
#[derive(Debug)]
pub(crate) struct Dirty {
    pub(crate) txg: Txg,
    /// True if everything that the object was before this txg is freed first.
    pub(crate) wipe: bool,
    /// The header after this txg. `None` if the object is then free.
    pub(crate) header: Option<Header>,
    /// Freed blocks. They are freed before any block here is written.
    pub(crate) freed: Ranges,
    /// Written data blocks. They are ordered, so that a range of them is dropped without visiting
    /// the others.
    pub(crate) blocks: BTreeMap<BlkId, Block>,
    /// Written data blocks that arrived compressed. None is in `blocks`.
    pub(crate) packed: BTreeMap<BlkId, PackedBlock>,
    /// Clones of blocks of other objects, as those were when they were cloned. None is in `blocks`
    /// or `packed`.
    pub(crate) clones: BTreeMap<BlkId, Blkptr>,
    /// The spill block, if it was written (`Some(Some)`) or removed (`Some(None)`).
    pub(crate) spill: Option<Option<SpillBlock>>,
    /// The blocks of `blocks` that were written early, with their places. The block is held here,
    /// so that it is not changed in place.
    early: BTreeMap<BlkId, (Block, Blkptr)>,
    /// Places of earlier early writes, which are no longer used.
    superseded: Vec<Blkptr>,
}

/// The location of a block, as far as the changes of one txg tell.
pub(crate) enum BlockLocation {
    /// In memory.
    Here(Block),
    /// In memory, compressed.
    Packed(PackedBlock),
    /// At the place of another object's block.
    There(Blkptr),
    /// Nowhere: the block reads as zeros.
    Hole,
    /// Unknown: this txg has not changed it.
    Before,
}

impl Dirty {
    pub(crate) fn new(txg: Txg, header: Option<Header>) -> Dirty {
        let (freed, blocks, packed, clones, early) = Default::default();
        let (wipe, spill, superseded) = (false, None, Vec::new());
        Dirty { txg, wipe, header, freed, blocks, packed, clones, spill, early, superseded }
    }

    /// True if no block is written or freed.
    pub(crate) fn keeps_space(&self) -> bool {
        let Dirty { freed, blocks, packed, clones, spill, .. } = self;
        let written = !(blocks.is_empty() && packed.is_empty() && clones.is_empty());
        freed.0.is_empty() && !written && spill.is_none()
    }

    /// Writes a block. True if it was not written before.
    pub(crate) fn put(&mut self, blkid: BlkId, block: Block) -> bool {
        self.clones.remove(&blkid);
        self.packed.remove(&blkid);
        self.supersede(blkid);
        self.blocks.insert(blkid, block).is_none()
    }

    /// Writes a block that is compressed already.
    pub(crate) fn put_packed(&mut self, blkid: BlkId, block: PackedBlock) {
        self.supersede(blkid);
        self.clones.remove(&blkid);
        self.blocks.remove(&blkid);
        self.packed.insert(blkid, block);
    }

    /// A block that was written, to be changed.
    pub(crate) fn written_mut(&mut self, blkid: BlkId) -> Option<&mut Block> {
        self.supersede(blkid);
        self.blocks.get_mut(&blkid)
    }

    /// Forgets that a block was written early, because the block is about to change. Its place is
    /// then useless, and its memory need not be kept.
    fn supersede(&mut self, blkid: BlkId) {
        self.superseded.extend(self.early.remove(&blkid).map(|(_, bp)| bp));
    }

    /// Makes a block a clone of another object's block.
    pub(crate) fn put_clone(&mut self, blkid: BlkId, bp: Blkptr) {
        self.supersede(blkid);
        self.blocks.remove(&blkid);
        self.packed.remove(&blkid);
        self.clones.insert(blkid, bp);
    }

    /// True if a block was written or cloned.
    pub(crate) fn has(&self, blkid: BlkId) -> bool {
        self.blocks.contains_key(&blkid)
            || self.packed.contains_key(&blkid)
            || self.clones.contains_key(&blkid)
    }

    /// The first block from `from` on that was written or cloned.
    pub(crate) fn next(&self, from: BlkId) -> Option<BlkId> {
        let written = self.blocks.range(from..).next().map(|(b, _)| *b);
        let packed = self.packed.range(from..).next().map(|(b, _)| *b);
        let cloned = self.clones.range(from..).next().map(|(b, _)| *b);
        [written, packed, cloned].into_iter().flatten().min()
    }

    /// Notes that a block was written early to this place. False if it is no longer the block that
    /// the object holds.
    pub(crate) fn place(&mut self, blkid: BlkId, block: &Block, bp: &Blkptr) -> bool {
        let same = self.blocks.get(&blkid).is_some_and(|b| b.ptr_eq(block));
        if same && let Some((_, old)) = self.early.insert(blkid, (block.clone(), *bp)) {
            self.superseded.push(old);
        }
        same
    }

    /// Notes that a block did not reach this place.
    pub(crate) fn displace(&mut self, blkid: BlkId, bp: &Blkptr) {
        if self.early.get(&blkid).is_some_and(|(_, placed)| placed == bp) {
            self.early.remove(&blkid);
            self.superseded.push(*bp);
        }
    }

    /// The place of a block that was written early and has not changed since.
    pub(crate) fn placed(&self, blkid: BlkId) -> Option<&Blkptr> {
        let (block, bp) = self.early.get(&blkid)?;
        self.blocks.get(&blkid).filter(|b| b.ptr_eq(block)).map(|_| bp)
    }

    /// The places of blocks that were written early and changed since.
    pub(crate) fn superseded(&self) -> impl Iterator<Item = &Blkptr> {
        self.superseded.iter()
    }

    pub(crate) fn block(&self, blkid: BlkId) -> BlockLocation {
        match self.blocks.get(&blkid) {
            Some(b) => BlockLocation::Here(b.clone()),
            None if self.packed.contains_key(&blkid) => BlockLocation::Packed(self.packed[&blkid].clone()),
            None if self.clones.contains_key(&blkid) => BlockLocation::There(self.clones[&blkid]),
            None if self.wipe || self.freed.has(blkid.0) => BlockLocation::Hole,
            None => BlockLocation::Before,
        }
    }

    /// Drops the written blocks of `first..=last`, and frees what was there before.
    pub(crate) fn free(&mut self, first: BlkId, last: BlkId) {
        let gone: Vec<BlkId> = self.blocks.range(first..=last).map(|(b, _)| *b).collect();
        for b in gone {
            self.supersede(b);
            self.blocks.remove(&b);
        }
        let gone: Vec<BlkId> = self.clones.range(first..=last).map(|(b, _)| *b).collect();
        for b in gone {
            self.clones.remove(&b);
        }
        let gone: Vec<BlkId> = self.packed.range(first..=last).map(|(b, _)| *b).collect();
        for b in gone {
            self.packed.remove(&b);
        }
        self.freed.insert(first.0, last.0);
    }

    /// Frees everything: the object itself, or its former contents before it is created anew.
    pub(crate) fn clear(&mut self) {
        self.wipe = true;
        self.header = None;
        self.freed = Ranges::default();
        self.superseded.extend(std::mem::take(&mut self.early).into_values().map(|(_, bp)| bp));
        self.blocks.clear();
        self.packed.clear();
        self.clones.clear();
        self.spill = None;
    }
}

#[cfg(test)]
mod tests;
