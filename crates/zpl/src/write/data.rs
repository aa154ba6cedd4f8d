//! The contents of files: writing, extending, truncating, punching holes (`zfs_write`,
//! `zfs_freesp`).

use super::Writer;
use super::quota::Payers;
use super::update::Changes;
use crate::{Error, FileSystem, FileType, Node, Part, Result};
use dmu::Tx;
use dsl::Need;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

/// The largest file that Linux can have.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;
/// Most bytes that one transaction writes.
const WRITE_MAX: usize = 1 << 20;
/// Estimate of what a change of a file's attributes dirties, in bytes.
pub(super) const ATTR_BYTES: u64 = 1024;

/// The new block size of a file that grows to `end` bytes, if it changes; `now` is its current
/// block size.
///
/// While a file has one block, the block grows with it, up to `recordsize`.
pub(super) fn grown(now: u64, size: u64, end: u64, recordsize: u64) -> Option<u64> {
    if end <= now || size > now {
        return None;
    }
    let most = match now {
        // The block is larger than the property, which was larger once. It grows to the next power
        // of two.
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

    /// Reads from byte `offset` on, and sees each write entirely or not at all (`zfs_read`).
    ///
    /// Returns fewer bytes than requested only at the end of the file.
    ///
    /// # Errors
    /// * All errors of [`Node::read`].
    /// * [`Error::NoFile`]: the object is no file.
    pub fn read(&self, object: ObjNum, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(w) = self.writer_if_any() else { return self.node(object)?.read(offset, buf) };
        let held = w.locks.hold(object);
        let _range = held.range(offset, offset.saturating_add(buf.len() as u64), false);
        self.node(object)?.read(offset, buf)
    }

    /// As [`FileSystem::read`], but returns the blocks that have the bytes instead of a copy.
    ///
    /// The blocks stay in memory for as long as the caller has them, and never change: a later
    /// write makes new ones.
    ///
    /// # Errors
    /// Those of [`FileSystem::read`].
    pub fn read_blocks(&self, object: ObjNum, offset: u64, len: u64) -> Result<Vec<Part>> {
        let Some(w) = self.writer_if_any() else { return self.node(object)?.read_blocks(offset, len) };
        let held = w.locks.hold(object);
        let _range = held.range(offset, offset.saturating_add(len), false);
        self.node(object)?.read_blocks(offset, len)
    }

    /// Writes at byte `offset` (`zfs_write`).
    ///
    /// `kill` clears set-user-id and set-group-id of the file.
    ///
    /// # Errors
    /// A part of the data may be written when [`Error::NoSpace`], [`Error::Quota`],
    /// [`Error::Stopped`] or [`Error::Dmu`] returns.
    ///
    /// * [`Error::NotRegular`]: the object is no regular file.
    /// * [`Error::IsDirectory`]: the object is a directory.
    /// * [`Error::TooLarge`]: the write ends beyond the largest file.
    /// * [`Error::NotPermitted`]: the file is immutable or read-only, or is append-only and the
    ///   write does not append.
    /// * The errors of [changing](Error#changing).
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
            // While the file's only block grows, no other thread may use the contents.
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
            // Later pieces begin at block boundaries.
            let n = (WRITE_MAX - (at % WRITE_MAX as u64) as usize).min(data.len() - done);
            let piece = &data[done..done + n];
            self.check_bytes(w, Payers::from(node.attr()))?;
            let tx = w.logged_tx(Need::growing(n as u64 + ATTR_BYTES))?;
            if done > 0 {
                // The first piece has counted the operation.
                tx.is_first(node.object());
            }
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
        let (end, now) = (at + piece.len() as u64, w.now());
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
            // The file has more blocks than its size says, which is harmless.
            Ok(()) | Err(dmu::Error::BlockSize { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Sets the file's size: a cut-off end is freed, an added end reads as zeros (`zfs_freesp`).
    ///
    /// # Errors
    /// * [`Error::NotRegular`]: the object is no regular file.
    /// * [`Error::IsDirectory`]: the object is a directory.
    /// * [`Error::TooLarge`]: the size is more than a file can have.
    /// * [`Error::NotPermitted`]: the file is immutable, read-only or append-only.
    /// * The errors of [changing](Error#changing).
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
        let need = Need { bytes, netfree: size < a.size };
        if size < a.size {
            self.free_much(w, &node, size, u64::MAX)?;
        }
        let (was, tx) = (a.size, w.logged_tx(need)?);
        let cut = || {
            if size < was {
                node.dn.free_range(&tx, size, u64::MAX)?;
            } else if let Some(grow) = grow {
                self.grow_block(&node, &tx, grow)?;
            }
            let now = w.now();
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

    /// Makes a file at least `size` bytes long, as `fallocate` does (`zfs_extend`).
    ///
    /// No space is reserved: a copy-on-write pool can't guarantee it.
    ///
    /// # Errors
    /// As [`FileSystem::truncate`].
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

    /// Makes a hole and keeps the file's size, as `FALLOC_FL_PUNCH_HOLE` does (`zfs_freesp`).
    ///
    /// # Errors
    /// As [`FileSystem::truncate`], without [`Error::TooLarge`].
    pub fn punch(&self, object: ObjNum, offset: u64, len: u64) -> Result<()> {
        self.punch_now(object, offset, len)?;
        self.settle(object)
    }

    fn punch_now(&self, object: ObjNum, offset: u64, len: u64) -> Result<()> {
        let w = self.writer()?;
        let held = w.locks.hold(object);
        // Blocks that are partly in the range change too, and the last block may be freed.
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
        let tx = w.logged_tx(Need::netfree(ATTR_BYTES + 2 * node.dn.block_size()))?;
        let cut = || {
            node.dn.free_range(&tx, offset, len)?;
            let now = w.now();
            let change = |node: &Node, c: &mut Changes| {
                c.modified(node.attr(), now);
                Ok(())
            };
            self.update_and(w, object, &tx, change, |a| w.log_truncate(&tx, a, offset, len))
        };
        w.or_unlogged(&tx, cut())
    }
}
