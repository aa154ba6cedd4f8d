//! The volumes of a server by their numbers.
//!
//! # Theory
//! A server may have a million volumes, and few of them are used at a time. Of each one the table
//! has its place ([`Place`]): 16 bytes with the number, and at most 39 in a map that has just
//! grown. A call makes a [`Volume`] of it, which the table keeps as long as it is used
//! ([`Table::rest`]).
//!
//! Numbers that follow each other are in different parts of the table, each with its own lock. A
//! part grows by itself, so no call waits for the growth of the whole.
//!
//! # Locks
//! The lock of one part. No file is read and no other lock is taken under it, except those of a
//! volume that no other thread has.
//!
//! # See
//! OpenAFS: `src/vol/volume.c` (`VolumeHashTable`, `VLRU`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use observe::lock::RwLock;
use observe::{Mutex, Site};

use super::activity::volumes::{OfVolume, Order, Sums};
use super::callbacks::{CallBacks, VolumeCallBacks};
use super::header::{Service, Stored};
use super::shared::Shared;
use super::store::{Found, Head, Partition};
use super::volume::Volume;
use super::{Result, chain};
use crate::partition::{MAX_PARTITIONS, PartitionId};
use crate::types::VolumeId;

/// Parts of the table, each with its own lock.
const PARTS: usize = 64;
/// Waits for a part of the table.
static PART: Site = Site::new("afs volumes");

/// Where an unused volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    partition: PartitionId,
    kind: Kind,
    /// The volume whose file system has the clone.
    parent: VolumeId,
    gone: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Dataset,
    Snapshot,
    /// A snapshot of a file system whose volume is gone.
    SnapshotOfGone,
}

impl Place {
    fn new(partition: PartitionId, found: Found) -> Self {
        let (kind, parent, gone) = match found {
            Found::Dataset(id) => (Kind::Dataset, id, 0),
            Found::Snapshot { head: Head { volume, gone: None }, .. } => (Kind::Snapshot, volume, 0),
            Found::Snapshot { head: Head { volume, gone: Some(number) }, .. } => {
                (Kind::SnapshotOfGone, volume, number)
            }
        };
        Self { partition, kind, parent, gone }
    }

    fn found(self, id: VolumeId) -> Found {
        let head = |gone| Head { volume: self.parent, gone };
        match self.kind {
            Kind::Dataset => Found::Dataset(id),
            Kind::Snapshot => Found::Snapshot { id, head: head(None) },
            Kind::SnapshotOfGone => Found::Snapshot { id, head: head(Some(self.gone)) },
        }
    }
}

/// A part of the table. A volume is in one of the maps.
#[derive(Default)]
struct Part {
    resting: HashMap<VolumeId, Place>,
    used: HashMap<VolumeId, Arc<Volume>>,
    /// What clients did with volumes that are in use no more.
    past: Sums,
}

impl Part {
    fn has(&self, id: VolumeId) -> bool {
        self.resting.contains_key(&id) || self.used.contains_key(&id)
    }

    /// Ends the use of a volume. Its counters become part of the sum.
    fn take_used(&mut self, id: VolumeId) -> Option<Arc<Volume>> {
        let volume = self.used.remove(&id)?;
        let used = volume.usage.take();
        if !used.is_nothing() {
            *self.past.entry(volume.partition.id).or_default() += used;
        }
        Some(volume)
    }

    fn partition_of(&self, id: VolumeId) -> Option<PartitionId> {
        let used = || self.used.get(&id).map(|volume| volume.partition.id);
        self.resting.get(&id).map(|place| place.partition).or_else(used)
    }
}

/// A volume of a list.
#[derive(Clone)]
pub enum Listed {
    /// It is in use.
    Used(Arc<Volume>),
    /// It is not in use, and its files are closed.
    Resting {
        /// Its number.
        id: VolumeId,
        /// Its partition.
        partition: Arc<Partition>,
        /// Where it is.
        found: Found,
    },
}

impl Listed {
    /// Its number.
    pub fn id(&self) -> VolumeId {
        match self {
            Self::Used(volume) => volume.id,
            Self::Resting { id, .. } => *id,
        }
    }

    /// Its partition.
    pub fn partition(&self) -> &Arc<Partition> {
        match self {
            Self::Used(volume) => &volume.partition,
            Self::Resting { partition, .. } => partition,
        }
    }

    /// Where it is.
    pub fn found(&self) -> Found {
        match self {
            Self::Used(volume) => volume.found(),
            Self::Resting { found, .. } => *found,
        }
    }

