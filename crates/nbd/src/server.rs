//! Listening, and the threads that watch sockets.
//!
//! # Theory
//! One thread lets clients in, and carries the bytes of those that are not encrypted, which costs little; encrypting costs much, and so those that are have threads of their own, as
//! many as there are processors, between which their connections are shared out. What may block is done by the crews of the pools. A Unix socket is for its owner, and for
//! root: whoever else gets through to it is turned away by what the kernel says of him. TCP knows nobody, so it is for what is offered there by name.
//!
//! # Life
//! A listener accepts until it is dropped; connections that it accepted go on. All end with the server.

use crate::connection::{Ended, serve};
use crate::error::{Error, Result};
use crate::tls::Tls;
use crate::volumes::Volumes;
use parking_lot::Mutex;
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

/// Most connections at a time. More are closed as soon as they come.
const CONNECTIONS_MAX: usize = 1024;
/// Those that are kept for Unix sockets, so that strangers can't take all.
const KEPT: usize = 64;
/// How long a client of TCP that says nothing is believed to be there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Most threads that encrypt.
const CIPHERS_MAX: usize = 16;
/// How long the log says no more of clients that are turned away.
const QUIET: Duration = Duration::from_secs(60);
/// How long connections may take to end when the server does.
const ENDING: Duration = Duration::from_secs(10);

/// What a listener offers. Its methods don't block.
pub trait Exports: Send + Sync + 'static {
    /// Where the export of this name is; `None` if there is none, or it is not offered. An empty name asks for the usual one.
    fn find(&self, name: &str) -> Option<Offer>;
    /// What is listed.
    fn listing(&self) -> Listing;
}

/// An export that is offered.
pub struct Offer {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub volumes: Arc<Volumes>,
    /// It may not be written by this way.
    pub read_only: bool,
}

/// What a listener lists.
pub enum Listing {
    /// These.
    Names(Vec<String>),
    /// All of these pools.
    All(Vec<Arc<Volumes>>),
}

/// What serves connections. Dropping it ends them.
pub struct Server {
    handle: Handle,
    ending: watch::Sender<bool>,
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
    /// Who carries the bytes of connections that are encrypted.
    ciphers: Mutex<Option<Runtime>>,
}

#[derive(Default)]
struct Common {
    connections: AtomicUsize,
    /// Clients that were turned away since the log last said so, and when that was.
    turned_away: Mutex<(u64, Option<Instant>)>,
}

impl Common {
    /// One more client is turned away. How many that makes since it was last said, if it is to be said again: clients that come as fast as they are sent
    /// away fill no log.
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

/// One connection that is counted.
struct Counted(Arc<Common>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket that is listened on, until it is dropped.
pub struct Listener {
    place: String,
    /// The file of a Unix socket.
    file: Option<PathBuf>,
    address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
}

impl Listener {
    /// Where it is.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Its address, if it is of TCP.
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
    /// [`Error::System`].
    pub fn start() -> Result<Server> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot("watch sockets"))?;
        let handle = runtime.handle().clone();
        let ending = watch::Sender::new(false);
        let common = Arc::new(Common::default());
        let (mut over, counted) = (ending.subscribe(), Arc::clone(&common));
        let watch = move || {
            runtime.block_on(async move {
                // The sender says so before it goes.
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

    /// Listens on a Unix socket that is this user's alone. A socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn listen_unix(&self, path: &Path, exports: Arc<dyn Exports>, tls: Option<Tls>) -> Result<Listener> {
        remove_dead(path).map_err(cannot("replace a socket"))?;
        let _entered = self.handle.enter();
        let listener = bind_private(path).map_err(cannot("make a socket"))?;
        let listener = UnixListener::from_std(listener).map_err(cannot("listen on a socket"))?;
        let stop = self.let_in(Gate::Unix(listener), self.door(exports, tls, CONNECTIONS_MAX)?);
        let place = path.display().to_string();
        Ok(Listener { place, file: Some(path.to_owned()), address: None, stop })
    }

    /// Listens on an address. Whoever reaches it may use what is offered there, if he is let in where it is encrypted.
    ///
    /// # Errors
    /// [`Error::System`].
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

    /// Lets clients in through a door until that is stopped.
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

    /// The threads that encrypt, started when they are first needed.
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
        // It has waited for all connections as long as that is worth it.
        if let Some(ciphers) = self.ciphers.lock().take() {
            ciphers.shutdown_background();
        }
    }
}

/// A socket that clients come to.
enum Gate {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A client, whom nobody watches yet.
enum Client {
    Unix(std::os::unix::net::UnixStream),
    Tcp(std::net::TcpStream),
}

impl Gate {
    /// The next client; `None` if he may not come in.
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

/// What a listener's connections need.
struct Door {
    exports: Arc<dyn Exports>,
    tls: Option<Tls>,
    /// Connections of all listeners beside which one more is let in.
    most: usize,
    common: Arc<Common>,
    ending: watch::Receiver<bool>,
    /// Who carries their bytes.
    handle: Handle,
}

impl Door {
    /// Lets a client in, unless there are too many.
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
    /// Serves him, watched by whoever runs this.
    async fn serve(
        self,
        exports: &dyn Exports,
        tls: Option<&Tls>,
        ending: watch::Receiver<bool>,
    ) -> std::result::Result<(), Ended> {
        match self {
            Client::Unix(stream) => {
                let (reader, writer) = UnixStream::from_std(stream)?.into_split();
                serve(reader, writer, exports, tls, ending).await
            }
            Client::Tcp(stream) => {
                let (reader, writer) = TcpStream::from_std(stream)?.into_split();
                serve(reader, writer, exports, tls, ending).await
            }
        }
    }
}

/// Out of files, say: those that are open get a moment to go.
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

/// Takes away a socket that nobody listens on; anything else stays, and is in the way.
fn remove_dead(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(Errno::NOTSOCK.into());
        }
        Ok(_) => {}
    }
    // Whoever listens and has no room for another client is not waited for.
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

/// Nobody else may connect; nor could he in between, as credentials are checked too.
fn bind_private(path: &Path) -> std::io::Result<std::os::unix::net::UnixListener> {
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
