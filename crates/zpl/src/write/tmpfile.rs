//! Files that are made without a name (`O_TMPFILE`, `zfs_tmpfile`).
//!
//! # Theory
//! Such a file begins in the list of unlinked files, so that a crash frees it; [`FileSystem::link`] may give it a first name, which takes it
//! out of the list, unlike a file that lost its last one.

use super::make::{Birth, Kind, MAKE_BYTES, NewFile};
use super::{Purpose, Writer};
use crate::{Attr, FileSystem, Result};
use dmu::Tx;
use ondisk::ObjNum;

impl FileSystem {
    /// Makes a plain file that has no name, as if in directory `dir`. [`FileSystem::reap`] frees it.
    ///
    /// # Errors
    /// As [`FileSystem::create`].
    pub fn create_unnamed(&self, dir: ObjNum, new: &NewFile) -> Result<Attr> {
        let w = self.writer()?;
        let parent = self.dir_to_change(dir, true)?;
        let new = NewFile { kind: Kind::Regular, ..new.clone() };
        let (permissions, acls) = self.inherited(w, &parent, &new)?;
        let new = &NewFile { permissions, ..new };
        let birth = Birth { unnamed: true, ..Birth::new(new, &parent) };
        self.check_one_more(w, birth.payers())?;
        // Without a name it needs no record: commits wait for the group that names it.
        let tx = w.logged_tx(2 * MAKE_BYTES, Purpose::Grow)?;
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
    /// Whether a file never had a name, and may be given one.
    pub(super) fn is_unnamed(&self, object: ObjNum) -> bool {
        self.unnamed.lock().contains(&object)
    }

    /// A file that never had a name has one now.
    pub(super) fn named(&self, tx: &Tx, object: ObjNum) -> Result<()> {
        self.dequeue(tx, object)?;
        self.unnamed.lock().remove(&object);
        self.orphans.lock().remove(&object);
        Ok(())
    }
}