    /// Its header, without opening its files for changes.
    ///
    /// # Errors
    /// Those of [`Volume::peek`].
    pub fn peek(&self) -> Result<Stored> {
        match self {
            Self::Used(volume) => volume.peek(),
            Self::Resting { partition, found, .. } => partition.stored(*found).map(Stored::of_disk),
        }
    }

    /// [`Self::peek`], unless a call has the volume so that this would wait for it.
    ///
    /// # Errors
    /// Those of [`Volume::peek`].
    pub fn try_peek(&self) -> Option<Result<Stored>> {
        match self {
            Self::Used(volume) => volume.try_peek(),
            Self::Resting { .. } => Some(self.peek()),
        }
    }

    /// Whether clients may use it, with this header.
    pub fn service_as(&self, stored: &Stored) -> Service {
        match self {
            Self::Used(volume) => volume.service_as(stored),
            Self::Resting { .. } => stored.service(),
        }
    }

    /// [`Self::service_as`], unless it would have to wait.
    pub fn try_service_as(&self, stored: &Stored) -> Option<Service> {
        match self {
            Self::Used(volume) => volume.try_service_as(stored),
            Self::Resting { .. } => Some(stored.service()),
        }
    }

    /// The promises to clients, as far as they hold.
    pub fn promises(&self) -> usize {
        match self {
            Self::Used(volume) => volume.callbacks.count(),
            Self::Resting { .. } => 0,
        }
    }
}

/// The volumes of a server by their numbers.
pub struct Table {
    parts: [Mutex<Part>; PARTS],
    /// The partitions of volumes that rest.
    partitions: RwLock<HashMap<PartitionId, Arc<Partition>>>,
    /// How many volumes each partition has.
    counts: [AtomicUsize; MAX_PARTITIONS],
    callbacks: Arc<CallBacks>,
    shared: Arc<Shared>,
}

