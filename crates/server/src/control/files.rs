//! The daemon's side of visits ([`api::files`]): its socket, and the table of the present visits.
//! Sends and receives ([`api::streams`]) are visits too.
//!
//! # Life
//! Each visit has a thread. It has an entry in the table of [`Visits`] from before it looks for its
//! pool until all that it opened is closed. An export takes the pool's name first, and then reads
//! the table. So it sees each visit that has found the pool.
//!
//! # Locks
//! The table is held for look-ups, never while a dataset is opened or read. The lock of the keys is
//! held while a key is loaded or unloaded. It comes before the table.
//!
//! # Other users
//! At a shared daemon, other users may send and receive what `zfs allow` grants them
//! ([`grants::streams`](crate::control::grants)). Their connections and visits are counted apart
//! from the owners', and from their requests to the control socket.

mod adopting;
mod beside;
mod descriptor;
mod keeping;
mod receiving;
mod sending;
pub(crate) mod visits;

use crate::control::peer::of_stream;
use crate::control::turns::{Callers, Seat as CallerSeat};
use crate::mounts::MountedFs;
use crate::pools::imported::Imported;
use crate::pools::keys::unload;
use crate::pools::table::PoolTable;
use crate::replies::of_dsl;
use adopting::Adopt;
use api::files::wire::{ASK_MAX, Answer, Ask, Refusal, receive, send};
use api::files::{Change, Engine, Fault, Files, Kernel, Kind, Opened, Opening, PART_MAX};
use api::run_dir::RunDir;
use api::streams::Received;
use api::{AfsAdopt, Caller, Error, Peer, Reason, ReceiveRequest, chain};
use beside::Beside;
use dsl::LongHold;
use dsl::keys::KeyStatus;
use fuse::dataset::Stale;
use mount_rules::Plan;
use ondisk::ObjNum;
use receiving::Receive;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use visits::{Key, Seat, Visits};
use zpl::{DirCookie, FileSystem};

/// How long a command may take for its first request.
const OPENING: Duration = Duration::from_secs(10);
/// Most connections of owners at a time, with those that have not sent a request yet.
const CONNECTIONS_MAX: usize = 2 * visits::MOST;
/// The pause and the number of attempts for a dataset that is in use for a moment, such as by a new
/// mount.
const TRIES: (Duration, u32) = (Duration::from_millis(50), 40);

/// Serves the files of all pools to this user, at the socket of a daemon's folder. If that is
/// shared, also serves the sends and receives of others.
///
/// `receive` receives a stream into a pool, and `adopt` makes a volume of AFS from a dump.
pub(crate) fn open(
    pools: &Arc<PoolTable>,
    visits: &Arc<Visits>,
    place: &RunDir,
    receive: impl Fn(&Caller, &ReceiveRequest, &[u8], &mut dyn Read) -> Result<Received, Error>
    + Send
    + Sync
    + 'static,
    adopt: impl Fn(&Caller, &AfsAdopt, &mut dyn Read) -> Result<(), Error> + Send + Sync + 'static,
) {
    if let Err(error) = listen(pools, visits, place, (Arc::new(receive), Arc::new(adopt))) {
        tracing::warn!(%error, "`poolhouse ls` and `cp` can't use the pools of this daemon");
    }
}

fn listen(
    pools: &Arc<PoolTable>,
    visits: &Arc<Visits>,
    place: &RunDir,
    (receive, adopt): (Arc<Receive>, Arc<Adopt>),
) -> std::io::Result<()> {
    let socket = &place.files();
    // The socket of a dead daemon.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = Arc::new(UnixListener::bind(socket)?);
    let mode = if place.is_shared() { 0o666 } else { 0o600 };
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))?;
    visits.listens(Arc::clone(&listener), socket);
    let door = Door {
        pools: Arc::downgrade(pools),
        visits: Arc::downgrade(visits),
        receive,
        adopt,
        shared: place.is_shared(),
        owners: Arc::new(()),
        others: Arc::default(),
    };
    std::thread::Builder::new().name("visits".to_owned()).spawn(move || welcome(&listener, &door))?;
    Ok(())
}

/// What a visit uses of the daemon.
#[derive(Clone)]
struct Daemon {
    pools: Arc<PoolTable>,
    visits: Arc<Visits>,
    receive: Arc<Receive>,
    adopt: Arc<Adopt>,
}

