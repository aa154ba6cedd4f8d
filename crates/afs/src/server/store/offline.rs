//! Volumes of a partition that no server has: of a pool that is only read.
//!
//! # Theory
//! A server that starts brings in order what a crash left half-made. A reader can't. So this module
//! says of each volume which dataset has the files that it would have then, and which header.

use dsl::Source;
use poolhouse::Pool;
use zpl::FileSystem;

use super::left::{Failures, contents, of_name};
use super::{Found, Head, NEW, PARTITION, STATE, State, header_property, user_text};
use crate::server::header::Stored;
use crate::server::{Error, Result};
use crate::types::VolumeId;

/// A partition that no server has.
#[derive(Debug)]
pub struct Offline {
    /// Its letters; `None`: the property can't be read, or is not set.
    pub letters: Option<String>,
    /// Its volumes and clones, by number.
    pub volumes: Vec<OnDisk>,
    /// Volumes and clones that were never completed. A server that starts destroys them.
    pub unfinished: Vec<VolumeId>,
    /// Datasets that could not be read.
    pub failures: Failures,
    pool: Pool,
    crashes: u32,
}

/// A volume or clone as it lies in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDisk {
    /// Its number.
    pub id: VolumeId,
    /// The dataset with its files: a file system or snapshot.
    pub dataset: String,
    header: HeaderPlace,
}

/// Where a header is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HeaderPlace {
    /// In the master node.
    Files,
    /// In the property of a dataset: the volume was given another number, or other contents.
    Property(String),
    /// In the property of a snapshot: a clone.
    Clone(String),
}

/// The partitions of a pool: file systems with the property [`PARTITION`] of their own.
///
/// A file system that can't be read is reported with its error.
///
/// # Errors
/// [`Error::Pool`]: the datasets can't be listed.
pub fn partitions(pool: &Pool) -> Result<(Vec<String>, Failures)> {
    let list = || pool.dsl().list_sorted(None, &dsl::ListOptions::default());
    let listing = pool.spa().read(list).map_err(poolhouse::Error::from)?;
    let (mut found, mut failures) = (Vec::new(), listing.failures);
    for dataset in &listing.datasets {
        match pool.spa().read(|| dataset.user_property(PARTITION)) {
            Ok(Some(property)) if property.source == Source::Local => {
                found.push(dataset.name());
            }
            Ok(_) => {}
            Err(error) => failures.push((dataset.name(), error)),
        }
    }
    Ok((found, failures))
}

impl Offline {
    /// The partition that is this file system.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such dataset, or its children can't be listed.
    pub fn open(pool: &Pool, partition: &str) -> Result<Self> {
        let root = pool.dataset(partition)?;
        let contents = contents(pool, partition)?;
        let mut failures = contents.failures;
        let mut property = |name| {
            let failed = |error| failures.push((partition.to_owned(), error));
            user_text(pool, root.dsl(), name).map_err(failed).ok().flatten()
        };
        let (letters, state) = (property(PARTITION), property(STATE));
        let mut found = contents.volumes;
        // One whose properties can't be read may have files that can.
        found.extend(failures.iter().filter_map(|(name, _)| of_name(partition, name)));
        let left = contents.left;
        let mut all = Self {
            letters,
            volumes: Vec::new(),
            unfinished: left.incomplete.clone(),
            failures,
            pool: pool.clone(),
            crashes: State::parse(state.as_deref()).crashes,
        };
        // A clone that was to take the place of another: it does, if that is gone.
        let is_clone = |id: VolumeId| move |found: &Found| matches!(found, Found::Snapshot { id: other, .. } if *other == id);
        for (head, id) in left.new_clones {
            if !found.iter().any(is_clone(id)) {
                let dataset = format!("{partition}/{head}@{id}{NEW}");
                all.volumes.push(OnDisk { id, header: HeaderPlace::Clone(dataset.clone()), dataset });
            }
        }
        for found in found {
            match found {
                Found::Snapshot { id, head } => {
                    let dataset = format!("{partition}/{head}@{id}");
                    let is_marked = left.incomplete_clones.contains(&(head, id));
                    if is_marked && header_property(pool, &dataset, id).is_ok_and(|it| it.destroy_me) {
                        all.unfinished.push(id);
                        continue;
                    }
                    all.volumes.push(OnDisk { id, header: HeaderPlace::Clone(dataset.clone()), dataset });
                }
                Found::Dataset(id) => {
                    let name = format!("{partition}/{}", Head::of(id));
                    let is_received = left.received.contains(&id);
                    if is_received && header_property(pool, &name, id).is_ok_and(|it| it.destroy_me) {
                        all.unfinished.push(id);
                        continue;
                    }
                    let header = if left.detached.contains(&id) {
                        HeaderPlace::Clone(format!("{name}@{id}"))
                    } else if is_received || left.pending.contains(&id) {
                        HeaderPlace::Property(name.clone())
                    } else {
                        HeaderPlace::Files
                    };
                    all.volumes.push(OnDisk { id, dataset: name, header });
                }
            }
        }
        all.volumes.sort_by(|a, b| (a.id, &a.dataset).cmp(&(b.id, &b.dataset)));
        all.volumes.dedup_by(|a, b| a.dataset == b.dataset);
        Ok(all)
    }

    /// The files of a volume, for reading.
    ///
    /// # Errors
    /// [`Error::Pool`]: the file system can't be read, or its key is not loaded.
    pub fn files(&self, volume: &OnDisk) -> Result<FileSystem> {
        Ok(self.pool.dataset(&volume.dataset)?.filesystem()?)
    }

    /// The header of a volume, as a server that starts would have it. `files` are the volume's.
    ///
    /// # Errors
    /// * [`Error::Header`]: there is none.
    /// * [`Error::Malformed`], [`Error::Format`]: it is damaged.
    /// * [`Error::Pool`], [`Error::Files`]: it can't be read.
    pub fn header(&self, volume: &OnDisk, files: &FileSystem) -> Result<Stored> {
        let id = volume.id;
        let of_files = || Stored::read(files)?.ok_or(Error::Header { volume: id });
        let mut stored = match &volume.header {
            HeaderPlace::Files => of_files()?,
            HeaderPlace::Clone(dataset) => header_property(&self.pool, dataset, id)?,
            HeaderPlace::Property(dataset) => match header_property(&self.pool, dataset, id)? {
                stored if stored.header.id == id => stored,
                // It was not renamed.
                _ => of_files()?,
            },
        };
        stored.header.id = id;
        if !matches!(volume.header, HeaderPlace::Clone(_)) {
            stored.note_crashes(self.crashes);
        }
        Ok(stored)
    }

    /// The name of a volume without its header.
    pub fn name(&self, volume: &OnDisk) -> Option<String> {
        let dataset = self.pool.dataset(&volume.dataset).ok()?;
        user_text(&self.pool, dataset.dsl(), super::NAME).ok().flatten()
    }
}
