//! A file of a dataset.

use crate::Result;
use std::collections::BTreeMap;
use zpl::{Attr, DirCookie, DirEntry, Node};

/// An open file, directory, symbolic link or other node.
#[derive(Debug)]
pub struct File(Node);

impl File {
    pub(crate) fn new(node: Node) -> File {
        File(node)
    }

    /// The node. It has all operations that this type does not wrap.
    pub fn node(&self) -> &Node {
        &self.0
    }

    /// The attributes of the file.
    pub fn attr(&self) -> &Attr {
        self.0.attr()
    }

    /// The size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.0.attr().size
    }

    /// Fills `buf` from byte `offset` on (`zfs_read`).
    ///
    /// The returned count is shorter than `buf` only at the end of the file.
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the file is a directory, or a block can't be read. A block that
    ///   fails its checksum is never returned.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.0.read(offset, buf)?)
    }

    /// The extended attributes of the file, by their Linux names.
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the attributes can't be read, or are larger than
    ///   [`zpl::XATTRS_MAX`].
    pub fn xattrs(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        Ok(self.0.xattrs()?)
    }

    /// Lists the entries of a directory (`zfs_readdir`).
    ///
    /// # Errors
    /// * [`crate::Error::File`]: the file is no directory, or the directory can't be read.
    pub fn read_dir(&self) -> Result<ReadDir> {
        Ok(ReadDir(self.0.read_dir(DirCookie::START)?))
    }
}

/// The entries of a directory, in no order, without `.` and `..`.
#[derive(Debug)]
pub struct ReadDir(zpl::ReadDir);

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next()? {
                Ok(e) if e.name == b"." || e.name == b".." => {}
                other => return Some(other.map_err(Into::into)),
            }
        }
    }
}
