//! One file: its attributes and contents.

use crate::{Attr, Error, FileSystem, Result};
use dmu::sa::Attrs;
use dmu::{Dnode, Extent};
use ondisk::dirent::FileType;
use ondisk::sa::Attr as Sa;
use ondisk::znode::{ZNODE_SIZE, Znode};
use ondisk::{BlkId, Corrupt, DmuType, ObjNum};

/// An open file of any kind (`znode_t`).
#[derive(Debug)]
pub struct Node {
    pub(crate) fs: FileSystem,
    pub(crate) dn: Dnode,
    pub(crate) store: Store,
    attr: Attr,
}

/// Where a file's attributes are.
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

    /// Its number.
    pub fn object(&self) -> ObjNum {
        self.dn.object()
    }

    /// Its attributes.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// The object that it is.
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

    /// Reads from byte `offset` on; fewer bytes than asked for, or none, only at the end of the file.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], or as reading fails.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if self.attr.kind == FileType::Directory {
            return Err(Error::IsDirectory { object: self.object() });
        }
        let left = self.attr.size.saturating_sub(offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        self.dn.read_at(offset, &mut buf[..n])?;
        Ok(n)
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

    /// The first byte of data at or after `offset` (`SEEK_DATA`).
    ///
    /// # Errors
    /// [`Error::PastEnd`] if `offset` is past the end or only a hole follows, or as reading fails.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, Extent::Data)
    }

    /// The first byte of a hole at or after `offset`; the end of the file is one (`SEEK_HOLE`).
    ///
    /// # Errors
    /// [`Error::PastEnd`] if `offset` is past the end, or as reading fails.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.seek(offset, Extent::Hole)
    }

    /// What a symbolic link points at.
    ///
    /// # Errors
    /// [`Error::NotSymlink`], [`Error::Corrupt`] if the target is missing or too long, or as reading fails.
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
