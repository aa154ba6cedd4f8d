//! One object: its dnode and its block tree.
//!
//! # On disk
//! Blocks of level 0 are data. A block of level n holds `1 << epbs` pointers to blocks of level
//! n-1. The dnode has one to three pointers, to blocks of its top level. A hole stands for
//! everything below it.
//!
//! # Life
//! A handle of an object that changes ([`crate::Objset::open_live`]) keeps the header and the bonus
//! of the time when it was made. Blocks, the spill block, the block size and the largest block
//! number are always the current ones.

use crate::live::node::LiveDnode;
use crate::tree::{BlockTree, Blocked};
use crate::visited::Visited;
use crate::{Error, Result};
use device::{Block, Sparse};
use ondisk::dnode::{DnodeFlags, DnodePhys};
use ondisk::{BlkId, Blkptr, Corrupt, DmuType, Level, ObjNum};
use std::sync::Arc;
use zio::ReadOptions;

/// Bookmark block number of a spill block (`DMU_SPILL_BLKID`).
pub const SPILL_BLKID: BlkId = BlkId(u64::MAX - 1);

/// An open object (`dnode_t`). Clones share it.
#[derive(Clone)]
pub struct Dnode {
    /// The header, and for an object that doesn't change also its blocks.
    head: Arc<BlockTree>,
    live: Option<Arc<LiveDnode>>,
    options: ReadOptions,
}

/// The target of a search: data or holes (`SEEK_DATA`, `SEEK_HOLE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Allocated blocks.
    Data,
    /// Holes.
    Hole,
}

impl std::fmt::Debug for Dnode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dnode({}/{})", self.head.home.id, self.head.object)
    }
}

impl Dnode {
    /// A handle of an object that doesn't change.
    pub(crate) fn fixed(head: Arc<BlockTree>, options: ReadOptions) -> Dnode {
        Dnode { head, live: None, options }
    }

    /// A handle of an object in its current state. `None` if the object is free.
    pub(crate) fn live(live: Arc<LiveDnode>, options: ReadOptions) -> Option<Dnode> {
        Some(Dnode { head: live.head()?, live: Some(live), options })
    }

    /// The same object, but reads through this handle use `options`.
    #[must_use]
    pub fn with_options(&self, options: ReadOptions) -> Dnode {
        Dnode { options, ..self.clone() }
    }

    /// The read options of this handle.
    pub fn options(&self) -> &ReadOptions {
        &self.options
    }

    /// A handle with the current header.
    ///
    /// # Errors
    /// * [`Error::NoSuchObject`]: the object was freed.
    pub fn reload(&self) -> Result<Dnode> {
        let Some(live) = &self.live else { return Ok(self.clone()) };
        let missing = Error::NoSuchObject { objset: self.head.home.id, object: self.head.object };
        Dnode::live(live.clone(), self.options.clone()).ok_or(missing)
    }

    /// The object, to be changed.
    ///
    /// # Errors
    /// * [`Error::Fixed`]: the object set is not open for changes.
    pub(crate) fn to_change(&self) -> Result<&Arc<LiveDnode>> {
        self.live.as_ref().ok_or(Error::Fixed { objset: self.head.home.id })
    }

    /// The object, if it changes.
    pub(crate) fn live_node(&self) -> Option<&Arc<LiveDnode>> {
        self.live.as_ref()
    }

    /// The tree that holds the pointers. For an object that changes, the tree that was synced last.
    fn tree(&self) -> Option<Arc<BlockTree>> {
        self.live.as_ref().map_or_else(|| Some(self.head.clone()), |l| l.synced())
    }

    /// Its number (`dn_object`).
    pub fn object(&self) -> ObjNum {
        self.head.object
    }

    /// Dataset object of its object set; 0 is the MOS.
    pub fn objset_id(&self) -> u64 {
        self.head.home.id
    }

    /// The dnode as it is stored (`dnode_phys_t`).
    pub fn phys(&self) -> &DnodePhys {
        &self.head.phys
    }

