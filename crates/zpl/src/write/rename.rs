//! Renaming (`zfs_rename`).

use super::Writer;
use super::log::Renamed;
use super::make::{Birth, Kind, MAKE_BYTES, NewFile};
use super::quota::Payers;
use super::undo::{Undo, whole};
use super::update::AV_MODIFIED;
use crate::{Attr, DirEntry, Error, FileSystem, FileType, Node, Result};
use dmu::Tx;
use dsl::Need;
use ondisk::sa::Attr as Sa;
use ondisk::zil::TxKind;
use ondisk::znode::Pflags;
use ondisk::{Corrupt, ObjNum};
use std::collections::HashSet;

/// How a rename treats the file that has the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// The file is replaced.
    Replace,
    /// The rename fails if there is one (`RENAME_NOREPLACE`).
    NoReplace,
    /// The two files swap their names (`RENAME_EXCHANGE`).
    Exchange,
    /// A whiteout takes the old name: a device 0 that tells an overlay file system that the name is
    /// deleted (`RENAME_WHITEOUT`).
    Whiteout {
        /// A file with the new name is replaced; if false, the rename fails.
        replace: bool,
        /// Owner of the whiteout.
        uid: u32,
        /// Group of the whiteout.
        gid: u32,
    },
}

/// The files of a rename, looked up while all their locks are held.
struct Move {
    from: Node,
    to: Node,
    source: (DirEntry, Node),
    target: Option<(DirEntry, Node)>,
}

impl Move {
    /// The rename for the log, in which only the source has moved.
    fn renamed<'a>(
        &'a self,
        new_name: &'a [u8],
        gone: Option<ObjNum>,
        whiteout: Option<&'a Node>,
    ) -> Renamed<'a> {
        let (e, _) = &self.source;
        Renamed {
            kind: TxKind::Rename,
            from: (self.from.object(), &e.name),
            to: (self.to.object(), new_name),
            moved: std::slice::from_ref(&e.object),
            gone,
            whiteout,
        }
    }
}

fn is_dir(node: &Node) -> bool {
    node.attr().kind == FileType::Directory
}

fn typed(node: &Node) -> (ObjNum, FileType) {
    (node.object(), node.attr().kind)
}

impl FileSystem {
    /// Moves the entry `name` of directory `from` to `new_name` in directory `to` (`zfs_rename`).
    ///
    /// Returns the file that lost its last name by that, for [`FileSystem::reap`].
    ///
    /// # Errors
    /// * [`Error::NoEntry`]: the entry does not exist, or [`Rename::Exchange`] has no target, or a
    ///   directory was removed.
    /// * [`Error::Exists`]: the new name exists, and `how` forbids to replace it.
    /// * [`Error::NotEmpty`]: a directory to be replaced has entries.
    /// * [`Error::IsDirectory`]: a file would replace a directory.
    /// * [`Error::NotDirectory`]: a directory would replace a file, or `from` or `to` is no
    ///   directory.
    /// * [`Error::IntoItself`]: a directory would move below itself.
    /// * [`Error::OtherProject`]: the directory passes on another project than the file's.
    /// * [`Error::NotPermitted`]: flags of a file or directory forbid it.
    /// * [`Error::BadName`], [`Error::NameTooLong`], [`Error::NotUtf8`]: no entry may have such a
    ///   name.
    /// * The errors of [changing](Error#changing).
    pub fn rename(
        &self,
        (from, name): (ObjNum, &[u8]),
        (to, new_name): (ObjNum, &[u8]),
        how: Rename,
    ) -> Result<Option<ObjNum>> {
        let (moved, gone) = self.rename_now((from, name), (to, new_name), how)?;
        self.settle(moved)?;
        Ok(gone)
    }

