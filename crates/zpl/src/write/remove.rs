//! Removing names and files (`zfs_remove`, `zfs_rmdir`, `zfs_rmnode`).

use super::Writer;
use super::undo::{Undo, whole};
use super::update::Changes;
use crate::node::Store;
use crate::{DirEntry, Error, FileSystem, FileType, Node, Result};
use dmu::Tx;
use dmu::zap::{Value, Zap};
use dsl::Need;
use ondisk::ObjNum;
use ondisk::acl::AclPhys;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;
use std::collections::HashSet;
use zil::Zilog;

/// Estimate of what removing a name dirties, in bytes.
pub(super) const REMOVE_BYTES: u64 = 2048;

/// What became of a file of which a name was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unlinked {
    /// It has other names.
    Named,
    /// That was its last name. The file is for [`FileSystem::reap`].
    Orphan(ObjNum),
    /// That was its last name, and the file was freed.
    Freed,
}

/// Files without names that may have users.
#[derive(Debug, Clone, Default)]
pub struct Orphans {
    all: HashSet<ObjNum>,
    /// Those of them that never had a name.
    unnamed: HashSet<ObjNum>,
}

fn queue_name(object: ObjNum) -> Vec<u8> {
    format!("{:x}", object.0).into_bytes()
}

impl FileSystem {
    /// Removes a name of a file that is no directory (`zfs_remove`).
    ///
    /// Returns the file if that was its last name. It stays readable and writable until its last
    /// user is gone and the front end calls [`FileSystem::reap`].
    ///
    /// # Errors
    /// * [`Error::NoEntry`]: the directory has no such entry, or was removed.
    /// * [`Error::IsDirectory`]: the name belongs to a directory.
    /// * [`Error::NotDirectory`]: `dir` is no directory.
    /// * [`Error::NotPermitted`]: flags of the directory or of the file forbid it.
    /// * [`Error::NameTooLong`], [`Error::NotUtf8`]: no entry may have this name.
    /// * The errors of [changing](Error#changing).
    pub fn unlink(&self, dir: ObjNum, name: &[u8]) -> Result<Option<ObjNum>> {
        let gone = self.unlink_now(dir, name)?;
        self.settle(dir)?;
        Ok(gone)
    }

    /// As [`FileSystem::unlink`], for a file that has no user: if it is small, the same transaction
    /// frees it.
    ///
    /// # Errors
    /// Those of [`FileSystem::unlink`].
    pub fn unlink_unused(&self, dir: ObjNum, name: &[u8]) -> Result<Unlinked> {
        let (object, gone) = self.remove_what(dir, name, true, &may_be_unlinked)?;
        self.settle(dir)?;
        Ok(match gone {
            Gone::No => Unlinked::Named,
            Gone::Last => Unlinked::Orphan(object),
            Gone::Freed => Unlinked::Freed,
        })
    }

    fn unlink_now(&self, dir: ObjNum, name: &[u8]) -> Result<Option<ObjNum>> {
        let (object, gone) = self.remove_what(dir, name, false, &may_be_unlinked)?;
        Ok((gone != Gone::No).then_some(object))
    }

    /// Removes a name if `may` agrees. `unused`: the file has no user, and may be freed at once.
    fn remove_what(
        &self,
        dir: ObjNum,
        name: &[u8],
        unused: bool,
        may: &dyn Fn(&Node) -> Result<()>,
    ) -> Result<(ObjNum, Gone)> {
        let w = self.writer()?;
        loop {
            let object = self.dir_to_change(dir, false)?.lookup_entry(name, false)?.object;
            // The file is locked too: changes of its names are logged in the order in which they
            // are made.
            let held = w.locks.hold_all(&[dir, object]);
            let _names: Vec<_> = held.iter().map(|h| h.names()).collect();
            let parent = self.dir_to_change(dir, false)?;
            let e = parent.lookup_entry(name, false)?;
            if e.object != object {
                continue;
            }
            let child = self.node(object)?;
            may(&child)?;
            if unused && is_freed_at_once(w, &child)? {
                let file = w.locks.hold(object);
                let _whole = file.whole();
                let tx = w.logged_tx(Need::netfree(REMOVE_BYTES))?;
                let freed = self.remove_and_free(w, &tx, &parent, &e, &child);
                if w.or_unlogged(&tx, freed)? {
                    return Ok((object, Gone::Freed));
                }
            }
            let tx = w.logged_tx(Need::netfree(REMOVE_BYTES))?;
            let gone = self.remove_logged(w, &tx, &parent, &e, &child);
            let gone = if w.or_unlogged(&tx, gone)? { Gone::Last } else { Gone::No };
            return Ok((object, gone));
        }
    }

