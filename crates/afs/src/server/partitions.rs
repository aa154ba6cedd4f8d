//! Partitions that come and go.
//!
//! # Crash
//! What a crash left half-made is brought in order when a partition comes
//! ([`Partition::clean`]).
//!
//! # Promises
//! Clients of a partition that goes hear of it, because another server may serve it next. If it
//! goes because the server ends, they keep their promises until its next start
//! ([`super::remembered`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use observe::lock::Mutex;

use super::callbacks::{SetAside, VolumeCallBacks};
use super::remembered::{Kept, Unchecked};
use super::store::{Found, Partition};
use super::table::Listed;
use super::volserver::transactions::Transaction;
use super::volume::Volume;
use super::{Core, Error, Result, chain, header};
use crate::partition::PartitionId;
use crate::types::VolumeId;

/// How long a call may take that uses a volume that was closed, and how often this is looked at.
const LAST_CALLS: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(1);
/// Most threads that close the volumes of a partition.
const CLOSERS: usize = 16;

/// What becomes of promises when a partition is served no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promises {
    /// They are broken: what happens to the partition is not known.
    Break,
    /// They are kept for the next start, because the server ends.
    Keep,
}

impl Core {
    /// Adds the volumes of a partition to the table, and brings those in order that a crash left
    /// half-made.
    pub(super) fn load(&self, partition: &Arc<Partition>) -> Result<()> {
        let mut contents = partition.contents()?;
        partition.clean(&mut contents);
        for (dataset, error) in contents.failures {
            let error = chain(&error);
            tracing::error!(dataset, error, "a volume can't be served: its dataset can't be read");
        }
        self.table.open(partition);
        // Their promises are there before the first call finds them.
        let mut refused = self.take_back(partition, &mut contents.volumes);
        refused.extend(self.table.fill(partition, contents.volumes));
        for found in refused {
            tracing::error!(?found, partition = %partition.id, "another partition has this volume");
        }
        Ok(())
    }

    /// Adds those volumes of a partition to the table that clients have promises for. Returns those
    /// whose numbers there are already.
    fn take_back(&self, partition: &Arc<Partition>, volumes: &mut Vec<Found>) -> Vec<Found> {
        let kept = partition.guid().map(|guid| self.remembered.take(partition, guid));
        let Ok(Some(kept)) = kept else {
            let partition = partition.id;
            tracing::warn!(%partition, "another server may have served it: all clients are reset");
            self.hosts.owe_resets();
            return Vec::new();
        };
        let mut kept: HashMap<VolumeId, Kept> = kept.into_iter().map(|kept| (kept.id, kept)).collect();
        // Of a number that came twice, the table chooses.
        let mut seen: HashSet<VolumeId> = HashSet::new();
        for id in volumes.iter().map(|found| found.id()) {
            if kept.contains_key(&id)
                && !seen.insert(id)
                && let Some(twice) = kept.remove(&id)
            {
                forsake(&twice.promises);
            }
        }
        let (now, mut refused) = (Instant::now(), Vec::new());
        let promised: Vec<Found> = volumes.extract_if(.., |found| kept.contains_key(&found.id())).collect();
        for found in promised {
            let Some(Kept { id, identity, promises }) = kept.remove(&found.id()) else { continue };
            let mut promises = Some(promises);
            let promised = |of: &VolumeCallBacks| of.take_back(promises.take().unwrap_or_default(), now);
            if self.table.add_with(partition, found, promised).is_some() {
                let partition = Arc::clone(partition);
                self.remembered.check_later(Unchecked { partition, id, identity });
            } else {
                refused.push(found);
            }
            promises.iter().for_each(|promises| forsake(promises));
        }
        // Volumes that are gone.
        kept.into_values().for_each(|kept| forsake(&kept.promises));
        refused
    }

    /// Whether all promises of the last run were compared with their volumes. A volume that changes
    /// before that counts as changed meanwhile.
    pub fn has_checked_promises(&self) -> bool {
        self.remembered.is_checked()
    }

    /// Breaks the promises of the next volume that is not what it was when they were made. Returns
    /// whether there was one to check.
    pub(super) fn check_next(&self) -> bool {
        self.remembered.check_next(|Unchecked { partition, id, identity }| {
            let Some(Listed::Used(volume)) = self.table.look(*id) else { return };
            if !Arc::ptr_eq(&volume.partition, partition) {
                return;
            }
            if partition.is_stuck() {
                volume.callbacks.reset_holders();
            } else if !partition.identity(volume.found()).is_ok_and(|now| now == *identity) {
                tracing::info!(volume = id.0, "it changed while it was not served: its clients hear of it");
                volume.callbacks.volume_changed();
            }
        })
    }

