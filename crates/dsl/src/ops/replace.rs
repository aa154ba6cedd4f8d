//! Replacing the contents of a head by those of a hidden clone.
//!
//! # Theory
//! A long change of a whole file system is made in a clone of its last snapshot. When it is
//! complete, one transaction group exchanges the contents. Until then the head is as it was, and
//! may be in use. Afterwards the clone has the old contents, and is destroyed.
//!
//! The clone has the place and name of an interrupted receive. OpenZFS does not list it, and
//! destroys it with the file system.

use crate::error::Refusal;
use crate::ops::clone::Clone;
use crate::ops::props::PropList;
use crate::ops::receive::RECEIVING;
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Name, Result, Tail, ZFS_MAX_DATASET_NAME_LEN};
use ondisk::objset::ObjsetKind;

/// The full name of the hidden clone of a head.
pub fn hidden_name(head: &str) -> String {
    format!("{head}/{RECEIVING}")
}

/// Makes the hidden clone of a file system, of one of its snapshots.
#[derive(Debug, core::clone::Clone)]
pub struct HiddenClone {
    /// The full name of the snapshot.
    pub origin: String,
    /// The properties of the clone. It inherits all others.
    pub props: PropList,
}

impl HiddenClone {
    fn head(&self) -> &str {
        self.origin.split('@').next().unwrap_or_default()
    }
}

impl SyncTask for HiddenClone {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(6)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if !matches!(Name::parse(&self.origin)?.tail, Tail::Snapshot(_)) {
            return Syncing::refuse(&self.origin, Refusal::NotSnapshot);
        }
        let name = hidden_name(self.head());
        if name.len() >= ZFS_MAX_DATASET_NAME_LEN {
            return Syncing::refuse(&self.origin, Refusal::NameTooLong);
        }
        let (head, snap) = s.hold_snapshot(&self.origin)?;
        if s.head_kind(head)? != ObjsetKind::Zfs {
            return Syncing::refuse(&self.origin, Refusal::WrongParent);
        }
        if s.find_dir(&name)?.is_some() {
            return Syncing::refuse(&name, Refusal::Exists);
        }
        let dir = s.ds(head)?.dir_obj;
        let children = s.dir(dir)?.child_dir_zapobj;
        s.check_own_entry(self.head(), children, RECEIVING)?;
        s.check_new_props_room(&name, &self.props)?;
        let refers = s.ds(snap)?.referenced_bytes;
        s.check_new_props(dir, &name, crate::Kind::Filesystem, &self.props, (0, refers))
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (name, origin) = (hidden_name(self.head()), self.origin.clone());
        Clone { name, origin, props: self.props.clone(), enforce_limits: false }.sync(s)
    }
}

/// Exchanges the contents of a head and its hidden clone (`dsl_dataset_clone_swap_sync_impl`).
///
/// The head's last snapshot must be the origin of the clone, and neither may have an owner. What
/// the head has had since that snapshot is then the clone's.
#[derive(Debug, core::clone::Clone)]
pub struct SwapHidden {
    /// The full name of the head.
    pub head: String,
}

impl SyncTask for SwapHidden {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(3)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if Name::parse(&self.head)?.tail != Tail::Head {
            return Syncing::refuse(&self.head, Refusal::NotHead);
        }
        let name = hidden_name(&self.head);
        let (clone, head) = (s.hold_head(&name)?, s.hold_head(&self.head)?);
        let (c, h) = (s.ds(clone)?, s.ds(head)?);
        let origin = h.prev_snap_obj;
        if origin == 0 || s.ds(origin)?.dir_obj != h.dir_obj {
            return Syncing::refuse(&self.head, Refusal::NoSnapshot);
        }
        if c.prev_snap_obj != origin || s.dir(c.dir_obj)?.origin_obj != origin {
            return Syncing::refuse(&self.head, Refusal::NotLatest);
        }
        for (dataset, object) in [(&name, clone), (&self.head, head)] {
            if s.dsl.heads().is_busy(object) || s.has_foreign_log(object)? {
                return Syncing::refuse(dataset, Refusal::Busy);
            }
        }
        s.check_swap(clone, head, (&self.head, true))
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let name = hidden_name(&self.head);
        let (clone, head) = (s.hold_head(&name)?, s.hold_head(&self.head)?);
        s.sync_head(clone, 1)?;
        s.sync_head(head, 1)?;
        // The head does not take over a log. Its own goes with the clone.
        s.free_log(clone)?;
        s.swap_with_clone(clone, head)?;
        s.dsl.heads().note_unsettled(clone);
        s.reset_log(head)?;
        let parent = self.head.rsplit('/').next().unwrap_or_default();
        s.log("clone swap", &name, clone, format!("parent={parent}"));
        Ok(())
    }
}
