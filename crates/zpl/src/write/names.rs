//! Names in directories: which are valid, adding and removing them.

use super::Writer;
use super::update::Changes;
use crate::fs::CaseSensitivity;
use crate::{Attr, DirEntry, Error, FileSystem, FileType, Node, Result};
use dmu::Tx;
use dmu::zap::{Match, Value};
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

/// Longer names need the feature `longname` (`ZAP_MAXNAMELEN`).
const SHORT_NAME: usize = 255;
/// OpenZFS's name of that feature.
const LONGNAME: &str = "longname";

impl FileSystem {
    /// Checks that an entry may have this name.
    pub(super) fn check_name(&self, w: &Writer, name: &[u8]) -> Result<()> {
        if name.contains(&b'/') { Err(Error::BadName) } else { self.check_entry(w, name) }
    }

    /// As `check_name`, but for any directory: names of attributes in hidden directories may
    /// contain `/`.
    pub(super) fn check_entry(&self, w: &Writer, name: &[u8]) -> Result<()> {
        let most = w.policy().name_max;
        if name.len() > most {
            return Err(Error::NameTooLong { len: name.len() });
        }
        if matches!(name, b"" | b"." | b"..") || name.contains(&0) {
            return Err(Error::BadName);
        }
        if self.utf8only() && std::str::from_utf8(name).is_err() {
            return Err(Error::NotUtf8);
        }
        Ok(())
    }

    /// Opens a directory to add names to, or to remove names from.
    pub(super) fn dir_to_change(&self, dir: ObjNum, add: bool) -> Result<Node> {
        let node = self.node(dir)?;
        node.require_dir()?;
        if node.attr().nlink == 0 {
            return Err(Error::NoEntry { dir });
        }
        let flags = node.attr().pflags.0;
        let denied = Pflags::IMMUTABLE | if add { 0 } else { Pflags::APPENDONLY };
        if flags & denied != 0 { Err(Error::NotPermitted { object: dir }) } else { Ok(node) }
    }

    /// The entry of a name, if there is one.
    pub(super) fn find(&self, dir: &Node, name: &[u8]) -> Result<Option<DirEntry>> {
        match dir.lookup_entry(name, false) {
            Ok(e) => Ok(Some(e)),
            Err(Error::NoEntry { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Checks that the flags of a file allow a name to be removed.
    pub(super) fn may_unlink(attr: &Attr) -> Result<()> {
        let denied = Pflags::IMMUTABLE | Pflags::APPENDONLY | Pflags::NOUNLINK;
        if attr.pflags.0 & denied != 0 {
            return Err(Error::NotPermitted { object: attr.object });
        }
        Ok(())
    }

    /// Adds a name that does not exist. The caller has locked the directory's names. After an error
    /// nothing has changed.
    pub(super) fn enter_name(
        &self,
        w: &Writer,
        dir: &Node,
        tx: &Tx,
        name: &[u8],
        (obj, kind): (ObjNum, FileType),
    ) -> Result<()> {
        let value = Value::from(self.entry_value(obj, kind));
        let zap = self.dir_zap(&dir.dn)?;
        zap.add(tx, name, &value).map_err(|e| match e {
            dmu::Error::ZapFull { .. } => Error::NoSpace,
            e => Error::Dmu(e),
        })?;
        if name.len() > SHORT_NAME {
            w.txs.begin_feature(LONGNAME);
        }
        let counted = self.count_entries(w, dir.object(), tx, 1, i64::from(kind == FileType::Directory));
        if counted.is_err() {
            zap.remove_matching(tx, name, Match::Exact)?;
        }
        counted
    }

    /// Removes an entry. The caller has locked the directory's names. After an error nothing has
    /// changed.
    pub(super) fn remove_name(
        &self,
        w: &Writer,
        dir: &Node,
        tx: &Tx,
        name: &[u8],
        (obj, kind): (ObjNum, FileType),
    ) -> Result<()> {
        let zap = self.dir_zap(&dir.dn)?;
        zap.remove_matching(tx, name, Match::Exact)?;
        let counted = self.count_entries(w, dir.object(), tx, -1, -i64::from(kind == FileType::Directory));
        if counted.is_err() {
            zap.add(tx, name, &Value::from(self.entry_value(obj, kind)))?;
        }
        counted
    }

    /// Points an entry at another object. The caller has locked the directory's names.
    pub(super) fn replace_name(
        &self,
        dir: &Node,
        tx: &Tx,
        name: &[u8],
        (obj, kind): (ObjNum, FileType),
    ) -> Result<()> {
        Ok(self.dir_zap(&dir.dn)?.update(tx, name, &Value::from(self.entry_value(obj, kind)))?)
    }

    /// Updates a directory's attributes after its entries have changed.
    pub(super) fn count_entries(
        &self,
        w: &Writer,
        dir: ObjNum,
        tx: &Tx,
        entries: i64,
        subdirs: i64,
    ) -> Result<()> {
        let now = w.now();
        self.update(w, dir, tx, |node, c: &mut Changes| {
            let a = node.attr();
            c.word(Sa::Size, a.size.saturating_add_signed(entries));
            c.word(Sa::Links, a.nlink.saturating_add_signed(subdirs));
            c.modified(a, now);
            Ok(())
        })
    }

    /// True if the cache keeps data of this file system (`primarycache`).
    pub fn keeps_data(&self) -> bool {
        let os = self.objset();
        os.cache().keeps_data(os.id())
    }

    /// True if different names may mean one entry, because case is ignored or names are normalized.
    pub fn folds_names(&self) -> bool {
        self.case_sensitivity() == CaseSensitivity::Insensitive || !self.normalization().is_none()
    }
}
