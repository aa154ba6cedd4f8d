//! One object: its dnode and its block tree.
//!
//! # On disk
//! Level 0 blocks are data; a block of level n holds `1 << epbs` pointers to level n-1. The dnode's one to
//! three pointers point at its top level. A hole anywhere stands for all that would be below it.

use crate::met::Met;
use crate::objset::Home;
use crate::{Error, Result};
use device::Block;
use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE};
use ondisk::dnode::{DnodeFlags, DnodePhys};
use ondisk::{BlkId, Blkptr, Corrupt, DmuType, Level, ObjNum};
use parking_lot::Mutex;
use std::sync::Arc;
use zio::Bookmark;

/// Bookmark block number of a spill block (`DMU_SPILL_BLKID`).
pub const SPILL_BLKID: BlkId = BlkId(u64::MAX - 1);

/// An open object; clones share it (`dnode_t`).
#[derive(Clone)]
pub struct Dnode(Arc<Inner>);

struct Inner {
    home: Home,
    object: ObjNum,
    phys: DnodePhys,
    /// The last indirect block of level 1 that was used: neighbours come after one another.
    last_l1: Mutex<Option<(BlkId, Block)>>,
}

/// Whether a search looks for data or for holes (`SEEK_DATA`, `SEEK_HOLE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Allocated blocks.
    Data,
    /// Holes.
    Hole,
}

impl std::fmt::Debug for Dnode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dnode({}/{})", self.0.home.id, self.0.object)
    }
}

impl Dnode {
    pub(crate) fn new(home: Home, object: ObjNum, phys: DnodePhys) -> Dnode {
        Dnode(Arc::new(Inner { home, object, phys, last_l1: Mutex::new(None) }))
    }

    /// Its number.
    pub fn object(&self) -> ObjNum {
        self.0.object
    }

    /// Dataset object of its object set; 0 is the MOS.
    pub fn objset_id(&self) -> u64 {
        self.0.home.id
    }

    /// The dnode as stored.
    pub fn phys(&self) -> &DnodePhys {
        &self.0.phys
    }

    /// Its type (`dn_type`).
    pub fn kind(&self) -> DmuType {
        self.0.phys.kind
    }

    /// The type of its bonus (`dn_bonustype`).
    pub fn bonus_kind(&self) -> DmuType {
        self.0.phys.bonus_kind
    }

    /// Its bonus.
    pub fn bonus(&self) -> &[u8] {
        &self.0.phys.bonus
    }

    /// Flags (`dn_flags`).
    pub fn flags(&self) -> DnodeFlags {
        self.0.phys.flags
    }

    /// Bytes of a data block (`dn_datablksz`).
    pub fn block_size(&self) -> u64 {
        self.0.phys.datablksz.into()
    }

    /// Largest allocated block number (`dn_maxblkid`).
    pub fn max_blkid(&self) -> BlkId {
        self.0.phys.maxblkid
    }

    /// Levels of the tree (`dn_nlevels`).
    pub fn nlevels(&self) -> u8 {
        self.0.phys.nlevels
    }

    /// Space used, in bytes (`DN_USED_BYTES`).
    pub fn used_bytes(&self) -> u64 {
        self.0.phys.used_bytes
    }

    /// Bytes up to the end of the last block; saturates.
    pub fn max_size(&self) -> u64 {
        self.0.phys.maxblkid.0.saturating_add(1).saturating_mul(self.block_size())
    }

    /// An error that says the object's bytes are bad.
    pub fn corrupt(&self, source: Corrupt) -> Error {
        Error::Corrupt { objset: self.0.home.id, object: self.0.object, source }
    }

    fn bookmark(&self, level: Level, blkid: BlkId) -> Bookmark {
        Bookmark { objset: self.0.home.id, object: self.0.object, level, blkid }
    }

    fn misplaced(&self, level: Level, blkid: BlkId) -> Error {
        Error::Misplaced { objset: self.0.home.id, object: self.0.object, level, blkid }
    }

    /// The pointer to block `blkid` of `level`; a hole if it or anything above it is one.
    ///
    /// # Errors
    /// [`Error::Read`] if an indirect block cannot be read, [`Error::Misplaced`] or [`Error::Corrupt`] if it is bad.
    pub fn bp(&self, level: Level, blkid: BlkId) -> Result<Blkptr> {
        let phys = &self.0.phys;
        let top = phys.nlevels - 1;
        if level.0 > top {
            return Ok(Blkptr::HOLE);
        }
        let shift = u32::from(top - level.0) * phys.epbs();
        let root = blkid.0.checked_shr(shift).unwrap_or(0);
        let Some(bp) = usize::try_from(root).ok().and_then(|i| phys.blkptrs.get(i)) else {
            return Ok(Blkptr::HOLE);
        };
        let mut bp = self.check_place(*bp, Level(top), BlkId(root))?;
        let mut at = top;
        if level.0 == 0 && top >= 1 {
            let l1 = BlkId(blkid.0 >> phys.epbs());
            if let Some(block) = self.cached_l1(l1) {
                return self.entry(&block, Level(0), blkid);
            }
        }
        while at > level.0 {
            if bp.is_hole() {
                return Ok(Blkptr::HOLE);
            }
            let this = BlkId(blkid.0.checked_shr(u32::from(at - level.0) * phys.epbs()).unwrap_or(0));
            let block = self.read_indirect(&bp, Level(at), this)?;
            at -= 1;
            let below = BlkId(blkid.0.checked_shr(u32::from(at - level.0) * phys.epbs()).unwrap_or(0));
            bp = self.entry(&block, Level(at), below)?;
            if at == 0 {
                *self.0.last_l1.lock() = Some((this, block));
            }
        }
        Ok(bp)
    }

