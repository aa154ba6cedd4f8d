//! Clones: backup volumes and read-only volumes at their read-write volume's site.

use std::sync::Arc;

use super::make::{check_name, kind_of};
use super::{Outcome, VolumeServer, failed};
use crate::errors::{errno, volume as code};
use crate::server::header::Service as State;
use crate::server::header::Stored;
use crate::server::now;
use crate::server::store::{Found, Head};
use crate::server::volume::Volume;
use crate::types::{VolumeId, VolumeType};
use crate::volume_name::VolumeName;

/// What the uniques and versions of a converted volume jump by. Files of its former read-write
/// volume may be in the caches of clients.
const UNIQUE_JUMP: u32 = 1 << 16;
const VERSION_JUMP: u32 = 1 << 16;

/// The header of a clone that is made now.
fn cloned(of: &Stored, id: VolumeId, kind: VolumeType, name: Vec<u8>) -> Stored {
    let mut stored = of.clone();
    let today = now();
    stored.header.id = id;
    stored.header.kind = kind;
    stored.header.name = name;
    stored.header.in_service = false;
    stored.header.creation_date = today;
    stored.header.week_use = [0; 7];
    stored.header.day_use = 0;
    stored.copy_date = today;
    stored.destroy_me = true;
    stored.is_counting = false;
    if kind == VolumeType::Backup {
        stored.header.backup_date = today;
    }
    stored
}

impl VolumeServer {
    pub(super) fn clone_volume(
        &self,
        transaction: i32,
        purge: VolumeId,
        kind: i32,
        name: &[u8],
        id: VolumeId,
    ) -> Outcome<VolumeId> {
        check_name(name)?;
        let kind = kind_of(kind)?;
        if id.0 == 0 || kind == VolumeType::ReadWrite {
            return Err(errno::EINVAL);
        }
        let lease = self.lease(transaction, "Clone")?;
        let original = Arc::clone(&lease.volume);
        if purge == id {
            drop(lease);
            return self.reclone(transaction, id).map(|()| id);
        }
        let _taken = self.core.transactions.take(id)?;
        let stored = self.cloneable(&original)?;
        let new = cloned(&stored, id, kind, name.to_vec());
        let found = Found::Snapshot { id, head: Head::of(original.id) };
        let volume = self.core.table.add(&original.partition, found).ok_or(code::VVOLEXISTS)?;
        volume.set_service(State::Offline);
        let made = original.flush().and_then(|_| original.partition.clone_volume(original.id, &new, None));
        if let Err(error) = made {
            self.core.table.remove(id);
            return Err(failed(&original, &error));
        }
        self.note_clone(&original, &new)?;
        self.note_change(&lease);
        if purge.0 != 0 {
            // A clone of another number takes its place.
            self.purge(&original, purge)?;
        }
        Ok(id)
    }

    /// The header of a volume that may be cloned now.
    fn cloneable(&self, original: &Volume) -> Outcome<Stored> {
        if original.is_clone() {
            tracing::warn!(volume = original.id.0, "a clone can't be cloned");
            return Err(errno::EINVAL);
        }
        let open = original.open().map_err(|error| failed(original, &error))?;
        let stored = open.stored();
        let usable = !stored.destroy_me && stored.header.in_service;
        if usable { Ok(stored) } else { Err(code::VOFFLINE) }
    }

    /// Notes a new clone in the header of its volume.
    fn note_clone(&self, original: &Volume, clone: &Stored) -> Outcome<()> {
        self.note_in(original, |stored| match clone.header.kind {
            VolumeType::Backup => {
                stored.backup = clone.header.id;
                stored.header.backup_date = clone.header.creation_date;
            }
            VolumeType::ReadOnly => stored.header.clone = clone.header.id,
            VolumeType::ReadWrite => {}
        })
    }

    fn note_in(&self, original: &Volume, change: impl FnOnce(&mut Stored)) -> Outcome<()> {
        let open = original.open().map_err(|error| failed(original, &error))?;
        open.change_header(change);
        open.flush().map(drop).map_err(|error| failed(original, &error))
    }