/// Where connections arrive.
struct Door {
    pools: Weak<PoolTable>,
    visits: Weak<Visits>,
    receive: Arc<Receive>,
    adopt: Arc<Adopt>,
    shared: bool,
    /// Each connection of an owner holds a reference, so the count is the number of them.
    owners: Arc<()>,
    /// The connections of other users.
    others: Arc<Callers>,
}

/// A connection that counts until it ends.
struct Admitted {
    caller: Caller,
    #[allow(dead_code, reason = "counts by living")]
    counts: (CallerSeat, Option<Arc<()>>),
}

impl Door {
    /// Counts a connection. `None`: there are too many, or the user may not connect.
    fn admit(&self, stream: &UnixStream) -> Option<Admitted> {
        let turned_away = |why: &dyn std::fmt::Display| tracing::warn!(%why, "a visitor is turned away");
        let peer = of_stream(stream).map_err(|error| turned_away(&error)).ok()?;
        let owns = peer.owns(Peer::own().uid);
        if owns && Arc::strong_count(&self.owners) > CONNECTIONS_MAX {
            turned_away(&format_args!("{CONNECTIONS_MAX} are there"));
            return None;
        }
        if !owns && !self.shared {
            turned_away(&format_args!("user {} does not own the daemon", peer.uid));
            return None;
        }
        let seat = self.others.seat(peer.uid, owns).map_err(|crowd| turned_away(&crowd)).ok()?;
        let caller = Caller::of_connection(peer, Peer::own().uid, seat.budget_of_stream());
        Some(Admitted { caller, counts: (seat, owns.then(|| Arc::clone(&self.owners))) })
    }
}

/// Accepts connections until the socket is closed.
fn welcome(listener: &UnixListener, door: &Door) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => return,
            Err(error) => {
                tracing::warn!(%error, "a visitor could not be let in");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let Some(admitted) = door.admit(&stream) else { continue };
        let (Some(pools), Some(visits)) = (door.pools.upgrade(), door.visits.upgrade()) else { return };
        let (receive, adopt) = (Arc::clone(&door.receive), Arc::clone(&door.adopt));
        let daemon = Daemon { pools, visits, receive, adopt };
        let serve = move || {
            if let Err(error) = serve(&daemon, stream, &admitted.caller) {
                tracing::debug!(%error, "a visit ended badly");
            }
        };
        // Without a thread the connection closes.
        if let Err(error) = std::thread::Builder::new().name("visit".to_owned()).spawn(serve) {
            tracing::warn!(%error, "a visitor is turned away");
        }
    }
}

/// Serves one connection to its end.
fn serve(daemon: &Daemon, mut stream: UnixStream, caller: &Caller) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    if let Err(refusal) = take(caller, "request", ASK_MAX as u64) {
        return send(&mut stream, &Answer::Denied(refusal), &[]);
    }
    let mut until = Until { stream: &stream, end: Instant::now() + OPENING };
    // A read or the end of a descriptor may wait for the user who passed it. Those of others are
    // dropped by the kernel.
    let (asked, descriptor) = match caller.owns() {
        false => (receive(&mut until, ASK_MAX, &mut bytes)?, None),
        true => {
            let mut first = First { until, descriptor: None };
            (receive(&mut first, ASK_MAX, &mut bytes)?, first.descriptor.take())
        }
    };
    stream.set_read_timeout(None)?;
    let opening = match asked {
        Some(Ask::Open(opening)) => opening,
        Some(Ask::Send(request)) => {
            return sending::serve(daemon, stream, &request, descriptor, caller);
        }
        Some(Ask::Keep { raw }) => return keeping::serve(daemon, stream, (raw, &bytes), caller),
        Some(Ask::Receive(request)) => {
            if caller.owns() && descriptor.is_none() {
                return Ok(());
            }
            return receiving::serve(daemon, stream, &request, (&bytes, descriptor), caller);
        }
        Some(Ask::Adopt(request)) => return adopting::serve(daemon, stream, &request, caller),
        _ => return Ok(()),
    };
    if !caller.owns() {
        return send(&mut stream, &Answer::Denied(Refusal::Theirs), &[]);
    }
    let user = visitor(&opening.command, caller.peer().pid);
    let (mut open, opened) = match Open::new(daemon, &stream, &opening, (caller, &user)) {
        Ok(opened) => opened,
        Err(refusal) => return send(&mut stream, &Answer::Denied(refusal), &[]),
    };
    tracing::debug!(dataset = opening.dataset, user, "a visit begins");
    send(&mut stream, &Answer::Opened(opened), &[])?;
    let mut data = Vec::new();
    while let Some(ask) = receive(&mut stream, ASK_MAX, &mut bytes)? {
        data.clear();
        let answer = match &mut open.what {
            What::Own { engine, .. } => answer(engine, ask, &bytes, &mut data),
            What::Beside(beside) => beside.answer(ask, &mut data),
        };
        send(&mut stream, &answer.unwrap_or_else(Answer::Fault), &data)?;
    }
    Ok(())
}

