//! Hard links (`zfs_link`).

use super::make::MAKE_BYTES;
use super::rename::check_project;
use super::undo::whole;
use crate::{Attr, Error, FileSystem, FileType, Result};
use dsl::Need;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

impl FileSystem {
    /// Adds a name for a file (`zfs_link`).
    ///
    /// # Errors
    /// * [`Error::Exists`]: the directory has an entry of this name.
    /// * [`Error::NotPermitted`]: the file is a directory, immutable or append-only, or the
    ///   directory is immutable.
    /// * [`Error::Unlinked`]: the file has no name left.
    /// * [`Error::OtherProject`]: the directory passes on another project than the file's.
    /// * [`Error::BadName`], [`Error::NameTooLong`], [`Error::NotUtf8`]: no entry may have this
    ///   name.
    /// * [`Error::NotDirectory`]: `dir` is no directory.
    /// * [`Error::NoEntry`]: the directory was removed.
    /// * The errors of [changing](Error#changing).
    pub fn link(&self, file: ObjNum, dir: ObjNum, name: &[u8]) -> Result<Attr> {
        let attr = self.link_now(file, dir, name)?;
        self.settle(file)?;
        Ok(attr)
    }

    fn link_now(&self, file: ObjNum, dir: ObjNum, name: &[u8]) -> Result<Attr> {
        let w = self.writer()?;
        self.check_name(w, name)?;
        // The file is locked too: changes of its names are logged in the order in which they are
        // made.
        let held = w.locks.hold_all(&[dir, file]);
        let _names: Vec<_> = held.iter().map(|h| h.names()).collect();
        let parent = self.dir_to_change(dir, true)?;
        let node = self.node(file)?;
        let (a, p) = (node.attr(), parent.attr());
        let denied = Pflags::IMMUTABLE | Pflags::APPENDONLY;
        if a.kind == FileType::Directory || a.pflags.0 & denied != 0 {
            return Err(Error::NotPermitted { object: file });
        }
        check_project(p, a)?;
        if self.find(&parent, name)?.is_some() {
            return Err(Error::Exists { dir });
        }
        let unnamed = w.is_unnamed(file);
        let held_tx = w.logged_tx(Need::growing(MAKE_BYTES))?;
        let now = w.now();
        let (tx, parent) = (&held_tx, &parent);
        let done = whole(|undo| {
            self.update(w, file, tx, |node, c| {
                let a = node.attr();
                if a.nlink == 0 && !unnamed {
                    return Err(Error::Unlinked { object: file });
                }
                c.word(Sa::Links, a.nlink.saturating_add(1));
                c.word(Sa::Parent, dir.0);
                c.changed(a, now);
                Ok(())
            })?;
            undo.by(|| {
                self.update(w, file, tx, |node, c| {
                    c.word(Sa::Links, node.attr().nlink.saturating_sub(1));
                    c.word(Sa::Parent, a.parent.0);
                    Ok(())
                })
            });
            self.enter_name(w, parent, tx, name, (file, a.kind))?;
            if unnamed {
                undo.by(|| self.remove_name(w, parent, tx, name, (file, a.kind)));
                // The file never had a record, and a record is useless before its txg is on disk.
                w.named(tx, file)?;
                w.unlogged(tx);
            } else {
                w.log_link(tx, dir, name, file);
            }
            Ok(())
        });
        w.or_unlogged(tx, done)?;
        drop(held_tx);
        self.attr(file)
    }
}
