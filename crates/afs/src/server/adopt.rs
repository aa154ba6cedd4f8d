//! Volumes that come from another server's partition as dumps, with all that they were there.
//!
//! # Theory
//! `vos restore` makes a new copy of a volume: it has dates and counts of its own. A volume that
//! is adopted goes on as the same one. So its header is that of the dump, with what dumps don't
//! have ([`Beside`]). Only what the server counts itself is counted anew.
//!
//! # Crash
//! The volume is marked until it is whole and on disk. A server that starts destroys a marked
//! one.
//! A partition that is forced out ends the transaction, and so the adoption: what there is stays
//! marked.

use std::io::{self, Read};
use std::sync::Arc;

use super::header::{Service, Stored};
use super::store::{Found, Partition};
use super::volserver::transactions::Lease;
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

/// The dump, as long as the transaction lasts.
struct Incoming<'a, R> {
    from: R,
    lease: &'a Lease<'a>,
}

impl<R: Read> Read for Incoming<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.lease.has_ended() {
            true => Err(io::Error::other("the transaction has ended")),
            false => self.from.read(buffer),
        }
    }
}

impl Core {
    /// Makes a volume of its full dump. Clients may use it at once, if the dump says so.
    ///
    /// # Errors
    /// The volume is then not there.
    ///
    /// * [`Error::Taken`]: the server has a volume of this number.
    /// * [`Error::Busy`]: a call of an administrator's program has the number.
    /// * [`Error::Ended`]: the partition is not served, or not any more. Its next start destroys
    ///   what there is of the volume, unless that had become whole.
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
            self.table.remove_this(&volume);
            return Err(Error::Busy { volume: id });
        };
        let adopted = match self.transactions.lease(transaction.id, "Adopt") {
            // While it has the lease, the transaction does not end by itself.
            Ok(lease) => self.adopt_in(&lease, beside, from),
            Err(_) => Err(Error::Ended { partition: partition.id }),
        };
        if adopted.is_err() {
            self.table.remove_this(&volume);
            self.transactions.deleted(transaction.id);
        } else {
            volume.set_service(Service::Unknown);
            volume.callbacks.volume_changed();
        }
        let _ = self.transactions.end(transaction.id);
        adopted
    }

    /// Makes the volume of a transaction, or nothing.
    fn adopt_in(&self, lease: &Lease<'_>, beside: Beside, from: impl Read) -> Result<()> {
        let (volume, partition) = (&lease.volume, &lease.volume.partition);
        // It may have ended before the transaction began.
        let is_served = self.partition(partition.id).is_some_and(|known| Arc::ptr_eq(&known, partition));
        let ended = || Error::Ended { partition: partition.id };
        if !is_served {
            return Err(ended());
        }
        let mut is_made = false;
        let filled = volume.exclusively(|| fill(lease, beside, from, &mut is_made));
        if lease.has_ended() {
            // The partition may be served anew, with another volume of this number.
            return Err(ended());
        }
        if filled.is_err()
            && is_made
            && let Err(error) = self.destroy(volume)
        {
            let error = chain(&error);
            tracing::error!(volume = beside.id.0, error, "half a volume stays until the next start");
        }
        filled
    }
}

/// Fills a new volume, and notes that it is whole when that is on disk.
fn fill(lease: &Lease<'_>, beside: Beside, from: impl Read, is_made: &mut bool) -> Result<()> {
    let (id, partition) = (beside.id, &lease.volume.partition);
    let header = VolumeHeader { id, ..VolumeHeader::default() };
    let new = Stored { header, destroy_me: true, crashes: partition.crashes(), ..Stored::default() };
    partition.create(id, &new)?;
    *is_made = true;
    let fs = partition.fs(id)?;
    let mut reader = Reader::new(Incoming { from, lease });
    let restored = restore(&fs, &mut reader, new.version_base, |restored| restored.volume.clone())?;
    let header = restored.volume;
    if header.id != id {
        let (place, field, value) = (reader.place(), "the volume of the dump", header.id.0.into());
        return Err(crate::Error::Range { place, field, value }.into());
    }
    let Beside { backup, copy_date, .. } = beside;
    let used = header.disk_used.into();
    let stored = Stored { header, destroy_me: false, backup, copy_date, used, ..new };
    if lease.has_ended() {
        return Err(Error::Ended { partition: partition.id });
    }
    stored.write(&fs)?;
    drop(fs);
    partition.finish(id, Some(&stored), true)?;
    Ok(partition.pool().sync()?)
}
