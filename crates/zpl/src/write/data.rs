//! The contents of files: writing, extending, truncating, punching holes (`zfs_write`, `zfs_freesp`).

use super::quota::Payers;
use super::update::Changes;
use super::{Purpose, Writer};
use crate::{Error, FileSystem, FileType, Node, Result};
use dmu::Tx;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

/// The largest file that Linux can have.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;
/// Most bytes that one transaction writes.
const WRITE_MAX: usize = 1 << 20;
/// What changing a file's attributes dirties, about.
pub(super) const ATTR_BYTES: u64 = 1024;

/// The block size of a file of `end` bytes whose blocks are `now` bytes large; `None` if it stays. As long as a file is one block, the block
/// grows with it, up to `recordsize`.
pub(super) fn grown(now: u64, size: u64, end: u64, recordsize: u64) -> Option<u64> {
    if end <= now || size > now {
        return None;
    }
    let most = match now {
        // Larger than the property, which was larger once: as large as a power of two makes it.
        _ if now > recordsize => now.next_power_of_two(),
        _ => recordsize,
    };
    Some(end.min(most).next_multiple_of(512)).filter(|new| *new > now)
}

impl FileSystem {
    pub(super) fn file_to_change(&self, object: ObjNum) -> Result<Node> {
        let node = self.node(object)?;
        match node.attr().kind {
            FileType::Regular => Ok(node),
            FileType::Directory => Err(Error::IsDirectory { object }),
            _ => Err(Error::NotRegular { object }),
        }
    }

    /// Reads from byte `offset` on, and sees each write whole or not at all; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// As [`Node::read`].
    pub fn read(&self, object: ObjNum, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(w) = self.writer_if_any() else { return self.node(object)?.read(offset, buf) };
        let held = w.locks.hold(object);
        let _range = held.range(offset, offset.saturating_add(buf.len() as u64), false);
        self.node(object)?.read(offset, buf)
    }

    /// Writes at byte `offset`. `kill` takes set-user-id and set-group-id from the file.
    ///
    /// # Errors
    /// [`Error::NotRegular`], [`Error::IsDirectory`], [`Error::TooLarge`], [`Error::NotPermitted`] by flags; [`Error::NoSpace`] and the like:
    /// some of it may be written then; as reading blocks that are written in part fails.
    pub fn write(&self, object: ObjNum, offset: u64, data: &[u8], kill: bool) -> Result<()> {
        self.write_now(object, offset, data, kill)?;
        self.settle(object)
    }

    fn write_now(&self, object: ObjNum, offset: u64, data: &[u8], kill: bool) -> Result<()> {
        let w = self.writer()?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or(Error::TooLarge { object })?;
        let recordsize = u64::from(w.policy().recordsize);
        let held = w.locks.hold(object);
        let mut whole = false;
        loop {
            // While its only block grows, nobody else may have to do with the file.
            let (start, to) = if whole { (0, u64::MAX) } else { (offset, end) };
            let _range = held.range(start, to, true);
            let node = self.file_to_change(object)?;
            let a = node.attr();
            let grow = grown(node.dn.block_size(), a.size, end, recordsize);
            if grow.is_some() && !whole {
                whole = true;
                continue;
            }
            let denied = Pflags::IMMUTABLE | Pflags::READONLY;
            if a.pflags.0 & denied != 0 || (a.pflags.has(Pflags::APPENDONLY) && offset < a.size) {
                return Err(Error::NotPermitted { object });
            }
            return self.write_locked(w, &node, offset, data, grow, kill);
        }
    }

