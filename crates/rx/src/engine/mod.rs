//! The protocol without sockets, threads or a clock.
//!
//! # Theory
//! The engine takes datagrams and the time, and gives datagrams, events, and the time at which it
//! wants to be called again. So its behaviour is a function of its input, and a test can own the
//! network and the clock.
//!
//! Packets that arrive together are taken in one after the other. Only then does
//! [`Engine::transmit`] decide what leaves. So one acknowledgement answers many packets, a reply
//! replaces the acknowledgement of its request, and what leaves together is cheap to send.
//!
//! No BUSY packet is ever sent. If a call arrives while the program still works on the channel's
//! last one, it is received and acknowledged, and starts when that program ends.
//!
//! # Life of a server's call
//! A packet with a higher call number makes the call. [`Event::Start`] follows when its request is
//! complete, or large. The program takes bytes, sends bytes, and says [`Engine::finish`]. The call
//! is forgotten when the client has acknowledged the reply, calls again, or is silent for too long.
//!
//! # Bounds
//! [`Config`] bounds connections and the bytes of requests, for each address and in all. Each shard
//! has an engine, and so the whole limits. Replies have none. When the
//! engine is full, the oldest connection that has no call and no proven client makes room.
//!
//! # Absent
//! Sockets, threads and blocking calls are in other modules.

mod connection;
mod input;
mod output;
mod program;
mod receive;
mod send;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod timers;

pub use output::Datagram;
pub use program::{Info, Read};
pub use time::Time;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use crate::packet::debug;
use crate::security::{Class, ConnectionId};
use connection::Connection;
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
    /// After which silence a peer gets a ping.
    pub ping: Duration,
    /// After which silence a call has failed.
    pub dead: Duration,
    /// After which time without data an incomplete request is dropped.
    pub idle_call: Duration,
    /// After which time without calls a connection is forgotten.
    pub idle: Duration,
    /// After which time a challenge is repeated.
    pub challenge: Duration,
    /// Seconds since 1970 at the moment [`Time`] counts from.
    pub started: u32,
    /// A number that other hosts don't know. Challenges derive from it.
    pub seed: u64,
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
            ping: Duration::from_secs(2),
            dead: Duration::from_secs(12),
            idle_call: Duration::from_secs(60),
            idle: Duration::from_secs(600),
            challenge: Duration::from_secs(2),
            started: 0,
            seed: 0,
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
    /// It acknowledged a packet of ours: it receives what is sent to it.
    proved: bool,
    connections: u32,
    /// The window that it offered, and that of its last call.
    offered: u32,
    window: u32,
    sent: u32,
    resent: u32,
    bytes: [u64; 2],
}

/// What is known of one address.
#[derive(Debug, Default)]
struct Host {
    connections: usize,
    bytes: usize,
}

/// A place for a connection.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

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
    bytes: usize,
    /// Connections in the order of their age, for eviction. Some are gone already.
    oldest: VecDeque<ConnectionRef>,
    timers: BinaryHeap<Reverse<(Time, u32, u32)>>,
    dirty: Vec<u32>,
    events: VecDeque<Event>,
    ready: Vec<Datagram>,
    counts: Counts,
    random: u64,
    opened: u32,
    streaming: bool,
}

impl Engine {
    /// An engine without connections, for these security classes and services.
    #[must_use]
    pub fn new(config: Config, classes: Vec<Arc<dyn Class>>, services: Vec<u16>) -> Engine {
        let random = config.seed;
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
            bytes: 0,
            oldest: VecDeque::new(),
            timers: BinaryHeap::new(),
            dirty: Vec::new(),
            events: VecDeque::new(),
            ready: Vec::new(),
            counts: Counts::default(),
            random,
            opened: 0,
            streaming: false,
        }
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether large calls are under way, as far as the last [`Engine::transmit`] saw.
    ///
    /// Their packets and acknowledgements come in numbers. A caller that waits for a moment takes
    /// many in at once.
    #[must_use]
    pub fn streaming(&self) -> bool {
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
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        for connection in connections {
            counts.debug.connections[usize::from(connection.client)] += 1;
            counts.debug.calls += connection.channels.iter().filter(|c| c.call.is_some()).count() as u32;
        }
        counts.debug.peers = self.peers.len() as u32;
        counts
    }

