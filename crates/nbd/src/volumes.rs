//! The volumes of one pool, as exports.
//!
//! # Theory
//! A client can request any volume, or a snapshot of one, by its full name. The volume is opened
//! for the first connection, shared by all, and closed after the last. An unused volume is not held
//! open, so it can be destroyed or rolled back.
//!
//! A volume itself (its head dataset) is opened for writing if the pool is writable, even with
//! `readonly=on`. So a change of that property takes effect on an open volume. A snapshot is opened
//! for reading, and kept from destruction meanwhile.
//!
//! # Life
//! A volume is *moving* while it is being opened or closed. Other threads that want it then wait.
//! [`Volumes::close`] closes all volumes before the pool is exported.
//!
//! # Locks
//! The lock of the table is held for look-ups, never while a volume is opened or closed.
//!
//! # See
//! OpenZFS `zvol_open`, `zvol_release`; the properties `volmode` and `snapdev`.

use crate::connection::Shared;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::option::About;
use crate::workers::Workers;
use dmu::Extent;
use dsl::{Kind, LongHold, Prop, Value};
use observe::clients::Connection;
use observe::lock::{Condvar, Mutex};
use observe::ops::{DatasetUse, Ended, Frontend};
use observe::work::{self, Place, Registered};
use ondisk::ObjNum;
use poolhouse::Pool;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use zvol::Volume;

/// The most worker threads for the exports of a pool. Many may wait for one commit of the log.
const HANDS: usize = 16;
/// How long connections may take to end on request.
const ENDING: Duration = Duration::from_secs(20);
/// The value of `volmode=none`.
const VOLMODE_NONE: u64 = 3;
/// The value of `snapdev=visible`.
const SNAPDEV_VISIBLE: u64 = 1;

/// The volumes of one pool.
pub struct Volumes {
    pool: Pool,
    crew: Workers,
    shared: Arc<Shared>,
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    closed: bool,
    /// By the object number of the dataset, which a rename keeps.
    open: BTreeMap<u64, Slot>,
}

enum Slot {
    Moving,
    Open(Arc<Open>, usize),
}

/// An open volume.
struct Open {
    name: Arc<Name>,
    /// The number of `name` for operations under way.
    place: Registered,
    volume: Volume,
    /// Whether writes are refused: for a snapshot, in a read-only pool, or with `readonly=on`.
    read_only: AtomicBool,
    /// Has the connections end.
    over: watch::Sender<bool>,
    ops: DatasetUse,
    _hold: Option<LongHold>,
}

/// The name of an export's dataset, as of the last lookup.
struct Name(Mutex<String>);

impl Place for Name {
    fn dataset(&self, _: u64) -> Option<(String, Option<u64>)> {
        Some((self.0.lock().clone(), None))
    }

    fn path(&self, _: u64) -> Option<Vec<u8>> {
        None
    }
}

/// A use of an export, which stays open while there is one.
///
/// Dropping the last one closes the export, which may take a while.
///
/// OpenZFS: `zvol_release`.
pub struct Lease {
    volumes: Arc<Volumes>,
    object: u64,
    /// `Some` until the lease is dropped.
    open: Option<Arc<Open>>,
}

/// An export in use ([`Volumes::users`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name of the export.
    pub name: String,
    /// Number of connections that use it.
    pub connections: usize,
}