/// Takes memory from the budget of a caller that does not own the daemon.
fn take(caller: &Caller, about: &str, bytes: u64) -> Result<(), Refusal> {
    match caller.owns() {
        true => Ok(()),
        false => caller.budget().take(about, bytes).map_err(Refusal::Api),
    }
}

/// A stream that can be read up to a point in time, even if its bytes arrive slowly.
pub(crate) struct Until<'a> {
    pub(crate) stream: &'a UnixStream,
    pub(crate) end: Instant,
}

impl Until<'_> {
    /// Limits the next read of the stream to the time that is left.
    fn limit(&self) -> std::io::Result<()> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.limit()?;
        self.stream.read(buf)
    }
}

/// A connection's first request, which may come with a file descriptor.
struct First<'a> {
    until: Until<'a>,
    /// The first descriptor that came. Others are closed.
    descriptor: Option<OwnedFd>,
}

impl Read for First<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.until.limit()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buf)];
        let got = recvmsg(self.until.stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for descriptor in descriptors {
                    self.descriptor.get_or_insert(descriptor);
                }
            }
        }
        Ok(got.bytes)
    }
}

/// The description of a visit for other users: its command and its process.
pub(crate) fn visitor(command: &str, process: Option<u32>) -> String {
    let command = clipped(command);
    match process {
        Some(pid) => format!("poolhouse {command} (process {pid})"),
        None => format!("poolhouse {command} (a process of another PID namespace)"),
    }
}

/// The name of a command, without other characters than letters and digits.
fn clipped(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphanumeric).take(16).collect()
}

/// Answers a request. Its raw data goes to `data`.
fn answer(engine: &mut Engine, ask: Ask, bytes: &[u8], data: &mut Vec<u8>) -> Result<Answer, Fault> {
    let object = |object: Option<ObjNum>| Answer::Object(object.map(|object| object.0));
    Ok(match ask {
        Ask::Open(_) | Ask::Send(_) | Ask::Keep { .. } | Ask::Receive(_) | Ask::Adopt(_) => {
            return Err(bad("a dataset is open"));
        }
        Ask::Resolve { path, follow } => Answer::Meta(engine.resolve(&path.0, follow)?),
        Ask::Meta { object } => Answer::Meta(engine.meta(ObjNum(object))?),
        Ask::Page { folder, from } => Answer::Page(engine.page(ObjNum(folder), DirCookie(from))?),
        Ask::Readlink { link } => {
            *data = engine.readlink(ObjNum(link))?;
            Answer::Bytes
        }
        Ask::XattrNames { object } => {
            let names = engine.xattr_names(ObjNum(object))?;
            Answer::Names(names.into_iter().map(Into::into).collect())
        }
        Ask::Xattr { object, name } => {
            *data = engine.xattr(ObjNum(object), &name.0)?;
            Answer::Bytes
        }
        Ask::Begin { object } => {
            engine.begin(ObjNum(object))?;
            Answer::Done
        }
        Ask::Next { at, data } => engine.next(at, data).map_or_else(Answer::Gap, Answer::At),
        Ask::Read { at, len } => return read(engine, at, len, data),
        Ask::Lookup { folder, name } => object(Some(engine.lookup(ObjNum(folder), &name.0)?)),
        Ask::Remove { folder, name } => object(engine.remove(ObjNum(folder), &name.0)?),
        Ask::Link { file, folder, name } => {
            engine.link(ObjNum(file), ObjNum(folder), &name.0)?;
            Answer::Done
        }
        Ask::Create { folder, name, new } => {
            let new = new.file().ok_or_else(|| bad("no kind of file"))?;
            object(Some(engine.create(ObjNum(folder), &name.0, &new)?))
        }
        Ask::Write { object, at } => {
            engine.write(ObjNum(object), at, bytes)?;
            Answer::Done
        }
        Ask::Extend { object, size } => {
            engine.extend(ObjNum(object), size)?;
            Answer::Done
        }
        Ask::SetXattr { object, name } => {
            engine.set_xattr(ObjNum(object), &name.0, bytes)?;
            Answer::Done
        }
        Ask::SetAttr { object, set } => {
            engine.set_attr(ObjNum(object), &set.into())?;
            Answer::Done
        }
        Ask::Sync => {
            engine.sync()?;
            Answer::Done
        }
    })
}