impl Table {
    /// An empty table, for volumes with these promises.
    pub fn new(callbacks: Arc<CallBacks>, shared: Arc<Shared>) -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::of(&PART, Part::default())),
            partitions: RwLock::default(),
            counts: std::array::from_fn(|_| AtomicUsize::new(0)),
            callbacks,
            shared,
        }
    }

    fn part(&self, id: VolumeId) -> &Mutex<Part> {
        &self.parts[id.0 as usize % PARTS]
    }

    fn count_of(&self, partition: PartitionId) -> &AtomicUsize {
        &self.counts[usize::from(partition.0)]
    }

    fn partition(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.partitions.read().get(&id).cloned()
    }

    fn make(&self, partition: Arc<Partition>, found: Found) -> Arc<Volume> {
        let callbacks = self.callbacks.volume(found.id());
        Arc::new(Volume::new(partition, found, callbacks, Arc::clone(&self.shared)))
    }

    /// The volume of this number, for a use of it.
    pub fn get(&self, id: VolumeId) -> Option<Arc<Volume>> {
        let mut part = self.part(id).lock();
        if let Some(volume) = part.used.get(&id) {
            volume.note_use();
            return Some(Arc::clone(volume));
        }
        let place = *part.resting.get(&id)?;
        let volume = self.make(self.partition(place.partition)?, place.found(id));
        volume.note_use();
        part.resting.remove(&id);
        part.used.insert(id, Arc::clone(&volume));
        self.shared.partitions.of(place.partition).attached.inc();
        Some(volume)
    }

    /// Whether there is a volume of this number.
    pub fn has(&self, id: VolumeId) -> bool {
        self.part(id).lock().has(id)
    }

    /// The volume of this number, as it is.
    pub fn look(&self, id: VolumeId) -> Option<Listed> {
        let part = self.part(id).lock();
        if let Some(volume) = part.used.get(&id) {
            return Some(Listed::Used(Arc::clone(volume)));
        }
        let place = *part.resting.get(&id)?;
        drop(part);
        Some(Listed::Resting { id, partition: self.partition(place.partition)?, found: place.found(id) })
    }

    /// Adds a volume that is to be used. `None`: there is one of this number.
    pub fn add(&self, partition: &Arc<Partition>, found: Found) -> Option<Arc<Volume>> {
        self.add_with(partition, found, |_| ())
    }

    /// [`Self::add`], with promises that `promised` makes before others find the volume.
    pub(super) fn add_with(
        &self,
        partition: &Arc<Partition>,
        found: Found,
        promised: impl FnOnce(&VolumeCallBacks),
    ) -> Option<Arc<Volume>> {
        let id = found.id();
        let mut part = self.part(id).lock();
        if part.has(id) {
            return None;
        }
        let volume = self.make(Arc::clone(partition), found);
        promised(&volume.callbacks);
        volume.note_use();
        part.used.insert(id, Arc::clone(&volume));
        self.count_of(partition.id).fetch_add(1, Ordering::AcqRel);
        self.shared.partitions.of(partition.id).attached.inc();
        Some(volume)
    }

    /// Has the volumes of a partition rest in the table. From now on, others of it can too.
    pub fn open(&self, partition: &Arc<Partition>) {
        self.partitions.write().insert(partition.id, Arc::clone(partition));
    }

    /// Adds the volumes of a partition. Returns those whose numbers there are already.
    pub fn fill(&self, partition: &Partition, mut volumes: Vec<Found>) -> Vec<Found> {
        let part_of = |found: &Found| found.id().0 as usize % PARTS;
        // In place: there may be a million.
        volumes.sort_unstable_by_key(part_of);
        let mut refused = Vec::new();
        for of_part in volumes.chunk_by(|one, other| part_of(one) == part_of(other)) {
            let mut part = self.part(of_part[0].id()).lock();
            let (is_empty, before) = (part.resting.is_empty() && part.used.is_empty(), part.resting.len());
            part.resting.reserve(of_part.len());
            for found in of_part {
                if !is_empty && part.has(found.id()) {
                    refused.push(*found);
                    continue;
                }
                let place = Place::new(partition.id, *found);
                if let Some(other) = part.resting.insert(found.id(), place) {
                    // A number that came twice: the same one is served after each start.
                    let [kept, other] = if other < place { [other, place] } else { [place, other] };
                    part.resting.insert(found.id(), kept);
                    refused.push(other.found(found.id()));
                }
            }
            self.count_of(partition.id).fetch_add(part.resting.len() - before, Ordering::AcqRel);
        }
        refused
    }

    /// Notes that the file system of a clone has another name.
    pub fn move_clone(&self, partition: PartitionId, id: VolumeId, was: Head, head: Head) {
        let (was, now) = (Found::Snapshot { id, head: was }, Found::Snapshot { id, head });
        let mut part = self.part(id).lock();
        if let Some(place) = part.resting.get_mut(&id) {
            if *place == Place::new(partition, was) {
                *place = Place::new(partition, now);
            }
        } else if let Some(volume) = part.used.get(&id)
            && volume.partition.id == partition
            && volume.found() == was
        {
            volume.set_found(now);
        }
    }

    /// Removes a volume.
    pub fn remove(&self, id: VolumeId) {
        let removed = {
            let mut part = self.part(id).lock();
            let partition = part.partition_of(id);
            part.resting.remove(&id);
            // Its end takes other locks.
            (partition, part.take_used(id))
        };
        if let (Some(partition), _) = removed {
            self.count_of(partition).fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Removes a volume in use, and no other one of its number.
    pub fn remove_this(&self, volume: &Arc<Volume>) {
        let mut part = self.part(volume.id).lock();
        let is_it = part.used.get(&volume.id).is_some_and(|known| Arc::ptr_eq(known, volume));
        let removed = if is_it { part.take_used(volume.id) } else { None };
        // Its end takes other locks.
        drop(part);
        if removed.is_some() {
            self.count_of(volume.partition.id).fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Removes the unused volumes of a partition. From now on, none of it rests.
    pub fn close(&self, partition: &Partition) {
        let is_it = |known: &mut Arc<Partition>| std::ptr::eq(Arc::as_ptr(known), partition);
        self.partitions.write().retain(|_, known| !is_it(known));
        for part in &self.parts {
            let mut part = part.lock();
            let before = part.resting.len();
            part.resting.retain(|_, place| place.partition != partition.id);
            part.resting.shrink_to_fit();
            self.count_of(partition.id).fetch_sub(before - part.resting.len(), Ordering::AcqRel);
        }
    }

    /// The volumes of a partition that are in use.
    pub fn used(&self, partition: PartitionId) -> Vec<Arc<Volume>> {
        let mut all = self.all_used();
        all.retain(|volume| volume.partition.id == partition);
        all
    }

    /// The numbers of the volumes of a partition whose headers memory has.
    pub fn with_headers(&self, partition: PartitionId) -> HashSet<VolumeId> {
        let used = self.used(partition);
        used.iter().filter(|volume| volume.has_header()).map(|volume| volume.id).collect()
    }

    /// All volumes in use.
    pub fn all_used(&self) -> Vec<Arc<Volume>> {
        let of_part = |part: &Mutex<Part>| part.lock().used.values().cloned().collect::<Vec<_>>();
        self.parts.iter().flat_map(of_part).collect()
    }

    /// What clients did: with the first `most` volumes in use, and with all others, by partitions.
    /// The number is that of the next volume that comes into use.
    pub fn usage(&self, order: Order, most: usize) -> (Vec<OfVolume>, Sums, u64) {
        let next = self.shared.next_number();
        let (mut all, mut others) = (Vec::new(), self.shared.partitions.late());
        for part in &self.parts {
            // One lock at a time: a volume does not move to another part.
            let part = part.lock();
            let of_volume = |volume: &Arc<Volume>| OfVolume {
                id: volume.id,
                number: volume.number(),
                partition: volume.partition.id,
                last: volume.used(),
                used: volume.usage.now(),
            };
            all.extend(part.used.values().map(of_volume).filter(|one| !one.used.is_nothing()));
            for (partition, used) in &part.past {
                *others.entry(*partition).or_default() += *used;
            }
            drop(part);
            if all.len() > most.saturating_mul(2) {
                order.keep(&mut all, most, &mut others);
            }
        }
        order.keep(&mut all, most, &mut others);
        (all, others, next)
    }

    /// The numbers of volumes after one, of a partition or of all, in order.
    pub fn ids(&self, partition: Option<PartitionId>, after: u64) -> Vec<VolumeId> {
        let mut ids = Vec::new();
        for part in &self.parts {
            let part = part.lock();
            let resting = part.resting.iter().map(|(id, place)| (*id, place.partition));
            let used = part.used.iter().map(|(id, volume)| (*id, volume.partition.id));
            let is_wanted = |of: PartitionId| partition.is_none_or(|wanted| wanted == of);
            let all = resting.chain(used).filter(|(id, of)| u64::from(id.0) > after && is_wanted(*of));
            ids.extend(all.map(|(id, _)| id));
        }
        ids.sort_unstable();
        ids
    }

    /// How many volumes a partition has.
    pub fn count(&self, partition: PartitionId) -> usize {
        self.count_of(partition).load(Ordering::Acquire)
    }

    /// Closes the files of volumes that no call has used for `patience` seconds, and more of them
    /// if over `most` are open. Those of which nothing is left then rest in the table.
    pub fn rest(&self, patience: u32, most: usize) {
        let now = self.shared.seconds();
        let mut used = self.all_used();
        used.retain(|volume| !volume.partition.is_stuck());
        let open = used.iter().filter(|volume| volume.is_open()).count();
        // The keys change meanwhile.
        used.sort_by_cached_key(|volume| volume.used());
        let mut excess = open.saturating_sub(most);
        for volume in used {
            let is_old = now.saturating_sub(volume.used()) >= patience;
            if !is_old && excess == 0 {
                break;
            }
            let was_open = volume.is_open();
            match volume.rest() {
                Ok(true) => excess = excess.saturating_sub(usize::from(was_open)),
                Ok(false) => continue,
                Err(error) => {
                    let error = chain(&error);
                    tracing::error!(volume = volume.id.0, error, "the files of the volume can't be closed");
                    continue;
                }
            }
            self.put_away(volume);
        }
    }

    /// Keeps only the place of a volume, unless it is used or has more to know.
    fn put_away(&self, volume: Arc<Volume>) {
        let id = volume.id;
        let mut part = self.part(id).lock();
        // No other thread gets it while the part is locked.
        let is_alone = Arc::strong_count(&volume) == 2;
        let is_here = part.used.get(&id).is_some_and(|known| Arc::ptr_eq(known, &volume));
        let can_rest = self
            .partitions
            .read()
            .get(&volume.partition.id)
            .is_some_and(|known| Arc::ptr_eq(known, &volume.partition));
        if !(is_alone && is_here && can_rest && volume.is_at_rest()) {
            return;
        }
        part.resting.insert(id, Place::new(volume.partition.id, volume.found()));
        let removed = part.take_used(id);
        // Its end takes other locks.
        drop(part);
        drop(removed);
        self.shared.partitions.of(volume.partition.id).rested.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a place has all that is found of a volume, in the bytes that the table says.
    #[test]
    fn places() {
        let id = VolumeId(9);
        let clone = |gone| Found::Snapshot { id, head: Head { volume: VolumeId(7), gone } };
        for found in [Found::Dataset(id), clone(None), clone(Some(0)), clone(Some(3))] {
            assert_eq!(Place::new(PartitionId(2), found).found(id), found);
        }
        assert_eq!(size_of::<(VolumeId, Place)>(), 16);
    }
}
