//! Calls on volumes, and statistics of the server.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{FileServer, Outcome};
use crate::calls::fileserver::{Message, Name, StatisticsReply, VolumeStatusReply};
use crate::errors::errno;
use crate::server::access::{Caller, need};
use crate::server::chain;
use crate::server::volume::Access;
use crate::types::{Date, FetchVolumeStatus, StoreVolumeStatus, VolumeId, VolumeType};
use crate::wire::{Flag, List};

/// The version of the statistics (`AFS_XSTAT_VERSION`).
pub(super) const STATISTICS_VERSION: i32 = 2;
/// The collection with the counts of calls (`AFS_XSTATSCOLL_CALL_INFO`).
const CALLS: i32 = 0;
/// The collection with the counts and times of calls (`AFS_XSTATSCOLL_PERF_INFO`).
const PERFORMANCE: i32 = 1;
/// The collection with all of them (`AFS_XSTATSCOLL_FULL_PERF_INFO`).
const FULL: i32 = 2;
/// The collection with the counts of promises (`AFS_XSTATSCOLL_CBSTATS`).
const CALLBACKS: i32 = 3;
/// Words of the collections that have a fixed size.
const PERFORMANCE_WORDS: usize = 64;
const CALLBACK_WORDS: usize = 15;

/// A number of the wire, which ends at 2^31.
fn narrow(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

impl FileServer {
    pub(super) fn volume_status(&self, _caller: &Caller, id: VolumeId) -> Outcome<VolumeStatusReply> {
        if id.0 == 0 {
            return Err(errno::EINVAL);
        }
        let volume = self.volume(id)?;
        let open = volume.enter(Access::Read)?;
        let space = volume.partition.space().map_err(|error| {
            tracing::error!(volume = id.0, error = chain(&error), "the space of the partition can't be read");
            errno::EIO
        })?;
        let header = open.header();
        let status = FetchVolumeStatus {
            id,
            parent: header.parent,
            online: Flag(1),
            in_service: Flag(header.in_service.into()),
            blessed: Flag(header.blessed.into()),
            needs_salvage: Flag(0),
            kind: i32::from(header.kind == VolumeType::ReadWrite),
            min_quota: narrow(header.min_quota.into()),
            quota: narrow(header.quota.into()),
            used: narrow(header.disk_used.into()),
            partition_free: narrow(space.free),
            partition_size: narrow(space.total),
        };
        let text = |bytes: &[u8]| Message::new(bytes.to_vec()).unwrap_or_default();
        Ok(VolumeStatusReply {
            status,
            name: Name::new(header.name.clone()).unwrap_or_default(),
            offline_message: text(&header.offline_message),
            motd: text(&header.motd),
        })
    }

    pub(super) fn set_volume_status(
        &self,
        caller: &Caller,
        id: VolumeId,
        set: &StoreVolumeStatus,
        (name, offline_message): (&Name, &Message),
    ) -> Outcome<()> {
        need(caller.is_administrator())?;
        let volume = self.volume(id)?;
        let open = volume.enter(Access::Change)?;
        let quota = |value: i32| u32::try_from(value).map_err(|_| errno::EINVAL);
        if set.mask & StoreVolumeStatus::QUOTA != 0 {
            let quota = quota(set.quota)?;
            open.change_header(|stored| stored.header.quota = quota);
        }
        if set.mask & StoreVolumeStatus::MIN_QUOTA != 0 {
            let quota = quota(set.min_quota)?;
            open.change_header(|stored| stored.header.min_quota = quota);
        }
        open.change_header(|stored| {
            if !name.as_bytes().is_empty() {
                stored.header.name = name.as_bytes().to_vec();
            }
            if !offline_message.as_bytes().is_empty() {
                stored.header.offline_message = offline_message.as_bytes().to_vec();
            }
        });
        open.flush().map(drop).map_err(|error| {
            tracing::error!(volume = id.0, error = chain(&error), "the header can't be stored");
            errno::EIO
        })
    }

    /// Statistics: the layouts of OpenAFS, with zeros for what this server does not count.
    pub(super) fn statistics(&self, collection: i32) -> Outcome<StatisticsReply> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32;
        let words = match collection {
            CALLS => Vec::new(),
            PERFORMANCE | FULL => vec![0; PERFORMANCE_WORDS],
            CALLBACKS => {
                let mut words = vec![0; CALLBACK_WORDS];
                words[0] = narrow(self.core.callbacks.count() as u64);
                words
            }
            _ => Vec::new(),
        };
        let data = List::new(words).expect("the collections are short");
        Ok(StatisticsReply { version: STATISTICS_VERSION, time: Date(now), data })
    }
}
