//! Making, changing and deleting volumes.

use std::sync::Arc;

use super::transactions::Lease;
use super::{Outcome, VolumeServer, failed, is_incomplete};
use crate::calls::volserver::{CreateReply, attach, volume_flag};
use crate::dump::VolumeHeader;
use crate::errors::{errno, volser, volume as code};
use crate::server::Error;
use crate::server::header::Service as State;
use crate::server::header::Stored;
use crate::server::now;
use crate::server::store::Found;
use crate::types::{Date, Unique, VolumeId, VolumeInfo, VolumeType};

/// The quota of a new volume in KiB.
const QUOTA: u32 = 5000;
/// Longest name of a volume.
const NAME_MAX: usize = 31;

/// A number of SetInfo, where -1 leaves what is.
fn given(value: i32) -> Option<u32> {
    (value != -1).then_some(value.cast_unsigned())
}

pub(super) fn kind_of(number: i32) -> Outcome<VolumeType> {
    u32::try_from(number).ok().and_then(VolumeType::from_number).ok_or(errno::EINVAL)
}

pub(super) fn check_name(name: &[u8]) -> Outcome<()> {
    if name.len() > NAME_MAX { Err(volser::VOLSERBADNAME) } else { Ok(()) }
}

impl VolumeServer {
    pub(super) fn create(
        &self,
        partition: i32,
        name: &[u8],
        kind: i32,
        parent: VolumeId,
        id: VolumeId,
    ) -> Outcome<CreateReply> {
        super::name_volume(id);
        check_name(name)?;
        let partition = self.partition(partition)?;
        let kind = kind_of(kind)?;
        if id.0 == 0 {
            return Err(errno::E2BIG);
        }
        let today = now();
        let header = VolumeHeader {
            id,
            version: 1,
            name: name.to_vec(),
            in_service: false,
            blessed: true,
            next_unique: Unique(2),
            kind,
            parent: if parent.0 == 0 { id } else { parent },
            quota: QUOTA,
            disk_used: 2,
            file_count: 1,
            creation_date: today,
            update_date: today,
            ..VolumeHeader::default()
        };
        let stored = Stored {
            header,
            destroy_me: true,
            copy_date: today,
            used: 2,
            crashes: partition.crashes(),
            ..Stored::default()
        };
        let volume = self.core.table.add(&partition, Found::Dataset(id)).ok_or(code::VVOLEXISTS)?;
        volume.set_service(State::Offline);
        let transaction = self.core.transactions.begin(Arc::clone(&volume), attach::CREATE);
        let begun = transaction.inspect_err(|_| self.core.table.remove_this(&volume))?;
        if !self.core.partition(partition.id).is_some_and(|served| Arc::ptr_eq(&served, &partition)) {
            // It ended before the transaction began.
            let _ = self.core.transactions.end(begun.id);
            self.core.table.remove_this(&volume);
            return Err(volser::VOLSERILLEGAL_PARTITION);
        }
        self.core.transactions.update(begun.id, |found| found.unmade = Some(Box::new(stored)));
        self.note_change(&begun);
        Ok(CreateReply { volume: id, transaction: begun.id })
    }

    /// Makes the volume of a transaction that does not exist yet, with this header.
    pub(super) fn make(&self, lease: &Lease<'_>, stored: &Stored) -> Outcome<()> {
        let (id, volume) = (lease.volume.id, &lease.volume);
        let made = volume.exclusively(|| match lease.has_ended() {
            // Its partition was forced out.
            true => Err(Error::Ended { partition: volume.partition.id }),
            false => volume.partition.create(id, stored).map(|()| volume.note_made(stored.clone())),
        });
        made.map_err(|error| failed(volume, &error))?;
        self.core.transactions.update(lease.id, |found| {
            // It is on disk.
            (found.unmade, found.has_changed) = (None, false);
        });
        Ok(())
    }

    pub(super) fn delete(&self, transaction: i32) -> Outcome<()> {
        let lease = self.lease_unmade(transaction, "DeleteVolume")?;
        if lease.unmade.is_some() {
            self.core.table.remove_this(&lease.volume);
            self.core.transactions.deleted(transaction);
            return Ok(());
        }
        let destroyed = self.core.destroy(&lease.volume);
        destroyed.map_err(|error| failed(&lease.volume, &error))?;
        self.core.transactions.deleted(transaction);
        Ok(())
    }

    pub(super) fn nuke(&self, partition: i32, id: VolumeId) -> Outcome<()> {
        let volume = self.find(partition, id)?;
        let _taken = self.core.transactions.take(id)?;
        self.core.destroy(&volume).map_err(|error| failed(&volume, &error))
    }

