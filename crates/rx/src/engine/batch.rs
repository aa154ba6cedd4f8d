//! Packets that arrive together.
//!
//! # Theory
//! A client's window arrives as one batch. Some ciphers are several times faster for many packets
//! than for one. So consecutive packets of a connection are opened together, before the first of
//! them is taken in.

use std::net::SocketAddrV4;
use std::ops::Range;

use super::connection::Proof;
use super::{ConnectionRef, Engine, Time};
use crate::Result;
use crate::packet::{Flags, Header, Kind};
use crate::security::ConnectionId;

/// A packet that arrived.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Who sent it.
    pub from: SocketAddrV4,
    /// Its header.
    pub header: Header,
    /// What follows the header. It is decrypted in place.
    pub body: &'a mut [u8],
}

/// What opening a packet gave, and for which connection.
pub(super) type Opened = (ConnectionRef, Result<Range<usize>>);

impl Engine {
    /// Takes in packets, in their order, as [`Engine::receive`] does.
    pub fn receive_all(&mut self, now: Time, packets: &mut [Arrived<'_>]) {
        let mut rest = packets;
        while let Some(first) = rest.first() {
            let connection = self.gathers(first);
            let count = match connection {
                Some(_) => rest.iter().take_while(|next| is_same(first, next)).count(),
                None => 1,
            };
            let (run, after) = rest.split_at_mut(count);
            rest = after;
            let opened = match connection {
                Some(id) if count > 1 => self.open_all(id, run),
                _ => Vec::new(),
            };
            let mut opened = opened.into_iter();
            for packet in run {
                self.receive_opened(now, packet.from, &packet.header, packet.body, opened.next());
            }
        }
    }

    /// The connection of a packet, if it opens many packets faster than one.
    fn gathers(&self, packet: &Arrived<'_>) -> Option<ConnectionRef> {
        let header = &packet.header;
        let id = ConnectionId { epoch: header.epoch, cid: header.connection() };
        let client = !header.flags.has(Flags::CLIENT);
        let slot = *self.keys.get(&(id, packet.from, client))?;
        let connection = self.slots[slot as usize].connection.as_deref()?;
        let gathers = header.kind == Kind::Data
            && connection.security == header.security
            && matches!(connection.proof, Proof::Done)
            && connection.session.gathers();
        gathers.then(|| self.reference(slot))
    }

    fn open_all(&mut self, id: ConnectionRef, packets: &mut [Arrived<'_>]) -> Vec<Opened> {
        let Some(connection) = self.connection(id) else { return Vec::new() };
        let mut places: Vec<(Header, &mut [u8])> =
            packets.iter_mut().map(|packet| (packet.header, &mut *packet.body)).collect();
        connection.session.open_all(&mut places).into_iter().map(|result| (id, result)).collect()
    }
}

/// Whether two packets are data of one connection.
fn is_same(one: &Arrived<'_>, other: &Arrived<'_>) -> bool {
    let key = |packet: &Arrived<'_>| {
        let header = &packet.header;
        (
            packet.from,
            header.epoch,
            header.connection(),
            header.kind,
            header.security,
            header.flags.has(Flags::CLIENT),
        )
    };
    key(one) == key(other)
}
