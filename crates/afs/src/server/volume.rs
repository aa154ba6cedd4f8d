//! A volume of the server, from its first use to its end.
//!
//! # Life
//! The table of a server knows a volume by its number alone. The first call opens its files
//! ([`Open`]) and reads its header. A transaction of the volume server may take the volume out of
//! service ([`Service`]), and give it back.
//!
//! # Locks
//! In this order:
//!
//! 1. The gate. A call holds it for reading while it uses the files, and a transaction holds it for
//!    writing while it replaces them. No call holds it while it waits for the network.
//! 2. The locks of vnodes, in the order of their stripes.
//! 3. The locks of [`zpl`].
//! 4. The header.
//!
//! # Crash
//! * A unique is handed out only below the bound that is on disk, so none is handed out twice.
//! * Clients may know versions of data that a crash undid. So all versions of a volume grow by
//!   65,536 with each crash of its partition.
//! * The counts of space and files are written once a second. After a crash they may lack what the
//!   last seconds changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dsl::LongHold;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use zpl::FileSystem;

use super::blobs::Blobs;
use super::callbacks::VolumeCallBacks;
use super::header::Stored;
use super::known::Knowledge;
use super::locks::Locks;
use super::store::{Found, Head, Partition};
use super::{Error, Result, chain, now};
use crate::dump::VolumeHeader;
use crate::errors::volume as code;
use crate::types::{Date, PrincipalId, Unique, Vnode, VolSync, VolumeId, VolumeType};
use crate::volume::object;

/// Locks of vnodes in a volume. Vnodes with equal remainders share one.
const STRIPES: usize = 64;
/// Uniques that are reserved at a time.
const RESERVE: u32 = 1 << 16;
/// What a crash adds to the versions of data.
const CRASH_STEP: u32 = 1 << 16;
/// The search for free vnodes begins anew when it is so far beyond the number of files.
const SPARSE: u32 = 1 << 16;
/// Most numbers that one search for a free vnode looks at.
const SEARCH: u32 = 1 << 24;
/// How long other threads may take to release the files of a volume.
const CLOSING: Duration = Duration::from_secs(10);
/// How often a thread looks whether files are released.
const POLL: Duration = Duration::from_millis(1);
/// The last vnode. The numbers of OpenAFS's indices end here.
const LAST_VNODE: u32 = 1 << 30;

/// Whether clients may use a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Service {
    /// It is not opened yet, so the header decides.
    #[default]
    Unknown,
    /// They may.
    Online,
    /// They may read it. Changes get VBUSY.
    Busy,
    /// They get VOFFLINE.
    Offline,
    /// The volume is deleted: they get VNOVOL.
    Gone,
}

/// What all volumes share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The blobs of directories.
    pub blobs: Blobs,
    /// What is known of files.
    pub known: Knowledge,
    /// The volumes whose headers in memory are newer than the stored ones.
    changed: Mutex<BTreeSet<VolumeId>>,
}

impl Shared {
    /// Takes the volumes whose headers are to be written.
    pub fn take_changed(&self) -> BTreeSet<VolumeId> {
        std::mem::take(&mut *self.changed.lock())
    }

    fn forget(&self, volume: VolumeId) {
        self.blobs.forget(volume);
        self.known.forget_volume(volume);
    }
}

/// A volume or clone of a partition.
pub struct Volume {
    /// Its number.
    pub id: VolumeId,
    /// Its partition.
    pub partition: Arc<Partition>,
    /// The promises to clients.
    pub callbacks: Arc<VolumeCallBacks>,
    gate: RwLock<Gate>,
    /// Where it is.
    found: RwLock<Found>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Gate {
    service: Service,
    open: Option<Arc<Open>>,
    /// [`Volume::exclusively`] has the files.
    taken: bool,
}

/// The files of a volume, for the time of one operation.
pub struct Use<'a> {
    open: Arc<Open>,
    _gate: RwLockReadGuard<'a, Gate>,
}

impl std::ops::Deref for Use<'_> {
    type Target = Open;

    fn deref(&self) -> &Open {
        &self.open
    }
}

impl Volume {
    /// A volume that is not opened yet.
    pub fn new(
        partition: Arc<Partition>,
        found: Found,
        callbacks: Arc<VolumeCallBacks>,
        shared: Arc<Shared>,
    ) -> Self {
        let (Found::Dataset(id) | Found::Snapshot { id, .. }) = found;
        let found = RwLock::new(found);
        Self { id, partition, callbacks, gate: RwLock::default(), found, shared }
    }

