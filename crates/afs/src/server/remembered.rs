//! Promises to clients that outlive the server.
//!
//! # Theory
//! A client that hears of a restart asks again about every file that it caches. So a server that
//! ends in order keeps its clients and its promises in a file, and the next one goes on with them.
//!
//! A promise is worth something only while the volume is what it was. So the file has the guid of
//! each dataset, and the checksum of its root block. If they differ, all promises of the volume are
//! broken. Promises of a partition that does not come back have their clients reset.
//!
//! The file is used once: it is removed before the first call is served. After a crash there is
//! none, and all clients are reset. It is beside the server's UUID and not in the pool, because a
//! pool may be rewound, or go to another server. An old copy of it is of no use: each end gives a
//! partition a new nonce, which the file must have.
//!
//! # Time
//! The file has the seconds that a promise still holds, not when it ends. So the time in between
//! counts for the client alone, and clocks don't matter.
//!
//! # See
//! OpenAFS: `fsstate.dat`, `src/viced/serialize_state.h`.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use observe::lock::Mutex;

use super::callbacks::SetAside;
use super::hosts::{Hosts, SavedHost};
use super::store::{Identity, Partition};
use crate::partition::PartitionId;
use crate::types::{Unique, Vnode, VolumeId};
use crate::wire::{List, Uuid, Wire, wire_struct};

/// The first bytes of the file, with the version of its form.
const MAGIC: u64 = u64::from_be_bytes(*b"phprom\0\x01");
/// No list of the file has more entries than this.
const MOST: usize = 16 << 20;
/// No file is longer than this.
const LONGEST: u64 = 1 << 30;

wire_struct! {
    /// A promise; its host is a place in the file's list.
    pub struct SavedPromise {
        pub vnode: Vnode,
        pub unique: Unique,
        pub host: u32,
        pub seconds: u32,
    }

    /// A volume with promises.
    pub struct SavedVolume {
        pub id: VolumeId,
        pub identity: Identity,
        pub promises: List<SavedPromise, MOST>,
    }

    /// A partition, by its number and the guid of its dataset, and the nonce of its end.
    pub struct SavedPartition {
        pub id: u32,
        pub guid: u64,
        pub nonce: u64,
        pub volumes: List<SavedVolume, MOST>,
    }

    /// The file.
    pub struct Saved {
        pub magic: u64,
        pub server: Uuid,
        pub hosts: List<SavedHost, MOST>,
        pub partitions: List<SavedPartition, MOST>,
    }
}

/// The promises of a volume that is not served.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) id: VolumeId,
    pub(super) identity: Identity,
    pub(super) promises: Vec<SetAside>,
}

/// The promises of a partition that is not served.
#[derive(Debug)]
struct Part {
    id: PartitionId,
    guid: u64,
    nonce: u64,
    volumes: Vec<Kept>,
    /// It was not served yet by this process.
    is_of_file: bool,
}

/// A volume whose promises were taken back. They must be broken if its identity is another.
#[derive(Debug, Clone)]
pub(super) struct Unchecked {
    pub(super) partition: Arc<Partition>,
    pub(super) id: VolumeId,
    pub(super) identity: Identity,
}

/// The promises of partitions that are not served.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    parts: Mutex<Vec<Part>>,
    /// Hosts were taken from a file.
    has_hosts: AtomicBool,
    unchecked: Mutex<Vec<Unchecked>>,
}

