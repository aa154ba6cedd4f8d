//! What a partition has, and what a crash left half-made in it.
//!
//! # Theory
//! An operation of several steps leaves a trace between them: the name of a dataset, or a mark
//! (the property [`INCOMPLETE`]). The start of the server lists the datasets anyway, and reads the
//! mark of each file system. So it finds all traces without another look, and undoes or ends the
//! operation.

use std::collections::BTreeMap;

use dsl::{ListOptions, Listed, Source, Value};
use observe::lock::Mutex;
use poolhouse::Pool;

use super::blocks::{RECEIVED, Received};
use super::entry::{Kept, Objects};
use super::{BEFORE_RESTORE, Found, Head, INCOMPLETE, ITSELF, NEW, PENDING, Partition};
use crate::server::{Result, chain};
use crate::types::VolumeId;

/// Datasets that could not be read, with the errors.
pub type Failures = Vec<(String, dsl::Error)>;

/// What is read of a file system of a partition.
#[derive(Debug)]
pub(super) struct Read {
    objects: Objects,
    mark: String,
    snapshots: Vec<String>,
}

impl Read {
    /// Reads a file system. Snapshots whose names can't be read are failures, and left out.
    pub(super) fn new(dataset: &dsl::Dataset, failures: &Mutex<Failures>) -> dsl::Result<Self> {
        let fail = |error| failures.lock().push((dataset.name(), error));
        let entries = dataset.snapshot_entries().map_err(fail).ok();
        let snapshots = entries.into_iter().flatten().filter_map(|entry| entry.map_err(fail).ok());
        let snapshots = snapshots.map(|(name, _)| name).collect();
        let dir = dataset.dir();
        Ok(Self {
            objects: [
                dir.object().0,
                dataset.object().0,
                dir.phys().props_zapobj,
                dataset.phys().snapnames_zapobj,
            ],
            mark: mark_of(dataset)?,
            snapshots,
        })
    }

    /// What the list keeps of it.
    pub(super) fn kept(&self, head: Head) -> Kept {
        let mut contents = Contents::default();
        contents.note_read(head, self);
        let clones = contents.volumes.iter().filter_map(|found| match found {
            Found::Snapshot { id, .. } => Some(*id),
            Found::Dataset(_) => None,
        });
        let clones = clones.collect();
        // A file system with snapshots stays.
        contents.left.gone.retain(|_, snapshots| *snapshots == 0);
        Kept { objects: self.objects, clones, read_again: !self.mark.is_empty() || !contents.left.is_empty() }
    }
}

/// What a partition has.
#[derive(Debug, Default)]
pub struct Contents {
    /// Volumes and clones.
    pub volumes: Vec<Found>,
    /// What a crash left half-made.
    pub left: Left,
    /// Datasets that could not be read, with the errors.
    pub failures: Failures,
}

/// What a crash left half-made in a partition.
#[derive(Debug, Default)]
pub struct Left {
    /// Volumes that were never completed.
    pub(super) incomplete: Vec<VolumeId>,
    /// Clones that may be incomplete. Their headers say so.
    pub(super) incomplete_clones: Vec<(Head, VolumeId)>,
    /// Volumes whose headers are not in place.
    pub(super) pending: Vec<VolumeId>,
    /// Volumes with received contents, whose headers are not in place.
    pub(super) received: Vec<VolumeId>,
    /// Volumes of which a restore did not end.
    pub(super) restoring: Vec<VolumeId>,
    /// Clones that became volumes of their own, but for the end of it.
    pub(super) detached: Vec<VolumeId>,
    /// Clones that were to take the place of others of the same number.
    pub(super) new_clones: Vec<(Head, VolumeId)>,
    /// File systems without a volume, and how many snapshots they have.
    gone: BTreeMap<Head, usize>,
}