    /// Where it is.
    pub fn found(&self) -> Found {
        *self.found.read()
    }

    /// Notes that it is somewhere else now.
    pub fn set_found(&self, found: Found) {
        *self.found.write() = found;
    }

    /// The file system that has it.
    pub fn head(&self) -> Head {
        match self.found() {
            Found::Dataset(id) => Head::of(id),
            Found::Snapshot { head, .. } => head,
        }
    }

    /// Whether it is a clone.
    pub fn is_clone(&self) -> bool {
        matches!(self.found(), Found::Snapshot { .. })
    }

    /// Its files, for a call of a client. `changes`: the call changes them.
    ///
    /// # Errors
    /// * VNOVOL, VOFFLINE, VBUSY: by its [`Service`].
    /// * EROFS: the call changes a clone or read-only volume.
    /// * VSALVAGE: it can't be opened. The log has the cause.
    pub fn enter(&self, changes: bool) -> std::result::Result<Use<'_>, i32> {
        let until = Instant::now() + CLOSING;
        loop {
            let gate = self.gate.read();
            match gate.service {
                Service::Gone => return Err(code::VNOVOL),
                Service::Offline => return Err(code::VOFFLINE),
                Service::Busy if changes => return Err(code::VBUSY),
                Service::Busy | Service::Online | Service::Unknown => {}
            }
            if gate.taken {
                // Files that are replaced are here again in a moment.
                drop(gate);
                if Instant::now() >= until {
                    return Err(code::VBUSY);
                }
                std::thread::sleep(POLL);
                continue;
            }
            if let Some(open) = gate.open.clone().filter(|_| gate.service != Service::Unknown) {
                if changes && open.is_read_only {
                    return Err(crate::errors::errno::EROFS);
                }
                return Ok(Use { open, _gate: gate });
            }
            drop(gate);
            self.open().map_err(|error| {
                tracing::error!(volume = self.id.0, error = chain(&error), "the volume can't be opened");
                code::VSALVAGE
            })?;
        }
    }

    /// Its files, for a call that reads and never waits. `None`: it would have to.
    pub fn try_enter(&self) -> Option<Use<'_>> {
        let gate = self.gate.try_read()?;
        let open = gate.open.clone().filter(|_| matches!(gate.service, Service::Online | Service::Busy))?;
        Some(Use { open, _gate: gate })
    }

    /// Its files, for a transaction, whether clients may use them or not.
    ///
    /// # Errors
    /// The errors of [`Partition::fs`] and [`Partition::clone_fs`]; [`Error::Header`].
    pub fn open(&self) -> Result<Arc<Open>> {
        let mut gate = self.gate.write();
        self.open_locked(&mut gate)
    }

    fn open_locked(&self, gate: &mut Gate) -> Result<Arc<Open>> {
        if gate.taken {
            return Err(Error::Busy { volume: self.id });
        }
        if let Some(open) = &gate.open {
            if gate.service == Service::Unknown {
                gate.service = open.service();
            }
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(self.open_files()?);
        if gate.service == Service::Unknown {
            gate.service = open.service();
        }
        gate.open = Some(Arc::clone(&open));
        Ok(open)
    }

    fn open_files(&self) -> Result<Open> {
        let crashes = self.partition.crashes();
        let (fs, hold, mut stored) = match self.found() {
            Found::Dataset(id) => {
                let fs = self.partition.fs(id)?;
                let stored = Stored::read(&fs)?.ok_or(Error::Header { volume: id })?;
                (fs, None, stored)
            }
            Found::Snapshot { head, id } => {
                let stored = self.partition.clone_header(head, id)?;
                let (fs, hold) = self.partition.clone_fs(head, id)?;
                (fs, hold, stored)
            }
        };
        let read_only = self.is_clone() || stored.header.kind != VolumeType::ReadWrite;
        let mut dirty = false;
        if !self.is_clone() && stored.crashes != crashes {
            let more = crashes.checked_sub(stored.crashes).unwrap_or(1);
            stored.version_base = stored.version_base.wrapping_add(more.wrapping_mul(CRASH_STEP));
            stored.crashes = crashes;
            dirty = true;
        }
        stored.header.id = self.id;
        let next_unique = stored.header.next_unique.0;
        Ok(Open {
            id: self.id,
            is_read_only: read_only,
            creation_date: AtomicU32::new(stored.header.creation_date.0),
            owner: AtomicI32::new(stored.header.owner.0),
            version_base: stored.version_base,
            head: Mutex::new(Live { stored, next_unique }),
            dirty: AtomicBool::new(dirty),
            reserving: Mutex::new(()),
            stripes: std::array::from_fn(|_| RwLock::default()),
            locks: Locks::default(),
            shared: Arc::clone(&self.shared),
            fs,
            _hold: hold,
        })
    }

    /// Its state for clients, and its files if they are open.
    pub fn state(&self) -> (Service, Option<Arc<Open>>) {
        let gate = self.gate.read();
        (gate.service, gate.open.clone())
    }

    /// Sets whether clients may use it. [`Service::Unknown`] has the header decide. Waits for calls
    /// that use it.
    pub fn set_service(&self, service: Service) {
        let mut gate = self.gate.write();
        gate.service = match (&gate.open, service) {
            (Some(open), Service::Unknown) => open.service(),
            _ => service,
        };
    }

    /// Closes its files and calls `change`, which may replace or destroy them. Meanwhile clients
    /// get VOFFLINE, or VNOVOL if the volume is gone.
    ///
    /// # Errors
    /// * [`Error::Busy`]: another thread does the same, or has the files.
    /// * The error of `change`, or of writing the header.
    pub fn exclusively<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let open = {
            let mut gate = self.gate.write();
            if gate.taken {
                return Err(Error::Busy { volume: self.id });
            }
            gate.taken = true;
            gate.open.take()
        };
        let (open, done) = match alone(open) {
            Ok(Some(open)) => {
                let closed = open.close();
                drop(open);
                (None, closed.and_then(|()| change()))
            }
            Ok(None) => (None, change()),
            Err(open) => (Some(open), Err(Error::Busy { volume: self.id })),
        };
        self.shared.forget(self.id);
        let mut gate = self.gate.write();
        gate.taken = false;
        gate.open = open;
        done
    }

    /// Writes what memory has of the header.
    ///
    /// # Errors
    /// [`Error::Files`].
    pub fn flush(&self) -> Result<()> {
        let open = self.gate.read().open.clone();
        open.map_or(Ok(()), |open| open.flush())
    }
}

