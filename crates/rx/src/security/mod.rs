//! Security classes: who the peer is, and how its packets are protected.
//!
//! # Theory
//! A class makes a session for each connection. The server's session requests the client's
//! credentials by a challenge, before it takes any call. Then each session seals the packets that
//! it sends and opens those that it receives.
//!
//! A session seals many packets at a time, because a whole window leaves at once and some ciphers
//! are faster that way.
//!
//! # See
//! OpenAFS: `struct rx_securityOps` in `src/rx/rx.h`.

pub mod null;
pub mod rxkad;

pub use null::Null;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::block::Slice;
use crate::packet::{CHANNELS, Header, debug};
use crate::{Error, Result};

/// The security class without security.
pub const NULL: u8 = 0;
/// The security class with Kerberos tickets.
pub const RXKAD: u8 = 2;

/// How much of each call is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Headers have a checksum.
    Clear = 0,
    /// The first block of each packet is encrypted, too.
    Auth = 1,
    /// Everything is encrypted.
    Crypt = 2,
}

/// Who the peer of a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name, `user` or `user.instance`.
    pub name: String,
    /// The cell or realm. It is empty for the local cell.
    pub cell: String,
    /// How its packets are protected.
    pub level: Level,
    /// When the ticket expires, in seconds since 1970.
    pub expires: u32,
    /// The version of the key that the ticket is encrypted with.
    pub kvno: i32,
}

/// What identifies a connection on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// When the client was started.
    pub epoch: u32,
    /// The number of the connection, whose channel bits are 0.
    pub cid: u32,
}

/// A packet that a session seals.
#[derive(Debug)]
pub struct Outgoing {
    /// The connection and the channel.
    pub cid: u32,
    /// The call number.
    pub call: u32,
    /// The position in the call.
    pub seq: u32,
    /// The checksum for the header.
    pub checksum: u16,
    /// The data, and after sealing what follows the header.
    pub payload: Slice,
}

/// What a response of a client proved.
#[derive(Debug)]
pub struct Accepted {
    /// Who it is.
    pub identity: Arc<Identity>,
    /// The numbers of its last calls, one for each channel.
    pub calls: [u32; CHANNELS],
}

/// The security of one connection.
pub trait Session: Send {
    /// How many bytes a sealed packet has before its data, and the multiple that its length has.
    fn overhead(&self) -> (usize, usize);

    /// Seals packets of the connection, in place.
    fn seal(&mut self, packets: &mut [Outgoing]);

    /// Checks a packet, decrypts it in place, and returns where its data are.
    ///
    /// # Errors
    /// [`Error::Security`].
    fn open(&mut self, header: &Header, body: &mut [u8]) -> Result<Range<usize>>;

    /// Whether many packets are opened faster than one.
    fn gathers(&self) -> bool {
        false
    }

    /// Opens packets as [`Session::open`] does. The results are in the order of the packets.
    fn open_all(&mut self, packets: &mut [(Header, &mut [u8])]) -> Vec<Result<Range<usize>>> {
        packets.iter_mut().map(|(header, body)| self.open(header, body)).collect()
    }

    /// The server's challenge, or `None` where the class needs no credentials.
    fn challenge(&mut self) -> Option<Vec<u8>>;

    /// The server's check of a response. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Error::Security`], with the code that the connection is aborted with.
    fn accept(&mut self, response: &[u8], now: u32) -> Result<Accepted>;

    /// The client's response to a challenge, with the numbers of its last calls.
    ///
    /// # Errors
    /// [`Error::Security`].
    fn respond(&mut self, challenge: &[u8], calls: [u32; CHANNELS]) -> Result<Vec<u8>>;

    /// What `rxdebug` shows of the session.
    fn stats(&self) -> debug::Security;
}

impl fmt::Debug for dyn Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.stats())
    }
}

/// A security class.
pub trait Class: Send + Sync {
    /// The index in the header of its packets.
    fn index(&self) -> u8;

    /// The session of a connection that a client opened. `nonce` is a random number.
    ///
    /// # Errors
    /// [`Error::Security`] if the class is for clients alone.
    fn server(&self, id: ConnectionId, nonce: u32) -> Result<Box<dyn Session>>;

    /// The session of a connection that this program opens.
    ///
    /// # Errors
    /// [`Error::Security`] if the class is for servers alone.
    fn client(&self, id: ConnectionId) -> Result<Box<dyn Session>>;
}

impl fmt::Debug for dyn Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Class({})", self.index())
    }
}

/// The error of a class that refuses something, with the code for the peer.
pub(crate) fn refuse<T>(code: i32) -> Result<T> {
    Err(Error::Security { code })
}
