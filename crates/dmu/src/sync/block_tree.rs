//! The block tree of one object while it is written.
//!
//! # Theory
//! Indirect blocks above changed blocks are held here by level and number, until their own level is
//! written. A pointer in a held block is the old one until the block below it is written. It shows
//! what to free then.

use crate::live::dirty::{Dirty, Ranges};
use crate::objset::Home;
use crate::sync::{Sync, is_block};
use crate::tree::first_below;
use crate::visited::Visited;
use crate::{Error, Result};
use device::{AlignedBuf, Block, Sparse};
use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE, Body};
use ondisk::dnode::DnodePhys;
use ondisk::{BlkId, Blkptr, Level, Lsize, ObjNum};
use std::collections::BTreeMap;
use std::sync::Arc;
use zio::{Bookmark, ReadOptions};

/// A block tree that is being changed.
pub(crate) struct SyncTree {
    home: Home,
    object: ObjNum,
    /// The dnode. Its pointers are those written so far.
    pub(crate) phys: DnodePhys,
    indirects: BTreeMap<(Level, BlkId), Indirect>,
    /// The changes to write.
    pub(crate) dirty: Arc<Dirty>,
}

struct Indirect {
    /// The block without zeros at its end. Most indirect blocks of a small object are nearly all
    /// zeros.
    buf: AlignedBuf,
    changed: bool,
}

/// Least bytes that are held of an indirect block.
const HELD_MIN: usize = 4096;

impl Indirect {
    fn raw(&self, slot: std::ops::Range<usize>) -> [u8; BLKPTR_SIZE] {
        let held = self.buf.get(slot).map(|raw| raw.try_into().expect("a slot has the size of a pointer"));
        held.unwrap_or([0; BLKPTR_SIZE])
    }

    /// Puts a pointer into a block of `size` bytes.
    fn put(&mut self, slot: std::ops::Range<usize>, bp: &Blkptr, size: usize) {
        if self.buf.len() < slot.end {
            // The buffer doubles each time, so that filling a block copies it at most once in sum.
            let room = slot.end.next_power_of_two().max(HELD_MIN).min(size);
            self.buf = AlignedBuf::padded(&self.buf, room);
        }
        self.changed = true;
        self.buf[slot].copy_from_slice(&bp.encode());
    }
}

/// The fill of a pointer in the block above it (`BP_GET_FILL`).
pub(crate) fn fill_of(bp: &Blkptr) -> u64 {
    match &bp.body {
        Body::Hole | Body::Redacted => 0,
        Body::Embedded(_) => 1,
        Body::Stored(s) => s.fill,
    }
}

impl SyncTree {
    /// The tree of `phys`, whose pointers are those before `dirty`.
    pub(crate) fn new(home: Home, object: ObjNum, phys: DnodePhys, dirty: Arc<Dirty>) -> SyncTree {
        SyncTree { home, object, phys, indirects: BTreeMap::new(), dirty }
    }

    pub(crate) fn finish(self) -> DnodePhys {
        self.phys
    }

    pub(crate) fn bookmark(&self, level: Level, blkid: BlkId) -> Bookmark {
        Bookmark { objset: self.home.id, object: self.object, level, blkid }
    }

    fn misplaced(&self, level: Level, blkid: BlkId) -> Error {
        Error::Misplaced { objset: self.home.id, object: self.object, level, blkid }
    }

    fn top(&self) -> Level {
        Level(self.phys.nlevels - 1)
    }

    fn slot(&self, blkid: BlkId) -> std::ops::Range<usize> {
        let i = (blkid.0 & ((1 << self.phys.epbs()) - 1)) as usize;
        i << BLKPTR_SHIFT..(i << BLKPTR_SHIFT) + BLKPTR_SIZE
    }

    fn parent(&self, level: Level, blkid: BlkId) -> (Level, BlkId) {
        (Level(level.0 + 1), BlkId(blkid.0 >> self.phys.epbs()))
    }

    fn decode(&self, raw: &[u8], level: Level, blkid: BlkId) -> Result<Blkptr> {
        let bad = |source| zio::Error::Corrupt { bookmark: self.bookmark(level, blkid), source };
        let bp = Blkptr::decode(raw).map_err(bad)?;
        if bp.is_hole() || bp.level == level { Ok(bp) } else { Err(self.misplaced(level, blkid)) }
    }