    /// Counts a datagram that is no packet.
    pub fn count_bogus(&mut self) {
        self.counts.debug.bogus = self.counts.debug.bogus.wrapping_add(1);
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes of requests in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What `rxdebug` shows of each connection, or only of those with calls.
    pub fn debug_connections(&self, all: bool) -> impl Iterator<Item = debug::Connection> {
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        connections
            .filter(move |connection| all || !connection.is_idle())
            .map(|connection| connection.debug())
    }

    /// What `rxdebug` shows of each peer.
    pub fn debug_peers(&self) -> impl Iterator<Item = debug::Peer> {
        self.peers.iter().map(|(address, peer)| {
            let (rtt, deviation) = peer.rtt.values();
            debug::Peer {
                address: *address,
                connections: u16::try_from(peer.connections).unwrap_or(u16::MAX),
                rtt: (rtt.as_micros() * 8 / 1000) as u32,
                rtt_deviation: (deviation.as_micros() * 4 / 1000) as u32,
                sent: [peer.sent, peer.resent],
                mtu: 1444,
                window: u16::try_from(peer.window).unwrap_or(u16::MAX),
                bytes: peer.bytes,
            }
        })
    }

    fn connection(&mut self, id: ConnectionRef) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation == id.generation { slot.connection.as_deref_mut() } else { None }
    }

    fn reference(&self, slot: u32) -> ConnectionRef {
        ConnectionRef { slot, generation: self.slots[slot as usize].generation }
    }

    /// The next random number (splitmix64). Two or three results reveal the state.
    fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    /// Puts a connection into a slot.
    fn insert(&mut self, connection: Connection) -> u32 {
        let key = (connection.id, connection.address, connection.client);
        self.peers.get_mut(connection.peer).connections += 1;
        self.hosts.get_mut(connection.host).connections += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].connection = Some(Box::new(connection));
        self.keys.insert(key, slot);
        let reference = self.reference(slot);
        if !key.2 {
            self.oldest.push_back(reference);
            // Places of connections that are gone take room, too.
            if self.oldest.len() > 2 * self.connections() + 64 {
                let slots = &self.slots;
                self.oldest.retain(|id| {
                    let slot = &slots[id.slot as usize];
                    slot.generation == id.generation && slot.connection.is_some()
                });
            }
        }
        slot
    }

    /// Forgets a connection and its calls.
    fn remove(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let Some(connection) = place.connection.take() else { return };
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        self.keys.remove(&(connection.id, connection.address, connection.client));
        if self.movable.get(&connection.id) == Some(&slot) {
            self.movable.remove(&connection.id);
        }
        self.bytes -= connection.bytes;
        let host = self.hosts.get_mut(connection.host);
        host.bytes -= connection.bytes;
        host.connections -= 1;
        if host.connections == 0 {
            self.hosts.remove(connection.host);
        }
        let peer = self.peers.get_mut(connection.peer);
        peer.connections -= 1;
        if peer.connections == 0 {
            self.peers.remove(connection.peer);
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
            connection.scheduled = due;
            self.timers.push(Reverse((due, slot, place.generation)));
        }
    }

    /// Changes how many bytes of requests a connection holds.
    fn hold(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        let calls = connection.channels.iter().filter_map(|channel| channel.call.as_ref());
        let parked = match &connection.proof {
            connection::Proof::Pending { parked, .. } => parked.iter().map(|(_, bytes)| bytes.len()).sum(),
            connection::Proof::Done => 0,
        };
        let bytes: usize = calls.map(|call| call.receiver.bytes()).sum::<usize>() + parked;
        let (old, host) = (std::mem::replace(&mut connection.bytes, bytes), connection.host);
        self.bytes = self.bytes - old + bytes;
        let host = self.hosts.get_mut(host);
        host.bytes = host.bytes - old + bytes;
    }
}
