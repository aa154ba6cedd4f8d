//! Listeners, and the threads that serve sockets.
//!
//! # Theory
//! One thread accepts clients, and serves connections without encryption, which cost little.
//! Encryption costs much, so encrypted connections have threads of their own, as many as there are
//! processors. The worker pools of the ZFS pools do work that may block.
//!
//! A Unix socket is for its owner and for root. Other users that can open it are refused by their
//! credentials. TCP has no credentials, so a TCP listener offers only exports that were named for
//! it.
//!
//! # Life
//! A listener accepts clients until it is dropped. Its connections go on after that. All
//! connections end with the server.

use crate::connection::{Ended, serve};
use crate::error::{Error, Result};
use crate::peer::Peer;
use crate::tls::Tls;
use crate::volumes::Volumes;
use observe::lock::Mutex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;

/// The most connections at a time. Any further client is disconnected at once.
const CONNECTIONS_MAX: usize = 1024;
/// How many of them are reserved for Unix sockets, so that TCP clients can't take all.
const KEPT: usize = 64;
/// After how much silence a TCP client is probed.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The most threads for encryption.
const CIPHERS_MAX: usize = 16;
/// The least time between two log messages about refused clients.
const QUIET: Duration = Duration::from_secs(60);
/// How long connections may take to end when the server ends.
const ENDING: Duration = Duration::from_secs(10);

/// The exports that a listener offers. The methods don't block.
pub trait Exports: Send + Sync + 'static {
    /// Finds an export by name. `None` if there is none, or it is not offered.
    ///
    /// The empty name requests the default export.
    fn find(&self, name: &str) -> Option<Offer>;
    /// The exports to list.
    fn listing(&self) -> Listing;
}

/// An export that is offered.
pub struct Offer {
    /// Its full name.
    pub name: String,
    /// The volumes of its pool.
    pub volumes: Arc<Volumes>,
    /// Whether this listener refuses writes to it.
    pub read_only: bool,
}

/// The list of exports of a listener.
pub enum Listing {
    /// These names.
    Names(Vec<String>),
    /// All exports of these pools.
    All(Vec<Arc<Volumes>>),
}

/// Serves connections. Dropping it ends them.
pub struct Server {
    handle: Handle,
    ending: watch::Sender<bool>,
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
    /// The threads for encrypted connections, once there are any.
    ciphers: Mutex<Option<Runtime>>,
}

#[derive(Default)]
struct Common {
    connections: AtomicUsize,
    /// How many clients were refused since the last log message, and when that was.
    turned_away: Mutex<(u64, Option<Instant>)>,
}

impl Common {
    /// Counts a refused client. Returns the count since the last log message if a new one is due.
    ///
    /// Clients that connect as fast as they are refused must not fill the log.
    fn turn_away(&self, now: Instant) -> Option<u64> {
        let (count, said) = &mut *self.turned_away.lock();
        *count += 1;
        if said.is_some_and(|said| now.saturating_duration_since(said) < QUIET) {
            return None;
        }
        *said = Some(now);
        Some(std::mem::take(count))
    }
}

/// A connection, counted until dropped.
struct Counted(Arc<Common>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A listening socket. Dropping it closes the socket.
pub struct Listener {
    place: String,
    /// The path of a Unix socket.
    file: Option<PathBuf>,
    address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
}

impl Listener {
    /// The path or the address, as text.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The address of a TCP listener.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(file) = &self.file
            && let Err(error) = std::fs::remove_file(file)
        {
            tracing::debug!(file = %file.display(), %error, "a socket's file stays");
        }
    }
}

fn cannot(operation: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::System { operation, source: Arc::new(source) }
}