    /// Changes the header of a transaction's volume. The end of the transaction waits until the
    /// change is on disk.
    ///
    /// A volume that is not made yet is made if the change completes it. Returns whether that was
    /// so: it is on disk then.
    fn change(&self, transaction: i32, call: &'static str, change: impl Fn(&mut Stored)) -> Outcome<bool> {
        let lease = self.lease_unmade(transaction, call)?;
        if lease.attach & attach::READ_ONLY != 0 && lease.attach & attach::CREATE == 0 {
            return Err(errno::EROFS);
        }
        if let Some(unmade) = &lease.unmade {
            let mut stored = unmade.clone();
            change(&mut stored);
            if !stored.destroy_me {
                return self.make(&lease, &stored).map(|()| true);
            }
            self.core.transactions.update(transaction, |found| found.unmade = Some(stored));
            return Ok(false);
        }
        let open = self.open(&lease)?;
        // An earlier change may have failed.
        let has_unwritten = lease.volume.has_unwritten();
        let before = open.stored();
        open.change_header(change);
        let after = open.stored();
        if before == after && !has_unwritten {
            return Ok(false);
        }
        if let Found::Dataset(id) = lease.volume.found() {
            let partition = &lease.volume.partition;
            // After a crash, the header that came with the contents would follow.
            let settled = partition.settle_received(id);
            let has_ended = !before.destroy_me && after.destroy_me;
            let marked =
                settled.and_then(|()| if has_ended { partition.mark_incomplete(id) } else { Ok(()) });
            marked.map_err(|error| failed(&lease.volume, &error))?;
        }
        self.note_change(&lease);
        if before.header.kind != after.header.kind {
            self.note_new_contents(&lease);
        }
        if lease.volume.is_clone() || before.header.name != after.header.name {
            lease.volume.note_unwritten();
        }
        open.flush().map(|_| false).map_err(|error| failed(&lease.volume, &error))
    }

    pub(super) fn set_flags(&self, transaction: i32, flags: i32) -> Outcome<()> {
        let is_new = self.change(transaction, "SetFlags", |stored| {
            stored.destroy_me = is_incomplete(flags);
            stored.header.in_service = flags & volume_flag::OUT_OF_SERVICE == 0;
        })?;
        self.core.transactions.update(transaction, |found| found.flags = flags);
        if is_new || is_incomplete(flags) {
            return Ok(());
        }
        let lease = self.lease(transaction, "SetFlags")?;
        // With this `vos` takes a volume for complete, and may change the database at once.
        lease.volume.write_out(true).map_err(|error| failed(&lease.volume, &error))
    }

    pub(super) fn flags(&self, transaction: i32) -> Outcome<i32> {
        let lease = self.lease(transaction, "GetFlags")?;
        let stored = self.open(&lease)?.stored();
        let incomplete = if stored.destroy_me { volume_flag::DELETE_ON_SALVAGE } else { 0 };
        Ok(incomplete | if stored.header.in_service { 0 } else { volume_flag::OUT_OF_SERVICE })
    }

    pub(super) fn set_ids(
        &self,
        transaction: i32,
        name: &[u8],
        kind: i32,
        (parent, clone, backup): (VolumeId, VolumeId, VolumeId),
    ) -> Outcome<()> {
        check_name(name)?;
        let kind = kind_of(kind)?;
        self.change(transaction, "SetIdsTypes", |stored| {
            stored.header.name = name.to_vec();
            stored.header.kind = kind;
            stored.header.parent = parent;
            stored.header.clone = clone;
            stored.backup = backup;
        })
        .map(drop)
    }

    pub(super) fn set_date(&self, transaction: i32, date: Date) -> Outcome<()> {
        self.change(transaction, "SetDate", |stored| stored.header.creation_date = date).map(drop)
    }

    pub(super) fn set_info(&self, transaction: i32, info: &VolumeInfo) -> Outcome<()> {
        let date = |date: Date| given(date.0.cast_signed()).map(Date);
        self.change(transaction, "SetInfo", |stored| {
            let header = &mut stored.header;
            header.quota = given(info.quota).unwrap_or(header.quota);
            header.day_use = given(info.day_use).unwrap_or(header.day_use);
            header.creation_date = date(info.creation_date).unwrap_or(header.creation_date);
            header.update_date = date(info.update_date).unwrap_or(header.update_date);
        })
        .map(drop)
    }

    pub(super) fn name(&self, transaction: i32) -> Outcome<crate::wire::Text<256>> {
        let lease = self.lease(transaction, "GetName")?;
        let name = self.open(&lease)?.header().name;
        crate::wire::Text::new(name).ok_or(errno::E2BIG)
    }
}
