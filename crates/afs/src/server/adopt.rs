//! Volumes that come from another server's partition as dumps, with all that they were there.
//!
//! # Theory
//! `vos restore` makes a new copy of a volume: it has dates and counts of its own. A volume that is
//! adopted goes on as the same one. So its header is that of the dump, with what dumps don't have
//! ([`Beside`]). Only what the server counts itself is counted anew.
//!
//! # Crash
//! The volume is marked until it is whole and on disk. A server that starts destroys a marked one.

use std::io::Read;
use std::sync::Arc;

use super::header::{Service, Stored};
use super::store::{Found, Partition};
use super::{Core, Error, Result, chain};
use crate::calls::volserver::attach;
use crate::dump::{Reader, VolumeHeader};
use crate::types::{Date, VolumeId};
use crate::volume::restore;

/// What a dump does not have of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// The volume.
    pub id: VolumeId,
    /// The backup volume of its group (`backupId`).
    pub backup: VolumeId,
    /// When the copy was made (`copyDate`).
    pub copy_date: Date,
}

impl Core {
    /// Makes a volume of its full dump. Clients may use it at once, if the dump says so.
    ///
    /// # Errors
    /// The volume is then not there.
    ///
    /// * [`Error::Taken`]: the server has a volume of this number.
    /// * [`Error::Busy`]: a call of an administrator's program has the number.
    /// * [`Error::Format`]: the dump is damaged, of another volume, or no full one.
    /// * [`Error::Pool`], [`Error::Files`]: the pool is full, or fails.
    pub fn adopt(&self, partition: &Arc<Partition>, beside: Beside, from: impl Read) -> Result<()> {
        let id = beside.id;
        if id.0 == 0 {
            return Err(Error::Malformed);
        }
        let volume = self.table.add(partition, Found::Dataset(id)).ok_or(Error::Taken { volume: id })?;
        volume.set_service(Service::Offline);
        let begun = self.transactions.begin(Arc::clone(&volume), attach::CREATE);
        let Ok(transaction) = begun else {
            self.table.remove(id);
            return Err(Error::Busy { volume: id });
        };
        let mut is_made = false;
        let adopted = self.transactions.lease(transaction.id, "Adopt").map_or(
            Err(Error::Busy { volume: id }),
            // While it has the lease, the transaction does not end by itself.
            |_lease| volume.exclusively(|| fill(partition, beside, from, &mut is_made)),
        );
        if adopted.is_err() {
            let undone = if is_made { self.destroy(&volume) } else { Ok(()) };
            self.table.remove(id);
            if let Err(error) = undone {
                let error = chain(&error);
                tracing::error!(volume = id.0, error, "half a volume stays until the next start");
            }
            self.transactions.deleted(transaction.id);
        } else {
            volume.set_service(Service::Unknown);
            volume.callbacks.volume_changed();
        }
        let _ = self.transactions.end(transaction.id);
        adopted
    }
}

/// Fills a new volume, and notes that it is whole when that is on disk.
fn fill(partition: &Partition, beside: Beside, from: impl Read, is_made: &mut bool) -> Result<()> {
    let id = beside.id;
    let header = VolumeHeader { id, ..VolumeHeader::default() };
    let new = Stored { header, destroy_me: true, crashes: partition.crashes(), ..Stored::default() };
    let fs = partition.create(id, &new)?;
    *is_made = true;
    let mut reader = Reader::new(from);
    let restored = restore(&fs, &mut reader, new.version_base, |restored| restored.volume.clone())?;
    let header = restored.volume;
    if header.id != id {
        let (place, field, value) = (reader.place(), "the volume of the dump", header.id.0.into());
        return Err(crate::Error::Range { place, field, value }.into());
    }
    let Beside { backup, copy_date, .. } = beside;
    let used = header.disk_used.into();
    let stored = Stored { header, destroy_me: false, backup, copy_date, used, ..new };
    stored.write(&fs)?;
    drop(fs);
    partition.finish(id, Some(&stored), true)?;
    Ok(partition.pool().sync()?)
}
