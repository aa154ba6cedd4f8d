//! The protocol without sockets, threads or a clock.
//!
//! # Theory
//! The engine takes datagrams and the time, and gives datagrams, events, and the time at which it
//! wants to be called again. So its behaviour is a function of its input, and a test can own the
//! network and the clock.
//!
//! Packets that arrive together are taken in one after the other. Only then does
//! [`Engine::transmit`] decide what leaves. So one acknowledgement answers many packets, a reply
//! replaces the acknowledgement of its request, and what leaves together is cheap to send. If a
//! client requests that acknowledgement to measure the server, it leaves before the reply: the
//! module `receive` has the rule.
//!
//! No BUSY packet is ever sent. If a call arrives while the program still works on the channel's
//! last one, it is received and acknowledged, and starts when that program ends.
//!
//! # Life of a server's call
//! A packet with a higher call number makes the call. [`Event::Start`] follows when its request is
//! complete, or large and its client proven. The program takes bytes, sends bytes, and says
//! [`Engine::finish`]. The call is forgotten when the client has acknowledged the reply, calls
//! again, or is silent for too long.
//!
//! # Calls of before
//! A program that was killed and started again aborts the calls that it had, when their packets
//! arrive. The module `lost` says how it tells them from new calls.
//!
//! # Bounds
//! [`Config`] bounds connections, calls, and the bytes of requests and replies, for each address
//! and in all. The module `shares` says who gets what when there is not enough, and the module
//! `patience` how long a call may wait for its peer.
//!
//! # Who is at an address
//! Until a connection is proven, its peer gets four packets of a call at a time. Its
//! acknowledgements count only if they echo a serial number of ours, which begin at a random
//! number. So a forger can make an address receive little. Every packet of a stranger's reply that
//! ends a window requests such an acknowledgement, and the acknowledgement of its request is a
//! ping.
//!
//! A client whose epoch has the top bit may send from another address. Its connection follows only
//! for a packet that is new to its call, and that the security class verifies: at the levels `auth`
//! and `crypt`. At the level `clear` the header has 16 bits of checksum and the data have none, and
//! without security there is nothing at all. There, the new address is a new connection, which is
//! challenged again. After a move, the new address must prove itself.
//!
//! What remains: a host that sees the packets of a connection can prove any address, and can carry
//! a new packet to another address before the client's own arrives.
//!
//! # Absent
//! Sockets, threads and blocking calls are in other modules.

mod batch;
mod connection;
mod input;
mod limit;
mod lost;
mod output;
mod patience;
mod program;
mod random;
mod receive;
mod send;
mod shares;
mod table;
mod taken;
#[cfg(test)]
mod tests;
mod time;
mod timers;

pub use batch::Arrived;
pub(crate) use limit::Limiter;
pub use output::Datagram;
pub use program::{Info, Read, WANTED_MOST};
pub use random::Source;
pub use time::Time;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use crate::packet::debug;
use crate::security::{Class, ConnectionId};
use connection::Connection;
use random::Random;
use shares::{Host, Shared};
use table::Table;
use time::Rtt;

/// Limits and times.
#[derive(Debug, Clone)]
pub struct Config {
    /// The window that is offered to senders, in packets.
    pub receive_window: u32,
    /// The largest window for sending, in packets.
    pub send_window: u32,
    /// Connections in all.
    pub connections: usize,
    /// Connections of one address.
    pub connections_per_host: usize,
    /// Bytes of requests in memory, in all.
    pub bytes: usize,
    /// Bytes of requests in memory, of one address.
    pub bytes_per_host: usize,
    /// Bytes of replies in memory, in all. Each host adds one reply at most.
    pub replies: usize,
    /// Bytes of replies in memory, of one address. The last call may exceed it.
    pub replies_per_host: usize,
    /// Calls of one address that the program has, running or waiting for a worker.
    pub calls_per_host: usize,
    /// After which silence a peer gets a ping.
    pub ping: Duration,
    /// After which silence a call has failed.
    pub dead: Duration,
    /// After which time without its first packet a request is refused.
    pub first: Duration,
    /// After which time without data an incomplete request is dropped.
    pub idle_call: Duration,
    /// How long a call may wait for its client in all, beyond what [`Config::rate`] pays for.
    pub patience: Duration,
    /// Bytes by which a client pays for a second of waiting.
    pub rate: u32,
    /// After which time without calls a connection is forgotten.
    pub idle: Duration,
    /// After which time a challenge is repeated.
    pub challenge: Duration,
    /// Seconds since 1970 at the moment [`Time`] counts from. [`Engine::set_clock`] changes it.
    pub started: u32,
    /// Where nonces, serial numbers and numbers of connections come from.
    pub random: Source,
    /// The epoch of connections that this program opens.
    pub epoch: u32,
    /// The number of this engine among those of the program. It is in the numbers of connections.
    pub shard: u8,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            receive_window: 64,
            send_window: 128,
            connections: 200_000,
            connections_per_host: 10_000,
            bytes: 256 << 20,
            bytes_per_host: 32 << 20,
            replies: 512 << 20,
            replies_per_host: 64 << 20,
            calls_per_host: 64,
            ping: Duration::from_secs(2),
            dead: Duration::from_secs(12),
            first: Duration::from_secs(5),
            idle_call: Duration::from_secs(60),
            patience: Duration::from_secs(60),
            rate: 4 << 10,
            idle: Duration::from_secs(600),
            challenge: Duration::from_secs(2),
            started: 0,
            random: Source::Seed(1),
            epoch: 0x8000_0001,
            shard: 0,
        }
    }
}

