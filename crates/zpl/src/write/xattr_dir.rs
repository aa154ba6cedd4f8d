//! The owner of a hidden directory of extended attributes follows the file's (`zfs_setattr_dir`).

use super::Writer;
use super::data::ATTR_BYTES;
use crate::{Attr, DirCookie, Error, FileSystem, Node, Result};
use dsl::Need;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;

impl FileSystem {
    /// Gives a file's hidden directory and its entries the file's owner, group and project.
    ///
    /// Each entry has a transaction of its own, because there may be any number of them. An entry
    /// without space for a project gets it.
    ///
    /// # Errors
    /// * The errors of [opening](Error#opening).
    /// * [`Error::NoSpace`], [`Error::Quota`], [`Error::Stopped`]: the pool gives no transaction.
    pub(super) fn hidden_follow(&self, w: &Writer, file: ObjNum) -> Result<()> {
        let like = self.attr(file)?;
        let Some(dir) = like.xattr_dir else { return Ok(()) };
        let dir = self.node(dir)?;
        self.take_after(w, &dir, &like)?;
        for entry in dir.read_dir(DirCookie(2))? {
            match self.node(entry?.object) {
                Ok(attribute) => self.take_after(w, &attribute, &like)?,
                // Another thread has just removed it.
                Err(Error::NoFile { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn take_after(&self, w: &Writer, node: &Node, like: &Attr) -> Result<()> {
        let a = node.attr();
        if (a.uid, a.gid, a.projid) == (like.uid, like.gid, like.projid) {
            return Ok(());
        }
        // The record of the file covers this change too, but not the added space for a project.
        let tx = w.logged_tx(Need::growing(2 * ATTR_BYTES))?;
        let with = (|node: &Node| node.attr().pflags.0, a.ctime);
        if a.projid != like.projid && self.add_project(w, &tx, node.object(), like.projid, with)? {
            w.unlogged(&tx);
        }
        self.update(w, node.object(), &tx, |node, c| {
            let a = node.attr();
            c.word(Sa::Uid, like.uid.0);
            c.word(Sa::Gid, like.gid.0);
            if a.projid != like.projid {
                c.word(Sa::Projid, like.projid);
            }
            Ok(())
        })
    }
}
