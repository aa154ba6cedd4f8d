//! Packets: their header, and the contents of those that carry no data.
//!
//! # Theory
//! A datagram is one packet: a header of 28 bytes, then what its type says. Jumbograms, which hold
//! several packets, are never sent, and our acknowledgements say that none are accepted.
//!
//! # On the wire
//! All words are big-endian. The header:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | epoch: when the client was started; with its top bit set, the client may change address |
//! | 4 | connection; the low two bits are the channel |
//! | 8 | call number of the channel |
//! | 12 | sequence number of the packet in its direction of the call, from 1 |
//! | 16 | serial number of the packet in its direction of the connection |
//! | 20 | type, flags, user status, security index: one byte each |
//! | 24 | checksum (used by rxkad), service: two bytes each |
//!
//! # See
//! OpenAFS: `src/rx/rx_packet.h`, `src/rx/rx.h`.

pub mod ack;
pub mod debug;
#[cfg(test)]
mod tests;

pub use ack::{Ack, Reason, Trailer};

use crate::{Error, Result};

/// Bytes of a header.
pub const HEADER: usize = 28;
/// Bytes of data in a full packet without a security header.
///
/// OpenAFS's receivers have buffers of this size, and this much fits into an Ethernet frame.
pub const DATA: usize = 1_412;
/// The largest packet that a peer may send: what fits into an Ethernet frame of 1,500 bytes, with
/// room for larger frames.
pub const MOST: usize = 16_384;
/// Channels of a connection: how many calls it carries at a time.
pub const CHANNELS: usize = 4;
/// The bits of a connection's number that are the channel.
pub const CHANNEL_MASK: u32 = CHANNELS as u32 - 1;
/// The bit of an epoch that says: the client may change its address.
pub const EPOCH_MOVES: u32 = 1 << 31;

/// What a packet is (`RX_PACKET_TYPE_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of a call.
    Data = 1,
    /// Which packets arrived.
    Ack = 2,
    /// The server can't take the call now. We never send one.
    Busy = 3,
    /// The call or the connection failed, with a code.
    Abort = 4,
    /// All packets arrived.
    AckAll = 5,
    /// The server requests the client's credentials.
    Challenge = 6,
    /// The client's credentials.
    Response = 7,
    /// A question of `rxdebug`.
    Debug = 8,
    /// Sizes that nothing uses any more.
    Params = 9,
    /// The question which program this is.
    Version = 13,
}

impl TryFrom<u8> for Kind {
    type Error = Error;

    fn try_from(kind: u8) -> Result<Kind> {
        Ok(match kind {
            1 => Kind::Data,
            2 => Kind::Ack,
            3 => Kind::Busy,
            4 => Kind::Abort,
            5 => Kind::AckAll,
            6 => Kind::Challenge,
            7 => Kind::Response,
            8 => Kind::Debug,
            9 => Kind::Params,
            13 => Kind::Version,
            _ => return Err(Error::PacketType { kind }),
        })
    }
}

/// The flags of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender is the client of the connection.
    pub const CLIENT: Flags = Flags(1);
    /// The sender wants an acknowledgement now.
    pub const REQUEST_ACK: Flags = Flags(2);
    /// The last packet of this direction of the call.
    pub const LAST: Flags = Flags(4);
    /// More packets follow at once.
    pub const MORE: Flags = Flags(8);
    /// In an acknowledgement: the sender may start slowly. In data: more packets are in this
    /// datagram.
    pub const SLOW_START_OR_JUMBO: Flags = Flags(32);

    /// Whether all of these flags are set.
    #[must_use]
    pub fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and others.
    #[must_use]
    pub fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }
}

/// The header of a packet (`struct rx_header`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// When the client of the connection was started.
    pub epoch: u32,
    /// The connection and the channel.
    pub cid: u32,
    /// The number of the call on its channel.
    pub call: u32,
    /// The position of the packet in the call.
    pub seq: u32,
    /// The position of the packet among all of its connection.
    pub serial: u32,
    /// What follows the header.
    pub kind: Kind,
    /// The flags.
    pub flags: Flags,
    /// A byte that passes between the programs at both ends.
    pub user_status: u8,
    /// The security class of the connection.
    pub security: u8,
    /// The checksum that rxkad makes.
    pub checksum: u16,
    /// The service of the connection.
    pub service: u16,
}

impl Header {
    /// Takes a datagram apart into the header and what follows it.
    ///
    /// # Errors
    /// [`Error::Short`], [`Error::PacketType`].
    pub fn parse(datagram: &[u8]) -> Result<(Header, &[u8])> {
        let Some((head, rest)) = datagram.split_first_chunk::<HEADER>() else {
            return Err(Error::Short { missing: HEADER - datagram.len() });
        };
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let header = Header {
            epoch: word(0),
            cid: word(4),
            call: word(8),
            seq: word(12),
            serial: word(16),
            kind: Kind::try_from(head[20])?,
            flags: Flags(head[21]),
            user_status: head[22],
            security: head[23],
            checksum: half(24),
            service: half(26),
        };
        Ok((header, rest))
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let words = [self.epoch, self.cid, self.call, self.seq, self.serial];
        for (at, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *at = word.to_be_bytes();
        }
        bytes[20..24].copy_from_slice(&[self.kind as u8, self.flags.0, self.user_status, self.security]);
        bytes[24..26].copy_from_slice(&self.checksum.to_be_bytes());
        bytes[26..28].copy_from_slice(&self.service.to_be_bytes());
        bytes
    }

    /// The channel of the packet.
    #[must_use]
    pub fn channel(&self) -> usize {
        (self.cid & CHANNEL_MASK) as usize
    }

    /// The number of the connection, without the channel.
    #[must_use]
    pub fn connection(&self) -> u32 {
        self.cid & !CHANNEL_MASK
    }
}

/// The code of an abort.
///
/// # Errors
/// [`Error::Short`].
pub fn abort_code(body: &[u8]) -> Result<i32> {
    crate::xdr::Reader::new(body).i32()
}