/// What identifies a call to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId {
    /// The connection.
    pub connection: ConnectionRef,
    /// The channel.
    pub channel: u8,
    /// The number of the call on its channel.
    pub number: u32,
}

/// What identifies a connection to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionRef {
    slot: u32,
    generation: u32,
}

/// What the program learns from the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request can be served.
    Start(CallId),
    /// There are more bytes to take, or the last one was taken.
    Readable(CallId),
    /// There is room for bytes to send.
    Writable(CallId),
    /// The call ended before its program did. The program must still say [`Engine::finish`].
    Failed(CallId, i32),
    /// A channel of a client's connection is free.
    Free(ConnectionRef),
}

/// What happened, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Counters that `rxdebug` shows.
    pub debug: debug::Counters,
    /// Calls of clients that were started.
    pub calls: u64,
    /// Bytes of requests, and of replies.
    pub bytes: [u64; 2],
    /// Packets that a security class refused.
    pub refused_security: u64,
    /// Responses to challenges that proved nothing.
    pub refused_response: u64,
    /// Connections to services or classes that do not exist.
    pub refused_service: u64,
    /// Connections and packets that a limit refused.
    pub refused_limit: u64,
    /// Connections that made room for others.
    pub evicted: u64,
}

impl Counts {
    /// The sums of two counts.
    #[must_use]
    pub fn plus(mut self, other: &Counts) -> Counts {
        let add = |sum: &mut u32, n: u32| *sum = sum.wrapping_add(n);
        let (debug, more) = (&mut self.debug, &other.debug);
        for (sum, n) in debug.read.iter_mut().zip(more.read).chain(debug.sent.iter_mut().zip(more.sent)) {
            add(sum, n);
        }
        for (sum, n) in debug.connections.iter_mut().zip(more.connections) {
            add(sum, n);
        }
        add(&mut debug.bogus, more.bogus);
        add(&mut debug.duplicates, more.duplicates);
        add(&mut debug.spurious, more.spurious);
        add(&mut debug.resent, more.resent);
        add(&mut debug.pings, more.pings);
        add(&mut debug.peers, more.peers);
        add(&mut debug.calls, more.calls);
        add(&mut debug.send_failures, more.send_failures);
        self.calls += other.calls;
        self.bytes = [self.bytes[0] + other.bytes[0], self.bytes[1] + other.bytes[1]];
        self.refused_security += other.refused_security;
        self.refused_response += other.refused_response;
        self.refused_service += other.refused_service;
        self.refused_limit += other.refused_limit;
        self.evicted += other.evicted;
        self
    }
}

/// What is known of one address and port.
#[derive(Debug, Default)]
struct Peer {
    rtt: Rtt,
    connections: u32,
    /// The window that it offered, and that of its last call.
    offered: u32,
    window: u32,
    sent: u32,
    resent: u32,
    bytes: [u64; 2],
}

/// A place for a connection.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    /// Where the slot is in each of the lists.
    places: [u32; 2],
    connection: Option<Box<Connection>>,
}

/// The place of what is in no list.
const NOWHERE: u32 = u32::MAX;

