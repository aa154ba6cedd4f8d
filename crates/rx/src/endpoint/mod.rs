//! An address at which services are served, and from which calls are made.
//!
//! # Theory
//! An endpoint has a few sockets at one address ([`crate::shard`]), and a pool of threads that
//! receive from them and run the calls that may block. Calls of our own leave from the same
//! sockets: the clients of a file server expect its callbacks from its own port.
//!
//! # Life
//! [`Endpoint::bind`] starts the threads. Dropping the endpoint ends all calls: their peers get an
//! abort with [`code::RESTARTING`], as OpenAFS's servers send it to new calls when they end. Calls
//! that wait for a thread are dropped. Threads see their calls fail, and are awaited if they end
//! within seconds.

mod client;
mod lines;
mod pool;
#[cfg(test)]
mod tests;

pub use client::{Connection, call_all};

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::call::Call;
use crate::engine::{CallId, Config, Counts, Engine, Source};
use crate::net;
use crate::packet::debug::{self, Question};
use crate::packet::{Header, Kind};
use crate::security::Class;
use crate::shard::{self, Handler, Queued, Receiver, Reply, Request, Shard};
use crate::stats::Stats;
use crate::{Error, Result, code};
use pool::{Job, Pool};

/// Bytes of the answer to the question which program this is.
const VERSION: usize = 65;

/// A service: what calls to one service number do.
pub trait Service: Send + Sync {
    /// Answers a complete request from memory. It never waits: not for a disk, not for a lock that
    /// is held during I/O, not for another call.
    ///
    /// `None` sends the request to [`Service::run`].
    fn quick(&self, request: &Request) -> Option<Reply>;

    /// Whether a complete request keeps its thread busy for long, even if the thread never waits.
    /// Then another thread receives packets meanwhile.
    fn is_long(&self, _: &Request) -> bool {
        false
    }

    /// Serves a call in a thread of its own. The request's bytes are read from the call, and the
    /// reply is written to it. The end of the reply follows by itself.
    ///
    /// # Errors
    /// The code that the call is aborted with.
    fn run(&self, call: &mut Call) -> std::result::Result<(), i32>;
}