/// The files when the other threads that read the header have released them; the shared ones if
/// they don't.
fn alone(open: Option<Arc<Open>>) -> std::result::Result<Option<Open>, Arc<Open>> {
    let Some(mut open) = open else { return Ok(None) };
    let until = Instant::now() + CLOSING;
    loop {
        match Arc::try_unwrap(open) {
            Ok(open) => return Ok(Some(open)),
            Err(shared) if Instant::now() >= until => return Err(shared),
            Err(shared) => open = shared,
        }
        std::thread::sleep(POLL);
    }
}

/// The open files of a volume.
pub struct Open {
    /// The volume.
    pub id: VolumeId,
    /// Whether it never changes.
    pub is_read_only: bool,
    /// When the volume was made or cloned, and its owner.
    creation_date: AtomicU32,
    owner: AtomicI32,
    version_base: u32,
    head: Mutex<Live>,
    dirty: AtomicBool,
    /// Held while uniques are reserved.
    reserving: Mutex<()>,
    stripes: [RwLock<()>; STRIPES],
    /// The locks of clients.
    pub locks: Locks,
    shared: Arc<Shared>,
    /// The files.
    pub fs: FileSystem,
    _hold: Option<LongHold>,
}

struct Live {
    /// The header. Its next unique is the bound on disk.
    stored: Stored,
    next_unique: u32,
}

impl Open {
    fn service(&self) -> Service {
        let head = self.head.lock();
        match head.stored.header.in_service && head.stored.header.blessed && !head.stored.destroy_me {
            true => Service::Online,
            false => Service::Offline,
        }
    }

    /// The header as it is now.
    pub fn header(&self) -> VolumeHeader {
        self.stored().header
    }

    /// The stored header as it is now.
    pub fn stored(&self) -> Stored {
        let head = self.head.lock();
        let mut stored = head.stored.clone();
        stored.header.next_unique = Unique(head.next_unique);
        stored
    }

    /// Changes the header in memory. [`Self::flush`] writes it.
    pub fn change_header(&self, change: impl FnOnce(&mut Stored)) {
        let mut head = self.head.lock();
        let bound = head.stored.header.next_unique;
        change(&mut head.stored);
        head.stored.header.next_unique = bound;
        self.creation_date.store(head.stored.header.creation_date.0, Ordering::Relaxed);
        self.owner.store(head.stored.header.owner.0, Ordering::Relaxed);
        drop(head);
        self.note_change();
    }

