//! Cloning: blocks of one file become another file's without a copy (`zfs_clone_range`).
//!
//! # Theory
//! Only whole blocks can be shared, at the same position in a block of the same size. A request is
//! cut down to that: the caller learns how much was cloned, and copies the rest. Blocks that were
//! changed in a txg that is not on disk have no address to share yet. A large request waits for
//! that txg. A small one fails, and the caller copies, which is faster.

use super::Writer;
use super::data::{ATTR_BYTES, SIZE_MAX};
use super::quota::Payers;
use super::update::Changes;
use crate::{Error, FileSystem, FileType, Node, Result};
use dsl::Need;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;
use ondisk::{BlkId, ObjNum, Txg};
use std::sync::atomic::Ordering;

/// Most blocks that one transaction clones: their pointers fit into one log record.
const BLOCKS_MAX: u64 = 1000;
/// A request of at most this many bytes doesn't wait for blocks to be written.
const COPY_MAX: u64 = 1 << 20;

/// A range to clone.
#[derive(Debug, Clone, Copy)]
pub struct CloneRange {
    /// The file whose blocks are shared.
    pub source: ObjNum,
    /// First byte in the source.
    pub from: u64,
    /// The file that gets the blocks.
    pub target: ObjNum,
    /// First byte in the target.
    pub to: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The cloneable part of a request, while its locks are held.
struct Plan {
    source: Node,
    target: Node,
    block: u64,
    /// Bytes: whole blocks, except at the end of the source.
    len: u64,
    /// The target's only block must first take the source's block size.
    grow: bool,
}

impl FileSystem {
    /// Clones blocks from one file to another, and returns how many bytes were cloned
    /// (`zfs_clone_range`).
    ///
    /// These are fewer than requested where the range ends within a block or beyond the source.
    /// `kill` clears set-user-id and set-group-id of the target.
    ///
    /// # Errors
    /// * [`Error::NotCloneable`]: not even the first byte can be cloned. Copying works.
    /// * [`Error::NotRegular`]: the source or the target is no regular file.
    /// * [`Error::IsDirectory`]: the target is a directory.
    /// * [`Error::BadRange`]: the range overlaps itself.
    /// * [`Error::TooLarge`]: the range ends beyond the largest file.
    /// * [`Error::NotPermitted`]: the target is immutable or append-only.
    /// * The errors of [changing](Error#changing).
    pub fn clone_range(&self, range: &CloneRange, kill: bool) -> Result<u64> {
        let done = self.clone_range_now(range, kill)?;
        self.settle(range.target)?;
        Ok(done)
    }

    /// As [`FileSystem::clone_range`], but out of a snapshot of this file system.
    ///
    /// The caller keeps the snapshot in existence meanwhile.
    ///
    /// # Errors
    /// As [`FileSystem::clone_range`], without [`Error::BadRange`].
    pub fn clone_range_of(&self, snapshot: &FileSystem, range: &CloneRange, kill: bool) -> Result<u64> {
        let w = self.writer()?;
        if range.to.checked_add(range.len).is_none_or(|end| end > SIZE_MAX) {
            return Err(Error::TooLarge { object: range.target });
        }
        let held = w.locks.hold(range.target);
        let lock = held.whole();
        let done = match self.clone_plan(w, snapshot, range)? {
            Some(plan) => self.clone_blocks(w, &plan, range, kill)?,
            None => 0,
        };
        drop(lock);
        self.settle(range.target)?;
        Ok(done)
    }

    fn clone_range_now(&self, range: &CloneRange, kill: bool) -> Result<u64> {
        let w = self.writer()?;
        let CloneRange { source, from, target, to, len } = *range;
        let end = |at: u64| at.checked_add(len).filter(|end| *end <= SIZE_MAX);
        let (Some(from_end), Some(to_end)) = (end(from), end(to)) else {
            return Err(Error::TooLarge { object: target });
        };
        if source == target && from < to_end && to < from_end {
            return Err(Error::BadRange { object: target });
        }
        let mut waited = false;
        loop {
            // The lower object number is locked first, so that two threads that clone from each
            // other lock in one order.
            let held = [w.locks.hold(source), w.locks.hold(target)];
            let lock = |i: usize| match i {
                0 => held[0].range(from, from_end, false),
                // The block size may change.
                _ => held[1].whole(),
            };
            let (first, second) = if source == target {
                // One lock for both ranges. Between two locks of one thread, another thread could
                // wait for the first and so block the second.
                (held[1].range(from.min(to), from_end.max(to_end), true), None)
            } else if source < target {
                (lock(0), Some(lock(1)))
            } else {
                (lock(1), Some(lock(0)))
            };
            let Some(plan) = self.clone_plan(w, self, range)? else { return Ok(0) };
            match self.clone_blocks(w, &plan, range, kill) {
                Err(Error::Dmu(dmu::Error::Unsynced { .. })) => {}
                done => return done,
            }
            if waited || plan.len <= COPY_MAX {
                return Err(Error::NotCloneable { object: source });
            }
            waited = true;
            drop((first, second));
            w.txs.wait(Txg(w.newest.load(Ordering::Relaxed)))?;
        }
    }

