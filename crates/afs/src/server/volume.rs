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
//! 2. The locks of vnodes, in the order of their stripes, or without a wait.
//! 3. The locks of [`zpl`].
//! 4. The header.
//!
//! # Crash
//! * A unique is handed out only below the bound that is on disk, so none is handed out twice.
//! * Clients may know versions of data that a crash undid. So all versions of a volume grow by
//!   65,536 with each crash of its partition.
//! * The counts of space and files are written once a second. A volume that was changed since it
//!   was opened says so in its header ([`Open::begin_changes`]). After a crash, its first use
//!   counts its files anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use observe::lock::{Mutex, RwLock, RwLockReadGuard};
use ondisk::Txg;

use super::activity::volumes::Usage;
use super::callbacks::VolumeCallBacks;
use super::header::{Service, Stored};
use super::instance::Instance;
use super::locks::Locks;
use super::open::Open;
use super::shared::Shared;
use super::store::{Found, Head, Partition};
use super::{Error, Result, chain};
use crate::errors::volume as code;
use crate::types::{PrincipalId, Vnode, VolumeId, VolumeType};

/// How long other threads may take to release the files of a volume.
const CLOSING: Duration = Duration::from_secs(10);
/// How long [`Volume::look`] waits for a thread that replaces the files.
const LOOKING: Duration = Duration::from_secs(1);
/// How long a transaction waits for stores that run.
const STORES: Duration = Duration::from_secs(5);
/// How often a thread looks whether files are released.
const POLL: Duration = Duration::from_millis(1);

/// A volume or clone of a partition.
pub struct Volume {
    /// Its number.
    pub id: VolumeId,
    /// Its partition.
    pub partition: Arc<Partition>,
    /// The promises to clients.
    pub callbacks: Arc<VolumeCallBacks>,
    /// What clients do with its files.
    pub usage: Usage,
    gate: RwLock<Gate>,
    /// Where it is.
    found: RwLock<Found>,
    /// The locks of clients.
    locks: Arc<Locks>,
    /// Stores of clients that run: the files, and who writes them.
    storing: Mutex<Vec<(Vnode, PrincipalId)>>,
    shared: Arc<Shared>,
    instance: Instance,
    /// Memory has a name or a clone's header that the datasets don't have yet.
    unwritten: AtomicBool,
    /// The last txg in which files that are closed since wrote the header.
    closed: AtomicU64,
    /// The second of its last use ([`Shared::seconds`]).
    used: AtomicU32,
    /// The name that its header had last.
    name: RwLock<Box<[u8]>>,
}

#[derive(Default)]
struct Gate {
    service: Service,
    open: Option<Arc<Open>>,
    /// The header of a volume that was made and not opened yet. It goes with the volume's first
    /// use, or when that comes to rest. The daemon refuses `zfs destroy` and `zfs rollback` of a
    /// served volume by its name, open or not, so the dataset has this header until then.
    made: Option<Box<Stored>>,
    /// [`Volume::exclusively`] has the files.
    taken: bool,
    /// Stores that run go on although the volume is busy.
    lenient: bool,
    /// The partition is closed: the files are never opened again.
    closed: bool,
}

/// A store of a client that runs, in several steps.
pub struct Storing<'a>(&'a Volume, (Vnode, PrincipalId));

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        let mut storing = self.0.storing.lock();
        if let Some(at) = storing.iter().position(|one| *one == self.1) {
            storing.swap_remove(at);
        }
    }
}