    fn write_locked(
        &self,
        w: &Writer,
        node: &Node,
        offset: u64,
        data: &[u8],
        mut grow: Option<u64>,
        kill: bool,
    ) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            // Later pieces begin at whole blocks.
            let n = (WRITE_MAX - (at % WRITE_MAX as u64) as usize).min(data.len() - done);
            let piece = &data[done..done + n];
            self.check_bytes(w, Payers::from(node.attr()))?;
            let tx = w.logged_tx(n as u64 + ATTR_BYTES, Purpose::Grow)?;
            w.or_unlogged(&tx, self.write_piece(w, node, &tx, (at, piece), grow.take(), kill))?;
            done += n;
        }
        Ok(())
    }

    fn write_piece(
        &self,
        w: &Writer,
        node: &Node,
        tx: &Tx,
        (at, piece): (u64, &[u8]),
        grow: Option<u64>,
        kill: bool,
    ) -> Result<()> {
        if let Some(size) = grow {
            self.grow_block(node, tx, size)?;
        }
        node.dn.write_at(tx, at, piece)?;
        let (end, now) = (at + piece.len() as u64, w.txs.now());
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
        self.update_and(w, node.object(), tx, change, |a| {
            w.log_write(tx, a, at, piece);
            w.log_kill(tx, a, kill);
        })
    }

    pub(super) fn grow_block(&self, node: &Node, tx: &Tx, size: u64) -> Result<()> {
        let size = u32::try_from(size).expect("recordsize is at most 16 MiB");
        match node.dn.set_block_size(tx, size) {
            // It has more blocks than its size says, which does no harm.
            Ok(()) | Err(dmu::Error::BlockSize { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes a file `size` bytes long: what is behind goes, what is added reads as zeros (`truncate`).
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn truncate(&self, object: ObjNum, size: u64, kill: bool) -> Result<()> {
        let w = self.writer()?;
        {
            let held = w.locks.hold(object);
            let _whole = held.whole();
            self.truncate_locked(w, object, size, kill)?;
        }
        self.settle(object)
    }

    fn truncate_locked(&self, w: &Writer, object: ObjNum, size: u64, kill: bool) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Error::TooLarge { object });
        }
        let node = self.file_to_change(object)?;
        let a = node.attr();
        if a.pflags.0 & (Pflags::IMMUTABLE | Pflags::READONLY | Pflags::APPENDONLY) != 0 {
            return Err(Error::NotPermitted { object });
        }
        let recordsize = u64::from(w.policy().recordsize);
        let grow = grown(node.dn.block_size(), a.size, size, recordsize);
        let bytes = ATTR_BYTES + node.dn.block_size().max(grow.unwrap_or(0));
        let purpose = if size < a.size { Purpose::Free } else { Purpose::Grow };
        if size < a.size {
            self.free_much(w, &node, size, u64::MAX)?;
        }
        let (was, tx) = (a.size, w.logged_tx(bytes, purpose)?);
        let cut = || {
            if size < was {
                node.dn.free_range(&tx, size, u64::MAX)?;
            } else if let Some(grow) = grow {
                self.grow_block(&node, &tx, grow)?;
            }
            let now = w.txs.now();
            let change = |node: &Node, c: &mut Changes| {
                let a = node.attr();
                c.word(Sa::Size, size);
                c.modified(a, now);
                if kill {
                    c.drop_privileges(a);
                }
                Ok(())
            };
            self.update_and(w, object, &tx, change, |a| {
                w.log_truncate(&tx, a, size, 0);
                w.log_kill(&tx, a, kill);
            })
        };
        w.or_unlogged(&tx, cut())
    }

    /// Makes a file at least `size` bytes long (`fallocate`). No room is kept: a pool that never overwrites cannot.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn extend(&self, object: ObjNum, size: u64) -> Result<()> {
        let w = self.writer()?;
        {
            let held = w.locks.hold(object);
            let _whole = held.whole();
            if self.file_to_change(object)?.attr().size >= size {
                return Ok(());
            }
            self.truncate_locked(w, object, size, false)?;
        }
        self.settle(object)
    }

    /// Makes a hole; the file's length stays (`FALLOC_FL_PUNCH_HOLE`).
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    pub fn punch(&self, object: ObjNum, offset: u64, len: u64) -> Result<()> {
        self.punch_now(object, offset, len)?;
        self.settle(object)
    }

    fn punch_now(&self, object: ObjNum, offset: u64, len: u64) -> Result<()> {
        let w = self.writer()?;
        let held = w.locks.hold(object);
        // Blocks in part in the range are changed too, and the last one may lose its place.
        let _whole = held.whole();
        let node = self.file_to_change(object)?;
        let a = node.attr();
        if a.pflags.0 & (Pflags::IMMUTABLE | Pflags::READONLY | Pflags::APPENDONLY) != 0 {
            return Err(Error::NotPermitted { object });
        }
        let len = len.min(a.size.saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        self.free_much(w, &node, offset, len)?;
        let tx = w.logged_tx(ATTR_BYTES + 2 * node.dn.block_size(), Purpose::Free)?;
        let cut = || {
            node.dn.free_range(&tx, offset, len)?;
            let now = w.txs.now();
            let change = |node: &Node, c: &mut Changes| {
                c.modified(node.attr(), now);
                Ok(())
            };
            self.update_and(w, object, &tx, change, |a| w.log_truncate(&tx, a, offset, len))
        };
        w.or_unlogged(&tx, cut())
    }
}
