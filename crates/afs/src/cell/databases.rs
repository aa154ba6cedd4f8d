//! Calls to the database servers of the cell.
//!
//! # Theory
//! A cell has a few servers with the same database. Any of them answers questions, and one of them
//! takes changes. A caller tries them in turn, beginning with the one that answered last. A server
//! that does not answer is tried last for a while.
//!
//! While none answers, calls fail at once, except one every few seconds. So a database that is away
//! does not hold all threads.
//!
//! The server shows a ticket that it makes from the cell's own key. Connections are made anew when
//! the file of keys changed, and when a database server refuses the ticket.
//!
//! # See
//! OpenAFS: `src/ubik/ubikclient.c`.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use observe::lock::Mutex;
use rx::security::Level;
use rx::security::rxkad::{Client, Key, Keys, SUPERUSER};
use rx::{Connection, Endpoint};

use crate::errors::{rxkad, ubik};

/// How long a server may take for an answer.
const TIME: Duration = Duration::from_secs(4);
/// How long a server that did not answer is tried last.
const DEAD: Duration = Duration::from_secs(60);
/// How long calls fail at once after no server answered.
const AWAY: Duration = Duration::from_secs(5);
/// How long a connection is used, so that a ticket never grows old.
const AGE: Duration = Duration::from_secs(12 * 3600);

/// Why a call to the databases failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A server refused, by this code.
    Refused(i32),
    /// No server answers, or none has a quorum, or the cell has no key for a ticket.
    Away,
}

/// Connections to one server, for the keys of then.
struct Line {
    connection: Arc<Connection>,
    keys: Arc<Vec<Key>>,
    made: Instant,
}

struct Server {
    address: SocketAddrV4,
    line: Mutex<Option<Line>>,
    dead_until: Mutex<Option<Instant>>,
}

/// The database servers of one service.
pub struct Databases {
    name: &'static str,
    endpoint: Arc<Endpoint>,
    service: u16,
    keys: Arc<Keys>,
    level: Level,
    servers: Vec<Server>,
    /// The server that answered last.
    preferred: AtomicUsize,
    /// Until when calls fail at once. `None`: a server answered last time.
    away: Mutex<Option<Instant>>,
    time: Duration,
    pause: Duration,
}

impl Databases {
    /// The servers of a service at these addresses. `name` is for logs.
    pub fn new(
        name: &'static str,
        endpoint: Arc<Endpoint>,
        service: u16,
        keys: Arc<Keys>,
        level: Level,
        addresses: &[SocketAddrV4],
    ) -> Self {
        let server = |address: &SocketAddrV4| Server {
            address: *address,
            line: Mutex::new(None),
            dead_until: Mutex::new(None),
        };
        Self {
            name,
            endpoint,
            service,
            keys,
            level,
            servers: addresses.iter().map(server).collect(),
            preferred: AtomicUsize::new(0),
            away: Mutex::new(None),
            time: TIME,
            pause: AWAY,
        }
    }

    /// Sets how long one server may take for an answer, and how long calls fail at once after no
    /// server answered.
    #[cfg(test)]
    pub(super) fn set_times(&mut self, time: Duration, pause: Duration) {
        (self.time, self.pause) = (time, pause);
    }

    /// Whether no server answered the last call.
    pub fn is_away(&self) -> bool {
        self.away.lock().is_some()
    }

    /// Makes a call to the first server that answers.
    ///
    /// # Errors
    /// [`Failure`]
    pub fn call(&self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        {
            let mut away = self.away.lock();
            match *away {
                Some(until) if Instant::now() < until => return Err(Failure::Away),
                // This thread tries, and the others don't wait for it.
                Some(_) => *away = Some(Instant::now() + self.time * 2),
                None => {}
            }
        }
        let mut last = None;
        for at in self.order() {
            match self.try_server(&self.servers[at], request) {
                Ok(reply) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    self.back();
                    return Ok(reply);
                }
                Err(rx::Error::Aborted { code }) if !is_of_server(code) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    self.back();
                    return Err(Failure::Refused(code));
                }
                Err(error) => last = Some((self.servers[at].address, error)),
            }
        }
        let was_here = self.away.lock().replace(Instant::now() + self.pause).is_none();
        if was_here {
            let database = self.name;
            match last {
                Some((address, error)) => {
                    tracing::warn!(database, %address, %error, "no server of the cell answers; check the cell's database servers and KeyFileExt");
                }
                None => tracing::warn!(database, "CellServDB lists no server of this cell"),
            }
        }
        Err(Failure::Away)
    }

    fn back(&self) {
        if self.away.lock().take().is_some() {
            tracing::info!(database = self.name, "the cell's servers answer again");
        }
    }

    /// The servers in the order to try: the one that answered last, the others, the dead ones.
    fn order(&self) -> Vec<usize> {
        let now = Instant::now();
        let preferred = self.preferred.load(Ordering::Relaxed).min(self.servers.len());
        let mut order: Vec<usize> = (preferred..self.servers.len()).chain(0..preferred).collect();
        order.sort_by_key(|at| self.servers[*at].dead_until.lock().is_some_and(|until| now < until));
        order
    }

    fn try_server(&self, server: &Server, request: &[u8]) -> rx::Result<Vec<u8>> {
        let mut answer = self.connection(server).and_then(|line| line.call(request.to_vec(), self.time));
        if let Err(rx::Error::Aborted { code }) = answer
            && is_of_ticket(code)
        {
            // The keys may have changed at the other end.
            server.line.lock().take();
            answer = self.connection(server).and_then(|line| line.call(request.to_vec(), self.time));
        }
        let is_silent = answer.as_ref().is_err_and(|error| !matches!(error, rx::Error::Aborted { .. }));
        *server.dead_until.lock() = is_silent.then(|| Instant::now() + DEAD);
        if is_silent {
            server.line.lock().take();
        }
        answer
    }

    fn connection(&self, server: &Server) -> rx::Result<Arc<Connection>> {
        let keys = self.keys.all();
        let mut line = server.line.lock();
        let is_usable = |line: &&mut Line| Arc::ptr_eq(&line.keys, &keys) && line.made.elapsed() < AGE;
        if let Some(line) = line.as_mut().filter(is_usable) {
            return Ok(Arc::clone(&line.connection));
        }
        let class = Client::local(&self.keys, SUPERUSER, self.level)?;
        let connection = Arc::new(self.endpoint.connect(server.address, self.service, &class)?);
        *line = Some(Line { connection: Arc::clone(&connection), keys, made: Instant::now() });
        Ok(connection)
    }
}

/// Whether another server may have a better answer than this code.
fn is_of_server(code: i32) -> bool {
    let is_of_rx = (-100..0).contains(&code);
    is_of_rx || is_of_ticket(code) || (ubik::UNOQUORUM..=ubik::UNOQUORUM + 31).contains(&code)
}

/// Whether a server refuses the ticket.
fn is_of_ticket(code: i32) -> bool {
    (rxkad::RXKADINCONSISTENCY..=rxkad::RXKADILLEGALLEVEL).contains(&code)
}
