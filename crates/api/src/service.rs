//! The methods: the daemon's side, its dispatch, and the client.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::ops::Deref;

use super::{
    AfsClient, AfsDisable, AfsEnable, AfsLock, AfsPartition, AfsQuery, AfsStatus, AfsVolume, AllUnderWay,
    AttachRequest, Caller, Changed, CreatePool, DatasetChange, DatasetList, DatasetQuery, DetachRequest,
    DiffPart, DiffRequest, Error, EventPage, EventQuery, ExportList, ExportRequest, Found, Granted,
    HistoryPage, Hold, ImportOutcome, ImportRequest, InjectRequest, Injected, Kstat, LoadKeyRequest,
    LogStats, Mount, MountProgress, MountReport, MountRequest, ObjectPath, OfferRequest, Offered, Pool,
    PoolChange, PoolQuery, Reason, RedactRequest, ScanRequest, SendRequest, Settings, SlowOps, SlowQuery,
    SpaceClass, SpaceEntry, SplParameter, Top, TopQuery, TraceQuery, Traced, Tunable, Txgs, UnmountRequest,
    WithdrawRequest,
};

/// A reply's body.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply<T> {
    Ok(T),
    Error(Error),
}

/// Generates the traits, the dispatch, the client and the fakes from one list of methods, so that
/// they can't disagree.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty => $by:ty),*) -> $ret:ty;)*) => {
        /// The daemon's side of the control protocol. The first argument of each method is the
        /// caller.
        ///
        /// There is no default for it: a request without a caller does not compile.
        ///
        /// ```compile_fail,E0061
        /// use api::{Error, Service};
        ///
        /// fn names(service: &dyn Service) -> Result<Vec<String>, Error> {
        ///     service.pool_names()
        /// }
        /// ```
        ///
        /// With a caller it does:
        ///
        /// ```
        /// use api::{Caller, Error, Service};
        ///
        /// fn names(service: &dyn Service, caller: &Caller) -> Result<Vec<String>, Error> {
        ///     service.pool_names(caller)
        /// }
        /// ```
        ///
        /// # Errors
        /// A method without a list of its own has only the errors of this list:
        ///
        /// * [`Reason::Permission`], [`Reason::DelegationOff`]: the caller may not make the
        ///   request.
        /// * [`Reason::TooMuch`]: the request or its answer exceeds the caller's memory or time.
        ///
        /// Methods about a pool or dataset also have these:
        ///
        /// * [`Reason::NoSuchPool`]: the pool is not imported.
        /// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: the dataset does not exist, or
        ///   can't.
        /// * [`Reason::Busy`]: the pool is being exported.
        /// * [`Reason::Io`], [`Reason::Corrupt`]: what the answer needs can't be read.
        ///
        /// Methods that change a pool or dataset also have these:
        ///
        /// * [`Reason::PoolReadonly`]: the pool is read-only.
        /// * [`Reason::Suspended`]: the pool accepts no writes.
        pub trait Service {
            $($(#[$doc])* fn $name(&self, caller: &Caller, $($arg: $by),*) -> Result<$ret, Error>;)*
        }

        /// The commands' side of the control protocol. It has no argument for the caller, since the
        /// daemon determines the caller at its end of the connection.
        ///
        /// # Errors
        /// Each method has the errors of the same method of [`Service`]. Over a [`Client`], it also
        /// has these:
        ///
        /// * [`Reason::Daemon`]: the daemon can't be reached, its answer makes no sense, or the
        ///   caller's other requests don't end.
        /// * [`Reason::BadRequest`], [`Reason::NoSuchMethod`]: the daemon, of another version, does
        ///   not understand the request.
        pub trait Requests {
            $($(#[$doc])* fn $name(&self, $($arg: $by),*) -> Result<$ret, Error>;)*
        }

        /// A [`Service`] for tests. Each method that an implementation omits refuses with
        /// [`Reason::NoSuchMethod`].
        pub trait FakeService {
            $($(#[$doc])* fn $name(&self, _caller: &Caller, $($arg: $by),*) -> Result<$ret, Error> {
                $(let _ = $arg;)*
                Err(Error::new(stringify!($name), Reason::NoSuchMethod))
            })*
        }

        impl<F: FakeService> Service for F {
            $(fn $name(&self, caller: &Caller, $($arg: $by),*) -> Result<$ret, Error> {
                FakeService::$name(self, caller, $($arg),*)
            })*
        }

        /// The names of the methods.
        pub const METHODS: &[&str] = &[$(stringify!($name)),*];

        /// Answers one request of a caller. `method` follows `/v1/` in the path.
        ///
        /// Errors of the method become an answer with a status ([`Error::http_status`]).
        ///
        /// # Errors
        /// The error of writing to `out`. Then the answer is incomplete.
        pub fn dispatch(
            service: &dyn Service,
            caller: &Caller,
            method: &str,
            body: &[u8],
            out: &mut dyn Answer,
        ) -> std::io::Result<()> {
            match method {
                $(stringify!($name) => {
                    #[derive(Deserialize)]
                    struct Args { $($arg: $ty),* }
                    match parse::<Args>(method, body) {
                        Ok(_args) => reply(service.$name(caller, $(&_args.$arg),*), out),
                        Err(e) => reply::<()>(Err(e), out),
                    }
                })*
                _ => reply::<()>(Err(Error::new(clipped(method), Reason::NoSuchMethod)), out),
            }
        }

        impl<T: Transport> Requests for Client<T> {
            $(fn $name(&self, $($arg: $by),*) -> Result<$ret, Error> {
                self.call(stringify!($name), serde_json::json!({ $((stringify!($arg)): $arg),* }))
            })*
        }

        impl<S: Deref<Target: Service>> Requests for InProcess<S> {
            $(fn $name(&self, $($arg: $by),*) -> Result<$ret, Error> {
                Service::$name(&*self.service, &Caller::this_process(), $($arg),*)
            })*
        }
    };
}

methods! {
    /// The names of the imported pools, in order.
    pool_names() -> Vec<String>;
    /// The status of one imported pool (`spa_get_stats`).
    ///
    /// # Errors
    /// * [`Reason::Silent`], [`Reason::Suspended`]: the pool does not answer, and no earlier status
    ///   is known.
    pool(name: String => &str, query: PoolQuery => &PoolQuery) -> Pool;
    /// A part of a pool's history, with internal records, from a position on; 0 is the start
    /// (`zpool_get_history`).
    ///
    /// # Errors
    /// * [`Reason::Suspended`]: pending records can't be written.
    history(name: String => &str, from: u64 => &u64) -> HistoryPage;
    /// Datasets that match a query. What can't be read below its root is in the list.
    ///
    /// # Errors
    /// * [`Reason::TooMuch`]: the query names more than 4,096 properties, or the list is too long.
    datasets(query: DatasetQuery => &DatasetQuery) -> DatasetList;
    /// What users, groups and projects use in a file system or snapshot (`zfs_userspace`).
    ///
    /// # Errors
    /// * [`Reason::BadType`]: it is not a file system, or a snapshot of one.
    space(dataset: String => &str, classes: Vec<SpaceClass> => &[SpaceClass]) -> Vec<SpaceEntry>;
    /// The holds of a snapshot (`zfs_get_holds`).
    holds(snapshot: String => &str) -> Vec<Hold>;
    /// A part of the differences since a snapshot (`zfs_show_diffs`).
    ///
    /// # Errors
    /// * [`Reason::BadType`]: the earlier state is not a snapshot, or one is not a file system.
    /// * [`Reason::Refused`] with [`Refusal::NotBefore`](super::Refusal::NotBefore): the snapshot
    ///   is not an earlier state of the other.
    /// * [`Reason::TooMuch`]: there are 64 comparisons with live file systems.
    /// * All others: the temporary snapshot of a live file system can't be created or destroyed.
    ///   See [`Service::change`].
    diff(request: DiffRequest => &DiffRequest) -> DiffPart;
    /// About how many bytes a send stream will have (`ZFS_IOC_SEND_SPACE`).
    ///
    /// # Errors
    /// * [`Reason::Refused`] with [`Refusal::NotBefore`](super::Refusal::NotBefore): the origin is
    ///   not an earlier state of the dataset.
    /// * [`Reason::LargeMicrozap`]: it needs large blocks.
    /// * [`Reason::KeyNotLoaded`]: its key is needed to walk its blocks.
    /// * Others: see [`Service`].
    send_size(request: SendRequest => &SendRequest) -> u64;
    /// Makes a redaction bookmark, or completes it (`zfs redact`).
    ///
    /// # Errors
    /// * [`Reason::System`]: the error number of OpenZFS. `EINVAL`: a redaction snapshot does not
    ///   descend from the snapshot. `EXDEV`: it is of another pool. `EALREADY`: one of them was
    ///   received redacted. `EEXIST`, `ESRCH`: the bookmark exists, and can't be completed for
    ///   these snapshots. `ENAMETOOLONG`: its name would be too long.
    /// * [`Reason::Refused`]: the pool lacks a feature or space, or there are too many redaction
    ///   snapshots.
    /// * [`Reason::KeyNotLoaded`]: the key of a snapshot is not loaded.
    redact(request: RedactRequest => &RedactRequest) -> ();
    /// Destroys what was received in part (`zfs receive -A`).
    ///
    /// # Errors
    /// * [`Reason::NoSuchDataset`]: the dataset does not exist, or has nothing of that kind.
    /// * [`Reason::Refused`]: it is in use.
    receive_abort(dataset: String => &str) -> ();
    /// The number of files that were removed from a file system and are not freed yet
    /// (`ZFS_WAIT_DELETEQ`).
    ///
    /// # Errors
    /// * [`Reason::BadType`]: it is not a file system.
    unlinked(dataset: String => &str) -> u64;
    /// Events of pools (`zpool_events_next`).
    events(query: EventQuery => &EventQuery) -> EventPage;
    /// Reads a pool's deduplication tables into its cache, and returns their bytes
    /// (`zpool_prefetch`).
    prefetch(pool: String => &str) -> u64;
    /// The grants at a dataset and its parents, upwards. Datasets without grants are absent
    /// (`zfs_get_fsacl`).
    grants(dataset: String => &str) -> Vec<Granted>;
    /// The pools that could be imported (`zpool_search_import`).
    ///
    /// # Errors
    /// * [`Reason::System`]: the cache file can't be read.
    /// * [`Reason::InvalidConfig`]: the cache file is malformed.
    scan(request: ScanRequest => &ScanRequest) -> Found;
    /// Imports a pool; mounts nothing (`zpool_import_props`).
    ///
    /// # Errors
    /// * [`Reason::NoSuchImport`]: no pool with this guid was found, or it is destroyed.
    /// * [`Reason::InvalidName`], [`Reason::PoolExists`]: the pool can't have this name.
    /// * [`Reason::DevicesInUse`]: the pool is imported, or a device is in use.
    /// * [`Reason::BadProperty`], [`Reason::BadValue`]: a property can't have this value.
    /// * [`Reason::UsedElsewhere`], [`Reason::Active`]: another host used or uses the pool.
    /// * [`Reason::Unsupported`], [`Reason::ReadonlyOnly`]: this release can't use the pool, or
    ///   can't write it.
    /// * [`Reason::MissingDevices`]: devices or labels are missing or too damaged.
    /// * [`Reason::NotWritable`]: a device can be read but not written.
    /// * [`Reason::NoCheckpoint`]: there is no checkpoint to rewind to.
    /// * [`Reason::InvalidConfig`]: the pool's configuration or the cache file is malformed.
    /// * [`Reason::System`]: the import was interrupted, or the cache file can't be read.
    /// * [`Reason::Io`], [`Reason::Corrupt`]: the pool's metadata can't be read.
    /// * [`Reason::Daemon`]: the daemon is ending, or its threads can't be started.
    import(request: ImportRequest => &ImportRequest) -> ImportOutcome;
    /// Unmounts and exports a pool (`zpool_export`).
    ///
    /// # Errors
    /// * [`Reason::Busy`], [`Reason::HeldOpen`]: a file system, volume or file is in use.
    /// * [`Reason::Nameless`]: files of the pool's devices were removed, and would vanish.
    /// * [`Reason::System`], [`Reason::Daemon`]: a file system can't be unmounted.
    /// * [`Reason::Silent`]: the pool makes no progress.
    /// * [`Reason::Suspended`]: the pool accepts no writes.
    export(request: ExportRequest => &ExportRequest) -> ();
    /// All kstats, by OpenZFS's names.
    kstats() -> Vec<Kstat>;
    /// All tunables, by OpenZFS's names.
    tunables() -> Vec<Tunable>;
    /// Sets a tunable.
    ///
    /// # Errors
    /// * [`Reason::BadProperty`]: there is no such tunable.
    /// * [`Reason::BadValue`]: the value is out of range.
    set_tunable(name: String => &str, value: u64 => &u64) -> ();
    /// The parameters of the module `spl` that apply here.
    spl() -> Vec<SplParameter>;
    /// Injects or removes faults, and returns those that exist.
    ///
    /// # Errors
    /// * [`Reason::NoSuchDevice`]: the pool has no such device.
    /// * [`Reason::BadValue`]: a word, level or type is not valid, or there are too many faults.
    /// * [`Reason::PoolReadonly`]: the fault needs a writable pool.
    /// * [`Reason::Suspended`]: dirty blocks can't be written.
    /// * [`Reason::Device`]: the device can't be marked as failed.
    inject(request: InjectRequest => &InjectRequest) -> Vec<Injected>;
    /// Statistics of the intent logs of datasets that are open for writing.
    logs() -> Vec<LogStats>;
    /// The mounts, in the order of mounting.
    mounts() -> Vec<Mount>;
    /// Mounts file systems (`zfs_mount_at`). Most failures are in the report.
    ///
    /// # Errors
    /// * [`Reason::BadType`]: the only requested dataset is not a file system, or a snapshot of
    ///   one.
    /// * [`Reason::BadMountOption`]: an option is unknown, or can't be changed.
    /// * [`Reason::NotMounted`]: a file system to remount is not mounted.
    /// * [`Reason::PoolReadonly`]: a mount can't become writable.
    /// * [`Reason::NotInEffect`], [`Reason::Busy`], [`Reason::System`]: the options of a mount
    ///   can't be changed.
    mount(request: MountRequest => &MountRequest) -> MountReport;
    /// The progress of the request to mount with this watch number, if there is one.
    mount_progress(watch: u64 => &u64) -> Option<MountProgress>;
    /// Unmounts file systems (`zfs_unmount`). Failures to unmount are in the report.
    ///
    /// # Errors
    /// * [`Reason::NotMounted`], [`Reason::NotAMountpoint`]: a dataset or path is not mounted.
    /// * [`Reason::Busy`]: a key that should be unloaded is needed by a mount that stays.
    unmount(request: UnmountRequest => &UnmountRequest) -> MountReport;
    /// Loads a key, or checks it (`zfs_crypto_load_key`).
    ///
    /// # Errors
    /// * [`Reason::NotEncrypted`], [`Reason::NotEncryptionRoot`]: the dataset has no key of its
    ///   own.
    /// * [`Reason::KeyLoaded`]: the key is loaded already.
    /// * [`Reason::WrongKey`], [`Reason::BadKey`]: the key is wrong or malformed.
    load_key(request: LoadKeyRequest => &LoadKeyRequest) -> ();
    /// Unloads a key (`zfs_crypto_unload_key`).
    ///
    /// # Errors
    /// * [`Reason::NotEncrypted`], [`Reason::NotEncryptionRoot`]: the dataset has no key of its
    ///   own.
    /// * [`Reason::KeyNotLoaded`]: the key is not loaded.
    /// * [`Reason::Busy`], [`Reason::HeldOpen`]: a mount, a volume or a command needs the key.
    /// * [`Reason::Suspended`]: pending writes, which may need the key, can't be written.
    unload_key(dataset: String => &str) -> ();
    /// The bytes that would be freed by destroying a range of neighbouring snapshots of one dataset
    /// (`lzc_snaprange_space`). `first` and `last` are the ends of the range.
    ///
    /// # Errors
    /// * [`Reason::NoSuchDataset`]: `first` is not an earlier snapshot of the same dataset.
    /// * [`Reason::BadType`]: one of them is not a snapshot.
    reclaimed(first: String => &str, last: String => &str) -> u64;
    /// Creates a pool; mounts nothing (`zpool_create`).
    ///
    /// # Errors
    /// * [`Reason::PoolExists`]: a pool of this name is imported.
    /// * [`Reason::BadValue`]: a property is not valid, or needs a feature that is not enabled.
    /// * [`Reason::NotSupported`]: this release can't set a property of the pool at its creation.
    /// * [`Reason::BadKey`]: the key is malformed.
    /// * [`Reason::InvalidConfig`]: the layout is not valid.
    /// * [`Reason::DeviceOpen`], [`Reason::DeviceTwice`], [`Reason::DeviceTooSmall`],
    ///   [`Reason::DeviceOfPool`]: a device can't be used.
    /// * [`Reason::BadAshift`]: the sector size does not fit the devices.
    /// * [`Reason::Refused`]: a quota or reservation does not fit the pool's space.
    /// * [`Reason::Daemon`]: the daemon is ending, or its threads can't be started.
    create_pool(request: CreatePool => &CreatePool) -> ();
    /// Changes a pool.
    ///
    /// # Errors
    /// * [`Reason::BadValue`], [`Reason::BadProperty`]: a property can't have this value.
    /// * [`Reason::InvalidName`], [`Reason::BadType`]: `bootfs` is not a file system of the pool.
    /// * [`Reason::NoSuchDevice`]: the pool has no such device.
    /// * [`Reason::Device`]: a device can't be taken out of use, put into use, attached or
    ///   detached.
    /// * [`Reason::DeviceOpen`], [`Reason::DeviceTwice`], [`Reason::DeviceTooSmall`],
    ///   [`Reason::DeviceOfPool`]: a new device can't be used.
    /// * [`Reason::InvalidConfig`], [`Reason::BadAshift`], [`Reason::AshiftMismatch`]: a new vdev
    ///   does not fit.
    /// * [`Reason::MissingDevices`]: devices of the pool are missing.
    /// * [`Reason::BadGuid`]: the new guid is in use.
    /// * [`Reason::CheckpointExists`], [`Reason::DiscardingCheckpoint`], [`Reason::NoCheckpoint`]:
    ///   the state of the checkpoint does not permit it.
    /// * [`Reason::NotSupported`]: this release does not support it.
    /// * [`Reason::Refused`]: there is too little free space.
    /// * [`Reason::System`]: scans and device work refuse with the system's error number. So do a
    ///   split, a checkpoint and a clear.
    /// * [`Reason::Several`]: several devices refuse.
    /// * [`Reason::BadRequest`]: the request contradicts itself.
    /// * All of [`Service::export`], to destroy a pool or to split one.
    change_pool(name: String => &str, change: PoolChange => &PoolChange) -> ();
    /// Changes datasets of one pool, and mounts and unmounts what follows from that.
    ///
    /// # Errors
    /// * [`Reason::Refused`]: the engine refuses the change.
    /// * [`Reason::BadType`]: the change does not fit the kind of the dataset.
    /// * [`Reason::BadProperty`], [`Reason::BadValue`]: a property can't have this value.
    /// * [`Reason::BadKey`]: a key is malformed.
    /// * [`Reason::Busy`], [`Reason::HeldOpen`], [`Reason::InTheWay`]: a dataset is in use.
    /// * [`Reason::System`]: a new name contains `%`, or a mount can't be changed.
    /// * [`Reason::Daemon`]: a file system can't be unmounted.
    /// * [`Reason::Several`]: several parts of the change failed.
    change(change: DatasetChange => &DatasetChange) -> Changed;
    /// The properties that a dataset would have after its creation. Changes nothing.
    ///
    /// They are those of the request, checked, and those that follow from them.
    ///
    /// # Errors
    /// * [`Reason::BadType`]: the change creates no file system or volume.
    /// * [`Reason::BadValue`]: a property can't have this value.
    draft(change: DatasetChange => &DatasetChange) -> Settings;
    /// The location of an object of an object set (`zpool_obj_to_path`).
    ///
    /// # Errors
    /// * [`Reason::Busy`]: the files of a mount could not be opened again after a rollback.
    object_path(pool: String => &str, objset: u64 => &u64, object: u64 => &u64) -> ObjectPath;
    /// Offers volumes over NBD, and returns their URIs.
    ///
    /// # Errors
    /// * [`Reason::BadType`]: a dataset is not a volume, or a snapshot of one.
    /// * [`Reason::BadValue`]: the address is malformed, or has offers with other certificates; or
    ///   the certificates can't be used.
    /// * [`Reason::System`]: the server or the socket can't be set up.
    offer(request: OfferRequest => &OfferRequest) -> Vec<Offered>;
    /// Stops offering volumes.
    ///
    /// # Errors
    /// * [`Reason::BadValue`]: the address is malformed.
    /// * [`Reason::NotOffered`]: a volume is not offered there.
    withdraw(request: WithdrawRequest => &WithdrawRequest) -> ();
    /// The volumes that are served over NBD, and those in use.
    exports() -> ExportList;
    /// Makes a volume a block device, and returns its path.
    ///
    /// # Errors
    /// * [`Reason::BadValue`]: the daemon is not root's.
    /// * [`Reason::NotSupported`]: there is no daemon.
    /// * [`Reason::BadType`]: the dataset is not a volume, or a snapshot of one.
    /// * [`Reason::AlreadyAttached`]: the volume has a device.
    /// * [`Reason::Program`], [`Reason::System`]: the device, its mount or its link can't be
    ///   created.
    attach(request: AttachRequest => &AttachRequest) -> String;
    /// Detaches a volume's block device.
    ///
    /// # Errors
    /// * [`Reason::NotAttached`]: the volume has no device.
    /// * [`Reason::HeldOpen`]: the device is in use.
    /// * [`Reason::Program`], [`Reason::System`]: the device can't be flushed or released.
    detach(request: DetachRequest => &DetachRequest) -> ();
    /// Serves a file system as a partition of the AFS server, which starts with the first one.
    /// Returns the partition.
    ///
    /// The options are stored with the file system, so that its import serves it again.
    ///
    /// # Errors
    /// * [`Reason::BadValue`]: an option has no such value, the server runs with other options, or
    ///   the partition's letters are taken.
    /// * [`Reason::BadType`]: the dataset is not a file system.
    /// * [`Reason::HeldOpen`]: the file system, or one below it, is mounted.
    /// * [`Reason::KeyNotLoaded`]: the file system is encrypted, and its key is not loaded.
    /// * [`Reason::Refused`]: the file system can't be created.
    /// * [`Reason::Afs`]: the cell's configuration or an address can't be used.
    /// * [`Reason::NotSupported`]: there is no daemon.
    afs_enable(request: AfsEnable => &AfsEnable) -> AfsPartition;
    /// Serves a partition no more, and forgets that it was one. Its volumes stay.
    ///
    /// # Errors
    /// * [`Reason::NotAfs`]: it is no partition.
    /// * [`Reason::InTransaction`]: a transaction has one of its volumes.
    /// * [`Reason::Busy`]: a call does not release a volume.
    afs_disable(request: AfsDisable => &AfsDisable) -> ();
    /// The AFS server and its partitions.
    afs_status() -> AfsStatus;
    /// Volumes and clones in the order of their numbers, at most [`AFS_PAGE`](crate::AFS_PAGE).
    ///
    /// # Errors
    /// * [`Reason::BadValue`]: this is no partition.
    afs_volumes(query: AfsQuery => &AfsQuery) -> Vec<AfsVolume>;
    /// Clients in the order of their numbers, at most [`AFS_PAGE`](crate::AFS_PAGE).
    afs_clients(query: AfsQuery => &AfsQuery) -> Vec<AfsClient>;
    /// The locks of clients, by volumes and vnodes. A reply ends after the volume with which it has
    /// [`AFS_PAGE`](crate::AFS_PAGE).
    ///
    /// # Errors
    /// * [`Reason::BadValue`]: this is no partition.
    afs_locks(query: AfsQuery => &AfsQuery) -> Vec<AfsLock>;
    /// What the daemon does, in numbers that only grow. No pool is read, and none is waited for.
    top(query: TopQuery => &TopQuery) -> Top;
    /// What is under way: operations of users, requests of commands, tasks of the engine. No pool's
    /// lock is taken. Paths are left out if finding them takes long.
    under_way() -> AllUnderWay;
    /// Slow operations of users, and where their time went. Paths are left out if finding them
    /// takes long.
    slow(query: SlowQuery => &SlowQuery) -> SlowOps;
    /// Begins, reads or ends a session that counts or keeps events. Paths are left out if finding
    /// them takes long.
    ///
    /// # Errors
    /// * [`Reason::BadValue`]: there is no such event, field, value or session, or there are too
    ///   many sessions.
    trace(query: TraceQuery => &TraceQuery) -> Traced;
    /// The newest transaction groups of a pool, or of all: as many as `zfs_txg_history`
    /// says, at most [`TXGS_MAX`](crate::TXGS_MAX) of each.
    ///
    /// # Errors
    /// * [`Reason::NoSuchPool`]: no pool with this name is imported.
    txgs(pool: Option<String> => &Option<String>) -> Txgs;
}

/// Requests of this process to its own service, without a connection.
///
/// Each request has its own caller, and so its own budget.
#[derive(Debug)]
pub struct InProcess<S> {
    service: S,
}

impl<S: Deref<Target: Service>> InProcess<S> {
    /// Requests to this service.
    pub fn new(service: S) -> Self {
        Self { service }
    }
}

/// Receives the answer to a request: its status, and then its body.
pub trait Answer: std::io::Write {
    /// Receives the HTTP status, before any part of the body.
    fn begin(&mut self, status: u16);
}

/// Receives a body, and ignores the status.
impl Answer for Vec<u8> {
    fn begin(&mut self, _status: u16) {}
}

/// Carries a request to a daemon.
pub trait Transport {
    /// Posts a JSON body to `/v1/METHOD`, and returns the body of the reply, whatever its status
    /// is.
    ///
    /// # Errors
    /// * [`TransportError::Socket`]: the daemon can't be started or reached.
    /// * [`TransportError::Malformed`]: the reply was not HTTP, or too long.
    fn post(&self, method: &str, body: &[u8]) -> Result<Vec<u8>, TransportError>;
}

/// Why a daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The daemon can't be started, or its socket failed.
    #[error("the daemon's socket")]
    Socket(#[from] std::io::Error),
    /// The reply was not HTTP, or too long.
    #[error("the daemon's reply makes no sense")]
    Malformed,
}

/// The service at the other end of a transport.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
}

impl<T: Transport> Client<T> {
    /// A client over this transport.
    pub fn new(transport: T) -> Self {
        Self { transport }
    }

    fn call<R: DeserializeOwned>(&self, method: &str, args: serde_json::Value) -> Result<R, Error> {
        let daemon = |what: String| Error::new(method, Reason::Daemon { what });
        let body = args.to_string().into_bytes();
        let answer = self.transport.post(method, &body).map_err(|e| daemon(crate::chain(&e)))?;
        match serde_json::from_slice::<Reply<R>>(&answer).map_err(|e| daemon(e.to_string()))? {
            Reply::Ok(answer) => Ok(answer),
            Reply::Error(error) => Err(error),
        }
    }
}

/// The first bytes of text from an unknown client, for a message that repeats it.
pub fn clipped(text: &str) -> std::borrow::Cow<'_, str> {
    /// This is longer than any valid name.
    const MOST: usize = 512;
    match text.char_indices().map(|(at, _)| at).find(|at| *at >= MOST) {
        Some(end) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

fn parse<A: DeserializeOwned>(method: &str, body: &[u8]) -> Result<A, Error> {
    let body = if body.is_empty() { b"{}" } else { body };
    // The parser's message may repeat what the caller sent, at any length.
    let wrong = |e: serde_json::Error| Reason::BadRequest { what: clipped(&e.to_string()).into_owned() };
    serde_json::from_slice(body).map_err(|e| Error::new(method, wrong(e)))
}

fn reply<T: Serialize>(result: Result<T, Error>, out: &mut dyn Answer) -> std::io::Result<()> {
    out.begin(result.as_ref().err().map_or(200, Error::http_status));
    // Answers have only text keys, which JSON can always represent. So only writing can fail.
    match result {
        Ok(answer) => serde_json::to_writer(out, &Reply::Ok(answer)),
        Err(error) => serde_json::to_writer(out, &Reply::<()>::Error(error)),
    }
    .map_err(Into::into)
}