    /// Closes the volumes of a partition.
    ///
    /// # Errors
    /// [`Error::Busy`]: a transaction has one of them. The others are closed, and are not served.
    pub(super) fn close(&self, partition: &Partition, promises: Promises) -> Result<()> {
        let is_here =
            |id: &VolumeId| self.table.look(*id).is_some_and(|found| found.partition().id == partition.id);
        if let Some(volume) = self.transactions.taken().into_iter().find(is_here) {
            return Err(Error::Busy { volume });
        }
        self.table.close(partition);
        let used = self.table.used(partition.id);
        let unchecked: HashSet<VolumeId> = self.remembered.unchecked(partition.id).into_iter().collect();
        let (next, failed, kept) = (AtomicUsize::new(0), Mutex::new(None), Mutex::new(Vec::new()));
        let close = || {
            while let Some(volume) = used.get(next.fetch_add(1, Ordering::Relaxed)) {
                volume.quiesce(header::Service::Offline);
                match volume.end() {
                    Ok(()) => {
                        self.table.remove(volume.id);
                        match promises {
                            Promises::Break => volume.callbacks.volume_changed(),
                            Promises::Keep if unchecked.contains(&volume.id) => volume.callbacks.forsake(),
                            Promises::Keep => kept.lock().extend(set_aside(volume)),
                        }
                    }
                    Err(error) => {
                        if promises == Promises::Break {
                            volume.callbacks.volume_changed();
                        }
                        let (volume, error) = (volume.id, chain(&error));
                        tracing::error!(volume = volume.0, error, "the volume can't be closed");
                        *failed.lock() = Some(volume);
                    }
                }
            }
        };
        // Each may wait for its calls.
        with_threads(used.len(), &close);
        let ended = match failed.into_inner() {
            Some(volume) => Err(Error::Busy { volume }),
            None => partition.end(),
        };
        let kept = kept.into_inner();
        match partition.guid() {
            // All that was written is on disk now.
            Ok(guid) if ended.is_ok() => self.remember(partition, guid, &kept),
            _ => kept.iter().for_each(|(_, promises)| forsake(promises)),
        }
        ended
    }

    /// Keeps the promises of a partition that was closed.
    fn remember(&self, partition: &Partition, guid: u64, volumes: &[(Found, Vec<SetAside>)]) {
        let (next, kept) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let identify = || {
            while let Some((found, promises)) = volumes.get(next.fetch_add(1, Ordering::Relaxed)) {
                match partition.identity(*found) {
                    Ok(identity) => {
                        let (id, promises) = (found.id(), promises.clone());
                        kept.lock().push(Kept { id, identity, promises });
                    }
                    Err(_) => forsake(promises),
                }
            }
        };
        with_threads(volumes.len(), &identify);
        self.remembered.put(partition, guid, kept.into_inner());
    }

    /// Refuses while a transaction has a volume of a partition.
    pub(super) fn check_transactions(&self, partition: PartitionId) -> Result<()> {
        let of_it = |found: &Transaction| found.volume.partition.id == partition && !found.is_deleted;
        match self.transactions.all().into_iter().find(of_it) {
            None => Ok(()),
            Some(found) => Err(Error::InTransaction {
                volume: found.volume.id,
                transaction: found.id,
                call: found.last_call,
            }),
        }
    }

    /// Serves the volumes of a partition again that [`Self::close`] could not close, or has closed.
    pub(super) fn reopen(&self, partition: &Arc<Partition>) {
        let used = self.table.used(partition.id);
        used.iter().for_each(|volume| volume.set_service(header::Service::Unknown));
        match partition.contents() {
            Ok(contents) => {
                self.table.open(partition);
                // Those that could not be closed are there.
                drop(self.table.fill(partition, contents.volumes));
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(partition = %partition.id, error, "its volumes are not served again");
            }
        }
    }
}

/// The promises of a volume that was closed, when the calls that used it have ended: one of them
/// may still break some. If one takes too long, there are none, and clients are reset.
fn set_aside(volume: &Arc<Volume>) -> Option<(Found, Vec<SetAside>)> {
    let until = Instant::now() + LAST_CALLS;
    // The caller has one.
    while Arc::strong_count(volume) > 1 {
        if Instant::now() >= until {
            volume.callbacks.forsake();
            return None;
        }
        std::thread::sleep(POLL);
    }
    let promises = volume.callbacks.set_aside(Instant::now());
    (!promises.is_empty()).then(|| (volume.found(), promises))
}

/// Does work of so many parts in several threads.
fn with_threads(parts: usize, work: &(impl Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 1..parts.min(CLOSERS) {
            // Without one more thread, the others have more to do.
            let _ = std::thread::Builder::new().name("afs-close".into()).spawn_scoped(scope, work);
        }
        work();
    });
}

/// Has the clients of these promises reset.
fn forsake(promises: &[SetAside]) {
    promises.iter().for_each(|promise| promise.host.owe_reset());
}
