//! Removing names and files (`zfs_remove`, `zfs_rmdir`, `zfs_rmnode`).

use super::undo::{Undo, whole};
use super::update::Changes;
use super::{Purpose, Writer};
use crate::node::Store;
use crate::{DirEntry, Error, FileSystem, FileType, Node, Result};
use dmu::Tx;
use dmu::zap::{Value, Zap};
use ondisk::ObjNum;
use ondisk::acl::AclPhys;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;
use std::collections::HashSet;

/// What removing a name dirties, about.
pub(super) const REMOVE_BYTES: u64 = 2048;

/// Files without names that may have users.
#[derive(Debug, Clone, Default)]
pub struct Orphans {
    all: HashSet<ObjNum>,
    /// Those among them that never had a name.
    unnamed: HashSet<ObjNum>,
}

fn queue_name(object: ObjNum) -> Vec<u8> {
    format!("{:x}", object.0).into_bytes()
}

impl FileSystem {
    /// Removes the name of a file that is no directory. Returns the file if that was its last one: it stays readable and
    /// writable until [`FileSystem::reap`] is told that nobody uses it any more.
    ///
    /// # Errors
    /// [`Error::NoEntry`], [`Error::IsDirectory`], [`Error::NotPermitted`] by flags; as reading and writing fail.
    pub fn unlink(&self, dir: ObjNum, name: &[u8]) -> Result<Option<ObjNum>> {
        let gone = self.unlink_now(dir, name)?;
        self.settle(dir)?;
        Ok(gone)
    }

    fn unlink_now(&self, dir: ObjNum, name: &[u8]) -> Result<Option<ObjNum>> {
        let (object, gone) = self.remove_what(dir, name, &|child| match child.attr().kind {
            FileType::Directory => Err(Error::IsDirectory { object: child.object() }),
            _ => Self::may_unlink(child.attr()),
        })?;
        Ok(gone.then_some(object))
    }

    /// Removes a name of what may be removed, and says whether it was its last one.
    fn remove_what(
        &self,
        dir: ObjNum,
        name: &[u8],
        may: &dyn Fn(&Node) -> Result<()>,
    ) -> Result<(ObjNum, bool)> {
        let w = self.writer()?;
        loop {
            let object = self.dir_to_change(dir, false)?.lookup_entry(name, false)?.object;
            // The file too: what is done to its names is logged in the order in which it is done.
            let held = w.locks.hold_all(&[dir, object]);
            let _names: Vec<_> = held.iter().map(|h| h.names()).collect();
            let parent = self.dir_to_change(dir, false)?;
            let e = parent.lookup_entry(name, false)?;
            if e.object != object {
                continue;
            }
            let child = self.node(object)?;
            may(&child)?;
            let tx = w.logged_tx(REMOVE_BYTES, Purpose::Free)?;
            let gone = self.remove_logged(w, &tx, &parent, &e, &child);
            return Ok((object, w.or_unlogged(&tx, gone)?));
        }
    }

    /// Removes a name of a file, and logs that; true if it was the last.
    fn remove_logged(&self, w: &Writer, tx: &Tx, parent: &Node, e: &DirEntry, child: &Node) -> Result<bool> {
        let gone = self.remove_link(w, tx, parent, e, child)?;
        w.log_remove(tx, parent.object(), &e.name, (e.object, child.attr().kind), gone);
        Ok(gone)
    }

    /// Removes a name of a file, and the link with it; true if it was the last. Where it fails nothing has changed.
    pub(super) fn remove_link(
        &self,
        w: &Writer,
        tx: &Tx,
        parent: &Node,
        e: &DirEntry,
        child: &Node,
    ) -> Result<bool> {
        whole(|undo| {
            let gone = self.drop_link(w, tx, child, undo)?;
            self.remove_name(w, parent, tx, &e.name, (e.object, child.attr().kind))?;
            Ok(gone)
        })
    }

    /// Removes an empty directory, which [`FileSystem::reap`] then frees.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::NotDirectory`], [`Error::NoEntry`], [`Error::NotPermitted`] by flags; [`Error::BadName`] for `.` and
    /// `..`; as reading and writing fail.
    pub fn rmdir(&self, dir: ObjNum, name: &[u8]) -> Result<ObjNum> {
        let gone = self.rmdir_now(dir, name)?;
        self.settle(dir)?;
        Ok(gone)
    }

