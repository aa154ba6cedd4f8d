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
//! The volume has the old or the new contents, as a whole. The next start destroys the clone and
//! the snapshot that it is of. It knows of both by the snapshot's name, so other volumes take it no
//! look. Nothing is ever rolled back to the snapshot: a user may hold or clone it, so that it stays
//! after the restore.

use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::receive::RECEIVING;
use dsl::ops::replace::{HiddenClone, SwapHidden, hidden_name};
use dsl::ops::snapshot::Snapshot;
use dsl::{PropList, Setting, SyncTask, Value};
use ondisk::ObjNum;
use zpl::FileSystem;

use super::{BEFORE_RESTORE, CANMOUNT_OFF, Partition, SYNC_DISABLED};
use crate::server::{Result, chain};
use crate::types::VolumeId;

impl Partition {
    /// The snapshot that the hidden clone of a volume is of.
    pub(super) fn before_restore(&self, id: VolumeId) -> String {
        format!("{}@{BEFORE_RESTORE}", self.name(id))
    }

    /// Whether a volume has a hidden clone of a restore. One of an interrupted `zfs receive` is
    /// another matter.
    fn has_hidden(&self, id: VolumeId) -> Result<bool> {
        let look = || -> dsl::Result<bool> {
            let volume = self.pool.dsl().dataset(&self.name(id))?;
            let Some(hidden) = volume.dir().child(RECEIVING)? else { return Ok(false) };
            let origin = hidden.phys().origin_obj;
            // The user may have given the snapshot another name.
            let is_own = volume.snapshot_objects()?.iter().any(|(_, snapshot)| *snapshot == ObjNum(origin));
            Ok(is_own && hidden.head()?.is_some_and(|head| !head.is_inconsistent()))
        };
        Ok(self.pool.spa().read(look).map_err(poolhouse::Error::from)?)
    }

    /// Makes the hidden clone of a volume. Until [`Self::switch`], the volume may be in use.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): there is no such volume, or the pool has no
    /// space.
    pub fn begin_restore(&self, id: VolumeId) -> Result<()> {
        self.settle_received(id)?;
        let origin = self.before_restore(id);
        // Those that could not be destroyed.
        if self.pool.dataset(&origin).is_ok() || self.has_hidden(id)? {
            self.end_restore(id)?;
        }
        let number = |name: &str, number| Setting { name: name.to_owned(), value: Value::Number(number) };
        // After a crash it is destroyed, so it needs no intent log.
        let props = vec![number("canmount", CANMOUNT_OFF), number("sync", SYNC_DISABLED)];
        let names = vec![origin.clone()];
        let begun = self.run(vec![
            Box::new(Snapshot { names, props: PropList::new(), enforce_limits: false }),
            Box::new(HiddenClone { origin: origin.clone(), props }),
        ]);
        begun.inspect_err(|_| {
            // The first may be done without the second.
            if self.pool.dataset(&origin).is_ok()
                && let Err(error) = self.end_restore(id)
            {
                tracing::error!(
                    snapshot = origin,
                    error = chain(&error),
                    "it stays until the next restore or start"
                );
            }
        })
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

    /// Destroys the hidden clone of a volume, and the snapshot that it is of, if they are there.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::server::Error::Pool): they are in use. The next restore or start
    /// destroys them.
    pub fn end_restore(&self, id: VolumeId) -> Result<()> {
        let snapshot = self.before_restore(id);
        let mut tasks: Vec<Box<dyn SyncTask + Send>> = Vec::new();
        if self.has_hidden(id)? {
            tasks.push(Box::new(DestroyHead { name: hidden_name(&self.name(id)) }));
        }
        if self.pool.dataset(&snapshot).is_ok() {
            self.others.end(&snapshot);
            tasks.push(Box::new(DestroySnapshots { names: vec![snapshot], defer: false }));
        }
        if tasks.is_empty() { Ok(()) } else { self.run(tasks) }
    }
}
