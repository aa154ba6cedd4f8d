//! One file: its attributes and contents.

use crate::{Attr, Error, FileSystem, Result};
use device::Block;
use dmu::sa::Attrs;
use dmu::{Dnode, Extent};
use ondisk::dirent::FileType;
use ondisk::sa::Attr as Sa;
use ondisk::znode::{ZNODE_SIZE, Znode};
use ondisk::{BlkId, Corrupt, DmuType, ObjNum};
use std::ops::Range;

/// An open file of any type (`znode_t`).
#[derive(Debug)]
pub struct Node {
    pub(crate) fs: FileSystem,
    pub(crate) dn: Dnode,
    pub(crate) store: Store,
    attr: Attr,
}

/// A part of a file's contents: bytes of one block.
#[derive(Debug, Clone)]
pub struct Part {
    /// The block. `None`: a hole, which is zeros.
    pub block: Option<Block>,
    /// The bytes of the block.
    pub range: Range<usize>,
}

/// Where a file's attributes are stored.
#[derive(Debug)]
pub(crate) enum Store {
    /// ZPL 1 to 4.
    Znode(Box<Znode>),
    /// ZPL 5.
    Sa(Attrs),
}

/// Longest target of a symbolic link (`PATH_MAX`).
const TARGET_MAX: u64 = 4096;

impl Node {
    pub(crate) fn new(fs: FileSystem, dn: Dnode) -> Result<Node> {
        let object = dn.object();
        let corrupt = |source| Error::Corrupt { object, source };
        let (store, attr) = match dn.bonus_kind() {
            DmuType::ZNODE => {
                let z = Znode::parse(dn.bonus()).map_err(corrupt)?;
                let attr = Attr::of_znode(&dn, &z);
                (Store::Znode(Box::new(z)), attr)
            }
            DmuType::SA => {
                let sa = fs.sa().attrs(&dn)?;
                let attr = Attr::of_sa(&dn, &sa)?;
                (Store::Sa(sa), attr)
            }
            _ => return Err(Error::NoFile { object }),
        };
        if attr.kind == FileType::Unknown {
            return Err(corrupt(Corrupt::Range { what: "file", field: "mode", value: attr.mode.into() }));
        }
        Ok(Node { fs, dn, store, attr })
    }

    /// The object number (`z_id`).
    pub fn object(&self) -> ObjNum {
        self.dn.object()
    }

    /// The file's attributes when this node was opened.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// The file's object.
    pub fn dnode(&self) -> &Dnode {
        &self.dn
    }

    pub(crate) fn corrupt(&self, source: Corrupt) -> Error {
        Error::Corrupt { object: self.object(), source }
    }

    pub(crate) fn require_dir(&self) -> Result<()> {
        if self.attr.kind == FileType::Directory {
            Ok(())
        } else {
            Err(Error::NotDirectory { object: self.object() })
        }
    }

    /// Reads from byte `offset` on, and returns the number of bytes read.
    ///
    /// It is smaller than `buf` only at the end of the file (`zfs_read`).
    ///
    /// # Errors
    /// * [`Error::IsDirectory`]: this node is a directory.
    /// * [`Error::Dmu`]: a block can't be read; `buf` then has undefined contents.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if self.attr.kind == FileType::Directory {
            return Err(Error::IsDirectory { object: self.object() });
        }
        let left = self.attr.size.saturating_sub(offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        self.dn.read_at(offset, &mut buf[..n])?;
        Ok(n)
    }

    /// As [`Node::read`], but returns the blocks that have the bytes instead of a copy: at most
    /// `len` bytes.
    ///
    /// # Errors
    /// Those of [`Node::read`].
    pub fn read_blocks(&self, offset: u64, len: u64) -> Result<Vec<Part>> {
        if self.attr.kind == FileType::Directory {
            return Err(Error::IsDirectory { object: self.object() });
        }
        let end = offset.saturating_add(len).min(self.attr.size);
        let (size, last) = (self.dn.block_size(), self.dn.max_blkid());
        let mut parts = Vec::new();
        let mut at = offset;
        while at < end {
            let blkid = BlkId(at / size);
            let (within, n) = ((at % size) as usize, (size - at % size).min(end - at) as usize);
            let block = if blkid > last { None } else { self.dn.block(blkid)? };
            parts.push(Part { block, range: within..within + n });
            at += n as u64;
        }
        Ok(parts)
    }

    fn seek(&self, offset: u64, want: Extent) -> Result<u64> {
        let past_end = Error::PastEnd { object: self.object(), offset };
        if offset >= self.attr.size {
            return Err(past_end);
        }
        match self.dn.next_offset(offset, want)? {
            None => Err(past_end),
            Some(at) if want == Extent::Data && at >= self.attr.size => Err(past_end),
            Some(at) => Ok(at.min(self.attr.size)),
        }
    }

    /// The first byte of data at or after `offset`, as with `SEEK_DATA` (`zfs_holey`).
    ///
    /// # Errors
    /// * [`Error::PastEnd`]: `offset` is at or past the end, or only a hole follows.
    /// * [`Error::Dmu`]: an indirect block can't be read.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, Extent::Data)
    }

    /// The first byte of a hole at or after `offset`, as with `SEEK_HOLE` (`zfs_holey`).
    ///
    /// The end of the file counts as a hole.
    ///
    /// # Errors
    /// * [`Error::PastEnd`]: `offset` is at or past the end.
    /// * [`Error::Dmu`]: an indirect block can't be read.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.seek(offset, Extent::Hole)
    }

    /// The target of a symbolic link (`zfs_readlink`).
    ///
    /// # Errors
    /// * [`Error::NotSymlink`]: this node is no symbolic link.
    /// * [`Error::Corrupt`]: the target is missing, cut short or too long.
    /// * [`Error::Dmu`]: a block of the target can't be read.
    pub fn readlink(&self) -> Result<Vec<u8>> {
        if self.attr.kind != FileType::Symlink {
            return Err(Error::NotSymlink { object: self.object() });
        }
        let bad = |why| self.corrupt(Corrupt::Shape { what: "symbolic link", why });
        match &self.store {
            Store::Sa(sa) => {
                let target = sa.get(Sa::Symlink)?.ok_or_else(|| bad("it has no target"))?;
                let len = usize::try_from(self.attr.size).unwrap_or(usize::MAX).min(target.len());
                Ok(target[..len].to_vec())
            }
            Store::Znode(_) => {
                let size = self.attr.size;
                if size > TARGET_MAX {
                    return Err(bad("its target is too long"));
                }
                let len = size as usize;
                if let Some(inline) = self.dn.bonus().get(ZNODE_SIZE..ZNODE_SIZE + len) {
                    return Ok(inline.to_vec());
                }
                let block = self.dn.block(BlkId(0))?.ok_or_else(|| bad("its target is a hole"))?;
                Ok(block.get(..len).ok_or_else(|| bad("its target is cut short"))?.to_vec())
            }
        }
    }
}