/// Reads a range of the file that a visit has begun.
fn read(engine: &mut Engine, at: u64, len: usize, data: &mut Vec<u8>) -> Result<Answer, Fault> {
    if !(1..=PART_MAX).contains(&len) {
        return Err(bad("a read of no such length"));
    }
    data.resize(len, 0);
    match engine.read(at, data) {
        Ok(n) => {
            data.truncate(n);
            Ok(Answer::Bytes)
        }
        Err(gap) => {
            data.clear();
            Ok(Answer::Gap(gap))
        }
    }
}

fn bad(what: &str) -> Fault {
    Fault { kind: Kind::Other, text: format!("the daemon does not understand the request: {what}") }
}

/// A dataset that a visit has open. It is closed before the entry in the table is removed.
struct Open {
    what: What,
    #[allow(dead_code, reason = "unloads keys when it ends")]
    keys: Vec<Loaded>,
    #[allow(dead_code, reason = "is in the table by living")]
    seat: Seat,
}

/// The files of a visit.
#[allow(clippy::large_enum_variant, reason = "there is one for each visit")]
enum What {
    /// The visit has them for itself, or shares those of a mount.
    Own {
        engine: Engine,
        #[allow(dead_code, reason = "keeps the dataset by living")]
        keeps: Keeps,
    },
    /// Something else may have them.
    Beside(Beside),
}

/// What keeps a dataset from being changed by others, or destroyed.
#[derive(Default)]
struct Keeps {
    #[allow(dead_code, reason = "keeps a file system open by living")]
    written: Option<Arc<FileSystem>>,
    #[allow(dead_code, reason = "keeps a volume open by living")]
    lease: Option<nbd::Lease>,
    #[allow(dead_code, reason = "keeps a volume open by living")]
    volume: Option<poolhouse::zvol::Volume>,
    #[allow(dead_code, reason = "keeps a dataset by living")]
    hold: Option<LongHold>,
}

fn library(about: &str, error: &dyn std::error::Error) -> Refusal {
    Refusal::Library { about: about.to_owned(), text: chain(error) }
}

fn denied(about: &str, reason: Reason) -> Refusal {
    Refusal::Api(Error::new(about, reason))
}

/// Whether a dataset is open for writing elsewhere.
fn is_taken(error: &poolhouse::Error) -> bool {
    matches!(error, poolhouse::Error::Dataset(dsl::Error::Refused { why: dsl::Refusal::Busy, .. }))
}

impl Open {
    fn new(
        daemon: &Daemon,
        stream: &UnixStream,
        opening: &Opening,
        who: (&Caller, &str),
    ) -> Result<(Self, Opened), Refusal> {
        let name = opening.dataset.as_str();
        let parsed = dsl::Name::parse(name).map_err(|_| denied(name, Reason::InvalidName))?;
        let again = stream.try_clone().map_err(|error| library(name, &error))?;
        let seat = daemon.visits.enter(again, parsed.pool(), who).map_err(Refusal::Api)?;
        let imported = daemon.pools.pool_of(name).map_err(Refusal::Api)?;
        if opening.beside {
            let (beside, total) = Beside::open(&imported, opening, (&daemon.visits, seat.number))?;
            let opened = Opened { volume: None, total };
            return Ok((Self { what: What::Beside(beside), keys: Vec::new(), seat }, opened));
        }
        if let Some(reason) = crate::afs::obstacle_to_files(&imported, name) {
            return Err(Refusal::Api(Error::new(name, reason)));
        }
        let of_dsl = |error: dsl::Error| denied(name, of_dsl(&error));
        let dataset = imported.pool.spa().read(|| imported.pool.dsl().dataset(name)).map_err(of_dsl)?;
        daemon.visits.set_dataset(seat.number, Some(dataset.object().0));
        let live = imported.pool.spa().writer();
        if live.is_some_and(|live| live.suspended().is_some()) {
            return Err(denied(name, Reason::Suspended));
        }
        let keys = load_keys((daemon, seat.number), &imported, &dataset, opening)?;
        check_key(&dataset)?;
        if opening.write && live.is_none() {
            return Err(denied(name, Reason::PoolReadonly));
        }
        let (engine, volume, keeps) = match dataset.head_kind().map_err(of_dsl)? {
            Some(dsl::Kind::Filesystem) => {
                let (engine, keeps) = file_system(&imported, &dataset, opening.write)?;
                (engine, None, keeps)
            }
            Some(dsl::Kind::Volume) if !opening.write => {
                let (engine, size, keeps) = volume(&imported, &dataset)?;
                (engine, Some(size), keeps)
            }
            Some(dsl::Kind::Volume) => return Err(Refusal::NotWritable { dataset: name.to_owned() }),
            Some(dsl::Kind::Snapshot | dsl::Kind::Bookmark) | None => {
                return Err(denied(name, Reason::BadType));
            }
        };
        let opened = Opened { volume, total: dataset.phys().uncompressed_bytes };
        Ok((Self { what: What::Own { engine, keeps }, keys, seat }, opened))
    }
}