    /// Removes the last name of a file and frees the file. False if nothing changed, because the
    /// file is damaged and can't be freed.
    fn remove_and_free(
        &self,
        w: &Writer,
        tx: &Tx,
        parent: &Node,
        e: &DirEntry,
        child: &Node,
    ) -> Result<bool> {
        let file = (e.object, child.attr().kind);
        self.remove_name(w, parent, tx, &e.name, file)?;
        if self.objset().free_object(tx, e.object).is_err() {
            self.enter_name(w, parent, tx, &e.name, file)?;
            return Ok(false);
        }
        w.log_remove(tx, parent.object(), &e.name, file, true);
        Ok(true)
    }

    /// Removes a name of a file and logs that; true if it was the last.
    fn remove_logged(&self, w: &Writer, tx: &Tx, parent: &Node, e: &DirEntry, child: &Node) -> Result<bool> {
        let gone = self.remove_link(w, tx, parent, e, child)?;
        w.log_remove(tx, parent.object(), &e.name, (e.object, child.attr().kind), gone);
        Ok(gone)
    }

    /// Removes a name of a file and its link; true if it was the last. After an error nothing has
    /// changed.
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

    /// Removes an empty directory, which [`FileSystem::reap`] then frees (`zfs_rmdir`).
    ///
    /// # Errors
    /// * [`Error::NotEmpty`]: the directory has entries.
    /// * [`Error::NotDirectory`]: `dir` or the named file is no directory.
    /// * [`Error::NoEntry`]: `dir` has no such entry, or was removed.
    /// * [`Error::BadName`]: the name is empty, `.` or `..`.
    /// * [`Error::NotPermitted`]: flags of one of the directories forbid it.
    /// * [`Error::NameTooLong`], [`Error::NotUtf8`]: no entry may have this name.
    /// * The errors of [changing](Error#changing).
    pub fn rmdir(&self, dir: ObjNum, name: &[u8]) -> Result<ObjNum> {
        let gone = self.rmdir_now(dir, name)?;
        self.settle(dir)?;
        Ok(gone)
    }