impl Remembered {
    /// Reads the file that another process has left, and removes it. One that is of no use is
    /// removed, too.
    ///
    /// # Errors
    /// The file can't be read or removed. Then nothing is taken from it.
    pub(super) fn load(&self, path: &Path, server: Uuid, hosts: &Hosts) -> io::Result<()> {
        let bytes = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(about) if about.len() > LONGEST => Vec::new(),
            Ok(_) => std::fs::read(path)?,
        };
        std::fs::remove_file(path)?;
        sync_folder(path)?;
        let saved = Saved::from_bytes(&bytes).ok();
        let Some(saved) = saved.filter(|saved| saved.magic == MAGIC && saved.server == server) else {
            tracing::warn!(?path, "it has no promises of this server: clients are reset");
            return Ok(());
        };
        let hosts = hosts.restore(&saved.hosts);
        let promise = |saved: &SavedPromise| {
            let host = hosts.get(saved.host as usize)?.clone()?;
            let SavedPromise { vnode, unique, seconds, .. } = *saved;
            Some(SetAside { vnode, unique, generation: host.generation(), host, seconds })
        };
        let volume = |saved: &SavedVolume| {
            let promises = saved.promises.iter().filter_map(promise).collect();
            Kept { id: saved.id, identity: saved.identity, promises }
        };
        let part = |saved: &SavedPartition| {
            let id = PartitionId(u8::try_from(saved.id).ok()?);
            let (guid, nonce, volumes) =
                (saved.guid, saved.nonce, saved.volumes.iter().map(volume).collect());
            Some(Part { id, guid, nonce, volumes, is_of_file: true })
        };
        let parts: Vec<Part> = saved.partitions.iter().filter_map(part).collect();
        let promises: usize =
            parts.iter().flat_map(|part| &part.volumes).map(|kept| kept.promises.len()).sum();
        tracing::info!(hosts = hosts.iter().flatten().count(), promises, "clients of before are known");
        *self.parts.lock() = parts;
        self.has_hosts.store(true, Ordering::Release);
        Ok(())
    }

    /// Writes the file, if there is something to keep. Hosts that believe in more than what is
    /// remembered are left out, with all their promises.
    ///
    /// # Errors
    /// Those of the system: there is no file then.
    pub(super) fn save(&self, path: &Path, server: Uuid, hosts: &Hosts) -> io::Result<()> {
        let (numbers, hosts): (Vec<u64>, Vec<SavedHost>) = hosts.save().into_iter().unzip();
        let places: HashMap<u64, u32> = numbers.into_iter().zip(0..).collect();
        let promise = |kept: SetAside| {
            let host = *places.get(&kept.host.number())?;
            let SetAside { vnode, unique, seconds, .. } = kept;
            let holds = kept.generation == kept.host.generation();
            holds.then_some(SavedPromise { vnode, unique, host, seconds })
        };
        let volume = |kept: Kept| {
            let promises: Vec<_> = kept.promises.into_iter().filter_map(promise).collect();
            let is_needed = !promises.is_empty();
            is_needed.then(|| {
                Some(SavedVolume { id: kept.id, identity: kept.identity, promises: List::new(promises)? })
            })
        };
        let part = |part: Part| {
            let volumes: Option<Vec<_>> = part.volumes.into_iter().filter_map(volume).collect();
            let (id, guid, nonce) = (part.id.0.into(), part.guid, part.nonce);
            Some(SavedPartition { id, guid, nonce, volumes: List::new(volumes?)? })
        };
        let parts: Option<Vec<_>> = std::mem::take(&mut *self.parts.lock()).into_iter().map(part).collect();
        let saved = parts.and_then(|parts| {
            Some(Saved { magic: MAGIC, server, hosts: List::new(hosts)?, partitions: List::new(parts)? })
        });
        let Some(saved) = saved.filter(|saved| !saved.hosts.is_empty()) else { return remove(path) };
        tracing::info!(hosts = saved.hosts.len(), "clients are kept for the next start");
        write(path, &saved.to_bytes())
    }

    /// Remembers the promises of a partition.
    pub(super) fn put(&self, partition: &Partition, guid: u64, volumes: Vec<Kept>) {
        let (id, nonce) = (partition.id, partition.nonce());
        self.parts.lock().push(Part { id, guid, nonce, volumes, is_of_file: false });
    }

    /// The promises of a partition that is served again. `None`: another process may have made
    /// promises since, so that no client can be trusted to believe only in these.
    pub(super) fn take(&self, partition: &Partition, guid: u64) -> Option<Vec<Kept>> {
        let mut parts = self.parts.lock();
        let of_it = |part: &mut Part| part.id == partition.id && part.guid == guid;
        let taken: Vec<Part> = parts.extract_if(.., of_it).collect();
        let is_new = taken.is_empty() && !partition.was_served();
        let is_right = taken.iter().any(|part| Some(part.nonce) == partition.nonce_before());
        // Once all hosts were reset, nothing of the file is left to doubt.
        let is_trusted = is_new || is_right || !self.has_hosts.swap(false, Ordering::AcqRel);
        is_trusted.then(|| taken.into_iter().flat_map(|part| part.volumes).collect())
    }

    /// Forgets the promises of a file that no partition has taken. Their clients are reset.
    pub(super) fn forsake(&self) {
        let of_file: Vec<Part> = self.parts.lock().extract_if(.., |part| part.is_of_file).collect();
        for kept in of_file.into_iter().flat_map(|part| part.volumes) {
            kept.promises.iter().for_each(|promise| promise.host.owe_reset());
        }
    }

    /// Has a volume checked later.
    pub(super) fn check_later(&self, volume: Unchecked) {
        self.unchecked.lock().push(volume);
    }

    /// Checks the next volume, if there is one. It counts as unchecked until then.
    pub(super) fn check_next(&self, check: impl FnOnce(&Unchecked)) -> bool {
        let Some(next) = self.unchecked.lock().last().cloned() else { return false };
        check(&next);
        let is_it = |one: &Unchecked| one.id == next.id && Arc::ptr_eq(&one.partition, &next.partition);
        let mut unchecked = self.unchecked.lock();
        // Others may have come meanwhile.
        if let Some(at) = unchecked.iter().rposition(is_it) {
            unchecked.swap_remove(at);
        }
        true
    }

    /// Whether all volumes were checked.
    pub(super) fn is_checked(&self) -> bool {
        self.unchecked.lock().is_empty()
    }

    /// The volumes of a partition that were not checked.
    pub(super) fn unchecked(&self, id: PartitionId) -> Vec<VolumeId> {
        let of_it = |one: &mut Unchecked| one.partition.id == id;
        self.unchecked.lock().extract_if(.., of_it).map(|one| one.id).collect()
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Writes a file that is never seen half-written.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.and_then(|()| std::fs::rename(&new, path)).inspect_err(|_| _ = std::fs::remove_file(&new))?;
    sync_folder(path)
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(path),
    }
}