/// Opens a file system, through its mount if it is mounted.
fn file_system(
    imported: &Arc<Imported>,
    dataset: &dsl::Dataset,
    write: bool,
) -> Result<(Engine, Keeps), Refusal> {
    let name = &dataset.name();
    let read_only = || Refusal::ReadOnly { dataset: name.clone() };
    if write && dataset.is_snapshot() {
        return Err(Refusal::NotWritable { dataset: name.clone() });
    }
    let plan = Plan::of(dataset.clone()).map_err(|error| denied(name, of_dsl(&error)))?;
    let plan = plan.ok_or_else(|| denied(name, Reason::BadType))?;
    if write && plan.options.read_only {
        return Err(read_only());
    }
    let writer = imported.pool.spa().writer();
    let hold = || writer.map(|live| live.dsl().heads().long_hold(dataset.object().0));
    let (pause, tries) = TRIES;
    for _ in 0..tries {
        if let Some(live) = imported.mounts.live(dataset.object().0) {
            // A file system that can't be changed has no owner of its own.
            let held = hold();
            let fs = live.files().map_err(|reason| denied(name, reason))?;
            if write && (!fs.is_writable() || live.is_mounted_read_only()) {
                return Err(read_only());
            }
            let keeps = Keeps { hold: held.filter(|_| !fs.is_writable()), ..Keeps::default() };
            return Ok((Engine::mounted(fs, Box::new(Mounted(live))), keeps));
        }
        let of_name = imported.pool.dataset(name).map_err(|error| library(name, &error))?;
        if writer.is_none() || plan.options.read_only {
            // As for a mount, the intent log is replayed first.
            let keeps = Keeps { hold: hold(), ..Keeps::default() };
            if writer.is_some() && !dataset.is_snapshot() {
                match imported.pool.replay(dataset) {
                    Err(error) if is_taken(&error) => {
                        std::thread::sleep(pause);
                        continue;
                    }
                    done => drop(done.map_err(|error| library(name, &error))?),
                }
            }
            // The handle may be older than the replay.
            let again = imported.pool.dataset(name).map_err(|error| library(name, &error))?;
            let fs = again.filesystem().map_err(|error| library(name, &error))?;
            return Ok((Engine::files(fs), keeps));
        }
        match of_name.writer() {
            Ok(fs) => {
                let keeps = Keeps { written: Some(Arc::clone(&fs)), ..Keeps::default() };
                return Ok((Engine::files(FileSystem::clone(&fs)), keeps));
            }
            // It is about to be mounted, or was just unmounted.
            Err(error) if is_taken(&error) => std::thread::sleep(pause),
            Err(error) => return Err(library(name, &error)),
        }
    }
    Err(denied(name, Reason::Busy))
}

/// Opens a volume, which NBD clients may have open. Also returns its size.
fn volume(imported: &Imported, dataset: &dsl::Dataset) -> Result<(Engine, u64, Keeps), Refusal> {
    let name = &dataset.name();
    let failed = |error: &dyn std::error::Error| library(name, error);
    let mut keeps = Keeps::default();
    match imported.volumes.open(name) {
        Ok(lease) => keeps.lease = Some(lease),
        Err(nbd::Error::Busy { .. }) => return Err(denied(name, Reason::Busy)),
        // With `volmode=none`, no client can have it open.
        Err(nbd::Error::NoExport { .. }) => match imported.pool.spa().writer() {
            Some(live) if dataset.is_snapshot() => {
                keeps.hold = Some(live.dsl().heads().long_hold(dataset.object().0));
            }
            Some(_) => keeps.volume = Some(imported.pool.open_volume(dataset).map_err(|e| failed(&e))?),
            None => {}
        },
        Err(error) => return Err(failed(&error)),
    }
    let dsl = imported.pool.dsl();
    let live = dsl.heads().get(dataset.object().0, dsl.mos().options()).filter(|_| !dataset.is_snapshot());
    let objset = match live {
        Some(objset) => objset,
        None => imported.pool.dataset(name).and_then(|d| d.objset()).map_err(|e| failed(&e))?,
    };
    let size = zvol::Volume::open(&objset).map_err(|e| failed(&e))?.size();
    Ok((Engine::objects(objset), size, keeps))
}