    /// Its type (`dn_type`).
    pub fn kind(&self) -> DmuType {
        self.head.phys.kind
    }

    /// The type of its bonus (`dn_bonustype`).
    pub fn bonus_kind(&self) -> DmuType {
        self.head.phys.bonus_kind
    }

    /// Its bonus (`DN_BONUS`).
    pub fn bonus(&self) -> &[u8] {
        &self.head.phys.bonus
    }

    /// Its flags (`dn_flags`).
    pub fn flags(&self) -> DnodeFlags {
        self.head.phys.flags
    }

    /// Bytes of a data block (`dn_datablksz`).
    pub fn block_size(&self) -> u64 {
        self.live.as_ref().map_or_else(|| self.head.phys.datablksz.into(), |l| l.block_size())
    }

    /// Largest allocated block number (`dn_maxblkid`).
    pub fn max_blkid(&self) -> BlkId {
        self.live.as_ref().map_or_else(|| self.head.phys.maxblkid, |l| l.max_blkid())
    }

    /// Levels of the tree (`dn_nlevels`).
    pub fn nlevels(&self) -> u8 {
        self.head.phys.nlevels
    }

    /// Space used, in bytes (`DN_USED_BYTES`).
    pub fn used_bytes(&self) -> u64 {
        self.head.phys.used_bytes
    }

    /// True if no block of the object waits to be written or freed.
    ///
    /// [`Dnode::used_bytes`] then stays the same until the next change.
    pub fn space_is_settled(&self) -> bool {
        self.live.as_ref().is_none_or(|l| l.space_is_settled())
    }

    /// Bytes up to the end of the last block. Saturates.
    pub fn max_size(&self) -> u64 {
        self.max_blkid().0.saturating_add(1).saturating_mul(self.block_size())
    }

    /// The error for bytes of this object that contradict the format.
    pub fn corrupt(&self, source: Corrupt) -> Error {
        self.head.corrupt(source)
    }