impl Server {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::System`]: the event loop or the thread can't be created.
    pub fn start() -> Result<Server> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot("watch sockets"))?;
        let handle = runtime.handle().clone();
        let ending = watch::Sender::new(false);
        let common = Arc::new(Common::default());
        let (mut over, counted) = (ending.subscribe(), Arc::clone(&common));
        let watch = move || {
            runtime.block_on(async move {
                // The sender sets it before it is dropped.
                drop(over.wait_for(|over| *over).await);
                let gone = async {
                    while counted.connections.load(Ordering::Relaxed) > 0 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                if tokio::time::timeout(ENDING, gone).await.is_err() {
                    tracing::warn!("connections are cut off in the middle of requests");
                }
            });
        };
        let thread = std::thread::Builder::new().name("nbd".to_owned()).spawn(watch);
        let thread = Some(thread.map_err(cannot("start a thread"))?);
        Ok(Server { handle, ending, common, thread, ciphers: Mutex::default() })
    }

    /// Listens on a Unix socket that only this user and root can use.
    ///
    /// Replaces a socket at `path` on which no process listens any more. With `tls`, connections
    /// must be encrypted.
    ///
    /// # Errors
    /// [`Error::System`]: a process listens at `path`, another file is there, or the socket can't
    /// be created. Its cause is `EADDRINUSE` for a listener and `ENOTSOCK` for another file. Or the
    /// threads for encryption can't be started.
    pub fn listen_unix(&self, path: &Path, exports: Arc<dyn Exports>, tls: Option<Tls>) -> Result<Listener> {
        remove_dead(path).map_err(cannot("replace a socket"))?;
        let _entered = self.handle.enter();
        let listener = bind_private(path).map_err(cannot("make a socket"))?;
        let listener = UnixListener::from_std(listener).map_err(cannot("listen on a socket"))?;
        let stop = self.let_in(Gate::Unix(listener), self.door(exports, tls, CONNECTIONS_MAX)?);
        let place = path.display().to_string();
        Ok(Listener { place, file: Some(path.to_owned()), address: None, stop })
    }

    /// Listens on a TCP address.
    ///
    /// Any client that reaches the address can use the offered exports. With `tls`, connections
    /// must be encrypted, and the certificates decide which clients are accepted.
    ///
    /// # Errors
    /// [`Error::System`]: the socket can't be bound or set up, or the threads for encryption can't
    /// be started.
    pub fn listen_tcp(
        &self,
        address: SocketAddr,
        exports: Arc<dyn Exports>,
        tls: Option<Tls>,
    ) -> Result<Listener> {
        let _entered = self.handle.enter();
        let listener = std::net::TcpListener::bind(address).map_err(cannot("listen on the address"))?;
        listener.set_nonblocking(true).map_err(cannot("set up the socket"))?;
        let address = listener.local_addr().map_err(cannot("set up the socket"))?;
        let listener = TcpListener::from_std(listener).map_err(cannot("listen on the address"))?;
        let stop = self.let_in(Gate::Tcp(listener), self.door(exports, tls, CONNECTIONS_MAX - KEPT)?);
        Ok(Listener { place: address.to_string(), file: None, address: Some(address), stop })
    }

    /// Accepts clients until the listener is stopped.
    fn let_in(&self, gate: Gate, door: Door) -> watch::Sender<bool> {
        let (stop, mut stopped) = watch::channel(false);
        self.handle.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = gate.accept() => accepted,
                    _ = stopped.wait_for(|is| *is) => break,
                };
                match accepted {
                    Ok(Some(client)) => door.enter(client),
                    Ok(None) => {}
                    Err(error) => pause(&error).await,
                }
            }
        });
        stop
    }

    fn door(&self, exports: Arc<dyn Exports>, tls: Option<Tls>, most: usize) -> Result<Door> {
        let handle = match tls {
            Some(_) => self.ciphers()?,
            None => self.handle.clone(),
        };
        let (common, ending) = (Arc::clone(&self.common), self.ending.subscribe());
        Ok(Door { exports, tls, most, common, ending, handle })
    }

    /// The threads for encrypted connections. The first use starts them.
    fn ciphers(&self) -> Result<Handle> {
        let mut ciphers = self.ciphers.lock();
        if ciphers.is_none() {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(cores.min(CIPHERS_MAX))
                .thread_name("nbd-tls")
                .enable_all()
                .build();
            *ciphers = Some(runtime.map_err(cannot("start threads that encrypt"))?);
        }
        Ok(ciphers.as_ref().expect("they were started").handle().clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the NBD sockets panicked");
        }
        // The thread above has waited for all connections, for at most [`ENDING`].
        if let Some(ciphers) = self.ciphers.lock().take() {
            ciphers.shutdown_background();
        }
    }
}

/// A socket that accepts clients.
enum Gate {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A client, not yet assigned to a thread.
enum Client {
    Unix(std::os::unix::net::UnixStream),
    Tcp(std::net::TcpStream),
}

impl Gate {
    /// Accepts the next client. `None` if its user is refused.
    async fn accept(&self) -> std::io::Result<Option<Client>> {
        match self {
            Gate::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let owner = rustix::process::geteuid().as_raw();
                match stream.peer_cred() {
                    Ok(peer) if peer.uid() == owner || peer.uid() == 0 => {
                        return stream.into_std().map(|stream| Some(Client::Unix(stream)));
                    }
                    Ok(peer) => tracing::info!(uid = peer.uid(), "refused"),
                    Err(error) => tracing::warn!(%error, "a client without credentials is refused"),
                }
                Ok(None)
            }
            Gate::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                if let Err(error) = stream.set_nodelay(true).and_then(|()| keep_alive(&stream)) {
                    tracing::debug!(%error, "a socket's options stay as they are");
                }
                tracing::info!(%peer, "a client of NBD");
                stream.into_std().map(|stream| Some(Client::Tcp(stream)))
            }
        }
    }
}

/// What the connections of a listener need.
struct Door {
    exports: Arc<dyn Exports>,
    tls: Option<Tls>,
    /// How many connections there may be, those of all listeners together.
    most: usize,
    common: Arc<Common>,
    ending: watch::Receiver<bool>,
    /// The threads that serve them.
    handle: Handle,
}

impl Door {
    /// Serves a client, unless there are too many connections.
    fn enter(&self, client: Client) {
        let before = self.common.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&self.common));
        if before >= self.most {
            if let Some(count) = self.common.turn_away(Instant::now()) {
                tracing::warn!(count, "clients are turned away: there are {before} already");
            }
            return;
        }
        let exports = Arc::clone(&self.exports);
        let (tls, ending) = (self.tls.clone(), self.ending.clone());
        self.handle.spawn(async move {
            match client.serve(&*exports, tls.as_ref(), ending).await {
                Ok(()) => {}
                Err(ended @ Ended::Rules(_)) => tracing::warn!(%ended, "an NBD connection"),
                Err(ended) => tracing::debug!(%ended, "an NBD connection"),
            }
            drop(counted);
        });
    }
}

impl Client {
    /// Serves the client on the calling thread.
    async fn serve(
        self,
        exports: &dyn Exports,
        tls: Option<&Tls>,
        ending: watch::Receiver<bool>,
    ) -> std::result::Result<(), Ended> {
        match self {
            Client::Unix(stream) => {
                let stream = UnixStream::from_std(stream)?;
                let peer = Peer::of_unix(&stream)?;
                let (reader, writer) = stream.into_split();
                serve(peer, reader, writer, exports, tls, ending).await
            }
            Client::Tcp(stream) => {
                let stream = TcpStream::from_std(stream)?;
                let peer = Peer::of_tcp(&stream)?;
                let (reader, writer) = stream.into_split();
                serve(peer, reader, writer, exports, tls, ending).await
            }
        }
    }
}

/// Waits after a failed accept. If files are exhausted, others may be closed meanwhile.
async fn pause(error: &std::io::Error) {
    tracing::warn!(%error, "a client could not be let in");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn keep_alive(socket: impl AsFd) -> std::io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE / 6)?;
    Ok(sockopt::set_tcp_keepcnt(&socket, 6)?)
}

/// Removes a socket on which no process listens. Fails if there is another file, or a listener.
fn remove_dead(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(Errno::NOTSOCK.into());
        }
        Ok(_) => {}
    }
    // Non-blocking, since a listener with a full backlog must not delay this.
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Err(Errno::AGAIN) | Ok(()) => Err(Errno::ADDRINUSE.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Binds a socket that only its owner may open. Until the mode is set, the check of credentials
/// keeps others out.
fn bind_private(path: &Path) -> std::io::Result<std::os::unix::net::UnixListener> {
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
