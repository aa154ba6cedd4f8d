//! The methods: the daemon's side, its dispatch, and the client.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::ops::Deref;

use super::{
    AttachRequest, Caller, Changed, CreatePool, DatasetChange, DatasetList, DatasetQuery, DetachRequest,
    DiffPart, DiffRequest, Error, EventPage, EventQuery, ExportList, ExportRequest, Found, Granted,
    HistoryPage, Hold, ImportOutcome, ImportRequest, InjectRequest, Injected, Kstat, LoadKeyRequest,
    LogStats, Mount, MountProgress, MountReport, MountRequest, ObjectPath, OfferRequest, Offered, Pool,
    PoolChange, PoolQuery, Reason, ScanRequest, Settings, SpaceClass, SpaceEntry, SplParameter, Tunable,
    UnmountRequest, WithdrawRequest,
};

/// A reply's body.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply<T> {
    Ok(T),
    Error(Error),
}

/// Writes the traits, the dispatch, the client and the fakes from one list of methods, so that they
/// can't disagree.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty => $by:ty),*) -> $ret:ty;)*) => {
        /// What the daemon answers. The first argument of each method is who asks.
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
        pub trait Service {
            $($(#[$doc])* fn $name(&self, caller: &Caller, $($arg: $by),*) -> Result<$ret, Error>;)*
        }

        /// What commands request. The caller is not an argument here: who asks is decided at the
        /// daemon's end of the connection.
        pub trait Requests {
            $($(#[$doc])* fn $name(&self, $($arg: $by),*) -> Result<$ret, Error>;)*
        }

        /// A [`Service`] for tests: each method that an implementation leaves out refuses with
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

        /// Answers one request of a caller: the method is what follows `/v1/` in the path.
        ///
        /// # Errors
        /// Those of writing to `out`; the answer is not whole then.
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
    /// One imported pool.
    pool(name: String => &str, query: PoolQuery => &PoolQuery) -> Pool;
    /// A part of a pool's history, internal records too, from a position on; 0 is the begin.
    history(name: String => &str, from: u64 => &u64) -> HistoryPage;
    /// Datasets below a root, and what there can't be read.
    datasets(query: DatasetQuery => &DatasetQuery) -> DatasetList;
    /// What users, groups and projects use in a file system or snapshot.
    space(dataset: String => &str, classes: Vec<SpaceClass> => &[SpaceClass]) -> Vec<SpaceEntry>;
    /// The holds of a snapshot.
    holds(snapshot: String => &str) -> Vec<Hold>;
    /// A part of what changed in a file system since a snapshot.
    diff(request: DiffRequest => &DiffRequest) -> DiffPart;
    /// How many files were removed from a file system and are not gone yet.
    unlinked(dataset: String => &str) -> u64;
    /// What happened to pools.
    events(query: EventQuery => &EventQuery) -> EventPage;
    /// Reads a pool's deduplication tables into its cache; how many bytes they are.
    prefetch(pool: String => &str) -> u64;
    /// What is granted at a dataset and at those above it, upwards; those without grants are not there.
    grants(dataset: String => &str) -> Vec<Granted>;
    /// The pools that could be imported.
    scan(request: ScanRequest => &ScanRequest) -> Found;
    /// Imports a pool; mounts nothing.
    import(request: ImportRequest => &ImportRequest) -> ImportOutcome;
    /// Unmounts and exports a pool.
    export(request: ExportRequest => &ExportRequest) -> ();
    /// What is counted, by the names of OpenZFS's kstats.
    kstats() -> Vec<Kstat>;
    /// The numbers that can be set.
    tunables() -> Vec<Tunable>;
    /// Sets one of them.
    set_tunable(name: String => &str, value: u64 => &u64) -> ();
    /// The parameters of the module `spl` that mean something here.
    spl() -> Vec<SplParameter>;
    /// Asks for faults, or takes them back; says which there are.
    inject(request: InjectRequest => &InjectRequest) -> Vec<Injected>;
    /// What the intent logs have done of datasets that are open for writing.
    logs() -> Vec<LogStats>;
    /// What is mounted, in the order of mounting.
    mounts() -> Vec<Mount>;
    /// Mounts file systems.
    mount(request: MountRequest => &MountRequest) -> MountReport;
    /// How far the request to mount is that is watched under this number, if there is one.
    mount_progress(watch: u64 => &u64) -> Option<MountProgress>;
    /// Unmounts file systems.
    unmount(request: UnmountRequest => &UnmountRequest) -> MountReport;
    /// Loads a key, or checks it.
    load_key(request: LoadKeyRequest => &LoadKeyRequest) -> ();
    /// Unloads a key.
    unload_key(dataset: String => &str) -> ();
    /// Bytes that destroying a run of neighbouring snapshots of one dataset would free: the first and the last of them.
    reclaimed(first: String => &str, last: String => &str) -> u64;
    /// Makes a pool; mounts nothing.
    create_pool(request: CreatePool => &CreatePool) -> ();
    /// Changes a pool.
    change_pool(name: String => &str, change: PoolChange => &PoolChange) -> ();
    /// Changes datasets of one pool; mounts and unmounts what that asks for.
    change(change: DatasetChange => &DatasetChange) -> Changed;
    /// The properties that a creation would give what it makes: those that it asks for, checked, and those that follow from them. Does nothing.
    draft(change: DatasetChange => &DatasetChange) -> Settings;
    /// Where an object of an object set of a pool is to be found.
    object_path(pool: String => &str, objset: u64 => &u64, object: u64 => &u64) -> ObjectPath;
    /// Offers volumes over NBD, and says where.
    offer(request: OfferRequest => &OfferRequest) -> Vec<Offered>;
    /// Offers volumes no longer.
    withdraw(request: WithdrawRequest => &WithdrawRequest) -> ();
    /// What is served over NBD, and used.
    exports() -> ExportList;
    /// Makes a volume a block device, and says where.
    attach(request: AttachRequest => &AttachRequest) -> String;
    /// Takes a volume's block device away.
    detach(request: DetachRequest => &DetachRequest) -> ();
}

/// Requests of this process to a service that it holds itself: no connection is between them.
///
/// Each request has a caller of its own, and so a budget of its own.
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

/// Takes the answer to a request: its status, and then its body.
pub trait Answer: std::io::Write {
    /// The HTTP status, before anything of the body.
    fn begin(&mut self, status: u16);
}

/// A body, whatever its status.
impl Answer for Vec<u8> {
    fn begin(&mut self, _status: u16) {}
}

/// Carries a request to a daemon.
pub trait Transport {
    /// Posts a JSON body to `/v1/METHOD` and returns the body of the reply, whatever its status.
    fn post(&self, method: &str, body: &[u8]) -> Result<Vec<u8>, TransportError>;
}

/// A daemon that could not be reached or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The daemon's socket could not be used.
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
        let answer = self.transport.post(method, &body).map_err(|e| {
            let source = std::error::Error::source(&e).map(|s| format!(": {s}")).unwrap_or_default();
            daemon(format!("{e}{source}"))
        })?;
        match serde_json::from_slice::<Reply<R>>(&answer).map_err(|e| daemon(e.to_string()))? {
            Reply::Ok(answer) => Ok(answer),
            Reply::Error(error) => Err(error),
        }
    }
}

/// The first bytes of what a stranger sent, for a message that repeats it.
pub fn clipped(text: &str) -> std::borrow::Cow<'_, str> {
    /// Longer than any name that has a meaning.
    const MOST: usize = 512;
    match text.char_indices().map(|(at, _)| at).find(|at| *at >= MOST) {
        Some(end) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

fn parse<A: DeserializeOwned>(method: &str, body: &[u8]) -> Result<A, Error> {
    let body = if body.is_empty() { b"{}" } else { body };
    // The parser's words may repeat what the caller sent, at any length.
    let wrong = |e: serde_json::Error| Reason::BadRequest { what: clipped(&e.to_string()).into_owned() };
    serde_json::from_slice(body).map_err(|e| Error::new(method, wrong(e)))
}

fn reply<T: Serialize>(result: Result<T, Error>, out: &mut dyn Answer) -> std::io::Result<()> {
    out.begin(result.as_ref().err().map_or(200, Error::http_status));
    // Answers hold only text keys, which JSON can always carry: what fails is the writing.
    match result {
        Ok(answer) => serde_json::to_writer(out, &Reply::Ok(answer)),
        Err(error) => serde_json::to_writer(out, &Reply::<()>::Error(error)),
    }
    .map_err(Into::into)
}
