//! Partitions of imported pools that can't be served for now.
//!
//! # Theory
//! A server that says that it has no such volume sends clients to the database, and
//! `vos syncserv` deletes the volume's entry from it. A partition whose key is not loaded has its
//! volumes all the same: the names of its datasets, which are not encrypted, are their numbers. So
//! the server knows of which volumes it must say that callers should wait.

use dsl::{ListOptions, Listed};
use observe::lock::Mutex;
use poolhouse::Pool;

use super::Result;
use super::store::{Found, of_name};
use crate::partition::PartitionId;
use crate::types::VolumeId;

/// A partition that can't be served for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    id: PartitionId,
    /// Its volumes and clones, sorted.
    volumes: Vec<VolumeId>,
}

impl Withheld {
    /// Reads which volumes a partition has. Its key is not needed.
    ///
    /// # Errors
    /// [`super::Error::Pool`]: the partition's file system can't be read.
    pub fn read(id: PartitionId, pool: &Pool, dataset: &str) -> Result<Self> {
        let all = Mutex::new(Vec::new());
        let options = ListOptions { snapshots: true, depth: Some(1), ..ListOptions::default() };
        let each = |listed: Listed| {
            let name = match listed {
                Listed::Dataset(found) => found.name(),
                // It is there, although it can't be read.
                Listed::Failed { name, .. } => name,
            };
            if let Some(Found::Dataset(id) | Found::Snapshot { id, .. }) = of_name(dataset, &name) {
                all.lock().push(id);
            }
        };
        let list = || pool.dsl().list(Some(pool.dsl().dir(dataset)?), &options, &each);
        pool.spa().read(list).map_err(poolhouse::Error::from)?;
        let mut volumes = all.into_inner();
        volumes.sort_unstable();
        Ok(Self { id, volumes })
    }

    pub(super) fn is(&self, partition: PartitionId) -> bool {
        self.id == partition
    }

    pub(super) fn has(&self, volume: VolumeId) -> bool {
        self.volumes.binary_search(&volume).is_ok()
    }
}