impl Partition {
    /// Lists the volumes and clones.
    ///
    /// # Errors
    /// [`Error::Pool`]: the partition's file system can't be read.
    pub fn contents(&self) -> Result<Contents> {
        if let Some(list) = self.list() {
            match self.contents_by(&list) {
                Ok(contents) => {
                    debug_assert!(self.is_right(&contents), "the list of volumes is not right");
                    return Ok(contents);
                }
                Err(error) => {
                    let (partition, error) = (self.id, chain(&error));
                    tracing::error!(%partition, error, "the list of volumes is of no use: all datasets are read");
                }
            }
        }
        contents(&self.pool, &self.dataset)
    }

    /// Whether all datasets say the same as the list.
    pub(super) fn is_right(&self, contents: &Contents) -> bool {
        let Ok(right) = self::contents(&self.pool, &self.dataset) else { return true };
        let sorted = |contents: &Contents| {
            let mut ids: Vec<String> = contents.volumes.iter().map(|found| format!("{found:?}")).collect();
            ids.sort_unstable();
            ids
        };
        sorted(&right) == sorted(contents)
    }

    /// Reads all file systems of the partition.
    pub(super) fn read_all(&self) -> Result<(BTreeMap<Head, Read>, Failures)> {
        read_all(&self.pool, &self.dataset)
    }

    /// Puts the header of received contents in place, or destroys a volume that was not complete.
    fn clean_received(&self, id: VolumeId, volumes: &mut Vec<Found>) -> Result<()> {
        let done = self.end_received(id);
        if done.is_err() {
            // Until then, its files have the header of the sender.
            self.received.lock().insert(id, Received::Property);
        }
        if !done.as_ref().is_ok_and(|stored| !stored.destroy_me) {
            volumes.retain(|found| *found != Found::Dataset(id));
        }
        if done?.destroy_me { self.destroy(id).map(drop) } else { Ok(()) }
    }

    /// Brings in order what a crash left half-made: a restore is undone, a volume that was not
    /// complete is destroyed, and a clone that was to be replaced is replaced.
    pub fn clean(&self, contents: &mut Contents) {
        let left = std::mem::take(&mut contents.left);
        let report = |what: String, done: Result<()>| match done {
            Ok(()) => tracing::warn!(dataset = what, "a crash left it half-made; it is in order now"),
            Err(error) => {
                let error = chain(&error);
                tracing::error!(
                    dataset = what,
                    error,
                    "what a crash left half-made can't be brought in order"
                );
            }
        };
        for id in left.detached {
            report(self.name(id), self.end_detach(id));
        }
        for id in left.pending {
            let done = self.end_change_of_number(id);
            // With its former header, it would give out uniques again.
            let gone = done.as_ref().map_or(Found::Dataset(id), |clone| {
                let (id, head) = (*clone, Head::of(id));
                Found::Snapshot { id, head }
            });
            contents.volumes.retain(|found| *found != gone);
            report(self.name(id), done.map(drop));
        }
        for id in left.received {
            let done = self.clean_received(id, &mut contents.volumes);
            report(self.name(id), done);
        }
        for id in left.restoring {
            report(self.before_restore(id), self.end_restore(id));
        }
        for id in left.incomplete {
            report(self.name(id), self.destroy(id).map(drop));
        }
        for (head, id) in left.incomplete_clones {
            let is = |found: &Found| *found == Found::Snapshot { id, head };
            let done = match contents.volumes.iter().any(is).then(|| self.clone_header(head, id)) {
                Some(Ok(stored)) if stored.destroy_me => {
                    contents.volumes.retain(|found| !is(found));
                    self.destroy_clone(head, id)
                }
                Some(Err(error)) => Err(error),
                Some(Ok(_)) | None => self.unmark_clone(head, id),
            };
            report(self.snapshot_name(head, id), done);
        }
        for (head, id) in left.new_clones {
            let is = |found: &Found| matches!(found, Found::Snapshot { id: other, .. } if *other == id);
            let done = match contents.volumes.iter().any(is) {
                true => self.destroy_snapshot(self.new_name(head, id)),
                false => {
                    self.rename_new(head, id).map(|()| contents.volumes.push(Found::Snapshot { id, head }))
                }
            };
            report(self.new_name(head, id), done);
        }
        for (head, _) in left.gone.into_iter().filter(|(_, snapshots)| *snapshots == 0) {
            report(self.head_name(head), self.destroy_empty(head));
        }
    }
}