/// Refuses a dataset whose key is not loaded.
fn check_key(dataset: &dsl::Dataset) -> Result<(), Refusal> {
    let name = dataset.name();
    let of_dsl = |error: dsl::Error| denied(&name, of_dsl(&error));
    let Some(root) = dataset.dir().encryption_root().map_err(of_dsl)? else { return Ok(()) };
    if dataset.dsl().keys().status(&root).map_err(of_dsl)? == KeyStatus::Available {
        return Ok(());
    }
    Err(Refusal::NoKey { root: root.name().to_owned(), dataset: name })
}

/// A key that visits have loaded. The last of them unloads it.
struct Loaded {
    daemon: Daemon,
    /// The visit. It has closed its dataset when this is dropped.
    visit: u64,
    pool: String,
    root: u64,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let Daemon { pools, visits, .. } = &self.daemon;
        let mut keys = visits.keys.lock();
        visits.set_dataset(self.visit, None);
        let place = (self.pool.clone(), self.root);
        let Some(key) = keys.get_mut(&place) else { return };
        key.users -= 1;
        if key.users > 0 {
            return;
        }
        if let Some(key) = keys.remove(&place)
            // The end of a visit has no request: the daemon itself loaded the key for it.
            && let Err(error) = unload(&Caller::this_process(), pools, visits, &key.root)
        {
            // Something else needs the key now.
            tracing::info!(root = key.root, %error, "its key stays loaded");
        }
    }
}

/// Loads the keys that a command gave, as long as visits need them. A key that is loaded already is
/// checked.
fn load_keys(
    (daemon, visit): (&Daemon, u64),
    imported: &Imported,
    dataset: &dsl::Dataset,
    opening: &Opening,
) -> Result<Vec<Loaded>, Refusal> {
    let name = dataset.name();
    let dsl = imported.pool.dsl();
    let mut loaded = Vec::new();
    for (root, material) in &opening.keys {
        let of_dsl = |error: dsl::Error| denied(root.as_ref().unwrap_or(&name), of_dsl(&error));
        let dir = match root {
            Some(root) => Some(dsl.dir(root).map_err(of_dsl)?),
            None => dataset.dir().encryption_root().map_err(of_dsl)?,
        };
        let dir = dir.ok_or_else(|| Refusal::NotEncrypted { dataset: name.clone() })?;
        let of_key = |error: dsl::keys::KeyError| library(dir.name(), &error);
        let place = (imported.pool.name().to_owned(), dir.object().0);
        // Held while the key is loaded, so that no other visit unloads it in between.
        let mut all = daemon.visits.keys.lock();
        let is_there = dsl.keys().status(&dir).map_err(of_dsl)? == KeyStatus::Available;
        dsl.keys().load(&dir, &material.0, is_there).map_err(of_key)?;
        match all.get_mut(&place) {
            Some(key) => key.users += 1,
            // The user has loaded this key, and will unload it.
            None if is_there => continue,
            None => {
                let root = dir.name().to_owned();
                all.insert(place.clone(), Key { root, users: 1 });
            }
        }
        loaded.push(Loaded { daemon: daemon.clone(), visit, pool: place.0, root: place.1 });
    }
    Ok(loaded)
}

/// A change, by the kernel's node numbers.
fn stale(change: &Change<'_>, shown: &fuse::dataset::Dataset) -> Stale {
    match change {
        Change::File(object) => Stale::File(shown.node_of(*object)),
        Change::Name(folder, name) => Stale::Name(shown.node_of(*folder), name.to_vec()),
    }
}

/// The mount of a file system that a visit uses beside the kernel.
struct Mounted(Arc<MountedFs>);

impl Kernel for Mounted {
    fn tell(&self, changes: &[Change<'_>]) {
        self.0.tell_changes(|shown| changes.iter().map(|change| stale(change, shown)).collect());
    }

    fn drop_file(&self, object: ObjNum) -> bool {
        self.0.drop_file(object)
    }

    fn is_read_only(&self) -> bool {
        self.0.is_mounted_read_only()
    }
}

#[cfg(test)]
mod tests;
