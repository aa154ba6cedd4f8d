//! Cloning: blocks of one file become another's without being copied (`zfs_clone_range`).
//!
//! # Theory
//! Only whole blocks can be shared, at the same place in a block of the same size. What a caller asks for is cut down to that: he is told how
//! much was cloned and copies the rest. Blocks that were changed in a group that is not on disk have no place to share yet; who asks for many
//! waits for the group, and who asks for a few copies them, which is faster.

use super::data::{ATTR_BYTES, SIZE_MAX};
use super::quota::Payers;
use super::update::Changes;
use super::{Purpose, Writer};
use crate::{Error, FileSystem, FileType, Node, Result};
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;
use ondisk::{BlkId, ObjNum, Txg};
use std::sync::atomic::Ordering;

/// Most blocks that one transaction clones: their pointers fit into one record of the log.
const BLOCKS_MAX: u64 = 1000;
/// Who asks for no more than this doesn't wait for blocks to be written.
const COPY_MAX: u64 = 1 << 20;

/// A range that is to be cloned.
#[derive(Debug, Clone, Copy)]
pub struct CloneRange {
    /// The file whose blocks these are.
    pub source: ObjNum,
    /// From this byte on.
    pub from: u64,
    /// The file that is to have them too.
    pub target: ObjNum,
    /// From this byte on.
    pub to: u64,
    /// Bytes.
    pub len: u64,
}

/// What is to be cloned, under its locks.
struct Plan {
    source: Node,
    target: Node,
    block: u64,
    /// Bytes, whole blocks but for the end of the source.
    len: u64,
    /// The target's only block takes the source's size first.
    grow: bool,
}

impl FileSystem {
    /// Makes blocks of one file another's, and says how many bytes these are: fewer than asked for where the range ends within a block or
    /// beyond the source.
    ///
    /// # Errors
    /// [`Error::NotCloneable`] if not even the first byte can be cloned: copying it works. [`Error::NotRegular`], [`Error::IsDirectory`],
    /// [`Error::BadRange`] for a range that overlaps itself, [`Error::TooLarge`], [`Error::NotPermitted`] by flags; [`Error::Quota`],
    /// [`Error::NoSpace`] and the like; as reading fails.
    pub fn clone_range(&self, range: &CloneRange, kill: bool) -> Result<u64> {
        let done = self.clone_range_now(range, kill)?;
        self.settle(range.target)?;
        Ok(done)
    }

    /// The same out of a snapshot of this file system. Whoever calls sees to it that the snapshot stays meanwhile.
    ///
    /// # Errors
    /// As [`FileSystem::clone_range`].
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
            // Which lies first is locked first, so that two that clone from each other meet in one order.
            let held = [w.locks.hold(source), w.locks.hold(target)];
            let lock = |i: usize| match i {
                0 => held[0].range(from, from_end, false),
                // The size of its blocks may change.
                _ => held[1].whole(),
            };
            let (first, second) = if source == target {
                // One claim: between two of one thread, another's that waits for the first would keep it from the second.
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

    /// What of a range can be cloned, whose source is `from`'s; `None` if it is beyond the source's end.
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
        // A file of one block has any size that is whole sectors, and grows with it.
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
        // A small block would stay the target's for ever, however large it becomes.
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
                let tx = w.logged_tx(ATTR_BYTES + n, Purpose::Grow)?;
                if std::mem::take(&mut grow) {
                    let size = u32::try_from(*block).expect("a block is at most 16 MiB");
                    target.dn.set_block_size(&tx, size)?;
                }
                let (first, from) = ((range.to + done) / block, (range.from + done) / block);
                // Where that fails nothing has changed but, perhaps, the size of an only block, which shows nowhere.
                let bps = target.dn.clone_blocks(&tx, BlkId(first), &source.dn, BlkId(from), blocks)?;
                let (at, now) = (range.to + done, w.txs.now());
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
                // What was cloned stays cloned.
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}