    /// What tells clients that the volume was replaced.
    pub fn sync(&self) -> VolSync {
        VolSync { creation_date: Date(self.creation_date.load(Ordering::Relaxed)) }
    }

    /// The owner of the volume.
    pub fn owner(&self) -> PrincipalId {
        PrincipalId(self.owner.load(Ordering::Relaxed))
    }

    /// Notes that the header in memory is newer than the stored one.
    fn note_change(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.shared.changed.lock().insert(self.id);
        }
    }

    /// Writes the header if it changed.
    ///
    /// # Errors
    /// [`Error::Files`].
    pub fn flush(&self) -> Result<()> {
        if self.is_read_only && self._hold.is_some() || !self.fs.is_writable() {
            return Ok(());
        }
        if self.needs_uniques(RESERVE / 2) {
            self.reserve(RESERVE / 2)?;
        }
        if self.dirty.swap(false, Ordering::AcqRel) {
            let stored = self.head.lock().stored.clone();
            if let Err(error) = stored.write(&self.fs) {
                self.note_change();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the header for the last time: uniques that were reserved and not used are free again.
    fn close(&self) -> Result<()> {
        if !self.fs.is_writable() {
            return Ok(());
        }
        let stored = {
            let mut head = self.head.lock();
            let unused = head.stored.header.next_unique.0 != head.next_unique;
            head.stored.header.next_unique = Unique(head.next_unique);
            (self.dirty.swap(false, Ordering::AcqRel) || unused).then(|| head.stored.clone())
        };
        stored.map_or(Ok(()), |stored| stored.write(&self.fs))
    }

    fn needs_uniques(&self, left: u32) -> bool {
        let head = self.head.lock();
        let used = head.next_unique;
        !self.is_read_only && used > 1 && head.stored.header.next_unique.0.saturating_sub(used) < left
    }

    /// Reserves uniques unless `left` are, and waits until the reservation is on disk.
    fn reserve(&self, left: u32) -> Result<()> {
        let _one = self.reserving.lock();
        let (mut stored, bound) = {
            let head = self.head.lock();
            let bound = head.stored.header.next_unique.0;
            if bound.saturating_sub(head.next_unique) >= left {
                return Ok(());
            }
            (head.stored.clone(), Unique(bound.max(head.next_unique).saturating_add(RESERVE)))
        };
        stored.header.next_unique = bound;
        stored.write(&self.fs)?;
        self.fs.sync()?;
        self.head.lock().stored.header.next_unique = bound;
        // The header may have changed since it was copied.
        self.note_change();
        Ok(())
    }

    /// A unique for a new vnode.
    ///
    /// # Errors
    /// * VIO: the reservation can't be written.
    /// * ENOSPC: the volume has no unique left.
    pub fn next_unique(&self) -> std::result::Result<Unique, i32> {
        loop {
            {
                let mut head = self.head.lock();
                let bound = head.stored.header.next_unique.0;
                if head.next_unique < bound {
                    head.next_unique += 1;
                    let unique = Unique(head.next_unique - 1);
                    drop(head);
                    if bound - unique.0 == RESERVE / 2 {
                        // The next flush reserves more.
                        self.note_change();
                    }
                    return Ok(unique);
                }
                if head.next_unique == u32::MAX {
                    return Err(crate::errors::errno::ENOSPC);
                }
                head.next_unique = head.next_unique.max(2);
            }
            self.reserve(1).map_err(|error| {
                tracing::error!(volume = self.id.0, error = chain(&error), "no uniques can be reserved");
                code::VIO
            })?;
        }
    }

    /// A vnode that is free, for a directory or another file.
    ///
    /// # Errors
    /// * ENOSPC: none is found.
    /// * VIO: the objects can't be read.
    pub fn free_vnode(&self, directory: bool) -> std::result::Result<Vnode, i32> {
        let which = usize::from(directory);
        for _ in 0..SEARCH {
            let number = {
                let mut head = self.head.lock();
                let files = head.stored.header.file_count;
                let hint = &mut head.stored.vnode_hints[which];
                let first = 2 + which as u32;
                if *hint < first || *hint >= LAST_VNODE || *hint / 8 > files.saturating_add(SPARSE) {
                    *hint = first;
                }
                let number = *hint;
                *hint += 2;
                number
            };
            match self.fs.objset().dnode(object(Vnode(number))) {
                Err(dmu::Error::NoSuchObject { .. }) => return Ok(Vnode(number)),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(volume = self.id.0, error = chain(&error), "an object can't be read");
                    return Err(code::VIO);
                }
            }
        }
        Err(crate::errors::errno::ENOSPC)
    }

    /// Counts space in KiB and files. Growth is checked against the quota.
    ///
    /// # Errors
    /// VOVERQUOTA: nothing is counted.
    pub fn charge(&self, kib: i64, files: i64) -> std::result::Result<(), i32> {
        let mut head = self.head.lock();
        let header = &mut head.stored.header;
        let used = i64::from(header.disk_used) + kib;
        if kib > 0 && header.quota != 0 && used > i64::from(header.quota) {
            return Err(code::VOVERQUOTA);
        }
        header.disk_used = u32::try_from(used.max(0)).unwrap_or(u32::MAX);
        header.file_count = header.file_count.saturating_add_signed(files as i32);
        header.update_date = now();
        drop(head);
        self.note_change();
        Ok(())
    }

    /// Whether a growth by so many KiB fits into the quota.
    ///
    /// # Errors
    /// VOVERQUOTA.
    pub fn check_quota(&self, kib: i64) -> std::result::Result<(), i32> {
        let head = self.head.lock();
        let header = &head.stored.header;
        let over = header.quota != 0 && i64::from(header.disk_used) + kib > i64::from(header.quota);
        if kib > 0 && over { Err(code::VOVERQUOTA) } else { Ok(()) }
    }

    /// Counts space in KiB that is used already, whatever the quota says.
    pub fn charge_over(&self, kib: i64) {
        let mut head = self.head.lock();
        let used = i64::from(head.stored.header.disk_used) + kib;
        head.stored.header.disk_used = u32::try_from(used.max(0)).unwrap_or(u32::MAX);
        drop(head);
        self.note_change();
    }

    /// The version that clients see.
    pub fn version(&self, stored: u64) -> u32 {
        (stored as u32).wrapping_add(self.version_base)
    }

    /// The blobs of directories.
    pub fn blobs(&self) -> &Blobs {
        &self.shared.blobs
    }

    /// What is known of files.
    pub fn knowledge(&self) -> &Knowledge {
        &self.shared.known
    }

    /// Locks a vnode for reading, if no thread changes it or waits to.
    pub fn try_lock_shared(&self, vnode: Vnode) -> Option<RwLockReadGuard<'_, ()>> {
        self.stripes[vnode.0 as usize % STRIPES].try_read()
    }

    /// Locks a vnode for reading, by a thread that may have this lock already. `None`: another
    /// thread changes the vnode, or this one does.
    pub fn try_lock_again(&self, vnode: Vnode) -> Option<RwLockReadGuard<'_, ()>> {
        self.stripes[vnode.0 as usize % STRIPES].try_read_recursive()
    }

    /// Locks a vnode for reading.
    pub fn lock_shared(&self, vnode: Vnode) -> RwLockReadGuard<'_, ()> {
        self.stripes[vnode.0 as usize % STRIPES].read()
    }

    /// Locks vnodes for changes.
    pub fn lock(&self, vnodes: &[Vnode]) -> Vec<RwLockWriteGuard<'_, ()>> {
        let mut stripes: Vec<usize> = vnodes.iter().map(|vnode| vnode.0 as usize % STRIPES).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| self.stripes[stripe].write()).collect()
    }
}

/// The volumes of a server by their numbers.
#[derive(Default)]
pub struct Table {
    volumes: RwLock<HashMap<VolumeId, Arc<Volume>>>,
}

impl Table {
    /// The volume of this number.
    pub fn get(&self, id: VolumeId) -> Option<Arc<Volume>> {
        self.volumes.read().get(&id).cloned()
    }

    /// Adds a volume. `false`: there is one of this number.
    pub fn add(&self, volume: Arc<Volume>) -> bool {
        match self.volumes.write().entry(volume.id) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(volume);
                true
            }
        }
    }

    /// Removes a volume.
    pub fn remove(&self, id: VolumeId) {
        self.volumes.write().remove(&id);
    }

    /// All volumes in the order of their numbers.
    pub fn all(&self) -> Vec<Arc<Volume>> {
        let mut all: Vec<_> = self.volumes.read().values().cloned().collect();
        all.sort_unstable_by_key(|volume| volume.id);
        all
    }
}