/// Where a connection of a client is found.
type Key = (ConnectionId, SocketAddrV4, bool);

/// The protocol.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    classes: Vec<Arc<dyn Class>>,
    services: Vec<u16>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    keys: HashMap<Key, u32>,
    /// Connections whose client proved itself and may change its address.
    movable: HashMap<ConnectionId, u32>,
    peers: Table<SocketAddrV4, Peer>,
    hosts: Table<Ipv4Addr, Host>,
    shared: Shared,
    /// Slots of all connections, and of those with calls, without gaps.
    lists: [Vec<u32>; 2],
    /// When each connection is looked at next: one place for each.
    timers: BTreeSet<(Time, u32)>,
    dirty: Vec<u32>,
    events: VecDeque<Event>,
    ready: Vec<Datagram>,
    counts: Counts,
    /// Connections from clients, and to servers.
    present: [u32; 2],
    random: Random,
    /// How often packets of each address are answered by aborts: of what has proved nothing, and of
    /// proven connections.
    aborts: Limiter,
    aborts_of_proven: Limiter,
    opened: Option<u32>,
    streaming: usize,
    /// The program ends: there are no more calls.
    closing: bool,
}

impl Engine {
    /// An engine without connections, for these security classes and services.
    #[must_use]
    pub fn new(config: Config, classes: Vec<Arc<dyn Class>>, services: Vec<u16>) -> Engine {
        let mut random = Random::new(config.random);
        // Without random numbers, no connection is accepted either.
        let secret = random.next().map_or(0, u64::from);
        Engine {
            config,
            classes,
            services,
            slots: Vec::new(),
            free: Vec::new(),
            keys: HashMap::new(),
            movable: HashMap::new(),
            peers: Table::new(),
            hosts: Table::new(),
            shared: Shared::default(),
            lists: [Vec::new(), Vec::new()],
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            events: VecDeque::new(),
            ready: Vec::new(),
            counts: Counts::default(),
            present: [0; 2],
            random,
            aborts: Limiter::new(secret, limit::OF_STRANGERS.0, limit::OF_STRANGERS.1),
            aborts_of_proven: Limiter::new(secret, limit::OF_PROVEN.0, limit::OF_PROVEN.1),
            opened: None,
            streaming: 0,
            closing: false,
        }
    }

