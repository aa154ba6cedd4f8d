//! Files that are created without a name (`O_TMPFILE`, `zfs_tmpfile`).
//!
//! # Theory
//! Such a file starts in the list of unlinked files, so that a crash frees it. [`FileSystem::link`]
//! may give it a first name, which removes it from the list. A file that lost its last name can't
//! get a new one.

use super::Writer;
use super::make::{Birth, Kind, MAKE_BYTES, NewFile};
use crate::{Attr, FileSystem, Result};
use dmu::Tx;
use dsl::Need;
use ondisk::ObjNum;

impl FileSystem {
    /// Creates a regular file without a name, with what directory `dir` passes on (`zfs_tmpfile`).
    ///
    /// [`FileSystem::reap`] frees it.
    ///
    /// # Errors
    /// * [`Error::NotDirectory`](crate::Error::NotDirectory): `dir` is no directory.
    /// * [`Error::NoEntry`](crate::Error::NoEntry): the directory was removed.
    /// * [`Error::NotPermitted`](crate::Error::NotPermitted): the directory is immutable.
    /// * [`Error::BadAcl`](crate::Error::BadAcl): the directory's default ACL is malformed.
    /// * The errors of [changing](crate::Error#changing).
    pub fn create_unnamed(&self, dir: ObjNum, new: &NewFile) -> Result<Attr> {
        let w = self.writer()?;
        let parent = self.dir_to_change(dir, true)?;
        let new = NewFile { kind: Kind::Regular, ..new.clone() };
        let (permissions, acls) = self.inherited(w, &parent, &new)?;
        let new = &NewFile { permissions, ..new };
        let birth = Birth { unnamed: true, ..Birth::new(new, &parent) };
        self.check_one_more(w, birth.payers())?;
        // A file without a name needs no record: commits wait for the txg that names it.
        let tx = w.logged_tx(Need::growing(2 * MAKE_BYTES))?;
        let object = self.make(w, &tx, &birth)?.object();
        if let Err(e) = w.enqueue(&tx, object) {
            self.objset().free_object(&tx, object)?;
            return Err(e);
        }
        w.unnamed.lock().insert(object);
        drop(tx);
        self.endow(w, object, acls)?;
        self.attr(object)
    }
}

impl Writer {
    /// True if a file never had a name, so that it may get one.
    pub(super) fn is_unnamed(&self, object: ObjNum) -> bool {
        self.unnamed.lock().contains(&object)
    }

    /// Notes that a file without a name got its first one.
    pub(super) fn named(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        self.dequeue(tx, object)?;
        self.unnamed.lock().remove(&object);
        self.orphans.lock().remove(&object);
        Ok(())
    }
}