    /// The pointer to block `blkid` of `level`. A hole if it or anything above it is a hole.
    ///
    /// Changes that are not synced have no pointers yet.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub fn bp(&self, level: Level, blkid: BlkId) -> Result<Blkptr> {
        self.tree().map_or(Ok(Blkptr::HOLE), |t| t.bp(level, blkid, &self.options))
    }

    /// Reads an indirect block of a level.
    pub(crate) fn read_indirect(&self, bp: &Blkptr, level: Level, blkid: BlkId) -> Result<Sparse> {
        self.head.read_indirect(bp, level, blkid, &self.options)
    }

    /// The pointer to a block of a level, from the indirect block above it.
    pub(crate) fn entry(&self, parent: &Sparse, level: Level, blkid: BlkId) -> Result<Blkptr> {
        self.head.entry(parent, level, blkid)
    }

    /// Data block `blkid`. `None` for a hole.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Misplaced`] also if the block does not have
    /// the size of the object's blocks.
    pub fn block(&self, blkid: BlkId) -> Result<Option<Block>> {
        match &self.live {
            Some(live) => live.block(blkid, &self.options),
            None => self.head.block(blkid, &self.options),
        }
    }

    /// Drops the first blocks of the object from the cache.
    ///
    /// For a caller that keeps what it read from a small object, and expects no reader soon.
    pub fn let_go(&self) {
        if let Some(tree) = self.tree() {
            tree.let_go(&self.options);
        }
    }

    /// The spill block, if there is one.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn spill(&self) -> Result<Option<Block>> {
        match &self.live {
            Some(live) => live.spill(&self.options),
            None => self.head.spill(&self.options),
        }
    }

    /// Fills `buf` from byte `offset` on (`dmu_read`).
    ///
    /// Holes, and everything past the last block, read as zeros.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). `buf` then holds undefined bytes.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (size, last) = (self.block_size(), self.max_blkid());
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let within = (at % size) as usize;
            let n = (size as usize - within).min(buf.len() - done);
            let out = &mut buf[done..done + n];
            let blkid = BlkId(at / size);
            match if blkid > last { None } else { self.block(blkid)? } {
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
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub fn next_data_block(&self, from: BlkId) -> Result<Option<BlkId>> {
        self.next_block(from, Extent::Data, &mut Visited::default()).map_err(|b| b.error)
    }

    /// The next block that is, or is not, a hole. A hole may lie after the last block.
    fn next_block(
        &self,
        from: BlkId,
        want: Extent,
        visited: &mut Visited,
    ) -> std::result::Result<Option<BlkId>, Blocked> {
        let options = &self.options;
        let Some(live) = &self.live else { return self.head.next_block(from, want, visited, options) };
        let mut at = from;
        loop {
            if at > live.max_blkid() {
                return Ok((want == Extent::Hole).then_some(at));
            }
            let (end, there) = live.extent(at);
            match there {
                Some(there) if there == (want == Extent::Data) => return Ok(Some(at)),
                Some(_) => {}
                None => {
                    let Some(tree) = live.synced() else { continue };
                    let found = tree.next_block(at, want, &mut Visited::default(), options)?;
                    // A tree does not cover what is after its last block. There are only holes.
                    let found = found
                        .or((want == Extent::Hole)
                            .then(|| BlkId(tree.phys.maxblkid.0.saturating_add(1)).max(at)));
                    if let Some(found) = found.filter(|f| *f <= end) {
                        return Ok(Some(found));
                    }
                }
            }
            let Some(next) = end.0.checked_add(1) else { return Ok(None) };
            at = BlkId(next);
        }
    }

    /// The first `count` blocks of an object that is written from front to back, such as a log.
    ///
    /// The iterator ends with an error at a hole, and at a block that it has visited before. So it
    /// is bounded, whatever length the object claims.
    pub fn log_blocks(&self, count: u64) -> LogBlocks {
        LogBlocks { dn: self.clone(), next: 0, count, visited: Visited::default(), l1: None }
    }

    /// The first byte from `offset` on that lies in `want` (`dnode_next_offset`).
    ///
    /// Behind the last block there is always a hole. `None` means that there is no more data.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for indirect blocks.
    pub fn next_offset(&self, offset: u64, want: Extent) -> Result<Option<u64>> {
        self.next_offset_in(offset, want, &mut Visited::default()).map_err(|b| b.error)
    }

    /// As [`Dnode::next_offset`], for a walk that has visited some of the tree before.
    pub(crate) fn next_offset_in(
        &self,
        offset: u64,
        want: Extent,
        visited: &mut Visited,
    ) -> std::result::Result<Option<u64>, Blocked> {
        let size = self.block_size();
        let from = BlkId(offset / size);
        let end = self.max_size();
        if offset >= end {
            return Ok((want == Extent::Hole).then_some(offset));
        }
        Ok(match (self.next_block(from, want, visited)?, want) {
            (Some(b), _) => Some(offset.max(b.0.saturating_mul(size))),
            (None, Extent::Hole) => Some(end),
            (None, Extent::Data) => None,
        })
    }
}

/// The iterator of [`Dnode::log_blocks`]. It ends after its first error.
#[derive(Debug)]
pub struct LogBlocks {
    dn: Dnode,
    next: u64,
    count: u64,
    visited: Visited,
    l1: Option<BlkId>,
}

impl LogBlocks {
    fn read(&mut self, blkid: BlkId) -> Result<Block> {
        let dn = &self.dn;
        let l1 = BlkId(blkid.0 >> dn.phys().epbs());
        if dn.nlevels() > 1 && self.l1 != Some(l1) {
            self.visited.note(&dn.bp(Level(1), l1)?, Level(1), l1).map_err(|e| dn.corrupt(e))?;
            self.l1 = Some(l1);
        }
        self.visited.note(&dn.bp(Level(0), blkid)?, Level(0), blkid).map_err(|e| dn.corrupt(e))?;
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
