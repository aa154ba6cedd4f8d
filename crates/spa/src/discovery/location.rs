//! The location of a device: a file or block device, or a partition in one.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, DeviceError, FileDevice, Layer, Mode, Region};
use observe::lock::Mutex;
use ondisk::{gpt, mbr};

use crate::aux_devices;
use crate::discovery::probe;

/// A partition of an image or disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// Its number in the table, from 1.
    pub number: u32,
    /// Offset of its first byte.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Where a device is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceLocation {
    /// The file or block device.
    pub path: PathBuf,
    /// The part of it, if it is not the whole.
    pub partition: Option<Partition>,
}

impl DeviceLocation {
    /// The whole of `path`.
    pub fn whole(path: impl Into<PathBuf>) -> DeviceLocation {
        DeviceLocation { path: path.into(), partition: None }
    }
}

/// Writes the path; for a partition, then `#` and its number.
impl std::fmt::Display for DeviceLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.partition {
            Some(p) => write!(f, "{}#{}", self.path.display(), p.number),
            None => self.path.display().fmt(f),
        }
    }
}

/// The identity of a file: two names of one device have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Identity {
    File { dev: u64, ino: u64 },
    Block { rdev: u64 },
}

impl Identity {
    /// The identity of the device at a path, if it is one.
    pub(crate) fn of_path(path: &Path) -> Option<Identity> {
        path.metadata().ok().as_ref().and_then(Identity::of)
    }

    /// The identity of a regular file or block device. Other kinds have none and are never opened.
    pub(crate) fn of(meta: &Metadata) -> Option<Identity> {
        if meta.file_type().is_block_device() {
            Some(Identity::Block { rdev: meta.rdev() })
        } else if meta.file_type().is_file() {
            Some(Identity::File { dev: meta.dev(), ino: meta.ino() })
        } else {
            None
        }
    }
}

/// Devices opened for one purpose: each file once, under whatever names it is opened. A lock on a
/// file excludes its own process too.
pub(crate) struct Openings {
    mode: Mode,
    layer: Layer,
    open: Mutex<HashMap<Identity, Arc<dyn Device>>>,
}

impl Openings {
    pub(crate) fn new(mode: Mode, layer: Layer) -> Openings {
        Openings { mode, layer, open: Mutex::new(HashMap::new()) }
    }

    /// Opens what is at a place.
    pub(crate) fn open(&self, place: &DeviceLocation) -> device::Result<Arc<dyn Device>> {
        let whole = self.whole(&place.path)?;
        Ok(match place.partition {
            Some(p) => Arc::new(Region::new(whole, p.offset, p.size, &place.to_string())?),
            None => whole,
        })
    }

    /// The device that has a place, if it is open.
    pub(crate) fn opened(&self, place: &DeviceLocation) -> Option<Arc<dyn Device>> {
        let identity = probe::one(&place.path, Identity::of_path).flatten()?;
        self.open.lock().get(&identity).cloned()
    }

    /// Closes what is at a place, unless another part of it is in use.
    pub(crate) fn release(&self, place: &DeviceLocation) {
        let Some(identity) = probe::one(&place.path, Identity::of_path).flatten() else { return };
        let mut open = self.open.lock();
        if open.get(&identity).is_some_and(|device| Arc::strong_count(device) == 1) {
            open.remove(&identity);
        }
    }

    fn whole(&self, path: &Path) -> device::Result<Arc<dyn Device>> {
        let name = || path.display().to_string();
        let silent = || io::Error::from(io::ErrorKind::TimedOut);
        let meta = probe::one(path, |path| path.metadata()).unwrap_or_else(|| Err(silent()));
        let meta = meta.map_err(|source| DeviceError::Open { device: name(), source })?;
        let identity = Identity::of(&meta).ok_or_else(|| DeviceError::NotADevice { device: name() })?;
        // The lock is held across opening, because two threads must not open one file twice.
        // Opening is rare, and quick or given up ([`ask`](crate::ask)).
        let mut open = self.open.lock();
        if let Some(device) = open.get(&identity) {
            return Ok(device.clone());
        }
        let mode = self.mode;
        if matches!(mode, Mode::Own | Mode::Write)
            && let Some(held) = aux_devices::lend(identity, path, &self.layer)
        {
            let device = held?;
            open.insert(identity, device.clone());
            return Ok(device);
        }
        let opened = probe::one(path, move |path| FileDevice::open(path, mode));
        let opened = opened.unwrap_or_else(|| Err(DeviceError::Open { device: name(), source: silent() }))?;
        let device = self.layer.around(Arc::new(opened));
        open.insert(identity, device.clone());
        Ok(device)
    }
}

/// Longest chain of logical partitions that is followed: Linux's own limit is far lower.
const MAX_LOGICAL: usize = 256;

/// The partitions of an image or disk.
///
/// They come from its GUID partition table, or its backup if the primary is damaged. Without such a
/// table, they come from the master boot record. Empty if there is neither, or neither can be read.
pub fn partitions(device: &dyn Device) -> Vec<Partition> {
    for sector in gpt::SECTOR_SIZES {
        let places = [Some(gpt::primary_offset(sector)), gpt::backup_offset(sector, device.size())];
        for at in places.into_iter().flatten() {
            if let Some(found) = partition_table(device, sector, at) {
                let part =
                    |p: &gpt::Partition| Partition { number: p.number, offset: p.offset, size: p.size };
                return found.iter().map(part).collect();
            }
        }
    }
    boot_record(device)
}

fn partition_table(device: &dyn Device, sector: u64, at: u64) -> Option<Vec<gpt::Partition>> {
    let mut buf = vec![0; sector as usize];
    device.read_at(&mut buf, at).ok()?;
    let header = gpt::Header::decode(&buf, at, device.size()).ok()?;
    let mut entries = vec![0; header.entries_len()];
    device.read_at(&mut entries, header.entries_offset()).ok()?;
    header.partitions(&entries).ok()
}

/// The partitions of a master boot record: up to four primary ones, and the logical ones, numbered
/// from 5.
fn boot_record(device: &dyn Device) -> Vec<Partition> {
    let mut found = Vec::new();
    let mut extended = None;
    for (entry, number) in record(device, 0).into_iter().flatten().zip(1..) {
        match entry {
            Some(e) if e.is_extended() => extended = extended.or(Some(e)),
            Some(e) if !e.is_protective() => {
                found.push(Partition { number, offset: e.offset, size: e.size });
            }
            _ => {}
        }
    }
    let mut next = extended.map(|e| e.offset);
    for number in (5..).take(MAX_LOGICAL) {
        let Some(at) = next else { break };
        let Some([logical, link, ..]) = record(device, at) else { break };
        if let Some(e) = logical.filter(|e| !e.is_extended()) {
            found.push(Partition { number, offset: at + e.offset, size: e.size });
        }
        // A chain that leads back would loop.
        next = link.zip(extended).map(|(l, e)| e.offset + l.offset).filter(|n| *n > at);
    }
    found.retain(|p| p.offset + p.size <= device.size());
    found
}

fn record(device: &dyn Device, at: u64) -> Option<[Option<mbr::Entry>; 4]> {
    let mut sector = [0; mbr::SECTOR as usize];
    device.read_at(&mut sector, at).ok()?;
    mbr::decode(&sector).ok()
}

#[cfg(test)]
mod tests;