/// How a call uses the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It reads them.
    Read,
    /// It changes them.
    Change,
    /// It goes on with a change that has begun ([`Volume::store`]).
    GoOn,
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
        let (id, found) = (found.id(), RwLock::new(found));
        let (locks, storing, instance) = (Arc::default(), Mutex::default(), shared.instance());
        let (gate, unwritten, used) = (RwLock::default(), AtomicBool::new(false), AtomicU32::new(0));
        let (usage, name, closed) = (Usage::default(), RwLock::default(), AtomicU64::new(0));
        Self {
            id,
            partition,
            callbacks,
            usage,
            gate,
            found,
            locks,
            storing,
            shared,
            instance,
            unwritten,
            closed,
            used,
            name,
        }
    }

    /// Notes that a call uses it.
    pub(super) fn note_use(&self) {
        let now = self.shared.seconds();
        // Calls on one volume don't pass the cache line around.
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// The second of its last use ([`Shared::seconds`]).
    pub(super) fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// A number that no other volume in use has. One that comes into use again has a larger one.
    pub fn number(&self) -> u64 {
        self.instance.0
    }

    /// Its name, as far as memory has it. No file is read, and no call is waited for.
    pub fn known_name(&self) -> Vec<u8> {
        let open = self.gate.try_read().and_then(|gate| gate.open.clone());
        open.map_or_else(|| self.name.read().to_vec(), |open| open.header().name)
    }

    /// Whether its files are open. One that a thread has right now counts as open.
    pub fn is_open(&self) -> bool {
        self.gate.try_read().is_none_or(|gate| gate.open.is_some() || gate.taken)
    }

    /// Whether memory has its header, which may not be on disk. One that a thread has right now
    /// counts as such.
    pub(super) fn has_header(&self) -> bool {
        let has = |gate: &Gate| gate.open.is_some() || gate.taken || gate.made.is_some();
        self.unwritten.load(Ordering::Acquire) || self.gate.try_read().is_none_or(|gate| has(&gate))
    }

    /// Notes that [`Self::exclusively`] has made it, with this header.
    pub(super) fn note_made(&self, stored: Stored) {
        *self.name.write() = stored.header.name.clone().into_boxed_slice();
        self.gate.write().made = Some(Box::new(stored));
    }

    /// Closes its files if no call uses them: the next one opens them again. Returns whether they
    /// are closed.
    ///
    /// # Errors
    /// [`Error::Files`]: the header can't be written, and the files stay open.
    pub(super) fn rest(&self) -> Result<bool> {
        let Some(mut gate) = self.gate.try_write() else { return Ok(false) };
        let has_work = self.unwritten.load(Ordering::Acquire) || !self.storing.lock().is_empty();
        if gate.taken || has_work {
            return Ok(false);
        }
        let Some(open) = &gate.open else { return Ok(true) };
        // Files are shared only by those who have the gate. A service that the header doesn't say
        // is that of a transaction.
        let is_usual = gate.service == Service::Unknown || gate.service == open.service();
        if Arc::strong_count(open) > 1 || !is_usual {
            return Ok(false);
        }
        open.close()?;
        self.note_closed(open);
        gate.open = None;
        gate.service = Service::Unknown;
        self.forget();
        Ok(true)
    }

    /// Whether nothing is to know of it but where it is. No other thread has it.
    pub(super) fn is_at_rest(&self) -> bool {
        let gate = self.gate.read();
        let is_plain = gate.open.is_none() && !gate.taken && !gate.closed && gate.service == Service::Unknown;
        let is_written = !self.unwritten.load(Ordering::Acquire);
        is_plain && is_written && self.locks.all(Instant::now()).is_empty() && !self.callbacks.has_any()
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
        self.found().head()
    }

    /// Whether it is a clone.
    pub fn is_clone(&self) -> bool {
        matches!(self.found(), Found::Snapshot { .. })
    }

    /// Whether it is being removed.
    pub fn is_gone(&self) -> bool {
        self.gate.read().service == Service::Gone
    }

    /// Notes that a user begins to store a file. Transactions wait for it.
    pub fn store(&self, vnode: Vnode, user: PrincipalId) -> Storing<'_> {
        self.storing.lock().push((vnode, user));
        Storing(self, (vnode, user))
    }

    /// Its files, for a call of a client.
    ///
    /// # Errors
    /// * VNOVOL, VOFFLINE, VBUSY: by its [`Service`].
    /// * EROFS: the call changes a clone or read-only volume.
    /// * VSALVAGE: it can't be opened. The log has the cause.
    pub fn enter(&self, access: Access) -> std::result::Result<Use<'_>, i32> {
        self.enter_within(access, CLOSING)
    }

    /// Its files, for a local program that reads them. A thread that replaces them is waited for
    /// only for a moment.
    ///
    /// # Errors
    /// Those of [`Self::enter`].
    pub fn look(&self) -> std::result::Result<Use<'_>, i32> {
        self.enter_within(Access::Read, LOOKING)
    }

    fn enter_within(&self, access: Access, patience: Duration) -> std::result::Result<Use<'_>, i32> {
        let changes = access != Access::Read;
        let until = Instant::now() + patience;
        loop {
            let gate = self.gate.read();
            match gate.service {
                Service::Gone => return Err(code::VNOVOL),
                Service::Offline => return Err(code::VOFFLINE),
                Service::Busy if changes && !(gate.lenient && access == Access::GoOn) => {
                    return Err(code::VBUSY);
                }
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
                if changes {
                    open.begin_changes().map_err(|error| {
                        let error = chain(&error);
                        tracing::error!(volume = self.id.0, error, "the header can't be written");
                        code::VIO
                    })?;
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
        {
            let gate = self.gate.read();
            if let Some(open) = gate.open.clone().filter(|_| gate.service != Service::Unknown) {
                return Ok(open);
            }
        }
        let mut gate = self.gate.write();
        self.open_locked(&mut gate)
    }

    /// Its header, without opening the files for changes.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn peek(&self) -> Result<Stored> {
        let gate = self.gate.read();
        self.peek_behind(gate)
    }

    fn peek_behind(&self, gate: RwLockReadGuard<'_, Gate>) -> Result<Stored> {
        if let Some(stored) = &gate.made {
            return Ok(Stored::clone(stored));
        }
        let open = gate.open.clone();
        drop(gate);
        open.map_or_else(
            || self.partition.stored(self.found()).map(Stored::of_disk),
            |open| Ok(open.stored()),
        )
    }

    /// [`Self::peek`], unless a call has the volume so that this would wait for it.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn try_peek(&self) -> Option<Result<Stored>> {
        Some(self.peek_behind(self.gate.try_read()?))
    }

    fn open_locked(&self, gate: &mut Gate) -> Result<Arc<Open>> {
        if gate.taken || gate.closed {
            return Err(Error::Busy { volume: self.id });
        }
        if let Some(open) = &gate.open {
            if gate.service == Service::Unknown {
                gate.service = open.service();
            }
            return Ok(Arc::clone(open));
        }
        let counted = self.shared.partitions.of(self.partition.id);
        let began = Instant::now();
        let opened = self.open_files();
        match &opened {
            Ok(_) => counted.opened.record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            Err(_) => counted.failed.inc(),
        }
        let open = Arc::new(opened?);
        if gate.service == Service::Unknown {
            gate.service = open.service();
        }
        gate.open = Some(Arc::clone(&open));
        gate.made = None;
        Ok(open)
    }

    /// Notes that these files were closed.
    fn note_closed(&self, open: &Open) {
        self.partition.note_closed(open.written());
        self.closed.fetch_max(open.written().0, Ordering::AcqRel);
        self.shared.partitions.of(self.partition.id).closed.inc();
        *self.name.write() = open.header().name.into_boxed_slice();
    }

    fn open_files(&self) -> Result<Open> {
        let crashes = self.partition.crashes();
        let (fs, hold, mut stored) = match self.found() {
            Found::Dataset(id) => {
                self.partition.finish_received(id)?;
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
        let (mut dirty, counted) = (false, stored.crashes);
        // The header said so before any change was committed: a commit waits for the transaction
        // group of a header.
        if !self.is_clone() && stored.is_counting {
            let counts = crate::volume::count(&fs)?;
            tracing::info!(
                volume = self.id.0,
                ?counts,
                "a server crashed while it changed the volume: counted anew"
            );
            stored.set_counts(counts);
            stored = stored.of_disk();
            dirty = true;
        }
        if !self.is_clone() && stored.note_crashes(crashes) {
            // On disk before a client sees the versions: the next crash would raise them from
            // what is there.
            if self.partition.is_stuck() {
                dirty = true;
            } else if let Err(error) = stored.write(&fs).and_then(|_| Ok(fs.sync()?)) {
                let error = chain(&error);
                tracing::error!(volume = self.id.0, error, "the header can't be written yet");
                dirty = true;
            }
        }
        stored.header.id = self.id;
        let shared = (Arc::clone(&self.locks), Arc::clone(&self.shared));
        let is_raised = stored.crashes != counted;
        let mut open = Open::new((self.id, self.instance, read_only), stored, dirty, (fs, hold), shared);
        open.is_raised = is_raised;
        Ok(open)
    }

    /// Whether clients may use it. If it was not opened yet, its header decides.
    pub fn service_as(&self, stored: &Stored) -> Service {
        match self.gate.read().service {
            Service::Unknown => stored.service(),
            service => service,
        }
    }

    /// [`Self::service_as`], unless it would have to wait.
    pub fn try_service_as(&self, stored: &Stored) -> Option<Service> {
        Some(match self.gate.try_read()?.service {
            Service::Unknown => stored.service(),
            service => service,
        })
    }

    /// The locks of clients.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Lets clients read only, or not at all. First it waits for stores that run, for a while.
    ///
    /// A store that takes longer is broken off. Its file then has a new version, so that no client
    /// takes what there is for what was there.
    pub fn quiesce(&self, service: Service) {
        self.gate.write().lenient = true;
        self.set_service(Service::Busy);
        let until = Instant::now() + STORES;
        while !self.storing.lock().is_empty() && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        self.gate.write().lenient = false;
        let left = self.storing.lock().clone();
        let open = self.gate.read().open.clone();
        for (vnode, user) in left {
            let Some(open) = &open else { continue };
            let _locks = open.lock(&[vnode]);
            if let Err(error) = open.raise_version(vnode, user) {
                tracing::error!(
                    volume = self.id.0,
                    vnode = vnode.0,
                    error = chain(&error),
                    "a store is half done"
                );
            }
        }
        self.set_service(service);
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

    /// Closes its files and calls `change`, which may replace them. Meanwhile clients get VOFFLINE,
    /// or VNOVOL if the volume is gone.
    ///
    /// # Errors
    /// * [`Error::Busy`]: another thread does the same, or has the files.
    /// * The error of `change`, or of writing the header.
    pub fn exclusively<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        self.closed_by(Open::close, change)
    }

    /// As [`Self::exclusively`], for a `change` that destroys the volume. Its header is not written
    /// again. If that fails, the next use reads it as it is on disk, and counts the files anew if
    /// they changed.
    ///
    /// # Errors
    /// Those of [`Self::exclusively`].
    pub fn destroy<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        self.closed_by(|_| Ok(()), change)
    }

    fn closed_by<T>(
        &self,
        close: impl FnOnce(&Open) -> Result<()>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let open = {
            let mut gate = self.gate.write();
            if gate.taken || gate.closed {
                return Err(Error::Busy { volume: self.id });
            }
            gate.taken = true;
            gate.made = None;
            gate.open.take()
        };
        let mut back = GiveBack { volume: self, open: None, used: open.is_some() };
        match alone(open) {
            Ok(Some(open)) => {
                let closed = close(&open);
                self.note_closed(&open);
                drop(open);
                closed?;
            }
            Ok(None) => {}
            Err(open) => {
                back.open = Some(open);
                return Err(Error::Busy { volume: self.id });
            }
        }
        change()
    }

    /// Closes its files for ever: its partition is served no more.
    ///
    /// # Errors
    /// Those of [`Self::exclusively`].
    pub fn end(&self) -> Result<()> {
        self.exclusively(|| {
            self.gate.write().closed = true;
            Ok(())
        })
    }

    /// Forgets what is known of its files.
    pub(super) fn forget(&self) {
        self.shared.forget(self.instance);
    }

    /// Notes that memory has a name or a clone's header that the datasets don't have.
    pub fn note_unwritten(&self) {
        self.unwritten.store(true, Ordering::Release);
    }

    /// Whether memory has such a name or header, or a header that is not written.
    pub fn has_unwritten(&self) -> bool {
        let open = self.gate.read().open.clone();
        self.unwritten.load(Ordering::Acquire) || open.is_some_and(|open| open.is_dirty())
    }

    /// Writes the names and headers that only memory has, and waits until the header is on disk.
    /// `is_complete`: the volume stays when the server starts again.
    ///
    /// # Errors
    /// [`Error::Pool`], [`Error::Files`]: the next call tries again.
    pub fn write_out(&self, is_complete: bool) -> Result<()> {
        let is_unwritten = self.unwritten.swap(false, Ordering::AcqRel);
        if !is_unwritten && !is_complete {
            return Ok(());
        }
        self.write_header(is_unwritten, is_complete).inspect_err(|_| {
            if is_unwritten {
                self.note_unwritten();
            }
        })
    }

    fn write_header(&self, is_unwritten: bool, is_complete: bool) -> Result<()> {
        let open = self.open()?;
        let stored = open.stored();
        match self.found() {
            Found::Snapshot { head, id } if is_unwritten => {
                self.partition.set_clone_header(head, id, &stored)
            }
            Found::Snapshot { .. } => Ok(()),
            Found::Dataset(id) => {
                if is_unwritten || open.is_dirty() {
                    // After a crash, the header that came with the contents would follow.
                    self.partition.settle_received(id)?;
                }
                // The header is not on disk later than the mark is gone.
                open.flush()?;
                self.partition.finish(id, is_unwritten.then_some(&stored), is_complete)?;
                self.settle()
            }
        }
    }

    /// Waits until the header that was written last is on disk.
    ///
    /// # Errors
    /// [`Error::Pool`]: the pool has stopped.
    pub fn settle(&self) -> Result<()> {
        let pool = self.partition.pool();
        let open = self.gate.read().open.clone();
        match (open, pool.spa().writer()) {
            (Some(open), Some(live)) => {
                // It may have come to rest behind the change that is waited for.
                let last = open.written().max(Txg(self.closed.load(Ordering::Acquire)));
                Ok(live.txgs().wait_synced(last).map_err(poolhouse::Error::from)?)
            }
            // It was closed since.
            (None, _) | (_, None) => Ok(pool.sync()?),
        }
    }

    /// Writes what memory has of the header. Returns the files if uniques were reserved
    /// ([`Open::flush`]).
    ///
    /// # Errors
    /// [`Error::Files`].
    pub fn flush(&self) -> Result<Option<Arc<Open>>> {
        let Some(open) = self.gate.read().open.clone() else {
            if self.gate.read().taken {
                // They may come back as they are.
                self.shared.note_change(self.id);
            }
            return Ok(None);
        };
        Ok(open.flush()?.then_some(open))
    }
}

impl Drop for Volume {
    /// Calls that went on when the table had lost the volume counted here.
    fn drop(&mut self) {
        self.shared.partitions.add_late(self.partition.id, self.usage.take());
    }
}

/// Ends the use of the files by one thread.
struct GiveBack<'a> {
    volume: &'a Volume,
    open: Option<Arc<Open>>,
    used: bool,
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        if self.used {
            self.volume.forget();
        }
        let mut gate = self.volume.gate.write();
        gate.taken = false;
        gate.open = self.open.take();
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