    /// The next event. A call starts when the share of its host has room for it.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.next_start().map(Event::Start))
    }

    /// Sets the clock: `unix` is the number of seconds since 1970 at the moment `now`.
    pub fn set_clock(&mut self, now: Time, unix: u32) {
        self.config.started = unix.saturating_sub((now.0 / 1_000_000) as u32);
    }

    /// The number of seconds since 1970.
    fn unix(&self, now: Time) -> u32 {
        self.config.started.saturating_add((now.0 / 1_000_000) as u32)
    }

    /// Large calls that are under way, as far as the last [`Engine::transmit`] saw.
    ///
    /// Their packets and acknowledgements come in numbers. A caller that waits for a moment takes
    /// many in at once.
    #[must_use]
    pub fn streaming(&self) -> usize {
        self.streaming
    }

    /// What happened so far, without what is there now: connections, peers and calls.
    #[must_use]
    pub fn events_so_far(&self) -> &Counts {
        &self.counts
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts;
        counts.debug.connections = self.present;
        counts.debug.calls = self.shared.totals.iter().map(|taken| taken.calls as u32).sum();
        counts.debug.peers = self.peers.len() as u32;
        counts
    }

    /// Counts a datagram that is no packet.
    pub fn count_bogus(&mut self) {
        self.counts.debug.bogus = self.counts.debug.bogus.wrapping_add(1);
    }

    /// Counts datagrams that the system refused to send.
    pub fn count_failures(&mut self, n: u64) {
        self.counts.debug.send_failures = self.counts.debug.send_failures.wrapping_add(n as u32);
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes of requests in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shared.totals.iter().map(|taken| taken.requests).sum()
    }

    /// Bytes of replies in memory.
    #[must_use]
    pub fn reply_bytes(&self) -> usize {
        self.shared.totals.iter().map(|taken| taken.replies).sum()
    }

    /// Entries of the list of timers: one for each connection.
    #[must_use]
    pub fn timer_entries(&self) -> usize {
        self.timers.len()
    }

    /// How many connections [`Engine::debug_connection`] can show: all, or those with calls.
    #[must_use]
    pub fn debug_connections(&self, all: bool) -> usize {
        self.lists[usize::from(!all)].len()
    }

    /// What `rxdebug` shows of a connection, of all or of those with calls. No other is looked at.
    #[must_use]
    pub fn debug_connection(&self, index: usize, all: bool) -> Option<debug::Connection> {
        let slot = *self.lists[usize::from(!all)].get(index)?;
        self.slots[slot as usize].connection.as_ref().map(|connection| connection.debug())
    }

    /// How many peers [`Engine::debug_peer`] can show.
    #[must_use]
    pub fn debug_peers(&self) -> usize {
        self.peers.len()
    }

    /// What `rxdebug` shows of a peer. No other is looked at.
    #[must_use]
    pub fn debug_peer(&self, index: usize) -> Option<debug::Peer> {
        let (address, peer) = self.peers.at(index)?;
        let (rtt, deviation) = peer.rtt.values();
        Some(debug::Peer {
            address: *address,
            connections: u16::try_from(peer.connections).unwrap_or(u16::MAX),
            rtt: (rtt.as_micros() * 8 / 1000) as u32,
            rtt_deviation: (deviation.as_micros() * 4 / 1000) as u32,
            sent: [peer.sent, peer.resent],
            mtu: 1444,
            window: u16::try_from(peer.window).unwrap_or(u16::MAX),
            bytes: peer.bytes,
        })
    }

    fn connection(&mut self, id: ConnectionRef) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation == id.generation { slot.connection.as_deref_mut() } else { None }
    }

    fn reference(&self, slot: u32) -> ConnectionRef {
        ConnectionRef { slot, generation: self.slots[slot as usize].generation }
    }

    /// Puts a connection into a slot.
    fn insert(&mut self, connection: Connection) -> u32 {
        let key = (connection.id, connection.address, connection.client);
        self.peers.get_mut(connection.peer).connections += 1;
        self.present[usize::from(connection.client)] += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.connection = Some(Box::new(connection));
        place.places = [self.lists[0].len() as u32, NOWHERE];
        self.lists[0].push(slot);
        self.keys.insert(key, slot);
        self.enter(slot);
        slot
    }

    /// Forgets a connection and its calls.
    fn remove(&mut self, slot: u32) {
        self.list_busy(slot, false);
        let place = &mut self.slots[slot as usize];
        let Some(connection) = place.connection.take() else { return };
        place.generation = place.generation.wrapping_add(1);
        self.unlist(slot, 0);
        self.free.push(slot);
        self.timers.remove(&(connection.scheduled, slot));
        self.keys.remove(&(connection.id, connection.address, connection.client));
        if self.movable.get(&connection.id) == Some(&slot) {
            self.movable.remove(&connection.id);
        }
        self.present[usize::from(connection.client)] -= 1;
        self.leave(&connection);
        let peer = self.peers.get_mut(connection.peer);
        peer.connections -= 1;
        if peer.connections == 0 {
            self.peers.remove(connection.peer);
        }
    }

    /// Takes a slot out of a list. The last one gets its place.
    fn unlist(&mut self, slot: u32, list: usize) {
        let at = std::mem::replace(&mut self.slots[slot as usize].places[list], NOWHERE);
        if at == NOWHERE {
            return;
        }
        self.lists[list].swap_remove(at as usize);
        if let Some(&moved) = self.lists[list].get(at as usize) {
            self.slots[moved as usize].places[list] = at;
        }
    }

    /// Notes whether a connection has calls.
    fn list_busy(&mut self, slot: u32, busy: bool) {
        let listed = self.slots[slot as usize].places[1] != NOWHERE;
        if busy && !listed {
            self.slots[slot as usize].places[1] = self.lists[1].len() as u32;
            self.lists[1].push(slot);
        } else if !busy && listed {
            self.unlist(slot, 1);
        }
    }

    /// Notes that a connection has something to send, and when it is looked at next.
    fn touch(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let Some(connection) = place.connection.as_deref_mut() else { return };
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(slot);
        }
    }

    fn schedule(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let Some(connection) = place.connection.as_deref_mut() else { return };
        let due = connection.due(&self.config);
        if due < connection.scheduled {
            self.timers.remove(&(connection.scheduled, slot));
            connection.scheduled = due;
            self.timers.insert((due, slot));
        }
    }
}
