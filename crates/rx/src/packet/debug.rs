//! The questions of `rxdebug`, and the layout of their answers.
//!
//! # Theory
//! `rxdebug` asks by a packet of its own type, outside of every call. Its question is a type and an
//! index. It asks for connections and peers one by one, with the index counting up, until an answer
//! says that there are no more.
//!
//! # See
//! OpenAFS: `src/rx/rx.h` (`struct rx_debugStats`, `rx_debugConn`, `rx_debugPeer`,
//! `rx_statistics`).

use std::net::SocketAddrV4;

use crate::Result;
use crate::packet::CHANNELS;
use crate::xdr::{Reader, Writer};

/// The version of the answers: that of OpenAFS 1.4 and later.
const VERSION: u8 = b'S';
/// Where a list ends: an impossible connection or address.
const END: u32 = u32::MAX;
/// The answer to a question that is none of these.
const BAD_TYPE: i32 = -8;

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Basic numbers.
    Stats,
    /// The connection of this index, of those with calls or errors.
    Connection(u32),
    /// The connection of this index, of all.
    AnyConnection(u32),
    /// All counters.
    Counters,
    /// The peer of this index.
    Peer(u32),
    /// Something else.
    Unknown,
}

impl Question {
    /// Reads a question.
    ///
    /// # Errors
    /// [`Error::Short`](crate::Error::Short).
    pub fn parse(body: &[u8]) -> Result<Question> {
        let mut reader = Reader::new(body);
        let (kind, index) = (reader.u32()?, reader.u32()?);
        Ok(match kind {
            1 => Question::Stats,
            2 => Question::Connection(index),
            3 => Question::AnyConnection(index),
            4 => Question::Counters,
            5 => Question::Peer(index),
            _ => Question::Unknown,
        })
    }
}

/// The answer to [`Question::Unknown`].
#[must_use]
pub fn unknown() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.i32(BAD_TYPE).i32(BAD_TYPE);
    writer.finish()
}

/// The answer to [`Question::Stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Packets for which there is memory now.
    pub free_packets: u32,
    /// Calls that were answered.
    pub calls: u32,
    /// Calls that wait for a thread.
    pub waiting: u32,
    /// Threads that wait for a call.
    pub idle_threads: u32,
    /// Calls that ever waited for a thread.
    pub waited: u32,
    /// Packets for which there is memory in all.
    pub packets: u32,
}

impl Stats {
    /// The bytes of the answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u32(self.free_packets).u32(0).u32(self.calls);
        // Nothing waits for packets; descriptors are not counted.
        writer.fixed(&[0, 0, VERSION, 0]);
        writer.u32(self.waiting).u32(self.idle_threads).u32(self.waited).u32(self.packets);
        writer.fixed(&[0; 24]);
        writer.finish()
    }
}

/// A channel in the answer about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Channel {
    /// The number of the last call.
    pub call: u32,
    /// `RX_STATE_…`: 0 never used, 1 precall, 2 active, 3 dally, 4 hold.
    pub state: u8,
    /// `RX_MODE_…`: 0 unused, 1 sending, 2 receiving, 3 error, 4 end of file.
    pub mode: u8,
    /// `RX_CALL_…`, the low byte.
    pub flags: u8,
    /// 1: data wait for the program; 2: data wait for the network.
    pub other: u8,
}

/// What a security class says of a connection (`struct rx_securityObjectStats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Security {
    /// `RX_SECTYPE_…`: 1 null, 3 rxkad.
    pub kind: u8,
    /// The level of rxkad.
    pub level: u8,
    /// 1 not set up, 2 authenticated, 4 expired, 8 with checksums.
    pub flags: u32,
    /// When the ticket expires, in seconds since 1970.
    pub expires: u32,
    /// Packets received and sent.
    pub packets: [u32; 2],
    /// Bytes received and sent.
    pub bytes: [u32; 2],
}

/// The answer about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The peer.
    pub peer: SocketAddrV4,
    /// The number of the connection.
    pub cid: u32,
    /// The epoch of its client.
    pub epoch: u32,
    /// The last serial number that was sent.
    pub serial: u32,
    /// The error of the connection, or 0.
    pub error: i32,
    /// Whether this program is the server.
    pub server: bool,
    /// The security index.
    pub security_index: u8,
    /// The channels.
    pub channels: [Channel; CHANNELS],
    /// What the security class says.
    pub security: Security,
    /// The packet size to this peer.
    pub mtu: u32,
}