    fn cached_l1(&self, blkid: BlkId) -> Option<Block> {
        self.0.last_l1.lock().as_ref().filter(|(id, _)| *id == blkid).map(|(_, b)| b.clone())
    }

    /// Reads an indirect block and checks that it has the size that the dnode says.
    fn read_indirect(&self, bp: &Blkptr, level: Level, blkid: BlkId) -> Result<Block> {
        let block = self.0.home.cache.read(bp, &self.bookmark(level, blkid))?;
        if block.len() != 1 << self.0.phys.indblkshift {
            return Err(self.misplaced(level, blkid));
        }
        Ok(block)
    }

    /// The pointer to block `blkid` of `level`, from the indirect block above it.
    fn entry(&self, parent: &Block, level: Level, blkid: BlkId) -> Result<Blkptr> {
        let i = (blkid.0 & ((1 << self.0.phys.epbs()) - 1)) as usize;
        let raw = &parent[i << BLKPTR_SHIFT..(i << BLKPTR_SHIFT) + BLKPTR_SIZE];
        // With the place, so that a reader that goes on after damage knows how much it lost.
        let bad = |source| zio::Error::Corrupt { bookmark: self.bookmark(level, blkid), source };
        self.check_place(Blkptr::decode(raw).map_err(bad)?, level, blkid)
    }

    /// Refuses a pointer that says it belongs to another level.
    fn check_place(&self, bp: Blkptr, level: Level, blkid: BlkId) -> Result<Blkptr> {
        if bp.is_hole() || bp.level == level { Ok(bp) } else { Err(self.misplaced(level, blkid)) }
    }

    /// Data block `blkid`; `None` for a hole.
    ///
    /// # Errors
    /// As reading fails; [`Error::Misplaced`] when the block has another size than the object's blocks.
    pub fn block(&self, blkid: BlkId) -> Result<Option<Block>> {
        let bp = self.bp(Level(0), blkid)?;
        if bp.is_hole() {
            return Ok(None);
        }
        let block = self.0.home.cache.read(&bp, &self.bookmark(Level(0), blkid))?;
        if block.len() as u64 != self.block_size() {
            return Err(self.misplaced(Level(0), blkid));
        }
        Ok(Some(block))
    }

    /// As [`Dnode::block`], but what is encrypted is left so.
    pub(crate) fn block_undecrypted(&self, blkid: BlkId) -> Result<Option<Block>> {
        let bp = self.bp(Level(0), blkid)?;
        if bp.is_hole() {
            return Ok(None);
        }
        let block = self.0.home.cache.zio().read_undecrypted(&bp, &self.bookmark(Level(0), blkid))?;
        if block.len() as u64 != self.block_size() {
            return Err(self.misplaced(Level(0), blkid));
        }
        Ok(Some(block))
    }

    /// The spill block, if it has one.
    ///
    /// # Errors
    /// As reading fails.
    pub fn spill(&self) -> Result<Option<Block>> {
        match &self.0.phys.spill {
            Some(bp) if !bp.is_hole() => {
                Ok(Some(self.0.home.cache.read(bp, &self.bookmark(Level(0), SPILL_BLKID))?))
            }
            _ => Ok(None),
        }
    }

