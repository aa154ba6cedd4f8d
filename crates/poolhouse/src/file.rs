//! A file of a dataset.

use crate::Result;
use std::collections::BTreeMap;
use zpl::{Attr, DirCookie, DirEntry, Node};

/// An open file, folder, link or other node.
#[derive(Debug)]
pub struct File(Node);

impl File {
    pub(crate) fn new(node: Node) -> File {
        File(node)
    }

    /// The node: everything that this type does not wrap.
    pub fn node(&self) -> &Node {
        &self.0
    }

    /// Its attributes.
    pub fn attr(&self) -> &Attr {
        self.0.attr()
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.0.attr().size
    }

    /// Fills `buf` from byte `offset` on; the count is short only at the end of the file.
    ///
    /// # Errors
    /// [`crate::Error::File`]: a block that does not verify is never returned.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.0.read(offset, buf)?)
    }

    /// Its extended attributes by their Linux names.
    ///
    /// # Errors
    /// [`crate::Error::File`].
    pub fn xattrs(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        Ok(self.0.xattrs()?)
    }

    /// Lists it, if it is a folder.
    ///
    /// # Errors
    /// [`crate::Error::File`].
    pub fn read_dir(&self) -> Result<ReadDir> {
        Ok(ReadDir(self.0.read_dir(DirCookie::START)?))
    }
}

/// The entries of a folder, in no order; `.` and `..` are not among them.
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