    fn rename_now(
        &self,
        (from, name): (ObjNum, &[u8]),
        (to, new_name): (ObjNum, &[u8]),
        how: Rename,
    ) -> Result<(ObjNum, Option<ObjNum>)> {
        let w = self.writer()?;
        self.check_name(w, new_name)?;
        if matches!(name, b"" | b"." | b"..") {
            return Err(Error::BadName);
        }
        loop {
            // The names determine what to lock, and may change until the locks are held.
            let source = self.node(from)?.lookup_entry(name, false)?.object;
            let target = self.find(&self.node(to)?, new_name)?.map(|e| e.object);
            let moved = is_dir(&self.node(source)?);
            let swapped = match target {
                Some(t) => is_dir(&self.node(t)?),
                None => false,
            };
            let _moves = (from != to && (moved || swapped)).then(|| w.moves.lock());
            let mut objects = vec![from, to, source];
            objects.extend(target);
            let held = w.locks.hold_all(&objects);
            let _names: Vec<_> = held.iter().map(|h| h.names()).collect();
            let m = self.look(from, name, to, new_name)?;
            let same = m.source.1.object() == source
                && m.target.as_ref().map(|t| t.1.object()) == target
                && is_dir(&m.source.1) == moved;
            if same {
                let gone = self.rename_locked(w, m, new_name, how)?;
                return Ok((source, gone));
            }
        }
    }

    fn look(&self, from: ObjNum, name: &[u8], to: ObjNum, new_name: &[u8]) -> Result<Move> {
        let from = self.dir_to_change(from, false)?;
        let to = self.dir_to_change(to, true)?;
        let e = from.lookup_entry(name, false)?;
        let node = self.node(e.object)?;
        let target = match self.find(&to, new_name)? {
            Some(t) => {
                let node = self.node(t.object)?;
                Some((t, node))
            }
            None => None,
        };
        Ok(Move { from, to, source: (e, node), target })
    }

    fn rename_locked(&self, w: &Writer, m: Move, new_name: &[u8], how: Rename) -> Result<Option<ObjNum>> {
        let source = &m.source.1;
        Self::may_unlink(source.attr())?;
        check_project(m.to.attr(), source.attr())?;
        if is_dir(source) {
            self.check_not_below(source.object(), &m.to)?;
        }
        if let Rename::Whiteout { uid, gid, .. } = how {
            self.check_one_more(w, Payers::new(Some(uid.into()), Some(gid.into()), None))?;
        }
        let Some((old, target)) = &m.target else {
            if how == Rename::Exchange {
                return Err(Error::NoEntry { dir: m.to.object() });
            }
            let tx = w.logged_tx(Need::growing(3 * MAKE_BYTES))?;
            let done = self.rename_new(w, &tx, &m, new_name, how);
            return w.or_unlogged(&tx, done).map(|()| None);
        };
        if matches!(how, Rename::NoReplace | Rename::Whiteout { replace: false, .. }) {
            return Err(Error::Exists { dir: m.to.object() });
        }
        if target.object() == source.object() {
            return self.respell(w, &m, old, new_name);
        }
        Self::may_unlink(target.attr())?;
        if how == Rename::Exchange {
            return self.exchange(w, &m, old, target);
        }
        match (is_dir(source), is_dir(target)) {
            (true, false) => return Err(Error::NotDirectory { object: target.object() }),
            (false, true) => return Err(Error::IsDirectory { object: target.object() }),
            (true, true) => self.require_empty(target)?,
            (false, false) => {}
        }
        let tx = w.logged_tx(Need::growing(3 * MAKE_BYTES))?;
        let done = self.rename_over(w, &tx, &m, (old, target), new_name, how);
        w.or_unlogged(&tx, done)
    }

    /// Renames to a name that does not exist.
    fn rename_new(&self, w: &Writer, tx: &Tx, m: &Move, new_name: &[u8], how: Rename) -> Result<()> {
        let whiteout = self.whiteout(w, tx, m, how)?;
        whole(|undo| {
            self.forgo(tx, whiteout.as_ref(), undo);
            self.enter(w, &m.to, tx, new_name, typed(&m.source.1), undo)?;
            self.leave(w, m, tx, whiteout.as_ref(), undo)
        })?;
        w.log_rename(tx, &m.renamed(new_name, None, whiteout.as_ref()));
        Ok(())
    }

