//! Records of contents.

use super::{WHAT, bad};
use crate::write::Writer;
use crate::write::data::grown;
use crate::{Error, FileSystem, FileType, Node, Result};
use dmu::Tx;
use dsl::Need;
use ondisk::sa::Attr as Sa;
use ondisk::zil::{ClonedRange, Write};
use ondisk::{BlkId, Corrupt, ObjNum};

/// The largest file that Linux can have.
const SIZE_MAX: u64 = i64::MAX as u64;

impl FileSystem {
    fn regular(node: &Node) -> Result<()> {
        match node.attr().kind {
            FileType::Regular => Ok(()),
            _ => Err(Error::NotRegular { object: node.object() }),
        }
    }

    /// Applies a write (`zfs_replay_write`).
    ///
    /// A named block comes whole, and may be longer than the logged write. Its bytes past the
    /// file's end may belong to a write that was never committed. They are taken only if a later
    /// record relies on them (`grown`). Otherwise they would appear when the file grows.
    pub(super) fn replay_write(&self, w: &Writer, node: Node, r: &Write, grown: bool) -> Result<()> {
        Self::regular(&node)?;
        let end = r.offset.checked_add(r.length).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or_else(|| bad(r.foid, "length", r.length))?;
        let mut at = r.offset;
        if let Some(bp) = &r.blkptr {
            at -= at.checked_rem(bp.lsize.0).unwrap_or(0);
        }
        let data = r.data.as_slice();
        let data_end = at.saturating_add(data.len() as u64);
        if data_end < end || (r.blkptr.is_none() && data_end != end) || data_end > SIZE_MAX {
            return Err(bad(r.foid, "length", r.length));
        }
        let tx = w.tx(Need::growing(0))?;
        let used = if grown { data_end } else { end.max(node.attr().size).min(data_end) };
        self.replay_grow(w, &node, &tx, used)?;
        let node = self.node(node.object())?;
        let used = (used - at) as usize;
        node.dn.write_at(&tx, at, &data[..used])?;
        self.replay_modified(w, node.object(), &tx, end)
    }

    /// Enlarges the only block of a file, as writing up to `end` does.
    fn replay_grow(&self, w: &Writer, node: &Node, tx: &Tx, end: u64) -> Result<()> {
        let recordsize = u64::from(w.policy().recordsize);
        match grown(node.dn.block_size(), node.attr().size, end, recordsize) {
            Some(size) => self.grow_block(node, tx, size),
            None => Ok(()),
        }
    }

    fn replay_modified(&self, w: &Writer, object: ObjNum, tx: &Tx, end: u64) -> Result<()> {
        let now = w.now();
        self.update(w, object, tx, |node, c| {
            let a = node.attr();
            if end > a.size {
                c.word(Sa::Size, end);
            }
            c.modified(a, now);
            Ok(())
        })
    }

    /// Applies a write whose block another record brought: only the file's end moves (`TX_WRITE2`).
    pub(super) fn replay_size(&self, w: &Writer, node: &Node, r: &Write) -> Result<()> {
        Self::regular(node)?;
        let end = r.offset.checked_add(r.length).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or_else(|| bad(r.foid, "length", r.length))?;
        let tx = w.tx(Need::growing(0))?;
        self.update(w, node.object(), &tx, |node, c| {
            if end > node.attr().size {
                c.word(Sa::Size, end);
            }
            Ok(())
        })
    }

    /// Truncates, or makes a hole (`zfs_freesp`).
    pub(super) fn replay_free(&self, object: ObjNum, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or_else(|| bad(object.0, "length", length))?;
        let size = self.attr(object)?.size;
        if offset > size || length == 0 {
            return self.truncate(object, end, false);
        }
        self.punch(object, offset, length)?;
        if end > size { self.truncate(object, end, false) } else { Ok(()) }
    }

    /// Shares the blocks that the record names (`zfs_clone_range_replay`).
    pub(super) fn replay_clone(&self, w: &Writer, node: Node, r: &ClonedRange) -> Result<()> {
        Self::regular(&node)?;
        let end = r.offset.checked_add(r.length).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or_else(|| bad(r.foid, "length", r.length))?;
        let whole = r.blksz != 0 && r.offset.is_multiple_of(r.blksz);
        if !whole || r.length.div_ceil(r.blksz) != r.blkptrs.len() as u64 || r.blkptrs.is_empty() {
            let source = Corrupt::Shape { what: WHAT, why: "a clone is not of whole blocks" };
            return Err(Error::Corrupt { object: node.object(), source });
        }
        let tx = w.tx(Need::growing(0))?;
        if node.dn.block_size() < r.blksz {
            self.grow_block(&node, &tx, r.blksz.min(ondisk::SPA_MAXBLOCKSIZE))?;
        }
        let node = self.node(node.object())?;
        let block = node.dn.block_size();
        if block != r.blksz {
            return Err(bad(r.foid, "block size", r.blksz));
        }
        node.dn.clone_pointers(&tx, BlkId(r.offset / block), &r.blkptrs)?;
        self.replay_modified(w, node.object(), &tx, end)
    }
}
