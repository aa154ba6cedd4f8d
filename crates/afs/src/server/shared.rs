//! What all volumes of a server share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use observe::lock::Mutex;

use super::activity::volumes::Partitions;
use super::blobs::Blobs;
use super::instance::Instance;
use super::known::Knowledge;
use crate::types::VolumeId;

/// What all volumes share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The blobs of directories.
    pub blobs: Blobs,
    /// What is known of files.
    pub known: Knowledge,
    /// What happens to volumes, by partitions.
    pub partitions: Partitions,
    /// The volumes whose headers in memory are newer than the stored ones.
    changed: Mutex<BTreeSet<VolumeId>>,
    instances: AtomicU64,
    seconds: AtomicU32,
}

impl Shared {
    /// Takes the volumes whose headers are to be written.
    pub fn take_changed(&self) -> BTreeSet<VolumeId> {
        std::mem::take(&mut *self.changed.lock())
    }

    /// Notes that a header in memory is newer than the stored one.
    pub(super) fn note_change(&self, volume: VolumeId) {
        self.changed.lock().insert(volume);
    }

    /// Seconds since the start of the server, to about one.
    pub(super) fn seconds(&self) -> u32 {
        self.seconds.load(Ordering::Relaxed)
    }

    /// Notes how many seconds have passed since the start of the server.
    pub(super) fn set_seconds(&self, seconds: u32) {
        self.seconds.store(seconds, Ordering::Relaxed);
    }

    /// A new volume in service.
    pub(super) fn instance(&self) -> Instance {
        Instance(self.instances.fetch_add(1, Ordering::Relaxed))
    }

    /// The number of the next volume in service ([`super::volume::Volume::number`]).
    pub fn next_number(&self) -> u64 {
        self.instances.load(Ordering::Relaxed)
    }

    /// Forgets the files of a volume.
    pub(super) fn forget(&self, volume: Instance) {
        self.blobs.forget(volume);
        self.known.forget_volume(volume);
    }
}