    /// Fills `buf` from byte `offset` on; holes and what lies past the last block read as zeros.
    ///
    /// # Errors
    /// As reading fails; `buf` then holds undefined bytes.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = self.block_size();
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let within = (at % size) as usize;
            let n = (size as usize - within).min(buf.len() - done);
            let out = &mut buf[done..done + n];
            let blkid = BlkId(at / size);
            match if blkid > self.max_blkid() { None } else { self.block(blkid)? } {
                Some(block) => out.copy_from_slice(&block[within..within + n]),
                None => out.fill(0),
            }
            done += n;
        }
        Ok(())
    }

    /// The first block from `from` on that is not a hole.
    ///
    /// # Errors
    /// As reading indirect blocks fails.
    pub fn next_data_block(&self, from: BlkId) -> Result<Option<BlkId>> {
        self.next_data_block_in(from, &mut Met::default())
    }

    /// As [`Dnode::next_data_block`], for a walk that has met some of the tree before.
    pub(crate) fn next_data_block_in(&self, from: BlkId, met: &mut Met) -> Result<Option<BlkId>> {
        self.next_block(from, Extent::Data, met)
    }

    fn next_block(&self, from: BlkId, want: Extent, met: &mut Met) -> Result<Option<BlkId>> {
        let phys = &self.0.phys;
        let top = Level(phys.nlevels - 1);
        for (i, bp) in phys.blkptrs.iter().enumerate() {
            let Some(first) = first_below(i as u64, phys.span_shift(top)) else { break };
            let last = first_below(i as u64 + 1, phys.span_shift(top)).map_or(u64::MAX, |n| n - 1);
            if from.0 > last {
                continue;
            }
            let bp = self.check_place(*bp, top, BlkId(i as u64))?;
            if let Some(found) =
                self.search(&bp, top, BlkId(i as u64), BlkId(from.0.max(first)), want, met)?
            {
                return Ok(Some(found).filter(|f| *f <= self.max_blkid() || want == Extent::Hole));
            }
        }
        Ok(None)
    }

    /// Searches below the pointer to block `blkid` of `level`; recursion is as deep as the dnode has levels, and no
    /// indirect block is read for two places.
    fn search(
        &self,
        bp: &Blkptr,
        level: Level,
        blkid: BlkId,
        from: BlkId,
        want: Extent,
        met: &mut Met,
    ) -> Result<Option<BlkId>> {
        if bp.is_hole() {
            return Ok((want == Extent::Hole).then_some(from));
        }
        if level.0 == 0 {
            return Ok((want == Extent::Data).then_some(from));
        }
        let epbs = self.0.phys.epbs();
        let below = Level(level.0 - 1);
        let shift = self.0.phys.span_shift(below);
        met.note(bp, level, blkid).map_err(|e| self.corrupt(e))?;
        let block = self.read_indirect(bp, level, blkid)?;
        // Beyond the last number that a block can have, there is nothing.
        let Some(base) = first_below(blkid.0, epbs) else { return Ok(None) };
        let start = from.0.checked_shr(shift).unwrap_or(0).max(base);
        for child in start..base.saturating_add(1 << epbs) {
            let Some(first) = first_below(child, shift) else { break };
            let child_bp = self.entry(&block, below, BlkId(child))?;
            let child_from = BlkId(from.0.max(first));
            if let Some(found) = self.search(&child_bp, below, BlkId(child), child_from, want, met)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first `count` blocks of an object that is written from front to back, such as a log: none is a hole, and
    /// none is there twice, however long the object says that it is.
    pub fn log_blocks(&self, count: u64) -> LogBlocks {
        LogBlocks { dn: self.clone(), next: 0, count, met: Met::default(), l1: None }
    }

    /// The first byte from `offset` on that lies in `want` (`dnode_next_offset`).
    ///
    /// There is always a hole past the last block; `None` means no more data.
    ///
    /// # Errors
    /// As reading indirect blocks fails.
    pub fn next_offset(&self, offset: u64, want: Extent) -> Result<Option<u64>> {
        let size = self.block_size();
        let from = BlkId(offset / size);
        let end = self.max_size();
        if offset >= end {
            return Ok((want == Extent::Hole).then_some(offset));
        }
        Ok(match (self.next_block(from, want, &mut Met::default())?, want) {
            (Some(b), _) => Some(offset.max(b.0.saturating_mul(size))),
            (None, Extent::Hole) => Some(end),
            (None, Extent::Data) => None,
        })
    }
}

/// The first block of a level that lies below block `n` of a level whose blocks span `1 << shift` of its blocks; `None`
/// if no number is so high.
fn first_below(n: u64, shift: u32) -> Option<u64> {
    if n == 0 { Some(0) } else { 1u64.checked_shl(shift).and_then(|span| n.checked_mul(span)) }
}

/// See [`Dnode::log_blocks`]. After an error comes nothing more.
#[derive(Debug)]
pub struct LogBlocks {
    dn: Dnode,
    next: u64,
    count: u64,
    met: Met,
    l1: Option<BlkId>,
}

impl LogBlocks {
    fn read(&mut self, blkid: BlkId) -> Result<Block> {
        let dn = &self.dn;
        let l1 = BlkId(blkid.0 >> dn.phys().epbs());
        if dn.nlevels() > 1 && self.l1 != Some(l1) {
            self.met.note(&dn.bp(Level(1), l1)?, Level(1), l1).map_err(|e| dn.corrupt(e))?;
            self.l1 = Some(l1);
        }
        self.met.note(&dn.bp(Level(0), blkid)?, Level(0), blkid).map_err(|e| dn.corrupt(e))?;
        let hole = Corrupt::Shape { what: "log", why: "a hole is within its length" };
        dn.block(blkid)?.ok_or_else(|| dn.corrupt(hole))
    }
}

impl Iterator for LogBlocks {
    type Item = Result<Block>;

    fn next(&mut self) -> Option<Result<Block>> {
        if self.next >= self.count {
            return None;
        }
        let block = self.read(BlkId(self.next));
        self.next = if block.is_ok() { self.next + 1 } else { u64::MAX };
        Some(block)
    }
}