/// Lists the volumes and clones of a partition.
///
/// # Errors
/// [`Error::Pool`](crate::server::Error::Pool): the partition's file system can't be read.
pub(super) fn contents(pool: &Pool, partition: &str) -> Result<Contents> {
    let (all, failures) = read_all(pool, partition)?;
    let mut contents = Contents { failures, ..Contents::default() };
    all.iter().for_each(|(head, read)| contents.note_read(*head, read));
    Ok(contents)
}

/// Reads all file systems of a partition.
fn read_all(pool: &Pool, partition: &str) -> Result<(BTreeMap<Head, Read>, Failures)> {
    let (all, failures) = (Mutex::new(BTreeMap::new()), Mutex::new(Failures::new()));
    let depth = partition.matches('/').count() + 1;
    let options = ListOptions { depth: Some(1), ..ListOptions::default() };
    let each = |listed: Listed| match listed {
        Listed::Failed { name, error } => failures.lock().push((name, error)),
        Listed::Dataset(dataset) => {
            let Some((head, None)) = parse(&dataset.name(), depth) else { return };
            match Read::new(&dataset, &failures) {
                Ok(read) => _ = all.lock().insert(head, read),
                Err(error) => failures.lock().push((dataset.name(), error)),
            }
        }
    };
    let list = || pool.dsl().list(Some(pool.dsl().dir(partition)?), &options, &each);
    pool.spa().read(list).map_err(poolhouse::Error::from)?;
    Ok((all.into_inner(), failures.into_inner()))
}

/// The file system of a partition that a dataset is, and the name of its snapshot. `depth` is the
/// number of slashes in such a name.
fn parse(name: &str, depth: usize) -> Option<(Head, Option<String>)> {
    let (head, snapshot) = match name.split_once('@') {
        Some((head, snapshot)) => (head, Some(snapshot.to_owned())),
        None => (name, None),
    };
    if head.matches('/').count() != depth {
        return None;
    }
    let head = head.rsplit_once('/').and_then(|(_, last)| Head::parse(last))?;
    Some((head, snapshot))
}

/// The volume or clone that a dataset of a partition is, by its name.
pub(in crate::server) fn of_name(partition: &str, name: &str) -> Option<Found> {
    match parse(name, partition.matches('/').count() + 1)? {
        (head, None) => head.gone.is_none().then_some(Found::Dataset(head.volume)),
        (head, Some(snapshot)) => {
            clone_of(&snapshot).filter(|id| head != Head::of(*id)).map(|id| Found::Snapshot { id, head })
        }
    }
}

/// The mark of a file system that it or clones of it may be incomplete; empty: there is none.
pub(super) fn mark_of(dataset: &dsl::Dataset) -> dsl::Result<String> {
    // One of its own: an inherited or received one would destroy whole volumes.
    let found = dataset.user_property(INCOMPLETE)?.filter(|found| found.source == Source::Local);
    Ok(match found.map(|found| found.value) {
        Some(Value::Text(text)) => text,
        _ => String::new(),
    })
}

/// The clones that a mark names.
pub(super) fn clones_in(mark: &str) -> impl Iterator<Item = VolumeId> + '_ {
    mark.split(' ').filter_map(clone_of)
}

/// The clone that a snapshot is.
pub(super) fn clone_of(snapshot: &str) -> Option<VolumeId> {
    Head::parse(snapshot).filter(|head| head.gone.is_none()).map(|head| head.volume)
}

