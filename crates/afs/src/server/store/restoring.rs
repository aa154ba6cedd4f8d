//! Restores into a hidden clone.
//!
//! # Theory
//! A restore takes as long as its dump needs to arrive, and may fail at any byte. So it changes a
//! clone of the volume that has no name of a volume. When the dump is complete, one transaction
//! group exchanges the contents of both. The old ones go with the clone.
//!
//! The clone is below the volume's file system. So it inherits its properties, and has its key.
//!
//! # Crash
//! With a hidden clone, the volume has the old or the new contents, as a whole. The next start
//! destroys the clone and the snapshot that it is of. It knows of both by the snapshot's name, so
//! other volumes take it no look. A snapshot alone guards a restore that an older server made in
//! place: the volume is rolled back to it.

use dsl::PropList;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::receive::RECEIVING;
use dsl::ops::replace::{HiddenClone, SwapHidden, hidden_name};
use dsl::ops::rollback::Rollback;
use dsl::ops::snapshot::Snapshot;
use dsl::{Setting, SyncTask, Value};
use zpl::FileSystem;

use super::{CANMOUNT_OFF, GUARD, Partition, SYNC_DISABLED};
use crate::server::Result;
use crate::types::VolumeId;

/// Whether a volume has a hidden clone.
pub(super) fn has_hidden(dataset: &dsl::Dataset) -> dsl::Result<bool> {
    Ok(dataset.dir().child(RECEIVING)?.is_some())
}

impl Partition {
    pub(super) fn guard_name(&self, id: VolumeId) -> String {
        format!("{}@{GUARD}", self.name(id))
    }

    /// Makes the hidden clone of a volume. Until [`Self::switch`], the volume may be in use.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): there is no such volume, or the pool has no
    /// space.
    pub fn begin_restore(&self, id: VolumeId) -> Result<()> {
        // One that could not be destroyed.
        if self.pool.dataset(&self.guard_name(id)).is_ok() {
            self.end_restore(id)?;
        }
        let origin = self.guard_name(id);
        let number = |name: &str, number| Setting { name: name.to_owned(), value: Value::Number(number) };
        // After a crash it is destroyed, so it needs no intent log.
        let props = vec![number("canmount", CANMOUNT_OFF), number("sync", SYNC_DISABLED)];
        let names = vec![origin.clone()];
        self.run(vec![
            Box::new(Snapshot { names, props: PropList::new(), enforce_limits: false }),
            Box::new(HiddenClone { origin, props }),
        ])
    }

    /// Opens the files of a hidden clone.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): there is none.
    pub fn hidden_fs(&self, id: VolumeId) -> Result<FileSystem> {
        self.files(&hidden_name(&self.name(id)))
    }

    /// Gives a volume the contents of its hidden clone, in one transaction group. The caller has
    /// closed the files of both.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): the volume is in use, has a later snapshot, or
    /// the new contents are larger than its quota. It then has the old ones.
    pub fn switch(&self, id: VolumeId) -> Result<()> {
        self.run(vec![Box::new(SwapHidden { head: self.name(id) })])
    }

    /// Destroys the hidden clone of a volume, and the snapshot that it is of.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): they are in use. The next start destroys them.
    pub fn end_restore(&self, id: VolumeId) -> Result<()> {
        let hidden = hidden_name(&self.name(id));
        let mut tasks: Vec<Box<dyn SyncTask + Send>> = Vec::new();
        if self.pool.dataset(&hidden).is_ok() {
            tasks.push(Box::new(DestroyHead { name: hidden }));
        }
        tasks.push(Box::new(DestroySnapshots { names: vec![self.guard_name(id)], defer: false }));
        self.run(tasks)
    }

    /// Ends the guard of a restore in place. Without `keep`, the volume is as it was before.
    pub(super) fn release_guard(&self, id: VolumeId, keep: bool) -> Result<()> {
        let guard = self.guard_name(id);
        if !keep {
            self.run(vec![Box::new(Rollback { name: self.name(id), to: Some(guard.clone()) })])?;
        }
        self.destroy_snapshot(guard)
    }
}