impl Connection {
    /// The bytes of the answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.fixed(&self.peer.ip().octets()).u32(self.cid).u32(self.serial);
        for channel in &self.channels {
            writer.u32(channel.call);
        }
        writer.i32(self.error);
        let port = self.peer.port().to_be_bytes();
        writer.fixed(&[port[0], port[1], 0, u8::from(self.server)]);
        writer.fixed(&[self.security_index, 0, 0, 0]);
        for field in
            [|c: &Channel| c.state, |c: &Channel| c.mode, |c: &Channel| c.flags, |c: &Channel| c.other]
        {
            writer.fixed(&self.channels.each_ref().map(field));
        }
        let security = &self.security;
        writer.fixed(&[security.kind, security.level]).fixed(&[0; 8]);
        writer.u32(security.flags).u32(security.expires);
        writer.u32(security.packets[0]).u32(security.packets[1]);
        writer.u32(security.bytes[0]).u32(security.bytes[1]);
        writer.fixed(&[0; 40]);
        writer.u32(self.epoch).u32(self.mtu).fixed(&[0; 36]);
        writer.finish()
    }

    /// The bytes of the answer that ends the list.
    #[must_use]
    pub fn end() -> Vec<u8> {
        let mut bytes = vec![0; SIZE_CONNECTION];
        bytes[4..8].copy_from_slice(&END.to_be_bytes());
        bytes
    }
}

/// Bytes of an answer about a connection.
pub const SIZE_CONNECTION: usize = 56 + 76 + 44;
/// Bytes of an answer about a peer.
pub const SIZE_PEER: usize = 132;

/// The answer about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddrV4,
    /// Connections to it.
    pub connections: u16,
    /// The smoothed round trip, in eighths of a millisecond.
    pub rtt: u32,
    /// Its deviation, in quarters of a millisecond.
    pub rtt_deviation: u32,
    /// Packets sent, and of these sent again.
    pub sent: [u32; 2],
    /// The packet size.
    pub mtu: u16,
    /// The congestion window, in packets.
    pub window: u16,
    /// Bytes sent and received.
    pub bytes: [u64; 2],
}

impl Peer {
    /// The bytes of the answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let half = |a: u16, b: u16| u32::from(a) << 16 | u32::from(b);
        let mut writer = Writer::new();
        writer.fixed(&self.address.ip().octets()).u32(half(self.address.port(), self.mtu));
        writer.u32(0).u32(half(self.connections, 0)).u64(0);
        writer.u32(self.rtt).u32(self.rtt_deviation).u64(0);
        writer.u32(self.sent[0]).u32(self.sent[1]).u64(0).u32(0);
        writer.u32(half(self.mtu, self.mtu)).u32(half(1, 1)).u32(half(self.mtu, self.window)).u32(half(1, 0));
        writer.u64(self.bytes[0]).u64(self.bytes[1]).fixed(&[0; 40]);
        writer.finish()
    }

    /// The bytes of the answer that ends the list.
    #[must_use]
    pub fn end() -> Vec<u8> {
        let mut bytes = vec![0; SIZE_PEER];
        bytes[..4].copy_from_slice(&END.to_be_bytes());
        bytes
    }
}

/// Counters of packets, in the order of the types of packets from data (1) on.
pub const KINDS: usize = 13;

/// The answer to [`Question::Counters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Datagrams that are no packets.
    pub bogus: u32,
    /// Packets received, by type.
    pub read: [u32; KINDS],
    /// Packets sent, by type.
    pub sent: [u32; KINDS],
    /// Data packets that arrived twice.
    pub duplicates: u32,
    /// Data packets that belong to no call.
    pub spurious: u32,
    /// Data packets sent again.
    pub resent: u32,
    /// Pings sent.
    pub pings: u32,
    /// Connections: from clients, and to servers.
    pub connections: [u32; 2],
    /// Peers.
    pub peers: u32,
    /// Calls that exist now.
    pub calls: u32,
    /// Sends that failed.
    pub send_failures: u32,
}

impl Counters {
    /// The bytes of the answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        // Requests of packets, failures of allocation, greedy socket.
        writer.fixed(&[0; 20]).u32(self.bogus);
        // Address of bogus packets, empty reads, reads without buffers, selects.
        writer.fixed(&[0; 20]);
        for count in self.read {
            writer.u32(count);
        }
        writer.u32(self.read[0]).u32(self.read[1]).u32(self.duplicates).u32(self.spurious);
        for count in self.sent {
            writer.u32(count);
        }
        writer.u32(self.sent[1]).u32(self.pings).u32(self.sent[3]).u32(0);
        writer.u32(self.sent[0].saturating_sub(self.resent)).u32(self.resent);
        // Pushed packets, ignored packets, sum, minimum and maximum of round trips, their number.
        writer.fixed(&[0; 36]);
        writer.u32(self.connections[0]).u32(self.connections[1]).u32(self.peers).u32(self.calls).u32(0);
        writer.u32(self.send_failures).fixed(&[0; 36]);
        writer.finish()
    }
}
