//! Acknowledgements: which packets of a call arrived, and what the receiver can take.
//!
//! # On the wire
//!
//! | bytes | field |
//! |---|---|
//! | 0 | buffers that are free, largest skew: two bytes each, unused |
//! | 4 | first packet that is not acknowledged for good |
//! | 8 | last packet that was received |
//! | 12 | serial number of the packet that caused this |
//! | 16 | reason, number of states: one byte each |
//! | 18 | one byte for each packet from the first on: 1 if it arrived |
//! | | three bytes of padding |
//! | | up to four words: largest packet, that of the interface, window, packets in a datagram |
//!
//! Packets before the first may be forgotten by their sender. Those after it may not: the receiver
//! can discard them until it moves the first.

use crate::xdr::Reader;
use crate::{Error, Result};

/// The most states of one acknowledgement.
pub const MOST: usize = 255;
const FIXED: usize = 18;
const PADDING: usize = 3;

/// Why an acknowledgement was sent (`RX_ACK_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason(pub u8);

impl Reason {
    /// The packet's flags requested it.
    pub const REQUESTED: Reason = Reason(1);
    /// The packet arrived before.
    pub const DUPLICATE: Reason = Reason(2);
    /// Packets before it are missing.
    pub const OUT_OF_SEQUENCE: Reason = Reason(3);
    /// The packet is beyond the window.
    pub const EXCEEDS_WINDOW: Reason = Reason(4);
    /// There is no memory for the packet.
    pub const NO_SPACE: Reason = Reason(5);
    /// A question whether the peer still has the call.
    pub const PING: Reason = Reason(6);
    /// The answer to [`Reason::PING`].
    pub const PING_RESPONSE: Reason = Reason(7);
    /// Some time after a packet.
    pub const DELAY: Reason = Reason(8);
    /// As [`Reason::DELAY`], but without effect on the measurement of round trips.
    pub const IDLE: Reason = Reason(9);
}

/// What the receiver says of itself at the end of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The largest packet that it takes, with the header.
    pub max_mtu: u32,
    /// The packet size of its interface.
    pub if_mtu: u32,
    /// How many packets from the first on it takes.
    pub window: u32,
    /// How many packets a datagram to it may hold.
    pub jumbo: u32,
}

/// The content of an acknowledgement (`struct rx_ackPacket`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// All packets before this one have been taken for good.
    pub first: u32,
    /// The last packet that was received.
    pub previous: u32,
    /// The serial number of the packet that caused this, or 0.
    pub serial: u32,
    /// Why it was sent.
    pub reason: Reason,
    /// One byte for each packet from the first on. The low bit says that it arrived.
    pub states: &'a [u8],
    /// The largest packet, if it is given.
    pub max_mtu: Option<u32>,
    /// The window, if it is given.
    pub window: Option<u32>,
}

impl<'a> Ack<'a> {
    /// Reads the content of an acknowledgement.
    ///
    /// # Errors
    /// [`Error::Short`].
    pub fn parse(body: &'a [u8]) -> Result<Ack<'a>> {
        if body.len() < FIXED {
            return Err(Error::Short { missing: FIXED - body.len() });
        }
        let mut words = Reader::new(&body[4..16]);
        let (first, previous, serial) = (words.u32()?, words.u32()?, words.u32()?);
        let count = usize::from(body[17]);
        let Some(states) = body.get(FIXED..FIXED + count) else {
            return Err(Error::Short { missing: FIXED + count - body.len() });
        };
        // Old programs send no trailer, or only its beginning.
        let mut trailer = Reader::new(body.get(FIXED + count + PADDING..).unwrap_or_default());
        let max_mtu = trailer.u32().ok();
        let window = trailer.u32().ok().and_then(|_| trailer.u32().ok());
        Ok(Ack { first, previous, serial, reason: Reason(body[16]), states, max_mtu, window })
    }

    /// The bytes of an acknowledgement with a trailer, which replaces `max_mtu` and `window`.
    ///
    /// # Panics
    /// If there are more than [`MOST`] states.
    #[must_use]
    pub fn encode(&self, trailer: &Trailer) -> Vec<u8> {
        let count = u8::try_from(self.states.len()).expect("the caller keeps to the limit");
        let mut bytes = Vec::with_capacity(FIXED + self.states.len() + PADDING + 16);
        bytes.extend_from_slice(&[0; 4]);
        for word in [self.first, self.previous, self.serial] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&[self.reason.0, count]);
        bytes.extend_from_slice(self.states);
        bytes.extend_from_slice(&[0; PADDING]);
        for word in [trailer.max_mtu, trailer.if_mtu, trailer.window, trailer.jumbo] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}