    /// Renames over another file; returns that file if it lost its last name.
    fn rename_over(
        &self,
        w: &Writer,
        tx: &Tx,
        m: &Move,
        (old, target): (&DirEntry, &Node),
        new_name: &[u8],
        how: Rename,
    ) -> Result<Option<ObjNum>> {
        let source = &m.source.1;
        let whiteout = self.whiteout(w, tx, m, how)?;
        let gone = whole(|undo| {
            self.forgo(tx, whiteout.as_ref(), undo);
            if old.name == new_name {
                self.exchange_name(&m.to, tx, new_name, (typed(target), typed(source)), undo)?;
                // The number of subdirectories stays: one replaces another, or none is involved.
                self.count_entries(w, m.to.object(), tx, 0, 0)?;
            } else {
                self.remove_entry(w, &m.to, tx, &old.name, typed(target), undo)?;
                self.enter(w, &m.to, tx, new_name, typed(source), undo)?;
            }
            let gone = self.drop_link(w, tx, target, undo)?;
            self.leave(w, m, tx, whiteout.as_ref(), undo)?;
            Ok(gone.then_some(target.object()))
        })?;
        w.log_rename(tx, &m.renamed(new_name, gone, whiteout.as_ref()));
        Ok(gone)
    }

    /// Creates the whiteout, if the rename leaves one.
    fn whiteout(&self, w: &Writer, tx: &Tx, m: &Move, how: Rename) -> Result<Option<Node>> {
        let Rename::Whiteout { uid, gid, .. } = how else { return Ok(None) };
        let new = NewFile { uid, gid, ..NewFile::new(Kind::CharDevice(0, 0), 0) };
        let born = self.make(w, tx, &Birth::new(&new, &m.from))?;
        Ok(Some(Node::new(self.clone(), born)?))
    }