/// How an endpoint is made.
pub struct Options {
    /// Sockets, from each of which a thread receives.
    pub shards: usize,
    /// Whether the host may lack the address at the start (`IP_FREEBIND`). Nothing arrives before
    /// it has it.
    pub early: bool,
    /// Threads for calls that block.
    pub workers: usize,
    /// The most such threads. More than `workers` are started when calls would wait.
    pub most_workers: usize,
    /// Calls that may wait for such a thread.
    pub waiting: usize,
    /// Limits and times. The limits in all are those of all sockets together.
    pub config: Config,
    /// The security classes for clients of our services.
    pub classes: Vec<Arc<dyn Class>>,
    /// The services and their numbers.
    pub services: Vec<(u16, Arc<dyn Service>)>,
    /// What `rxdebug -version` shows.
    pub version: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            shards: 1,
            early: false,
            workers: 16,
            most_workers: 128,
            waiting: 10_000,
            config: Config::default(),
            classes: Vec::new(),
            services: Vec::new(),
            version: format!("Poolhouse {}", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// Services, and what `rxdebug` asks about.
struct Services {
    services: Vec<(u16, Arc<dyn Service>)>,
    pool: Arc<Pool>,
    version: String,
    shards: Vec<Weak<Shard>>,
}

impl Services {
    fn find(&self, number: u16) -> Option<&Arc<dyn Service>> {
        self.services.iter().find(|(known, _)| *known == number).map(|(_, service)| service)
    }

    fn shards(&self) -> impl Iterator<Item = Arc<Shard>> {
        self.shards.iter().filter_map(Weak::upgrade)
    }

    /// The answer about the connection of this index, over all shards.
    fn connection(&self, index: u32, all: bool) -> Vec<u8> {
        let mut left = index as usize;
        for shard in self.shards() {
            let state = shard.lock();
            if let Some(connection) = state.engine.debug_connection(left, all) {
                return connection.encode();
            }
            left = left.saturating_sub(state.engine.debug_connections(all));
        }
        debug::Connection::end()
    }

    fn peer(&self, index: u32) -> Vec<u8> {
        let mut left = index as usize;
        for shard in self.shards() {
            let state = shard.lock();
            if let Some(peer) = state.engine.debug_peer(left) {
                return peer.encode();
            }
            left = left.saturating_sub(state.engine.debug_peers());
        }
        debug::Peer::end()
    }

    fn stats(&self) -> Vec<u8> {
        let counts = counts(self.shards());
        let (waiting, idle, waited) = self.pool.numbers();
        let stats = debug::Stats {
            free_packets: u32::MAX >> 8,
            calls: counts.calls as u32,
            waiting,
            idle_threads: idle,
            waited,
            packets: u32::MAX >> 8,
        };
        stats.encode()
    }
}

impl Handler for Services {
    fn quick(&self, request: &Request) -> Option<Reply> {
        match self.find(request.info.service) {
            Some(service) => service.quick(request),
            None => Some(Reply::Abort(code::INVALID_OPERATION)),
        }
    }

    fn queue(&self, shard: &Arc<Shard>, id: CallId, request: Request, lazy: bool) -> Queued {
        let Some(service) = self.find(request.info.service) else { return Queued::Refused };
        // The rest of a request arrives while it is served.
        let lazy = lazy && request.complete && !service.is_long(&request);
        let job = Job { shard: Arc::clone(shard), id, request, service: Arc::clone(service) };
        self.pool.submit(job, lazy)
    }

    fn waits(&self) {
        self.pool.cover();
    }

    fn question(&self, header: &Header, body: &[u8]) -> Option<Vec<u8>> {
        if header.kind == Kind::Version {
            let mut text = self.version.as_bytes().to_vec();
            text.truncate(VERSION - 1);
            text.resize(VERSION, 0);
            return Some(text);
        }
        if header.kind != Kind::Debug {
            return None;
        }
        Some(match Question::parse(body).ok()? {
            Question::Stats => self.stats(),
            Question::Connection(index) => self.connection(index, false),
            Question::AnyConnection(index) => self.connection(index, true),
            Question::Counters => counts(self.shards()).debug.encode(),
            Question::Peer(index) => self.peer(index),
            Question::Unknown => debug::unknown(),
        })
    }
}

/// The sum of what the engines count.
fn counts(shards: impl Iterator<Item = Arc<Shard>>) -> Counts {
    shards.map(|shard| shard.lock().engine.counts()).fold(Counts::default(), |sum, counts| sum.plus(&counts))
}

/// An address with services and connections.
pub struct Endpoint {
    shards: Vec<Arc<Shard>>,
    stats: Arc<Stats>,
    pool: Arc<Pool>,
    address: SocketAddrV4,
    next: AtomicUsize,
}

impl Endpoint {
    /// Binds an address and starts the threads. Port 0 has the system choose one.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn bind(address: SocketAddrV4, options: Options) -> Result<Endpoint> {
        let socket_error = |source| Error::Socket { source };
        let begun = Instant::now();
        // The top bit says that this program may change its address. OpenAFS never sets the next
        // one.
        let epoch = getrandom::u32().map_err(|_| Error::Random)? & !(1 << 30) | 1 << 31;
        let count = options.shards.clamp(1, 64);
        let numbers: Vec<u16> = options.services.iter().map(|(number, _)| *number).collect();
        let (mut shards, mut bound, stats) = (Vec::new(), address, Arc::new(Stats::default()));
        let how = net::Bind { shared: options.shards > 1, early: options.early };
        for index in 0..count {
            let socket = net::bind(bound, how).map_err(socket_error)?;
            if let std::net::SocketAddr::V4(own) = socket.local_addr().map_err(socket_error)? {
                bound = own;
            }
            let config = Config {
                started: shard::unix(),
                random: Source::System,
                epoch,
                shard: index as u8,
                // The limits are those of all sockets.
                connections: options.config.connections / count,
                bytes: options.config.bytes / count,
                replies: options.config.replies / count,
                ..options.config.clone()
            };
            let engine = Engine::new(config, options.classes.clone(), numbers.clone());
            shards.push(Shard::new(socket, engine, index, begun, Arc::clone(&stats))?);
        }
        let weak: Vec<_> = shards.iter().map(Arc::downgrade).collect();
        let pool = Pool::new(options.workers, options.most_workers, options.waiting, count);
        let pool = pool.map_err(socket_error)?;
        let services = Arc::new(Services {
            services: options.services,
            pool: Arc::clone(&pool),
            version: options.version,
            shards: weak.clone(),
        });
        for shard in &shards {
            shard.join(Arc::clone(&services) as Arc<dyn Handler>, weak.clone());
        }
        pool.receive(shards.iter().map(|shard| Receiver::new(Arc::clone(shard))).collect());
        Ok(Endpoint { shards, stats, pool, address: bound, next: AtomicUsize::new(0) })
    }

    /// The address that it has.
    #[must_use]
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        counts(self.shards.iter().cloned())
    }

    /// The counters, which go on counting.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Opens a connection to a service of a server.
    ///
    /// # Errors
    /// [`Error::Security`] if the class is for servers alone, [`Error::Random`].
    pub fn connect(&self, to: SocketAddrV4, service: u16, class: &dyn Class) -> Result<Connection> {
        let shard = &self.shards[self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len()];
        let id = shard.lock().engine.connect(shard.now(), to, service, class)?;
        Ok(Connection::new(Arc::clone(shard), id))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        for shard in &self.shards {
            shard.shut_down();
        }
        self.pool.stop(&self.shards);
    }
}