impl Left {
    fn is_empty(&self) -> bool {
        let Self { incomplete, incomplete_clones, pending, received, restoring, .. } = self;
        let Self { detached, new_clones, gone, .. } = self;
        let volumes = [incomplete, pending, received, restoring, detached].into_iter().all(Vec::is_empty);
        volumes && [incomplete_clones, new_clones].into_iter().all(Vec::is_empty) && gone.is_empty()
    }
}

impl Contents {
    /// Notes what was read of a file system.
    pub(super) fn note_read(&mut self, head: Head, read: &Read) {
        self.note(head, None, &read.mark);
        read.snapshots.iter().for_each(|snapshot| self.note(head, Some(snapshot), ""));
    }

    /// Notes what the list has of a file system that is in order.
    pub(super) fn note_kept(&mut self, head: Head, clones: &[VolumeId]) {
        self.volumes.extend(head.gone.is_none().then_some(Found::Dataset(head.volume)));
        self.volumes.extend(clones.iter().map(|id| Found::Snapshot { id: *id, head }));
    }

    fn note(&mut self, head: Head, snapshot: Option<&str>, mark: &str) {
        let Some(snapshot) = snapshot else {
            self.left.incomplete_clones.extend(clones_in(mark).map(|id| (head, id)));
            match head.gone {
                None if mark == PENDING => {
                    self.left.pending.push(head.volume);
                    self.volumes.push(Found::Dataset(head.volume));
                }
                None if mark == RECEIVED => {
                    self.left.received.push(head.volume);
                    self.volumes.push(Found::Dataset(head.volume));
                }
                None if mark == ITSELF => self.left.incomplete.push(head.volume),
                None => self.volumes.push(Found::Dataset(head.volume)),
                Some(_) => {
                    self.left.gone.entry(head).or_default();
                }
            }
            return;
        };
        if head.gone.is_some() {
            *self.left.gone.entry(head).or_default() += 1;
        }
        if let Some(id) = clone_of(snapshot) {
            if head == Head::of(id) {
                self.left.detached.push(id);
                return;
            }
            self.volumes.push(Found::Snapshot { id, head });
        } else if let Some(id) = snapshot.strip_suffix(NEW).and_then(clone_of) {
            self.left.new_clones.push((head, id));
        } else if snapshot == BEFORE_RESTORE && head.gone.is_none() {
            self.left.restoring.push(head.volume);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Contents, Found, Head, VolumeId, parse};

    fn found(name: &str) -> Contents {
        let mut contents = Contents::default();
        if let Some((head, snapshot)) = parse(&format!("pool/vicepa{name}"), 2) {
            contents.note(head, snapshot.as_deref(), "");
        }
        contents
    }

    /// Goal: a dataset is the volume or clone that its name says, and others are none.
    #[test]
    fn names_of_datasets() {
        let of = |name: &str| found(name).volumes.pop();
        let (id, clone) = (VolumeId(7), VolumeId(9));
        let gone = Head { volume: id, gone: Some(2) };
        assert_eq!(of("/7"), Some(Found::Dataset(id)));
        assert_eq!(of("/7@9"), Some(Found::Snapshot { id: clone, head: Head::of(id) }));
        assert_eq!(of("/7.clones-2@9"), Some(Found::Snapshot { id: clone, head: gone }));
        assert_eq!(Head::parse(&gone.to_string()), Some(gone));
        let others = [
            "",
            "/7.clones-2",
            "/x",
            "/0",
            "/7@daily",
            "/7@before-restore",
            "/7/8",
            "/7.clones-@9",
            "/7@9.clones-1",
        ];
        for other in others {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(found("/7@before-restore").left.restoring, [id]);
        assert_eq!(found("/7@9.new").left.new_clones, [(Head::of(id), clone)]);
        assert_eq!(found("/7.clones-2").left.gone.into_iter().collect::<Vec<_>>(), [(gone, 0)]);
        assert_eq!(found("/7.clones-2@daily").left.gone.into_iter().collect::<Vec<_>>(), [(gone, 1)]);
    }
}