    /// Adds a name, as one of several steps.
    fn enter<'a>(
        &'a self,
        w: &'a Writer,
        dir: &'a Node,
        tx: &'a Tx,
        name: &'a [u8],
        what: (ObjNum, FileType),
        undo: &mut Undo<'a>,
    ) -> Result<()> {
        self.enter_name(w, dir, tx, name, what)?;
        undo.by(move || self.remove_name(w, dir, tx, name, what));
        Ok(())
    }

    /// Removes a name, as one of several steps.
    fn remove_entry<'a>(
        &'a self,
        w: &'a Writer,
        dir: &'a Node,
        tx: &'a Tx,
        name: &'a [u8],
        what: (ObjNum, FileType),
        undo: &mut Undo<'a>,
    ) -> Result<()> {
        self.remove_name(w, dir, tx, name, what)?;
        undo.by(move || self.enter_name(w, dir, tx, name, what));
        Ok(())
    }

    /// Points a name at another file, as one of several steps.
    fn exchange_name<'a>(
        &'a self,
        dir: &'a Node,
        tx: &'a Tx,
        name: &'a [u8],
        (was, is): ((ObjNum, FileType), (ObjNum, FileType)),
        undo: &mut Undo<'a>,
    ) -> Result<()> {
        self.replace_name(dir, tx, name, is)?;
        undo.by(move || self.replace_name(dir, tx, name, was));
        Ok(())
    }

    /// Frees the new whiteout if a later step fails.
    fn forgo<'a>(&'a self, tx: &'a Tx, whiteout: Option<&Node>, undo: &mut Undo<'a>) {
        if let Some(object) = whiteout.map(Node::object) {
            undo.by(move || Ok(self.objset().free_object(tx, object)?));
        }
    }

    /// Removes the source's old name or gives it to a whiteout, and updates the source's parent.
    /// The source has its new name already.
    fn leave<'a>(
        &'a self,
        w: &'a Writer,
        m: &'a Move,
        tx: &'a Tx,
        whiteout: Option<&Node>,
        undo: &mut Undo<'a>,
    ) -> Result<()> {
        let (e, node) = &m.source;
        match whiteout {
            None => self.remove_entry(w, &m.from, tx, &e.name, typed(node), undo)?,
            Some(white) => {
                self.exchange_name(&m.from, tx, &e.name, (typed(node), typed(white)), undo)?;
                self.count(w, &m.from, tx, -i64::from(is_dir(node)), undo)?;
            }
        }
        self.moved(w, tx, node.object(), m.to.object())
    }

    /// Counts a directory's subdirectories, as one of several steps.
    fn count<'a>(
        &'a self,
        w: &'a Writer,
        dir: &'a Node,
        tx: &'a Tx,
        subdirs: i64,
        undo: &mut Undo<'a>,
    ) -> Result<()> {
        self.count_entries(w, dir.object(), tx, 0, subdirs)?;
        undo.by(move || self.count_entries(w, dir.object(), tx, 0, -subdirs));
        Ok(())
    }

    fn moved(&self, w: &Writer, tx: &Tx, object: ObjNum, dir: ObjNum) -> Result<()> {
        let now = w.now();
        self.update(w, object, tx, |node, c| {
            let a = node.attr();
            c.word(Sa::Parent, dir.0);
            c.changed(a, now);
            c.word(Sa::Flags, a.pflags.0 | Pflags::ARCHIVE | AV_MODIFIED);
            if is_dir(node) && a.parent != dir {
                c.new_parent();
            }
            Ok(())
        })
    }

    /// Handles two names of one file. As POSIX requires, nothing happens, unless they are one entry
    /// whose spelling changes.
    fn respell(&self, w: &Writer, m: &Move, old: &DirEntry, new_name: &[u8]) -> Result<Option<ObjNum>> {
        let (e, node) = &m.source;
        let one_entry = m.from.object() == m.to.object() && e.name == old.name;
        if !one_entry || e.name == new_name || !self.folds_names() {
            return Ok(None);
        }
        let tx = &w.logged_tx(Need::growing(2 * MAKE_BYTES))?;
        let done = whole(|undo| {
            self.remove_entry(w, &m.from, tx, &e.name, typed(node), undo)?;
            self.enter(w, &m.to, tx, new_name, typed(node), undo)?;
            self.moved(w, tx, node.object(), m.to.object())?;
            w.log_rename(tx, &m.renamed(new_name, None, None));
            Ok(None)
        });
        w.or_unlogged(tx, done)
    }

    fn exchange(&self, w: &Writer, m: &Move, old: &DirEntry, target: &Node) -> Result<Option<ObjNum>> {
        let (e, source) = &m.source;
        check_project(m.from.attr(), target.attr())?;
        if is_dir(target) {
            self.check_not_below(target.object(), &m.from)?;
        }
        let tx = &w.logged_tx(Need::growing(2 * MAKE_BYTES))?;
        let done = whole(|undo| {
            self.exchange_name(&m.from, tx, &e.name, (typed(source), typed(target)), undo)?;
            self.exchange_name(&m.to, tx, &old.name, (typed(target), typed(source)), undo)?;
            let change = i64::from(is_dir(target)) - i64::from(is_dir(source));
            if m.from.object() == m.to.object() {
                self.count_entries(w, m.from.object(), tx, 0, 0)?;
            } else {
                self.count(w, &m.from, tx, change, undo)?;
                self.count(w, &m.to, tx, -change, undo)?;
            }
            self.moved(w, tx, source.object(), m.to.object())?;
            undo.by(|| self.moved(w, tx, source.object(), m.from.object()));
            self.moved(w, tx, target.object(), m.from.object())?;
            let (moved, renamed) = ([source.object(), target.object()], m.renamed(&old.name, None, None));
            w.log_rename(tx, &Renamed { kind: TxKind::RenameExchange, moved: &moved, ..renamed });
            Ok(None)
        });
        w.or_unlogged(tx, done)
    }

    /// Checks that directory `at` is neither `object` nor below it. The caller prevents directories
    /// from moving between parents.
    fn check_not_below(&self, object: ObjNum, at: &Node) -> Result<()> {
        let mut seen = HashSet::new();
        let mut at = *at.attr();
        loop {
            if at.object == object {
                return Err(Error::IntoItself { object });
            }
            if at.object == self.root() || at.parent == at.object {
                return Ok(());
            }
            if !seen.insert(at.object) {
                let source = Corrupt::Shape { what: "file", why: "its parents run in a circle" };
                return Err(Error::Corrupt { object: at.object, source });
            }
            at = self.attr(at.parent)?;
        }
    }
}

/// Checks that a directory with an inheritable project takes only files of that project. Links,
/// pipes, sockets and device nodes can't have a project, and pass. OpenZFS refuses them with
/// `EXDEV`, even within one directory.
pub(super) fn check_project(dir: &Attr, file: &Attr) -> Result<()> {
    if !matches!(file.kind, FileType::Regular | FileType::Directory) {
        return Ok(());
    }
    if dir.pflags.has(Pflags::PROJINHERIT) && dir.projid != file.projid {
        return Err(Error::OtherProject { dir: dir.object });
    }
    Ok(())
}
