//! Calls from a file server to its clients.
//!
//! # Theory
//! A client is called at the address that its own calls come from, by service 1, without security.
//! Clients and their firewalls expect these calls from the server's own port, so they leave from
//! the endpoint that serves the clients.
//!
//! A connection carries four calls at a time. While a client does not answer, its calls take all
//! four until their deadline. So a client gets more connections while it has more calls: no call
//! waits for another one.
//!
//! # Absent
//! Who a client is, and what it was promised: see [`hosts`](super::hosts) and
//! [`callbacks`](super::callbacks).

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use observe::lock::Mutex;
use rx::security::Null;
use rx::{Connection, Endpoint, call_all};

use super::activity::calls::Calls;
use crate::calls::callback::{AboutReply, Call, Interface};
use crate::calls::fileserver::MAX_FIDS;
use crate::errors::{rx as codes, rxgen};
use crate::types::Fid;
use crate::wire::{List, Uuid, Wire};

/// The service of clients (`RXAFSCB`).
const SERVICE: u16 = 1;
/// Calls that a connection carries at a time.
const CALLS: usize = 4;
/// Most connections to one client. With more calls than these carry, calls wait for each other.
const CONNECTIONS: usize = 32;
/// Parts of the table of connections, each with its own lock.
const SHARDS: usize = 16;

/// Why a call to a client failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The client does not answer in time, or its answer makes no sense.
    Silent,
    /// The client ended the call with this code.
    Refused(i32),
}

/// What a client says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The client's own number. Clients of the 1990s have none.
    pub uuid: Option<Uuid>,
    /// The first word of its capabilities.
    pub capabilities: u32,
}

/// Calls to clients. Each waits for the answer, `time` at most.
pub trait Clients: Send + Sync {
    /// Asks a client who it is (TellMeAboutYourself, else WhoAreYou).
    ///
    /// A client that has neither call has no number and no capabilities.
    ///
    /// # Errors
    /// [`Failure`]
    fn about(&self, peer: SocketAddrV4, time: Duration) -> Result<About, Failure>;

    /// Ends all promises of this server to a client (InitCallBackState3, or InitCallBackState for a
    /// client without a number).
    ///
    /// # Errors
    /// [`Failure`]
    fn reset(&self, peer: SocketAddrV4, has_uuid: bool, time: Duration) -> Result<(), Failure>;

    /// Ends the promises for some files, [`MAX_FIDS`] at most, to all these clients at the same
    /// time (CallBack). Vnode 0 means the whole volume. The results are in the order of `peers`.
    fn call_back(&self, peers: &[SocketAddrV4], fids: &[Fid], time: Duration) -> Vec<Result<(), Failure>>;

    /// Checks at the same time that these clients are there (Probe). The results are in the order
    /// of `peers`.
    fn probe(&self, peers: &[SocketAddrV4], time: Duration) -> Vec<Result<(), Failure>>;

    /// Releases what is kept for calls to this address.
    fn forget(&self, peer: SocketAddrV4);
}

/// A connection and the number of its calls.
struct Line {
    connection: Connection,
    calls: AtomicUsize,
}

/// A connection during one call.
struct Held<'a> {
    clients: &'a RxClients,
    peer: SocketAddrV4,
    line: Arc<Line>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.line.calls.fetch_sub(1, Ordering::Relaxed);
        let mut shard = self.clients.shard(self.peer).lock();
        let Some(lines) = shard.get_mut(&self.peer) else { return };
        // One connection stays for the next call.
        let mut unused = Vec::new();
        while lines.len() > 1 && lines.last().is_some_and(|line| line.calls.load(Ordering::Relaxed) == 0) {
            unused.extend(lines.pop());
        }
        drop(shard);
    }
}

/// Calls to clients by Rx.
pub struct RxClients {
    server: Uuid,
    calls: Arc<Calls>,
    endpoint: OnceLock<Weak<Endpoint>>,
    shards: [Mutex<HashMap<SocketAddrV4, Vec<Arc<Line>>>>; SHARDS],
}

impl RxClients {
    /// Calls of the server with this number. Until [`Self::attach`], no client can be called.
    pub fn new(server: Uuid) -> Self {
        let (calls, shards) = (Arc::new(Calls::new(Call::ALL)), std::array::from_fn(|_| Mutex::default()));
        Self { server, calls, endpoint: OnceLock::new(), shards }
    }

    /// What the calls took. One to several clients counts for each of them, with the time until
    /// the last one answered.
    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Names the endpoint from which the calls leave. Only the first one counts.
    ///
    /// The endpoint owns its services, and these own the calls to clients. So the endpoint is not
    /// kept alive here, and calls fail once it has ended.
    pub fn attach(&self, endpoint: &Arc<Endpoint>) {
        // A second endpoint is a mistake of the caller that has no effect.
        let _ = self.endpoint.set(Arc::downgrade(endpoint));
    }

    /// Closes all connections. A connection keeps the endpoint's services alive, which own these
    /// calls, so the end of a server needs this.
    pub fn close(&self) {
        for shard in &self.shards {
            shard.lock().clear();
        }
    }

    fn shard(&self, peer: SocketAddrV4) -> &Mutex<HashMap<SocketAddrV4, Vec<Arc<Line>>>> {
        let mixed = (peer.ip().to_bits() ^ u32::from(peer.port())).wrapping_mul(0x9e37_79b1);
        &self.shards[(mixed >> 28) as usize % SHARDS]
    }

