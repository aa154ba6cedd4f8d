//! The snapshots of a mounted head, as `.zfs/snapshot` shows and changes them (`zfs_ctldir.c`).

use crate::mounts::look::{Look, NameNow, SnapDirNow};
use dsl::ops::destroy::DestroySnapshots;
use dsl::ops::rename::RenameSnapshot;
use dsl::{Refusal, SyncTask};
use fuse::ctldir::{Named, Snapshot, Snapshots};
use mount_rules::SnapDir;
use observe::ops::OpTable;
use ondisk::{ObjNum, Txg};
use rustix::io::Errno;
use spa::Spa;
use spa::engine::TaskError;
use std::any::Any;
use std::sync::Arc;

/// The snapshots of a mounted head.
pub(super) struct Heads {
    pub(super) head: dsl::Dataset,
    /// The head's present name. The handle has the name of an earlier time.
    pub(super) name: NameNow,
    pub(super) how: Look,
    pub(super) snapdir: SnapDirNow,
    pub(super) spa: Arc<Spa>,
    pub(super) ops: Arc<OpTable>,
}

/// The name of a snapshot, as text.
fn text(name: &[u8]) -> Result<String, Errno> {
    String::from_utf8(name.to_vec()).map_err(|_| Errno::INVAL)
}

impl Heads {
    fn failed(&self, error: &dyn std::error::Error) -> Errno {
        tracing::warn!(dataset = self.name.get(), %error, "its snapshots are unreadable");
        Errno::IO
    }

    /// Runs an operation on snapshots, as its command would.
    fn run(&self, task: impl SyncTask + Send + 'static) -> Result<(), Errno> {
        let live = self.spa.writer().ok_or(Errno::ROFS)?;
        live.run(Box::new(task)).map_err(|error| match &error {
            TaskError::Refused(dsl::Error::Refused { why, .. }) => refused(*why),
            TaskError::Refused(dsl::Error::NoSuchDataset { .. }) => Errno::NOENT,
            TaskError::Refused(dsl::Error::BadName { .. }) => Errno::INVAL,
            TaskError::Refused(dsl::Error::Several(all)) => {
                let first = all.iter().find_map(|e| match e {
                    dsl::Error::Refused { why, .. } => Some(refused(*why)),
                    dsl::Error::NoSuchDataset { .. } => Some(Errno::NOENT),
                    _ => None,
                });
                first.unwrap_or(Errno::IO)
            }
            TaskError::Refused(error) => self.failed(error),
            TaskError::Stopped(error) => self.failed(error),
        })
    }
}

impl Snapshots for Heads {
    fn page(&self, from: u64, limit: usize) -> Result<Vec<Named>, Errno> {
        let page = self.head.snapshot_page(from, limit).map_err(|error| self.failed(&error))?;
        Ok(page
            .into_iter()
            .map(|entry| Named { name: entry.name, dataset: entry.object.0, next: entry.next })
            .collect())
    }

    fn count(&self) -> Result<u64, Errno> {
        self.head.snapshot_count().map_err(|error| self.failed(&error))
    }

    fn open(&self, name: &[u8]) -> Result<Snapshot, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let found = self.head.snapshot(name).map_err(|error| self.failed(&error))?;
        let snapshot = found.ok_or(Errno::NOENT)?;
        let tree = self.how.snapshot(&snapshot, &self.ops).map_err(|reason| {
            tracing::warn!(dataset = snapshot.name(), ?reason, "unreadable");
            Errno::IO
        })?;
        Ok(Snapshot { tree, dataset: snapshot.object().0, born: snapshot.phys().creation_txg.0 })
    }

    fn destroyed(&self) -> u64 {
        self.spa.writer().map_or(0, |live| live.dsl().heads().destroyed_snapshots())
    }

    fn is_there(&self, snapshot: &Snapshot) -> Result<bool, Errno> {
        let there = self.head.dsl().is_snapshot(ObjNum(snapshot.dataset), Txg(snapshot.born));
        there.map_err(|error| self.failed(&error))
    }

    fn keep(&self, snapshot: &Snapshot) -> Result<Box<dyn Any>, Errno> {
        let live = self.spa.writer().ok_or(Errno::XDEV)?;
        // Under this lock, no snapshot is destroyed between the check and the hold.
        live.read(|dsl| {
            let there = dsl.is_snapshot(ObjNum(snapshot.dataset), Txg(snapshot.born));
            match there.map_err(|error| self.failed(&error))? {
                true => Ok(Box::new(dsl.heads().long_hold(snapshot.dataset)) as Box<dyn Any>),
                false => Err(Errno::XDEV),
            }
        })
    }

    fn create(&self, name: &[u8]) -> Result<(), Errno> {
        let names = vec![format!("{}@{}", self.name.get(), text(name)?)];
        self.run(dsl::ops::snapshot::Snapshot { names, props: Vec::new(), enforce_limits: false })
    }

    fn destroy(&self, name: &[u8]) -> Result<(), Errno> {
        let names = vec![format!("{}@{}", self.name.get(), text(name)?)];
        self.run(DestroySnapshots { names, defer: false })
    }

    fn rename(&self, old: &[u8], new: &[u8]) -> Result<(), Errno> {
        let (dataset, old, new) = (self.name.get(), text(old)?, text(new)?);
        self.run(RenameSnapshot { dataset, old, new, recursive: false })
    }

    fn version(&self) -> Result<u64, Errno> {
        // A new snapshot is the head's last, and a destroyed one reduces the count.
        let head = self.head.dsl().dataset(&self.name.get()).map_err(|error| self.failed(&error))?;
        let last = head.phys().prev_snap_txg.wrapping_mul(0x9e37_79b9);
        Ok(last.wrapping_add(self.count()?))
    }

    fn stay(&self) -> bool {
        self.spa.writer().is_none()
    }

    fn visible(&self) -> bool {
        self.snapdir.get() == SnapDir::Visible
    }

    fn disabled(&self) -> bool {
        self.snapdir.get() == SnapDir::Disabled
    }
}

/// The errno for a refused operation on snapshots.
fn refused(why: Refusal) -> Errno {
    match why {
        Refusal::Exists => Errno::EXIST,
        Refusal::NoSpace | Refusal::NamesCollide => Errno::NOSPC,
        Refusal::Quota => Errno::DQUOT,
        Refusal::NameTooLong => Errno::NAMETOOLONG,
        Refusal::ReadOnly => Errno::ROFS,
        Refusal::Again => Errno::AGAIN,
        Refusal::Busy | Refusal::HasClones | Refusal::Held => Errno::BUSY,
        _ => Errno::INVAL,
    }
}
