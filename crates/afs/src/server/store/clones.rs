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
    /// start. It may take the place of a volume or clone of the same number, in the same
    /// transaction group.
    ///
    /// # Errors
    /// [`Error::Pool`]: the clone exists, or what it replaces is in use.
    pub fn clone_volume(&self, of: VolumeId, stored: &Stored, instead: Option<Found>) -> Result<()> {
        let (id, head) = (stored.header.id, Head::of(of));
        let Some(old) = instead else {
            let props = Self::clone_properties(stored)?;
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
        let becomes_former = match old {
            Found::Snapshot { head: own, id } if own == head => self.is_to_be_former(head, id),
            Found::Snapshot { .. } | Found::Dataset(_) => false,
        };
        if let Err(error) = self.replace(head, stored, old, becomes_former) {
            // A limit of snapshots may leave no place for another.
            let is_there = self.pool.dataset(&self.found_name(old)).is_ok();
            let may_help = is_there && (becomes_former || self.has_former(head));
            if !may_help || self.drop_former(head).is_err() {
                return Err(error);
            }
            self.replace(head, stored, old, false)?;
        }
        self.note_unsent(id);
        if let Found::Snapshot { head, .. } = old
            && let Err(error) = self.destroy_empty(head)
        {
            tracing::warn!(dataset = self.head_name(head), error = chain(&error), "it stays, and is empty");
        }
        Ok(())
    }

    /// Makes a clone in the place of a volume or clone of the same number, which ends, or becomes
    /// the former snapshot.
    fn replace(&self, head: Head, stored: &Stored, old: Found, becomes_former: bool) -> Result<()> {
        let id = stored.header.id;
        // The old one goes when the new one is there.
        let (new, gone) = (self.new_name(head, id), self.found_name(old));
        let tasks = || {
            let (names, props) = (vec![new.clone()], Self::clone_properties(stored)?);
            let end: Task = match old {
                Found::Snapshot { head, id } if becomes_former => self.becomes_former(head, id),
                Found::Snapshot { .. } => {
                    Box::new(DestroySnapshots { names: vec![gone.clone()], defer: false })
                }
                Found::Dataset(_) => Box::new(DestroyHead { name: gone.clone() }),
            };
            let snapshot = Box::new(Snapshot { names, props, enforce_limits: true });
            Ok::<Vec<Task>, Error>(vec![snapshot, end, Box::new(self.renamed_new(head, id))])
        };
        self.others.end(&gone);
        let replaced = match old {
            Found::Snapshot { head, id } => self.run_end_of_clone(head, id, tasks),
            Found::Dataset(_) => tasks().and_then(|tasks| self.run(tasks)),
        };
        replaced.inspect_err(|_| {
            // What it was to replace is in use. If that is gone, the next start goes on.
            if self.pool.dataset(&gone).is_ok() && self.pool.dataset(&new).is_ok() {
                let _ = self.destroy_snapshot(new);
            }
        })
    }

    /// The name of a volume or clone.
    fn found_name(&self, found: Found) -> String {
        match found {
            Found::Snapshot { id, head } => self.snapshot_name(head, id),
            Found::Dataset(id) => self.name(id),
        }
    }

    /// Stores the header of a clone. One that is incomplete by it goes at the next start.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such clone.
    pub fn set_clone_header(&self, head: Head, id: VolumeId, stored: &Stored) -> Result<()> {
        let (name, props) = (self.snapshot_name(head, id), Self::clone_properties(stored)?);
        let mut tasks: Vec<Task> = vec![Box::new(SetProps { name, props, source: SetAs::Local })];
        let _mark = self.lock_mark(head);
        tasks.extend(self.mark_clone(head, id, stored.destroy_me)?);
        self.run(tasks)
    }

    /// Destroys a clone. The file system goes with its last clone if its own volume is gone.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such clone, or it is in use.
    pub fn destroy_clone(&self, head: Head, id: VolumeId) -> Result<()> {
        let name = self.snapshot_name(head, id);
        self.others.end(&name);
        self.queue_drop_former(head);
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
