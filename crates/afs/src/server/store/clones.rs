//! Clones: snapshots that are volumes.

use dsl::PropList;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::props::{SetAs, SetProps};
use dsl::ops::snapshot::Snapshot;

use super::{Found, HEADER, Head, Partition, Task, header_property, hexadecimal, shown, text};
use crate::server::header::Stored;
use crate::server::{Error, Result, chain};
use crate::types::VolumeId;

impl Partition {
    /// The header of a clone.
    ///
    /// # Errors
    /// * [`Error::Pool`]: there is no such clone, or it can't be read.
    /// * [`Error::Header`]: the property is missing or malformed.
    pub fn clone_header(&self, head: Head, id: VolumeId) -> Result<Stored> {
        header_property(&self.pool, &self.snapshot_name(head, id), id)
    }

    /// The properties of a clone with this header.
    fn clone_properties(stored: &Stored) -> Result<PropList> {
        Ok(vec![text(HEADER, hexadecimal(&stored.encode()?)), shown(stored)])
    }

    /// Makes a clone of a volume: a snapshot. One that is incomplete by its header goes at the next
    /// start. It may take the place of a volume or clone of the
    /// same number, in the same transaction group.
    ///
    /// # Errors
    /// [`Error::Pool`]: the clone exists, or what it replaces is in use.
    pub fn clone_volume(&self, of: VolumeId, stored: &Stored, instead: Option<Found>) -> Result<()> {
        let (id, head) = (stored.header.id, Head::of(of));
        let props = Self::clone_properties(stored)?;
        let Some(old) = instead else {
            let names = vec![self.snapshot_name(head, id)];
            // A crash must not leave it without a mark: both are in one transaction group.
            let _mark = self.lock_mark(head);
            let mut tasks: Vec<Task> = Vec::new();
            tasks.extend(self.mark_clone(head, id, stored.destroy_me)?);
            tasks.push(Box::new(Snapshot { names, props, enforce_limits: true }));
            self.note_unsent(id);
            return self.run(tasks).inspect_err(|_| self.forget_unsent(id));
        };
        if let Found::Dataset(old) = old {
            self.drop_bases(old)?;
        }
        // The old one goes when the new one is there.
        let new = self.new_name(head, id);
        let gone = match old {
            Found::Snapshot { id, head } => self.snapshot_name(head, id),
            Found::Dataset(id) => self.name(id),
        };
        let tasks = || {
            let (names, props) = (vec![new.clone()], props.clone());
            let destroy: Task = match old {
                Found::Snapshot { .. } => {
                    Box::new(DestroySnapshots { names: vec![gone.clone()], defer: false })
                }
                Found::Dataset(_) => Box::new(DestroyHead { name: gone.clone() }),
            };
            let snapshot = Box::new(Snapshot { names, props, enforce_limits: true });
            Ok::<Vec<Task>, Error>(vec![snapshot, destroy, Box::new(self.renamed_new(head, id))])
        };
        self.others.end(&gone);
        let replaced = match old {
            Found::Snapshot { head, id } => self.run_end_of_clone(head, id, tasks),
            Found::Dataset(_) => tasks().and_then(|tasks| self.run(tasks)),
        };
        if let Err(error) = replaced {
            // What it was to replace is in use. If that is gone, the next start goes on.
            if self.pool.dataset(&gone).is_ok() && self.pool.dataset(&new).is_ok() {
                let _ = self.destroy_snapshot(new);
            }
            return Err(error);
        }
        self.note_unsent(id);
        if let Found::Snapshot { head, .. } = old
            && let Err(error) = self.destroy_empty(head)
        {
            tracing::warn!(dataset = self.head_name(head), error = chain(&error), "it stays, and is empty");
        }
        Ok(())
    }

    /// Stores the header of a clone.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such clone.
    pub fn set_clone_header(&self, head: Head, id: VolumeId, stored: &Stored) -> Result<()> {
        let (name, props) = (self.snapshot_name(head, id), Self::clone_properties(stored)?);
        let mut tasks: Vec<Task> = vec![Box::new(SetProps { name, props, source: SetAs::Local })];
        let _mark = (!stored.destroy_me).then(|| self.lock_mark(head));
        if !stored.destroy_me {
            tasks.extend(self.mark_clone(head, id, false)?);
        }
        self.run(tasks)
    }

    /// Destroys a clone. The file system goes with its last clone if its own volume is gone.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such clone, or it is in use.
    pub fn destroy_clone(&self, head: Head, id: VolumeId) -> Result<()> {
        let name = self.snapshot_name(head, id);
        self.others.end(&name);
        {
            let _mark = self.lock_mark(head);
            self.run_end_of_clone(head, id, || {
                let names = vec![name.clone()];
                let destroy: Task = Box::new(DestroySnapshots { names, defer: false });
                Ok(std::iter::once(destroy).chain(self.mark_clone(head, id, false)?).collect())
            })?;
        }
        self.forget_unsent(id);
        self.destroy_empty(head)
    }

    /// Destroys a file system without a volume and clones.
    pub(super) fn destroy_empty(&self, head: Head) -> Result<()> {
        if head.gone.is_none() {
            return Ok(());
        }
        let name = self.head_name(head);
        let dataset = self.pool.dataset(&name)?;
        let left = self.pool.spa().read(|| dataset.dsl().snapshot_count()).map_err(poolhouse::Error::from)?;
        if left == 0 { self.destroy_head(name) } else { Ok(()) }
    }
}