    fn rmdir_now(&self, dir: ObjNum, name: &[u8]) -> Result<ObjNum> {
        if matches!(name, b"" | b"." | b"..") {
            return Err(Error::BadName);
        }
        let (object, _) = self.remove_what(dir, name, false, &|child| {
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

    /// Removes a link of a file whose name is being removed (`zfs_drop_nlink`).
    ///
    /// Returns whether that was the last. The file is then in the list of unlinked files.
    /// `node` is current, because the caller has locked the file's names.
    pub(super) fn drop_link<'a>(
        &'a self,
        w: &'a Writer,
        tx: &'a Tx,
        node: &'a Node,
        undo: &mut Undo<'a>,
    ) -> Result<bool> {
        let (object, before, now) = (node.object(), *node.attr(), w.now());
        // A directory loses both of its own links at once.
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

    /// Frees a file that has no name and no user any more; ignores all other files (`zfs_rmnode`).
    ///
    /// # Errors
    /// The file stays in the list, and the next mount tries again.
    ///
    /// * The errors of [changing](Error#changing).
    pub fn reap(&self, object: ObjNum) -> Result<()> {
        let w = self.writer()?;
        if !w.orphans.lock().remove(&object) {
            return Ok(());
        }
        w.unnamed.lock().remove(&object);
        self.free_unlinked(w, object)
    }

    /// True if files wait for [`FileSystem::reap`].
    pub fn has_orphans(&self) -> bool {
        self.writer_if_any().is_some_and(|w| !w.orphans.lock().is_empty())
    }

    /// Files without names that may have users.
    ///
    /// [`FileSystem::adopt`] passes them to the instance that replaces this one, when a file system
    /// in use is reopened.
    pub fn orphans(&self) -> Orphans {
        let Some(w) = self.writer_if_any() else { return Orphans::default() };
        Orphans { all: w.orphans.lock().clone(), unnamed: w.unnamed.lock().clone() }
    }

    /// Takes over files without names that have users: they stay until [`FileSystem::reap`].
    pub fn adopt(&self, orphans: Orphans) {
        if let Some(w) = self.writer_if_any() {
            w.orphans.lock().extend(orphans.all);
            w.unnamed.lock().extend(orphans.unnamed);
        }
    }

    /// Frees the files in the list of unlinked files, and returns their number
    /// (`zfs_unlinked_drain`).
    ///
    /// These are files from before this file system was opened, and files that were never reaped. A
    /// front end calls this after a mount and after an unmount. A file that can't be freed stays in
    /// the list.
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the file system is not open for changes.
    /// * [`Error::Dmu`]: the list can't be read.
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
            // The file was freed before a crash that kept the list, or never existed. Only the
            // entry is left.
            Err(Error::NoFile { .. }) => {
                let tx = w.logged_tx(Need::netfree(REMOVE_BYTES))?;
                return w.dequeue(&tx, object);
            }
            Err(e) => return Err(e),
        };
        if node.attr().nlink != 0 {
            // The list names a file that has names: the names count.
            let tx = w.logged_tx(Need::netfree(REMOVE_BYTES))?;
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
            let tx = w.logged_tx(Need::netfree(REMOVE_BYTES))?;
            // Only this file leads to its hidden directory, so the directory must be in the list
            // before the file is freed.
            if let Some(dir) = &xattrs {
                self.update(w, dir.object(), &tx, |_, c| {
                    c.word(Sa::Links, 0);
                    Ok(())
                })?;
                w.enqueue(&tx, dir.object())?;
            }
            // A damaged file can't be freed, and stays in the list with all that belongs to it.
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
            w.txs.log().into_iter().for_each(Zilog::count_unlinked);
        }
        drop(whole);
        match xattrs {
            Some(dir) => self.reap(dir.object()),
            None => Ok(()),
        }
    }

    /// Frees the part of a range that is too much for one txg. The caller has locked the range.
    ///
    /// It also reads the indirect blocks of the rest, without a transaction, which would delay
    /// other threads.
    pub(super) fn free_much(&self, w: &Writer, node: &Node, offset: u64, len: u64) -> Result<()> {
        // All transactions of a replayed record are one.
        if w.replaying {
            return Ok(());
        }
        let mut pieces = node.dn.pieces(offset, len)?;
        while let Some(piece) = pieces.next_piece()?.filter(|piece| !piece.last) {
            let tx = w.tx(Need::netfree(REMOVE_BYTES))?;
            node.dn.free_range(&tx, piece.offset, piece.len)?;
            let txg = tx.txg();
            drop(tx);
            w.txs.wait(txg)?;
        }
        Ok(())
    }

    /// The hidden directory of an unlinked file, unless it was freed already: then its number may
    /// belong to another file.
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
            let tx = w.logged_tx(Need::netfree(REMOVE_BYTES))?;
            let gone = self.remove_link(w, &tx, dir, &e, &child)?;
            drop(tx);
            // Attributes have no attributes of their own, so this recursion ends here.
            if gone {
                self.reap(e.object)?;
            }
        }
        Ok(())
    }
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// It has other names.
    No,
    /// It has no name and is in the list of unlinked files.
    Last,
    /// It is free.
    Freed,
}

/// Whether a name of this file may be removed, and it is no directory.
fn may_be_unlinked(child: &Node) -> Result<()> {
    match child.attr().kind {
        FileType::Directory => Err(Error::IsDirectory { object: child.object() }),
        _ => FileSystem::may_unlink(child.attr()),
    }
}

/// Whether a file that loses this name needs no list of unlinked files: it has no other name, and
/// nothing has to be read or freed beside it.
fn is_freed_at_once(w: &Writer, child: &Node) -> Result<bool> {
    let attr = child.attr();
    let small = attr.nlink == 1 && attr.xattr_dir.is_none() && child.dn.nlevels() == 1;
    // A replayed record leaves the file to the end of the replay.
    Ok(small && !w.replaying && outer_acl(child)?.is_none())
}

/// The object of an ACL that is stored outside its file, as files of older versions do.
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
    /// Adds a file without names to the list of unlinked files (`zfs_unlinked_add`).
    pub(super) fn enqueue(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        self.queue.update(tx, &queue_name(object), &Value::from(object.0))?;
        self.orphans.lock().insert(object);
        self.txs.log().into_iter().for_each(Zilog::count_unlink);
        Ok(())
    }

    pub(super) fn dequeue(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        match self.queue.remove(tx, &queue_name(object)) {
            Ok(()) | Err(dmu::Error::NoEntry { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