    /// The pointer to a block of the tree.
    pub(crate) fn pointer(&mut self, level: Level, blkid: BlkId) -> Result<Blkptr> {
        if level == self.top() {
            return Ok(usize::try_from(blkid.0)
                .ok()
                .and_then(|i| self.phys.blkptrs.get(i))
                .copied()
                .unwrap_or(Blkptr::HOLE));
        }
        let (above, parent) = self.parent(level, blkid);
        let slot = self.slot(blkid);
        let raw = self.load(above, parent)?.raw(slot);
        self.decode(&raw, level, blkid)
    }

    /// Stores a pointer in its place.
    pub(crate) fn set_pointer(&mut self, level: Level, blkid: BlkId, bp: Blkptr) -> Result<()> {
        if level == self.top() {
            let misplaced = self.misplaced(level, blkid);
            let i = usize::try_from(blkid.0).ok();
            *i.and_then(|i| self.phys.blkptrs.get_mut(i)).ok_or(misplaced)? = bp;
            return Ok(());
        }
        let (above, parent) = self.parent(level, blkid);
        let slot = self.slot(blkid);
        let size = self.size();
        self.load(above, parent)?.put(slot, &bp, size);
        Ok(())
    }

    /// The indirect block, read if it is not held. The recursion is as deep as the dnode has
    /// levels.
    fn load(&mut self, level: Level, blkid: BlkId) -> Result<&mut Indirect> {
        if !self.indirects.contains_key(&(level, blkid)) {
            let bp = self.pointer(level, blkid)?;
            let buf = if bp.is_hole() { self.unfold(&bp) } else { self.held(&bp, level, blkid)? };
            self.indirects.insert((level, blkid), Indirect { buf, changed: false });
        }
        Ok(self.indirects.get_mut(&(level, blkid)).expect("it was just put there"))
    }

    /// Bytes of an indirect block.
    fn size(&self) -> usize {
        1 << self.phys.indblkshift
    }

    /// An indirect block, without the zeros at its end.
    fn read(&self, bp: &Blkptr, level: Level, blkid: BlkId) -> Result<Block> {
        let options = ReadOptions::sync();
        let block = self.home.cache.read_sparse(bp, &self.bookmark(level, blkid), &options)?;
        if block.len() == self.size() { Ok(block.into_head()) } else { Err(self.misplaced(level, blkid)) }
    }

    /// The bytes of an indirect block, without the zeros at its end.
    fn held(&self, bp: &Blkptr, level: Level, blkid: BlkId) -> Result<AlignedBuf> {
        Ok(self.read(bp, level, blkid)?.thaw())
    }

    /// The indirect block that a hole stands for: holes of the same birth
    /// (`dbuf_handle_indirect_hole`).
    fn unfold(&self, hole: &Blkptr) -> AlignedBuf {
        if hole.birth.0 == 0 {
            return AlignedBuf::zeroed(0);
        }
        let size = self.size();
        let mut buf = AlignedBuf::zeroed(size);
        let below = Level(hole.level.0.saturating_sub(1));
        let data = below == Level(0);
        let lsize = Lsize(if data { self.phys.datablksz.into() } else { size as u64 });
        let child = Blkptr { level: below, lsize, ..*hole }.encode();
        buf.as_chunks_mut::<BLKPTR_SIZE>().0.fill(child);
        buf
    }

    /// Adds levels. The former top then hangs below a new block (`dnode_increase_indirection`).
    pub(crate) fn grow(&mut self, nlevels: u8) {
        while self.phys.nlevels < nlevels {
            let level = Level(self.phys.nlevels);
            let n = self.phys.blkptrs.len();
            let old = std::mem::replace(&mut self.phys.blkptrs, vec![Blkptr::HOLE; n]);
            if old.iter().any(|bp| *bp != Blkptr::HOLE) {
                let raw: Vec<u8> = old.iter().flat_map(Blkptr::encode).collect();
                let buf = AlignedBuf::copy_of(&raw);
                self.indirects.insert((level, BlkId(0)), Indirect { buf, changed: true });
            }
            self.phys.nlevels += 1;
        }
    }

    /// The changed indirect blocks of a level, in order.
    pub(crate) fn changed(&self, level: Level) -> Vec<BlkId> {
        let from = (level, BlkId(0))..=(level, BlkId(u64::MAX));
        self.indirects.range(from).filter(|(_, i)| i.changed).map(|((_, b), _)| *b).collect()
    }

