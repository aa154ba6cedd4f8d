//! Lists of volumes, partitions and transactions.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Outcome, VolumeServer};
use crate::calls::volserver::{MAX_PARTITIONS, MAX_TRANSACTIONS, MAX_VOLUMES};
use crate::errors::{errno, volser, volume as code};
use crate::partition::PartitionId;
use crate::server::chain;
use crate::server::header::Service as State;
use crate::server::header::Stored;
use crate::server::store::{Headers, Partition as Store, Space};
use crate::server::table::Listed;
use crate::types::{
    Date, Partition, Partition64, TransactionStatus, Unique, VOK, VolumeId, VolumeInfo, VolumeStatus,
    XVolumeInfo,
};
use crate::wire::{Chars, Flag, List, Short};

/// So few volumes are looked at one by one, except by tests.
const FEW: usize = if cfg!(debug_assertions) { 0 } else { 64 };
/// Seconds of a day.
const DAY: u32 = 24 * 3600;
/// The value of a volume that is to be destroyed (`DESTROY_ME`).
const DESTROY_ME: u8 = 0xd3;

fn narrow(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn wide(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Uses today.
fn day_use(stored: &Stored) -> i32 {
    let today = crate::server::now().0.saturating_sub(stored.header.day_use_date.0) <= DAY;
    if today { narrow(stored.header.day_use.into()) } else { 0 }
}

fn info(id: VolumeId, stored: &Stored, online: bool) -> VolumeInfo {
    let header = &stored.header;
    VolumeInfo {
        name: Chars::new(&header.name),
        id,
        kind: header.kind as i32,
        backup: stored.backup,
        parent: header.parent,
        clone: header.clone,
        status: VOK,
        copy_date: stored.copy_date,
        in_use: Flag(online.into()),
        needs_salvaged: Flag(0),
        destroy_me: Flag(if stored.destroy_me { DESTROY_ME } else { 0 }),
        creation_date: header.creation_date,
        access_date: header.access_date,
        update_date: header.update_date,
        backup_date: header.backup_date,
        day_use: day_use(stored),
        file_count: narrow(header.file_count.into()),
        quota: narrow(header.quota.into()),
        size: narrow(header.disk_used.into()),
        flags: 0,
        min_quota: narrow(header.min_quota.into()),
        week_use: narrow(header.week_use.iter().map(|uses| u64::from(*uses)).sum()),
        update_counter: 0,
        spare: 0,
    }
}

fn x_info(info: VolumeInfo) -> XVolumeInfo {
    XVolumeInfo {
        name: info.name,
        id: info.id,
        kind: info.kind,
        backup: info.backup,
        parent: info.parent,
        clone: info.clone,
        status: info.status,
        copy_date: info.copy_date,
        in_use: info.in_use,
        creation_date: info.creation_date,
        access_date: info.access_date,
        update_date: info.update_date,
        backup_date: info.backup_date,
        day_use: info.day_use,
        file_count: info.file_count,
        quota: info.quota,
        size: info.size,
        ..XVolumeInfo::default()
    }
}

/// The headers that a partition keeps, and its volumes whose headers memory had before those were
/// read.
#[derive(Default)]
struct Kept {
    in_memory: HashSet<VolumeId>,
    headers: Headers,
}

impl Kept {
    /// The header of a volume of which memory has none.
    fn header(&self, volume: &Listed) -> Option<Stored> {
        let is_in_memory = match volume {
            Listed::Resting { id, .. } => self.in_memory.contains(id),
            Listed::Used(used) => used.has_header() || self.in_memory.contains(&used.id),
        };
        if is_in_memory { None } else { self.headers.get(volume.found()) }
    }
}

impl VolumeServer {
    /// A volume of a list. `all` are the headers of a list of all, in which incomplete ones are
    /// left out.
    fn listed(&self, volume: &Listed, all: Option<&Kept>) -> Option<VolumeInfo> {
        let (id, several) = (volume.id(), all.is_some());
        if self.core.transactions.has(id) {
            return Some(VolumeInfo { id, status: code::VBUSY, ..VolumeInfo::default() });
        }
        let of_disk = all.and_then(|all| all.header(volume)).map(Stored::of_disk);
        match of_disk.map_or_else(|| volume.peek(), Ok) {
            Ok(stored) => {
                let online = matches!(volume.service_as(&stored), State::Online | State::Busy);
                (!several || !stored.destroy_me).then(|| info(id, &stored, online))
            }
            Err(error) => {
                tracing::warn!(volume = id.0, error = chain(&error), "the volume can't be listed");
                Some(VolumeInfo { id, status: 0, ..VolumeInfo::default() })
            }
        }
    }

    /// The headers that a partition keeps.
    fn kept(&self, partition: &Store) -> Kept {
        // Before the headers are read: the other volumes have theirs on disk.
        let in_memory = self.core.table.with_headers(partition.id);
        let headers = partition.headers(&in_memory).unwrap_or_else(|error| {
            tracing::warn!(partition = %partition.id, error = chain(&error), "the headers of its volumes are read one by one");
            None
        });
        Kept { in_memory, headers: headers.unwrap_or_default() }
    }

    pub(super) fn list(&self, partition: i32, flags: i32) -> Outcome<List<VolumeInfo, MAX_VOLUMES>> {
        let partition = self.partition(partition)?;
        let ids = self.core.table.ids(Some(partition.id), 0);
        let listed = match flags {
            0 => ids.into_iter().map(|id| VolumeInfo { id, ..VolumeInfo::default() }).collect(),
            _ => {
                let kept = if ids.len() > FEW { self.kept(&partition) } else { Kept::default() };
                let volumes = ids.into_iter().filter_map(|id| self.core.table.look(id));
                volumes.filter_map(|volume| self.listed(&volume, Some(&kept))).collect()
            }
        };
        List::new(listed).ok_or(errno::E2BIG)
    }

    pub(super) fn x_list(&self, partition: i32, flags: i32) -> Outcome<List<XVolumeInfo, MAX_VOLUMES>> {
        let listed = self.list(partition, flags)?.into_vec();
        List::new(listed.into_iter().map(x_info).collect()).ok_or(errno::E2BIG)
    }

    pub(super) fn list_one(&self, partition: i32, id: VolumeId) -> Outcome<List<VolumeInfo, MAX_VOLUMES>> {
        super::name_volume(id);
        let partition = self.partition(partition)?.id;
        let found = self.core.table.look(id).filter(|found| found.partition().id == partition);
        let volume = found.ok_or_else(|| match self.core.no_volume(id) {
            code::VNOVOL => errno::ENODEV,
            code => code,
        })?;
        List::new(self.listed(&volume, None).into_iter().collect()).ok_or(errno::E2BIG)
    }

    pub(super) fn x_list_one(&self, partition: i32, id: VolumeId) -> Outcome<List<XVolumeInfo, MAX_VOLUMES>> {
        let listed = self.list_one(partition, id)?.into_vec();
        List::new(listed.into_iter().map(x_info).collect()).ok_or(errno::E2BIG)
    }

    pub(super) fn status(&self, transaction: i32) -> Outcome<VolumeStatus> {
        let lease = self.lease(transaction, "GetStatus")?;
        let stored = self.open(&lease)?.stored();
        let header = &stored.header;
        let Unique(next) = header.next_unique;
        Ok(VolumeStatus {
            id: lease.volume.id,
            next_unique: next.cast_signed(),
            kind: header.kind as i32,
            parent: header.parent,
            clone: header.clone,
            backup: stored.backup,
            restored_from: VolumeId(0),
            quota: narrow(header.quota.into()),
            min_quota: narrow(header.min_quota.into()),
            owner: header.owner,
            creation_date: header.creation_date,
            access_date: header.access_date,
            update_date: header.update_date,
            expiration_date: header.expiration_date,
            backup_date: header.backup_date,
            copy_date: stored.copy_date,
        })
    }

    pub(super) fn list_partitions(&self) -> [i32; 26] {
        let mut all = [-1; 26];
        let partitions = self.core.partitions();
        let numbers = partitions.iter().map(|partition| partition.id.0).filter(|id| *id < 26);
        all.iter_mut().zip(numbers).for_each(|(place, id)| *place = id.into());
        all
    }

    pub(super) fn x_list_partitions(&self) -> List<i32, MAX_PARTITIONS> {
        let all = self.core.partitions().iter().map(|partition| partition.id.0.into()).collect();
        List::new(all).expect("a server has as many partitions at most")
    }

    fn named_partition(&self, name: &[u8]) -> Outcome<(Arc<Store>, Space)> {
        let id = std::str::from_utf8(name).ok().and_then(PartitionId::parse);
        let id = id.ok_or(volser::VOLSERILLEGAL_PARTITION)?;
        let partition = self.core.partition(id);
        let partition = partition.ok_or_else(|| self.core.no_partition(id))?;
        let space = partition.space().map_err(|error| {
            tracing::error!(partition = %partition.id, error = chain(&error), "the space of the partition can't be read");
            errno::EIO
        })?;
        Ok((partition, space))
    }

    pub(super) fn partition_info(&self, name: &[u8]) -> Outcome<Partition> {
        let (partition, space) = self.named_partition(name)?;
        Ok(Partition {
            name: Chars::new(partition.id.to_string().as_bytes()),
            device: Chars::new(partition.dataset().as_bytes()),
            lock: 0,
            total: narrow(space.total),
            free: narrow(space.free),
            min_free: narrow(space.total),
        })
    }

    pub(super) fn partition_info_64(&self, name: &[u8]) -> Outcome<Partition64> {
        let (partition, space) = self.named_partition(name)?;
        Ok(Partition64 {
            name: Chars::new(partition.id.to_string().as_bytes()),
            device: Chars::new(partition.dataset().as_bytes()),
            lock: 0,
            total: wide(space.total),
            free: wide(space.free),
            min_free: wide(space.total),
        })
    }

    pub(super) fn monitor(&self) -> List<TransactionStatus, MAX_TRANSACTIONS> {
        let entry = |found: super::Transaction| TransactionStatus {
            id: found.id,
            time: found.used,
            creation_time: found.begun,
            code: 0,
            volume: found.volume.id,
            partition: found.volume.partition.id.0.into(),
            attach_flags: Short(found.attach as u16),
            volume_flags: Flag(found.flags as u8),
            flags: Flag(found.is_deleted.into()),
            last_call: Chars::new(found.last_call.as_bytes()),
            has_call: found.is_running.into(),
            read_next: 0,
            send_next: 0,
            last_send: Date(0),
            last_receive: Date(0),
        };
        let all = self.core.transactions.all();
        List::new(all.into_iter().take(MAX_TRANSACTIONS).map(entry).collect()).expect("the list is cut")
    }
}