    fn rmdir_now(&self, dir: ObjNum, name: &[u8]) -> Result<ObjNum> {
        if matches!(name, b"" | b"." | b"..") {
            return Err(Error::BadName);
        }
        let (object, _) = self.remove_what(dir, name, &|child| {
            child.require_dir()?;
            Self::may_unlink(child.attr())?;
            self.require_empty(child)
        })?;
        Ok(object)
    }

    pub(super) fn require_empty(&self, dir: &Node) -> Result<()> {
        match self.dir_zap(&dir.dn)?.count()? {
            0 => Ok(()),
            _ => Err(Error::NotEmpty { object: dir.object() }),
        }
    }

    /// Takes a link from a file whose name is removed (`zfs_drop_nlink`); true if that was the last, and it is in the list now. `node` is the file as
    /// it is now: nobody else changes its names.
    pub(super) fn drop_link<'a>(
        &'a self,
        w: &'a Writer,
        tx: &'a Tx,
        node: &'a Node,
        undo: &mut Undo<'a>,
    ) -> Result<bool> {
        let (object, before, now) = (node.object(), *node.attr(), w.txs.now());
        // A directory's own two links go together.
        let left = if before.kind == FileType::Directory { 0 } else { before.nlink.saturating_sub(1) };
        if left == 0 {
            w.enqueue(tx, object)?;
            undo.by(move || {
                w.orphans.lock().remove(&object);
                w.dequeue(tx, object)
            });
        }
        self.update(w, object, tx, |node, c: &mut Changes| {
            c.word(Sa::Links, left);
            if left > 0 {
                c.changed(node.attr(), now);
            }
            Ok(())
        })?;
        undo.by(move || {
            self.update(w, object, tx, |_, c: &mut Changes| {
                c.word(Sa::Links, before.nlink);
                Ok(())
            })
        });
        Ok(left == 0)
    }

    /// Frees a file that has no name and that nobody uses any more; nothing happens to others.
    ///
    /// # Errors
    /// As reading and writing fail: it then stays in the list, and the next mount tries again.
    pub fn reap(&self, object: ObjNum) -> Result<()> {
        let w = self.writer()?;
        if !w.orphans.lock().remove(&object) {
            return Ok(());
        }
        w.unnamed.lock().remove(&object);
        self.free_unlinked(w, object)
    }

    /// True if there are files that wait for [`FileSystem::reap`].
    pub fn has_orphans(&self) -> bool {
        self.writer_if_any().is_some_and(|w| !w.orphans.lock().is_empty())
    }

    /// Files without names that may have users, for who opens the file system anew while it is used ([`FileSystem::adopt`]).
    pub fn orphans(&self) -> Orphans {
        let Some(w) = self.writer_if_any() else { return Orphans::default() };
        Orphans { all: w.orphans.lock().clone(), unnamed: w.unnamed.lock().clone() }
    }

    /// Takes over files without names that have users: they stay until [`FileSystem::reap`] is told.
    pub fn adopt(&self, orphans: Orphans) {
        if let Some(w) = self.writer_if_any() {
            w.orphans.lock().extend(orphans.all);
            w.unnamed.lock().extend(orphans.unnamed);
        }
    }

    /// Frees what the list of unlinked files holds from before this file system was opened, and what nobody came to reap
    /// (`zfs_unlinked_drain`): for who has just mounted, or just unmounted. Returns how many files there were.
    ///
    /// # Errors
    /// As reading the list fails. A file that can't be freed stays in it.
    pub fn drain(&self) -> Result<u64> {
        let w = self.writer()?;
        let mut freed = 0;
        for entry in w.queue.entries() {
            let object = ObjNum(entry?.value.first().unwrap_or(0));
            w.orphans.lock().remove(&object);
            freed += u64::from(self.free_unlinked(w, object).is_ok());
        }
        Ok(freed)
    }

    fn free_unlinked(&self, w: &Writer, object: ObjNum) -> Result<()> {
        let node = match self.node(object) {
            Ok(node) => node,
            // Freed before a crash that kept the list, or never there: only the entry is left.
            Err(Error::NoFile { .. }) => {
                let tx = w.logged_tx(REMOVE_BYTES, Purpose::Free)?;
                return w.dequeue(&tx, object);
            }
            Err(e) => return Err(e),
        };
        if node.attr().nlink != 0 {
            // Somebody's list names a file that has names: the names count.
            let tx = w.logged_tx(REMOVE_BYTES, Purpose::Free)?;
            return w.dequeue(&tx, object);
        }
        let hidden = node.attr().kind == FileType::Directory && node.attr().pflags.has(Pflags::XATTR);
        if hidden {
            self.purge(w, &node)?;
        }
        let xattrs = self.hidden_dir_of(&node)?;
        let acl = outer_acl(&node)?;
        let held = w.locks.hold(object);
        let whole = held.whole();
        self.free_much(w, &node, 0, u64::MAX)?;
        {
            let tx = w.logged_tx(REMOVE_BYTES, Purpose::Free)?;
            // Nothing but this file leads to its hidden directory, so that must be in the list before the file goes.
            if let Some(dir) = &xattrs {
                self.update(w, dir.object(), &tx, |_, c| {
                    c.word(Sa::Links, 0);
                    Ok(())
                })?;
                w.enqueue(&tx, dir.object())?;
            }
            // One that is damaged can't be freed, and stays in the list, with all that it has.
            if let Err(e) = self.objset().free_object(&tx, object) {
                if let Some(dir) = &xattrs {
                    w.orphans.lock().remove(&dir.object());
                    w.dequeue(&tx, dir.object())?;
                }
                return Err(e.into());
            }
            self.forget_dir(object);
            if let Some(acl) = acl {
                self.objset().free_object(&tx, acl)?;
            }
            w.dequeue(&tx, object)?;
        }
        drop(whole);
        match xattrs {
            Some(dir) => self.reap(dir.object()),
            None => Ok(()),
        }
    }

    /// Frees what of a range is too much for the group that frees the rest, and has what leads to the rest read: without a transaction, for which others would have
    /// to wait. The range is locked.
    pub(super) fn free_much(&self, w: &Writer, node: &Node, offset: u64, len: u64) -> Result<()> {
        if !w.txs.takes_several() {
            return Ok(());
        }
        let mut pieces = node.dn.pieces(offset, len)?;
        while let Some(piece) = pieces.next_piece()?.filter(|piece| !piece.last) {
            let tx = w.tx(REMOVE_BYTES, Purpose::Free)?;
            node.dn.free_range(&tx, piece.offset, piece.len)?;
            let txg = tx.txg();
            drop(tx);
            w.txs.wait(txg)?;
        }
        Ok(())
    }

    /// The hidden directory of an unlinked file, unless it is gone already: its number may be another file's then.
    fn hidden_dir_of(&self, node: &Node) -> Result<Option<Node>> {
        let Some(object) = node.attr().xattr_dir else { return Ok(None) };
        let dir = match self.node(object) {
            Ok(dir) => dir,
            Err(Error::NoFile { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        let a = dir.attr();
        let hidden = a.kind == FileType::Directory && a.pflags.has(Pflags::XATTR);
        match hidden && a.parent == node.object() {
            true => self.node(object).map(Some),
            false => Ok(None),
        }
    }

    /// Removes everything in a hidden directory whose file is gone (`zfs_purgedir`).
    fn purge(&self, w: &Writer, dir: &Node) -> Result<()> {
        let held = w.locks.hold(dir.object());
        let _names = held.names();
        let zap = Zap::open(&dir.dn)?;
        while let Some(entry) = zap.entries().next().transpose()? {
            let e = dir.lookup_entry(entry.name(), false)?;
            let child = self.node(e.object)?;
            let tx = w.logged_tx(REMOVE_BYTES, Purpose::Free)?;
            let gone = self.remove_link(w, &tx, dir, &e, &child)?;
            drop(tx);
            // Attributes have no attributes of their own, so that this goes no deeper.
            if gone {
                self.reap(e.object)?;
            }
        }
        Ok(())
    }
}

/// The object of an ACL that is kept beside its file, as files of older versions do.
pub(super) fn outer_acl(node: &Node) -> Result<Option<ObjNum>> {
    let phys = match &node.store {
        Store::Znode(z) => Some(z.acl),
        Store::Sa(sa) => match sa.raw(Sa::ZnodeAcl)? {
            Some((raw, order)) => Some(AclPhys::parse(order, raw).map_err(|e| node.corrupt(e))?),
            None => None,
        },
    };
    Ok(phys.map(|p| p.extern_obj).filter(|o| o.0 != 0))
}

impl Writer {
    /// Enters a file without names in the list of unlinked files (`zfs_unlinked_add`).
    pub(super) fn enqueue(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        self.queue.update(tx, &queue_name(object), &Value::from(object.0))?;
        self.orphans.lock().insert(object);
        Ok(())
    }

    pub(super) fn dequeue(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        match self.queue.remove(tx, &queue_name(object)) {
            Ok(()) | Err(dmu::Error::NoEntry { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