    /// Whether a volume is a clone of the same group in the same partition.
    fn check_clone(&self, original: &Volume, clone: &Volume) -> Outcome<()> {
        let header = |volume: &Volume| {
            let open = volume.open().map_err(|error| failed(volume, &error))?;
            Ok::<_, i32>(open.header())
        };
        let (of, own) = (header(original)?, header(clone)?);
        let same = original.partition.id == clone.partition.id && of.parent == own.parent;
        if !same || clone.id == original.id {
            return Err(errno::EXDEV);
        }
        if own.kind == VolumeType::ReadWrite { Err(errno::EINVAL) } else { Ok(()) }
    }

    /// Deletes the old clone of a volume.
    fn purge(&self, original: &Volume, purge: VolumeId) -> Outcome<()> {
        let Some(old) = self.core.table.get(purge) else { return Err(code::VNOVOL) };
        self.check_clone(original, &old)?;
        let _taken = self.core.transactions.take(purge)?;
        self.core.destroy(&old).map_err(|error| failed(&old, &error))
    }

    pub(super) fn reclone(&self, transaction: i32, id: VolumeId) -> Outcome<()> {
        let lease = self.lease(transaction, "ReClone")?;
        let original = Arc::clone(&lease.volume);
        let clone = self.core.table.get(id).ok_or(code::VNOVOL)?;
        self.check_clone(&original, &clone)?;
        let _taken = self.core.transactions.take(id)?;
        let stored = self.cloneable(&original)?;
        let old = clone.open().map_err(|error| failed(&clone, &error))?.stored();
        let kind = old.header.kind;
        let base = VolumeName::new(&stored.header.name).and_then(|name| name.with_type(kind));
        let name = base.map_or(old.header.name.clone(), |name| name.as_str().as_bytes().to_vec());
        let mut new = cloned(&stored, id, kind, name);
        new.copy_date = old.copy_date;
        new.destroy_me = false;
        new.header.in_service = true;
        // Before, so that the wait for the new clone covers it.
        self.note_clone(&original, &new)?;
        self.note_change(&lease);
        let old = clone.found();
        let replace = || original.partition.clone_volume(original.id, &new, Some(old));
        if let Err(error) = clone.exclusively(replace) {
            let _ = self.note_in(&original, |now| {
                (now.backup, now.header.backup_date) = (stored.backup, stored.header.backup_date);
                now.header.clone = stored.header.clone;
            });
            return Err(failed(&clone, &error));
        }
        clone.set_found(Found::Snapshot { id, head: Head::of(original.id) });
        clone.set_service(State::Unknown);
        clone.callbacks.volume_changed();
        Ok(())
    }

    /// Makes a read-write volume of a read-only one that has files of its own.
    pub(super) fn convert(&self, partition: i32, id: VolumeId) -> Outcome<()> {
        let volume = self.find(partition, id)?;
        let _taken = self.core.transactions.take(id)?;
        let open = volume.open().map_err(|error| failed(&volume, &error))?;
        let mut stored = open.stored();
        drop(open);
        let parent = stored.header.parent;
        if stored.header.kind != VolumeType::ReadOnly {
            return Err(errno::EINVAL);
        }
        if self.core.table.has(parent) {
            return Err(code::VVOLEXISTS);
        }
        let name = VolumeName::new(&stored.header.name);
        stored.header.name = name.map_or_else(Vec::new, |name| name.split().0.as_bytes().to_vec());
        stored.header.id = parent;
        stored.header.kind = VolumeType::ReadWrite;
        stored.header.clone = id;
        stored.header.next_unique.0 = stored.header.next_unique.0.saturating_add(UNIQUE_JUMP);
        stored.version_base = stored.version_base.wrapping_add(VERSION_JUMP);
        stored.header.creation_date = stored.header.creation_date.min(stored.copy_date);
        volume.set_service(State::Gone);
        let converted = volume.exclusively(|| match volume.found() {
            Found::Dataset(_) => volume.partition.rename(id, parent, &stored),
            Found::Snapshot { head, .. } => volume.partition.revive(head, id, &stored),
        });
        if let Err(error) = converted {
            volume.set_service(State::Unknown);
            return Err(failed(&volume, &error));
        }
        self.core.table.remove(id);
        volume.callbacks.volume_changed();
        // Other clones of the file system have its former name.
        self.core.move_clones(&volume.partition, volume.head(), Head::of(parent));
        self.core.table.add(&volume.partition, Found::Dataset(parent)).ok_or(code::VVOLEXISTS)?;
        Ok(())
    }
}