impl Volumes {
    /// The volumes of a pool. None is opened yet.
    pub fn new(pool: Pool) -> Arc<Volumes> {
        let crew = Workers::new(&format!("nbd-{}", pool.name()), HANDS);
        Arc::new(Volumes {
            pool,
            crew,
            shared: Arc::default(),
            table: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The workers for jobs that may block.
    pub(crate) fn crew(&self) -> &Workers {
        &self.crew
    }

    /// What the connections to this pool share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The names of the exports in order: volumes, and their snapshots where `snapdev=visible`.
    ///
    /// Datasets that can't be read are left out, with a message in the log.
    ///
    /// # Errors
    /// [`Error::Open`]: the list of datasets can't be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let options = dsl::ListOptions { snapshots: true, ..dsl::ListOptions::default() };
        let failed = |e| self.failed(self.pool.name(), e);
        let listing = self.pool.spa().read(|| self.pool.dsl().list_sorted(None, &options)).map_err(failed)?;
        for (dataset, error) in &listing.failures {
            tracing::warn!(dataset, %error, "not listed");
        }
        let shown = |dataset: &dsl::Dataset| match is_shown(dataset) {
            Ok(shown) => shown,
            Err(error) => {
                tracing::warn!(dataset = dataset.name(), %error, "not listed");
                false
            }
        };
        Ok(listing.datasets.iter().filter(|d| shown(d)).map(dsl::Dataset::name).collect())
    }

    /// Size, block size and description of an export.
    ///
    /// # Errors
    /// * [`Error::NoExport`]: there is no dataset of this name, it is not a volume or a snapshot of
    ///   one, or it has `volmode=none`.
    /// * [`Error::Open`]: the dataset can't be read.
    pub fn about(&self, name: &str) -> Result<About> {
        let dataset = self.find(name)?;
        let what = if dataset.is_snapshot() { "snapshot of a ZFS volume" } else { "ZFS volume" };
        let about = |size, block_size, read_only| About {
            name: name.to_owned(),
            size,
            block_size,
            read_only,
            description: what.to_owned(),
        };
        if let Some(Slot::Open(open, _)) = self.table.lock().open.get(&dataset.object().0) {
            return Ok(about(open.size(), open.block_size(), open.is_read_only()));
        }
        let found = self.pool.spa().read(|| dataset.volume()).map_err(|e| self.failed(name, e))?;
        let Some((size, block)) = found else { return Err(Error::NoExport { name: name.to_owned() }) };
        let read_only = self.read_only(&dataset)?;
        Ok(about(size, u32::try_from(block).unwrap_or(u32::MAX), read_only))
    }

    /// Opens an export, or shares it if it is open already.
    ///
    /// Waits while the volume is being opened or closed.
    ///
    /// # Errors
    /// * [`Error::NoExport`]: there is no dataset of this name, it is not a volume or a snapshot of
    ///   one, or it has `volmode=none`.
    /// * [`Error::Busy`]: the volume is in use elsewhere, or the pool is being exported.
    /// * [`Error::Open`]: the dataset or the volume can't be read.
    ///
    /// OpenZFS: `zvol_open`.
    pub fn open(self: &Arc<Self>, name: &str) -> Result<Lease> {
        let dataset = self.find(name)?;
        let object = dataset.object().0;
        let mut table = self.table.lock();
        loop {
            if table.closed {
                return Err(Error::Busy { name: name.to_owned() });
            }
            match table.open.get_mut(&object) {
                Some(Slot::Open(open, users)) => {
                    *users += 1;
                    return Ok(self.lease(object, Arc::clone(open)));
                }
                Some(Slot::Moving) => self.changed.wait(&mut table),
                None => break,
            }
        }
        table.open.insert(object, Slot::Moving);
        drop(table);
        let opened = self.open_dataset(&dataset, name);
        let mut table = self.table.lock();
        let lease = opened.map(|open| {
            let open = Arc::new(open);
            table.open.insert(object, Slot::Open(Arc::clone(&open), 1));
            self.lease(object, open)
        });
        if lease.is_err() {
            table.open.remove(&object);
        }
        self.changed.notify_all();
        lease
    }

    fn lease(self: &Arc<Self>, object: u64, open: Arc<Open>) -> Lease {
        Lease { volumes: Arc::clone(self), object, open: Some(open) }
    }

    fn open_dataset(&self, dataset: &dsl::Dataset, name: &str) -> Result<Open> {
        let failed = |source| Error::Open { name: name.to_owned(), source: Arc::new(source) };
        let read_only = AtomicBool::new(self.read_only(dataset)?);
        let key = (dataset.object().0, dataset.phys().creation_txg.0);
        let ops = self.pool.ops().dataset(key);
        let (called, over) = (Arc::new(Name(Mutex::new(name.to_owned()))), watch::Sender::new(false));
        let this: Weak<Name> = Arc::downgrade(&called);
        let place = work::register(this);
        let writer = self.pool.spa().writer();
        if dataset.is_snapshot() || writer.is_none() {
            // The hold comes before the open, so that the snapshot can't be destroyed in between.
            let hold = writer.map(|live| live.dsl().heads().long_hold(dataset.object().0));
            let again = self.pool.dataset(name).map_err(failed)?;
            let volume = again.volume().map_err(failed)?;
            return Ok(Open { name: called, place, volume, read_only, over, ops, _hold: hold });
        }
        let volume = self.pool.open_volume(dataset).map_err(|error| match &error {
            poolhouse::Error::Dataset(dsl::Error::Refused { why: dsl::Refusal::Busy, .. }) => {
                Error::Busy { name: name.to_owned() }
            }
            _ => failed(error),
        })?;
        Ok(Open { name: called, place, volume, read_only, over, ops, _hold: None })
    }

    /// The dataset of an export.
    ///
    /// # Errors
    /// * [`Error::NoExport`]: it doesn't exist, is no volume, or has `volmode=none`.
    /// * [`Error::Open`]: it can't be read.
    fn find(&self, name: &str) -> Result<dsl::Dataset> {
        let none = || Error::NoExport { name: name.to_owned() };
        let found = self.pool.spa().read(|| {
            let dataset = self.pool.dsl().dataset(name)?;
            let volume = dataset.head_kind()? == Some(Kind::Volume);
            let open = number(&dataset, Prop::Volmode)? != VOLMODE_NONE;
            Ok((volume && open).then_some(dataset))
        });
        match found {
            Ok(found) => found.ok_or_else(none),
            Err(dsl::Error::NoSuchDataset { .. } | dsl::Error::BadName { .. }) => Err(none()),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    fn failed(&self, name: &str, error: dsl::Error) -> Error {
        Error::Open { name: name.to_owned(), source: Arc::new(error.into()) }
    }

    fn read_only(&self, dataset: &dsl::Dataset) -> Result<bool> {
        if dataset.is_snapshot() || self.pool.spa().writer().is_none() {
            return Ok(true);
        }
        let said = self.pool.spa().read(|| number(dataset, Prop::Readonly));
        said.map(|n| n != 0).map_err(|e| self.failed(&dataset.name(), e))
    }

    /// Applies changed names and `readonly` properties to the open volumes.
    pub fn follow(self: &Arc<Self>) {
        for lease in self.all() {
            let object = lease.object;
            let dataset = self.pool.spa().read(|| self.pool.dsl().by_object(ObjNum(object)));
            let said = dataset.map_err(|e| self.failed(self.pool.name(), e)).and_then(|dataset| {
                let open = lease.open();
                *open.name.0.lock() = dataset.name();
                open.ops.rename_to(|| open.name.0.lock().clone());
                self.read_only(&dataset)
            });
            match said {
                Ok(read_only) => lease.open().read_only.store(read_only, Ordering::Release),
                Err(error) => tracing::warn!(object, %error, "its properties are unreadable"),
            }
        }
    }

    /// A lease on each open volume.
    fn all(self: &Arc<Self>) -> Vec<Lease> {
        let mut table = self.table.lock();
        let open = table.open.iter_mut().filter_map(|(object, slot)| match slot {
            Slot::Open(open, users) => {
                *users += 1;
                Some(self.lease(*object, Arc::clone(open)))
            }
            Slot::Moving => None,
        });
        open.collect()
    }

    /// Changes the size of an open volume. `None` if it is not open.
    ///
    /// # Errors
    /// [`Error::Volume`], with:
    ///
    /// * [`zvol::Error::BadSize`]: the size is 0, too large, or not a multiple of the block size.
    /// * [`zvol::Error::ReadOnly`]: the volume is open for reading only.
    /// * [`zvol::Error::NoSpace`], [`zvol::Error::Quota`], [`zvol::Error::Stopped`]: the change
    ///   can't be written.
    /// * [`zvol::Error::Dmu`]: the volume's blocks can't be read.
    ///
    /// OpenZFS: `zvol_set_volsize`.
    pub fn resize(self: &Arc<Self>, object: u64, size: u64) -> Option<Result<()>> {
        let lease = self.all().into_iter().find(|lease| lease.object == object)?;
        Some(lease.open().volume.resize(size).map_err(Error::from))
    }

    /// Object numbers of the datasets that are open, or are being opened or closed.
    pub fn objects(&self) -> Vec<u64> {
        self.table.lock().open.keys().copied().collect()
    }

    /// The exports in use.
    pub fn users(&self) -> Vec<User> {
        let table = self.table.lock();
        let used = table.open.values().filter_map(|slot| match slot {
            Slot::Open(open, users) => Some(User { name: open.name.0.lock().clone(), connections: *users }),
            Slot::Moving => None,
        });
        used.collect()
    }

    /// Closes all volumes, and refuses to open any from now on.
    ///
    /// With `force`, the connections to volumes in use end. Returns false in two cases, and then
    /// volumes can still be opened:
    ///
    /// * Without `force`, a volume is in use.
    /// * With `force`, a connection takes more than 20 seconds to end.
    pub fn close(&self, force: bool) -> bool {
        let mut table = self.table.lock();
        if table.open.values().any(|slot| matches!(slot, Slot::Open(..))) && !force {
            return false;
        }
        table.closed = true;
        for slot in table.open.values() {
            if let Slot::Open(open, _) = slot {
                open.over.send_replace(true);
            }
        }
        let patience = Instant::now() + ENDING;
        while !table.open.is_empty() {
            if self.changed.wait_until(&mut table, patience).timed_out() && !table.open.is_empty() {
                table.closed = false;
                return false;
            }
        }
        true
    }

    /// Allows volumes to be opened again after [`Volumes::close`].
    pub fn reopen(&self) {
        self.table.lock().closed = false;
    }

    fn release(&self, object: u64, open: Arc<Open>) {
        let mut table = self.table.lock();
        let slot = table.open.get_mut(&object).expect("what is leased is in the table");
        let Slot::Open(_, users) = slot else { unreachable!("what is leased is open") };
        *users -= 1;
        if *users > 0 {
            return;
        }
        let last = std::mem::replace(slot, Slot::Moving);
        drop(table);
        // The volume is closed before another thread may open it.
        drop((last, open));
        self.table.lock().open.remove(&object);
        self.changed.notify_all();
    }
}

/// Whether the list of exports includes a dataset.
fn is_shown(dataset: &dsl::Dataset) -> dsl::Result<bool> {
    Ok(dataset.head_kind()? == Some(Kind::Volume)
        && number(dataset, Prop::Volmode)? != VOLMODE_NONE
        && (!dataset.is_snapshot() || number(dataset, Prop::Snapdev)? == SNAPDEV_VISIBLE))
}

/// The value of a numeric property, 0 if unset. Snapshots have the properties of their volume.
fn number(dataset: &dsl::Dataset, prop: Prop) -> dsl::Result<u64> {
    let of = match dataset.is_snapshot() {
        true => dataset.dir().head()?,
        false => Some(dataset.clone()),
    };
    let found = of.map(|of| of.property(prop)).transpose()?.flatten();
    Ok(match found.map(|property| property.value) {
        Some(Value::Number(number)) => number,
        Some(Value::Text(_)) | None => 0,
    })
}

impl Lease {
    fn open(&self) -> &Open {
        self.open.as_ref().expect("it is there until it is dropped")
    }

    /// Becomes true when the connections of the export must end.
    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.open().over.subscribe()
    }

    /// The number of the volume for operations under way.
    pub fn place(&self) -> u64 {
        self.open().place.number()
    }

    /// The present name of its dataset.
    pub fn name(&self) -> String {
        self.open().name.0.lock().clone()
    }

    /// Counts an operation of a client on the volume that has ended.
    pub fn count(&self, client: &Connection, frontend: Frontend, ended: &Ended) {
        let open = self.open();
        open.ops.count_for(client, frontend, ended, || open.name.0.lock().clone());
    }

    /// The open export.
    pub fn disk(&self) -> &dyn Disk {
        self.open()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let open = self.open.take().expect("it is dropped once");
        self.volumes.release(self.object, open);
    }
}

impl Disk for Open {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn block_size(&self) -> u32 {
        u32::try_from(self.volume.block_size()).expect("a block has 16 MiB at most")
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.volume.read_at(buf, offset)?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.volume.write_at(data, offset)?)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        Ok(self.volume.punch(offset, len)?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.volume.flush()?)
    }

    fn next(&self, offset: u64, want: Extent) -> Result<u64> {
        Ok(self.volume.next(offset, want)?)
    }
}