    /// Takes an indirect block to be written, with its fill and the pointer that it replaces.
    ///
    /// A block that has only holes becomes a hole, and `None` is returned.
    pub(crate) fn take_indirect(
        &mut self,
        level: Level,
        blkid: BlkId,
        sync: &mut Sync<'_>,
    ) -> Result<Option<(Sparse, u64, Blkptr)>> {
        let old = self.pointer(level, blkid)?;
        let indirect = self.indirects.remove(&(level, blkid)).expect("a changed block is held");
        let below = Level(level.0 - 1);
        let (mut fill, mut empty) = (0u64, true);
        for raw in indirect.buf.as_chunks::<BLKPTR_SIZE>().0 {
            // Most of a sparse block is zeros.
            if raw[..] == [0; BLKPTR_SIZE] {
                continue;
            }
            let bp = self.decode(raw, below, blkid)?;
            empty &= bp.is_hole();
            fill = fill.saturating_add(fill_of(&bp));
        }
        if empty {
            sync.kill(&old, &mut self.phys.used_bytes);
            let hole = sync.hole(&old);
            self.set_pointer(level, blkid, hole)?;
            return Ok(None);
        }
        Ok(Some((Sparse::new(indirect.buf.freeze(), self.size()), fill, old)))
    }

    /// Frees these blocks, whole subtrees at once.
    pub(crate) fn free_ranges(&mut self, freed: &Ranges, sync: &mut Sync<'_>) -> Result<()> {
        let top = self.top();
        let shift = self.phys.span_shift(top);
        let last_top = self.phys.blkptrs.len() as u64 - 1;
        for (first, last) in freed.iter() {
            let from = first.checked_shr(shift).unwrap_or(0);
            let to = last.checked_shr(shift).unwrap_or(0).min(last_top);
            for i in from..=to {
                self.free_below(top, BlkId(i), (first, last), sync)?;
            }
        }
        Ok(())
    }

    fn free_below(
        &mut self,
        level: Level,
        blkid: BlkId,
        range: (u64, u64),
        sync: &mut Sync<'_>,
    ) -> Result<()> {
        let bp = self.pointer(level, blkid)?;
        if bp.is_hole() && !self.indirects.contains_key(&(level, blkid)) {
            return Ok(());
        }
        let shift = self.phys.span_shift(level);
        let Some(lo) = first_below(blkid.0, shift) else { return Ok(()) };
        let hi = first_below(blkid.0 + 1, shift).map_or(u64::MAX, |n| n - 1);
        if range.0 <= lo && hi <= range.1 && !self.indirects.contains_key(&(level, blkid)) {
            self.kill_below(&bp, level, blkid, &mut Visited::default(), sync)?;
            return self.set_pointer(level, blkid, sync.hole(&bp));
        }
        let below = Level(level.0 - 1);
        let shift = self.phys.span_shift(below);
        let Some(base) = first_below(blkid.0, self.phys.epbs()) else { return Ok(()) };
        let end = base.saturating_add((1 << self.phys.epbs()) - 1);
        let from = range.0.checked_shr(shift).unwrap_or(0).max(base);
        let to = range.1.checked_shr(shift).unwrap_or(0).min(end);
        for child in from..=to {
            self.free_below(below, BlkId(child), range, sync)?;
        }
        Ok(())
    }

    /// Frees a block and everything below it. No indirect block is freed twice, wherever pointers
    /// lead.
    fn kill_below(
        &mut self,
        bp: &Blkptr,
        level: Level,
        blkid: BlkId,
        visited: &mut Visited,
        sync: &mut Sync<'_>,
    ) -> Result<()> {
        if !is_block(bp) {
            return Ok(());
        }
        if level.0 > 0 {
            let corrupt = |source| Error::Corrupt { objset: self.home.id, object: self.object, source };
            visited.note(bp, level, blkid).map_err(corrupt)?;
            let block = self.read(bp, level, blkid)?;
            let below = Level(level.0 - 1);
            let Some(base) = first_below(blkid.0, self.phys.epbs()) else { return Ok(()) };
            for (i, raw) in block.as_chunks::<BLKPTR_SIZE>().0.iter().enumerate() {
                if raw[..] != [0; BLKPTR_SIZE] {
                    let child = BlkId(base.saturating_add(i as u64));
                    let bp = self.decode(raw, below, child)?;
                    self.kill_below(&bp, below, child, visited, sync)?;
                }
            }
        }
        sync.kill(bp, &mut self.phys.used_bytes);
        Ok(())
    }

    /// Frees all blocks of the object.
    pub(crate) fn kill_all(mut self, sync: &mut Sync<'_>) -> Result<()> {
        let top = self.top();
        let mut visited = Visited::default();
        for (i, bp) in self.phys.blkptrs.clone().iter().enumerate() {
            self.kill_below(bp, top, BlkId(i as u64), &mut visited, sync)?;
        }
        if let Some(spill) = self.phys.spill {
            sync.kill(&spill, &mut self.phys.used_bytes);
        }
        Ok(())
    }
}