    /// A connection to a client, for one call.
    fn hold(&self, endpoint: &Endpoint, peer: SocketAddrV4) -> Option<Held<'_>> {
        let mut shard = self.shard(peer).lock();
        let lines = shard.entry(peer).or_default();
        let calls = |line: &Arc<Line>| line.calls.load(Ordering::Relaxed);
        let free = lines.iter().find(|line| calls(line) < CALLS).cloned();
        let line = match free {
            Some(line) => line,
            None if lines.len() < CONNECTIONS => {
                let connection = endpoint.connect(peer, SERVICE, &Null).ok()?;
                let line = Arc::new(Line { connection, calls: AtomicUsize::new(0) });
                lines.push(Arc::clone(&line));
                line
            }
            None => Arc::clone(lines.iter().min_by_key(|line| calls(line))?),
        };
        line.calls.fetch_add(1, Ordering::Relaxed);
        Some(Held { clients: self, peer, line })
    }

    fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.endpoint.get().and_then(Weak::upgrade)
    }

    fn one(&self, peer: SocketAddrV4, call: &Call, time: Duration) -> Result<Vec<u8>, Failure> {
        let endpoint = self.endpoint().ok_or(Failure::Silent)?;
        let held = self.hold(&endpoint, peer).ok_or(Failure::Silent)?;
        let began = Instant::now();
        let answer = held.line.connection.call(call.request(), time).map_err(failure);
        self.calls.ended(call.opcode(), began, answer.as_ref().err().map(code));
        answer
    }

    fn many(&self, peers: &[SocketAddrV4], call: &Call, time: Duration) -> Vec<Result<(), Failure>> {
        let mut results = vec![Err(Failure::Silent); peers.len()];
        let Some(endpoint) = self.endpoint() else { return results };
        let mut held: Vec<(usize, Held<'_>)> = Vec::with_capacity(peers.len());
        for (at, peer) in peers.iter().enumerate() {
            held.extend(self.hold(&endpoint, *peer).map(|held| (at, held)));
        }
        // A call that has to wait for a channel delays only the calls after it.
        held.sort_by_key(|(_, held)| held.line.calls.load(Ordering::Relaxed) > CALLS);
        let connections = held.iter().map(|(_, held)| &held.line.connection);
        let began = Instant::now();
        let answers = call_all(connections, &call.request(), time);
        for ((at, _), answer) in held.iter().zip(answers) {
            results[*at] = answer.map(|_| ()).map_err(failure);
            self.calls.ended(call.opcode(), began, results[*at].err().as_ref().map(code));
        }
        results
    }
}

fn failure(error: rx::Error) -> Failure {
    match error {
        rx::Error::Aborted { code } => Failure::Refused(code),
        _ => Failure::Silent,
    }
}

/// The code under which a failure is counted.
fn code(failure: &Failure) -> i32 {
    match failure {
        Failure::Silent => codes::RX_CALL_DEAD,
        Failure::Refused(code) => *code,
    }
}

/// Whether a client says that it does not have a call.
fn is_unknown(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(rxgen::RXGEN_OPCODE | codes::RX_INVALID_OPERATION))
}

impl Clients for RxClients {
    fn about(&self, peer: SocketAddrV4, time: Duration) -> Result<About, Failure> {
        let uuid = |uuid: Uuid| Some(uuid).filter(|uuid| *uuid != Uuid::default());
        match self.one(peer, &Call::TellMeAboutYourself {}, time) {
            Ok(bytes) => {
                let reply = AboutReply::from_bytes(&bytes).map_err(|_| Failure::Silent)?;
                let capabilities = reply.capabilities.first().copied().unwrap_or(0);
                return Ok(About { uuid: uuid(reply.interface.uuid), capabilities });
            }
            Err(failure) if is_unknown(&failure) => {}
            Err(failure) => return Err(failure),
        }
        match self.one(peer, &Call::WhoAreYou {}, time) {
            Ok(bytes) => {
                let interface = Interface::from_bytes(&bytes).map_err(|_| Failure::Silent)?;
                Ok(About { uuid: uuid(interface.uuid), capabilities: 0 })
            }
            Err(failure) if is_unknown(&failure) => Ok(About::default()),
            Err(failure) => Err(failure),
        }
    }

    fn reset(&self, peer: SocketAddrV4, has_uuid: bool, time: Duration) -> Result<(), Failure> {
        let call = match has_uuid {
            true => Call::InitCallBackState3 { server: self.server },
            false => Call::InitCallBackState {},
        };
        self.one(peer, &call, time).map(|_| ())
    }

    fn call_back(&self, peers: &[SocketAddrV4], fids: &[Fid], time: Duration) -> Vec<Result<(), Failure>> {
        debug_assert!(fids.len() <= MAX_FIDS, "the caller divides long lists");
        // Linux's client refuses a call that has anything in its second list. Others ignore it.
        let callbacks = List::default();
        match List::new(fids.to_vec()) {
            Some(fids) => self.many(peers, &Call::CallBack { fids, callbacks }, time),
            None => vec![Err(Failure::Silent); peers.len()],
        }
    }

    fn probe(&self, peers: &[SocketAddrV4], time: Duration) -> Vec<Result<(), Failure>> {
        self.many(peers, &Call::Probe {}, time)
    }

    fn forget(&self, peer: SocketAddrV4) {
        let lines = self.shard(peer).lock().remove(&peer);
        drop(lines);
    }
}