    /// The cloneable part of a range whose source lies in `from`; `None` if it is beyond the
    /// source's end.
    fn clone_plan(&self, w: &Writer, from: &FileSystem, range: &CloneRange) -> Result<Option<Plan>> {
        let source = from.node(range.source)?;
        if source.attr().kind != FileType::Regular {
            return Err(Error::NotRegular { object: range.source });
        }
        let target = self.file_to_change(range.target)?;
        let (s, t) = (source.attr(), target.attr());
        if t.pflags.0 & (Pflags::IMMUTABLE | Pflags::APPENDONLY) != 0 {
            return Err(Error::NotPermitted { object: range.target });
        }
        let len = range.len.min(s.size.saturating_sub(range.from));
        if len == 0 {
            return Ok(None);
        }
        let block = source.dn.block_size();
        let aligned = range.from.is_multiple_of(block) && range.to.is_multiple_of(block);
        let to_end = range.from + len == s.size && range.to + len >= t.size;
        let len = if to_end { len } else { len - len % block };
        let grow = block != target.dn.block_size();
        // A file of one block may have any block size that is whole sectors, and the block grows
        // with the file.
        let one = |size: u64, of: u64| size <= of && range.to == 0 && range.to + len <= block;
        let fits = match grow {
            false => block.is_power_of_two() || one(t.size, block),
            true => {
                let room = block > target.dn.block_size()
                    && t.size <= target.dn.block_size()
                    && target.dn.max_blkid() == BlkId(0);
                room && block <= u64::from(w.policy().recordsize)
                    && (block.is_power_of_two() || one(t.size, block))
            }
        };
        // A small block would remain the target's block size forever, however large the file
        // becomes.
        let stuck = block < u64::from(w.policy().recordsize)
            && t.size <= block
            && len <= block
            && range.to + len > block;
        if !aligned || len == 0 || !fits || stuck || !w.txs.may_clone() {
            return Err(Error::NotCloneable { object: range.source });
        }
        Ok(Some(Plan { source, target, block, len, grow }))
    }

    fn clone_blocks(&self, w: &Writer, plan: &Plan, range: &CloneRange, kill: bool) -> Result<u64> {
        let Plan { source, target, block, len, .. } = plan;
        let mut grow = plan.grow;
        let mut done = 0;
        while done < *len {
            let n = (len - done).min(block * BLOCKS_MAX);
            let blocks = n.div_ceil(*block);
            let mut piece = || -> Result<()> {
                self.check_bytes(w, Payers::from(target.attr()))?;
                let tx = w.logged_tx(Need::growing(ATTR_BYTES + n))?;
                if done > 0 {
                    // The first piece has counted the operation.
                    tx.is_first(target.object());
                }
                if std::mem::take(&mut grow) {
                    let size = u32::try_from(*block).expect("a block is at most 16 MiB");
                    target.dn.set_block_size(&tx, size)?;
                }
                let (first, from) = ((range.to + done) / block, (range.from + done) / block);
                // If this fails, at most the size of an only block has changed, which has no
                // visible effect.
                let bps = target.dn.clone_blocks(&tx, BlkId(first), &source.dn, BlkId(from), blocks)?;
                let (at, now) = (range.to + done, w.now());
                let end = at + n;
                let change = |node: &Node, c: &mut Changes| {
                    let a = node.attr();
                    if end > a.size {
                        c.word(Sa::Size, end);
                    }
                    c.modified(a, now);
                    if kill {
                        c.drop_privileges(a);
                    }
                    Ok(())
                };
                let changed = self.update_and(w, target.object(), &tx, change, |a| {
                    w.log_clone(&tx, a, (at, n), *block, bps);
                    w.log_kill(&tx, a, kill);
                });
                w.or_unlogged(&tx, changed)
            };
            match piece() {
                Ok(()) => done += n,
                Err(Error::Dmu(dmu::Error::CloneShape { .. })) if done == 0 => {
                    return Err(Error::NotCloneable { object: range.source });
                }
                // Blocks that were cloned stay cloned.
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}
