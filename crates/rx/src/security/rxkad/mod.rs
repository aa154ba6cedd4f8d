//! `rxkad`: the security class with Kerberos tickets.
//!
//! # Theory
//! The server challenges each connection with a number. The client responds with its ticket, and
//! with the number plus one, encrypted by the session key that the ticket holds. Only the cell's
//! servers can open the ticket, so both ends now share the session key.
//!
//! Each packet has a checksum of its position in the header. The levels add to that:
//!
//! | level | protection |
//! |---|---|
//! | clear | nothing: data are as they are |
//! | auth | four bytes before the data, and the first block is encrypted |
//! | crypt | eight bytes before the data, and everything is encrypted |
//!
//! fcrypt has keys of 56 bits. That is what all clients of AFS speak, and no more than that.
//!
//! # On the wire
//! Challenge: version 2, number, least level, 0. Response: version 2, 0, an encrypted part, version
//! of the key, length of the ticket, ticket. The encrypted part: epoch, connection, checksum,
//! security index, four call numbers, number plus one, level.
//!
//! # Absent
//! The first version of the response, which has no checksum, and tickets of Kerberos 4.
//!
//! # See
//! OpenAFS: `src/rxkad`.

pub mod code;
mod der;
pub mod keys;
mod krb5;
#[cfg(test)]
mod tests;
mod ticket;

pub use keys::{Key, Keys};

use std::ops::Range;
use std::sync::Arc;

use codec::fcrypt::Schedule;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Accepted, Class, ConnectionId, Identity, Level, Outgoing, RXKAD, Session, refuse};
use crate::block::{Block, Slice};
use crate::packet::{CHANNEL_MASK, CHANNELS, Header, debug};
use crate::xdr::{Reader, Writer};
use crate::{Error, Result};

/// The version of challenges and responses.
const VERSION: u32 = 2;
/// Bytes of the encrypted part of a response, and of what comes before and after it.
const SEALED: usize = 40;
const BEFORE: usize = 8;
const AFTER: usize = 8;
/// The user of servers: it may do everything.
pub const SUPERUSER: &str = "afs";
/// How far the clocks of hosts may differ, in seconds (`KTC_TIME_UNCERTAINTY`).
pub(crate) const SKEW: u32 = 15 * 60;
/// When tickets of our own end: the last second that 31 bits hold.
const END: u32 = 0x7fff_ffff;

/// What both ends of a proven connection share.
struct Shared {
    schedule: Schedule,
    iv: Zeroizing<[u8; 8]>,
    /// What makes the checksums of this connection differ from those of others.
    mask: u64,
    level: Level,
}

impl Shared {
    fn new(key: &[u8; 8], id: ConnectionId, level: Level) -> Shared {
        let schedule = Schedule::new(key);
        let mut endpoint = [0; 16];
        endpoint[..4].copy_from_slice(&id.epoch.to_be_bytes());
        endpoint[4..8].copy_from_slice(&id.cid.to_be_bytes());
        endpoint[15] = RXKAD;
        schedule.encrypt_pcbc(*key, &mut endpoint);
        let (_, last) = endpoint.split_at(8);
        let mask = u64::from_be_bytes(last.try_into().expect("half of sixteen bytes"));
        Shared { schedule, iv: Zeroizing::new(*key), mask, level }
    }

    /// The block whose encryption has the checksum of a packet's position.
    fn position(&self, cid: u32, call: u32, seq: u32) -> [u8; 8] {
        let position = (cid & CHANNEL_MASK) << 30 | seq & 0x3fff_ffff;
        ((u64::from(call) << 32 | u64::from(position)) ^ self.mask).to_be_bytes()
    }

    /// The checksum of a packet's position.
    fn checksum(&self, cid: u32, call: u32, seq: u32) -> u16 {
        checksum_of(self.schedule.encrypt_block(self.position(cid, call, seq)))
    }

    /// The checksums of positions. A chain of one block from 0 is the block alone, so the cipher
    /// takes many at a time.
    fn checksums(&self, mut blocks: Vec<[u8; 8]>) -> impl Iterator<Item = u16> {
        let mut places: Vec<&mut [u8]> = blocks.iter_mut().map(|block| &mut block[..]).collect();
        self.schedule.encrypt_packets([0; 8], &mut places);
        blocks.into_iter().map(checksum_of)
    }

    fn set_checksums(&self, packets: &mut [Outgoing]) {
        let positions = packets.iter().map(|packet| self.position(packet.cid, packet.call, packet.seq));
        let checksums = self.checksums(positions.collect());
        for (packet, checksum) in packets.iter_mut().zip(checksums) {
            packet.checksum = checksum;
        }
    }

    /// Bytes before the data, and the multiple that a packet's length has.
    fn overhead(&self) -> (usize, usize) {
        match self.level {
            Level::Clear => (0, 1),
            Level::Auth => (4, 1),
            Level::Crypt => (8, 8),
        }
    }

    /// The length of a sealed packet.
    fn sealed(&self, data: usize) -> usize {
        match self.level {
            Level::Clear => data,
            Level::Auth => (data + 4).max(8),
            Level::Crypt => (data + 8).next_multiple_of(8),
        }
    }

    fn seal(&self, packets: &mut [Outgoing]) {
        self.set_checksums(packets);
        if self.level == Level::Clear {
            return;
        }
        let (before, _) = self.overhead();
        let total = packets.iter().map(|packet| self.sealed(packet.payload.len())).sum();
        // All packets of a window are in one block of memory.
        let mut bytes = vec![0; total];
        let (mut rest, mut places) = (&mut bytes[..], Vec::with_capacity(packets.len()));
        for packet in packets.iter() {
            let data = packet.payload.bytes();
            let (place, after) = rest.split_at_mut(self.sealed(data.len()));
            rest = after;
            let first = ((packet.seq ^ packet.call) & 0xffff) << 16 | data.len() as u32;
            place[..4].copy_from_slice(&first.to_be_bytes());
            place[before..before + data.len()].copy_from_slice(data);
            places.push(place);
        }
        match self.level {
            Level::Crypt => self.schedule.encrypt_packets(*self.iv, &mut places),
            _ => places.iter_mut().for_each(|place| {
                let (block, _) = place.split_first_chunk_mut::<8>().expect("sealed packets have a block");
                *block = self.schedule.encrypt_block(*block);
            }),
        }
        let (block, mut at): (Block, _) = (Arc::new(bytes), 0);
        for packet in packets {
            let end = at + self.sealed(packet.payload.len());
            packet.payload = Slice::new(Arc::clone(&block), at..end);
            at = end;
        }
    }

    fn open(&self, header: &Header, body: &mut [u8]) -> Result<Range<usize>> {
        if header.checksum != self.checksum(header.cid, header.call, header.seq) {
            return refuse(code::SEALED_INCONSISTENT);
        }
        self.check_length(body)?;
        match self.level {
            Level::Clear => {}
            Level::Auth => {
                let Some((block, _)) = body.split_first_chunk_mut::<8>() else {
                    return refuse(code::PACKET_SHORT);
                };
                *block = self.schedule.decrypt_block(*block);
            }
            Level::Crypt => {
                self.schedule.decrypt_pcbc(*self.iv, body);
            }
        }
        self.data(header, body)
    }

    /// Whether a sealed packet may be as long as this one.
    fn check_length(&self, body: &[u8]) -> Result<()> {
        let short = match self.level {
            Level::Clear => false,
            Level::Auth => body.len() < 8,
            Level::Crypt => body.is_empty() || !body.len().is_multiple_of(8),
        };
        if short { refuse(code::PACKET_SHORT) } else { Ok(()) }
    }

    /// Where the data of a decrypted packet are.
    fn data(&self, header: &Header, body: &[u8]) -> Result<Range<usize>> {
        let (before, _) = self.overhead();
        if before == 0 {
            return Ok(0..body.len());
        }
        let first = u32::from_be_bytes([body[0], body[1], body[2], body[3]]);
        if first >> 16 != (header.seq ^ header.call) & 0xffff {
            return refuse(code::SEALED_INCONSISTENT);
        }
        let length = (first & 0xffff) as usize;
        if before + length > body.len() { refuse(code::DATA_LENGTH) } else { Ok(before..before + length) }
    }

    /// Opens packets of the level `crypt` together.
    fn open_all(&self, packets: &mut [(Header, &mut [u8])]) -> Vec<Result<Range<usize>>> {
        if self.level != Level::Crypt {
            return packets.iter_mut().map(|(header, body)| self.open(header, body)).collect();
        }
        let positions = packets.iter().map(|(header, _)| self.position(header.cid, header.call, header.seq));
        let checksums = self.checksums(positions.collect());
        let mut results: Vec<Result<()>> = Vec::with_capacity(packets.len());
        let mut places = Vec::with_capacity(packets.len());
        for ((header, body), checksum) in packets.iter_mut().zip(checksums) {
            let genuine = header.checksum == checksum;
            results.push(if genuine { self.check_length(body) } else { refuse(code::SEALED_INCONSISTENT) });
            if results.last().is_some_and(Result::is_ok) {
                places.push(&mut **body);
            }
        }
        self.schedule.decrypt_packets(*self.iv, &mut places);
        let each = packets.iter().zip(results);
        each.map(|((header, body), result)| result.and_then(|()| self.data(header, body))).collect()
    }

    fn stats(&self, expires: u32) -> debug::Security {
        debug::Security {
            kind: 3,
            level: self.level as u8,
            flags: 2 | 8,
            expires,
            ..debug::Security::default()
        }
    }
}

/// The checksum in an encrypted block. It is never 0.
fn checksum_of(block: [u8; 8]) -> u16 {
    u16::from_be_bytes([block[4], block[5]]).max(1)
}

/// The checksum of a response, with 0 in the place of the checksum itself.
fn response_checksum(sealed: &[u8; SEALED], kvno: u32, ticket: u32) -> u32 {
    let mut all = Writer::with_capacity(BEFORE + SEALED + AFTER);
    all.u32(VERSION).u32(0).fixed(&sealed[..8]).u32(0).fixed(&sealed[12..]).u32(kvno).u32(ticket);
    let add = |sum: u32, byte: &u8| sum.wrapping_mul(0x1020_4081).wrapping_add(u32::from(*byte));
    all.finish().iter().fold(1_000_003, add)
}

/// Whether bytes are what a ticket has inside, once it is decrypted. For tests of the decoder.
#[must_use]
pub fn is_ticket_content(text: &[u8]) -> bool {
    ticket::is_content(text)
}

/// The class for servers.
pub struct Server {
    keys: Arc<Keys>,
    least: Level,
}

impl Server {
    /// A class that opens tickets with these keys, and requires this level at least.
    #[must_use]
    pub fn new(keys: Arc<Keys>, least: Level) -> Server {
        Server { keys, least }
    }
}

impl Class for Server {
    fn index(&self) -> u8 {
        RXKAD
    }

    fn server(&self, id: ConnectionId, nonce: u32) -> Result<Box<dyn Session>> {
        let nonce = nonce & 0x7fff_ffff;
        Ok(Box::new(ServerSession {
            keys: Arc::clone(&self.keys),
            least: self.least,
            id,
            nonce,
            shared: None,
            expires: 0,
        }))
    }

    fn client(&self, _: ConnectionId) -> Result<Box<dyn Session>> {
        refuse(code::INCONSISTENCY)
    }
}

struct ServerSession {
    keys: Arc<Keys>,
    least: Level,
    id: ConnectionId,
    nonce: u32,
    shared: Option<Shared>,
    expires: u32,
}

impl ServerSession {
    fn check(&mut self, response: &[u8], now: u32) -> Result<Accepted> {
        let short = |_: Error| Error::Security { code: code::PACKET_SHORT };
        let mut reader = Reader::new(response);
        let version = reader.u32().map_err(short)?;
        reader.u32().map_err(short)?;
        let sealed = reader.fixed(SEALED).map_err(short)?;
        let (kvno, length) = (reader.u32().map_err(short)?, reader.u32().map_err(short)?);
        if version != VERSION {
            return refuse(code::PACKET_SHORT);
        }
        if !(ticket::LEAST..=ticket::MOST).contains(&(length as usize)) {
            return refuse(code::TICKET_LENGTH);
        }
        let ticket =
            reader.rest().get(..length as usize).ok_or(Error::Security { code: code::PACKET_SHORT })?;
        let kind = kvno.cast_signed();
        if !matches!(kind, ticket::WHOLE | ticket::PART) {
            return refuse(code::UNKNOWN_KEY);
        }
        let opened = ticket::open(&self.keys, kind, ticket, now)?;
        let mut plain: Zeroizing<[u8; SEALED]> =
            Zeroizing::new(sealed.try_into().expect("as many were read"));
        Schedule::new(&opened.key).decrypt_pcbc(*opened.key, &mut plain[..]);
        let checksum = response_checksum(&plain, kvno, length);
        let mut expected = Writer::new();
        expected.u32(self.id.epoch).u32(self.id.cid).u32(checksum).u32(u32::from(RXKAD));
        if !bool::from(expected.finish().ct_eq(&plain[..16])) {
            return refuse(code::SEALED_INCONSISTENT);
        }
        let mut fields = Reader::new(&plain[16..]);
        let mut calls = [0; CHANNELS];
        for call in &mut calls {
            *call = fields.u32()?;
            if *call > i32::MAX.cast_unsigned() {
                return refuse(code::SEALED_INCONSISTENT);
            }
        }
        if !bool::from(fields.u32()?.ct_eq(&self.nonce.wrapping_add(1))) {
            return refuse(code::OUT_OF_SEQUENCE);
        }
        let level = match fields.u32()? {
            0 => Level::Clear,
            1 => Level::Auth,
            2 => Level::Crypt,
            _ => return refuse(code::LEVEL_FAIL),
        };
        if level < self.least {
            return refuse(code::LEVEL_FAIL);
        }
        self.shared = Some(Shared::new(&opened.key, self.id, level));
        self.expires = opened.expires;
        let identity =
            Identity { name: opened.name, cell: opened.realm, level, expires: opened.expires, kvno: kind };
        Ok(Accepted { identity: Arc::new(identity), calls })
    }
}

impl Session for ServerSession {
    fn overhead(&self) -> (usize, usize) {
        self.shared.as_ref().map_or((0, 1), Shared::overhead)
    }

    fn seal(&mut self, packets: &mut [Outgoing]) {
        if let Some(shared) = &self.shared {
            shared.seal(packets);
        }
    }

    fn open(&mut self, header: &Header, body: &mut [u8]) -> Result<Range<usize>> {
        match &self.shared {
            Some(shared) => shared.open(header, body),
            None => refuse(code::NO_AUTH),
        }
    }

    fn gathers(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.level == Level::Crypt)
    }

    fn open_all(&mut self, packets: &mut [(Header, &mut [u8])]) -> Vec<Result<Range<usize>>> {
        match &self.shared {
            Some(shared) => shared.open_all(packets),
            None => packets.iter().map(|_| refuse(code::NO_AUTH)).collect(),
        }
    }

    fn challenge(&mut self) -> Option<Vec<u8>> {
        let mut writer = Writer::new();
        writer.u32(VERSION).u32(self.nonce).u32(self.least as u32).u32(0);
        Some(writer.finish())
    }

    fn accept(&mut self, response: &[u8], now: u32) -> Result<Accepted> {
        self.check(response, now)
    }

    fn respond(&mut self, _: &[u8], _: [u32; CHANNELS]) -> Result<Vec<u8>> {
        refuse(code::INCONSISTENCY)
    }

    fn stats(&self) -> debug::Security {
        match &self.shared {
            Some(shared) => shared.stats(self.expires),
            None => debug::Security { kind: 3, ..debug::Security::default() },
        }
    }
}

/// The class for clients: a ticket and its session key.
pub struct Client {
    key: Zeroizing<[u8; 8]>,
    ticket: Arc<Vec<u8>>,
    kvno: i32,
    level: Level,
}

impl Client {
    /// A client with a ticket from elsewhere: its session key, and its version, 256 or 213.
    ///
    /// # Errors
    /// [`Error::Security`] if the session key is of no use.
    pub fn with_ticket(enctype: i32, key: &[u8], kvno: i32, ticket: Vec<u8>, level: Level) -> Result<Client> {
        match ticket::session_key(enctype, key) {
            Some(key) => Ok(Client { key, ticket: Arc::new(ticket), kvno, level }),
            None => refuse(code::BAD_KEY),
        }
    }

    /// A client with a ticket that it makes from the cell's key, as `-localauth` does.
    ///
    /// The user is [`SUPERUSER`] for a server's own calls.
    ///
    /// # Errors
    /// [`Error::Security`] if there is no key, [`Error::Random`].
    pub fn local(keys: &Keys, user: &str, level: Level) -> Result<Client> {
        let random = |bytes: &mut [u8]| getrandom::fill(bytes).map_err(|_| Error::Random);
        let Some(cell) = keys.best() else { return refuse(code::UNKNOWN_KEY) };
        let key = ticket::random_key(random)?;
        let mut confounder = [0; 16];
        random(&mut confounder)?;
        match ticket::make(&cell, user, END, &key, &confounder) {
            Some(ticket) => Ok(Client { key, ticket: Arc::new(ticket), kvno: ticket::PART, level }),
            None => refuse(code::BAD_KEY),
        }
    }
}

impl Class for Client {
    fn index(&self) -> u8 {
        RXKAD
    }

    fn server(&self, _: ConnectionId, _: u32) -> Result<Box<dyn Session>> {
        refuse(code::INCONSISTENCY)
    }

    fn client(&self, id: ConnectionId) -> Result<Box<dyn Session>> {
        Ok(Box::new(ClientSession {
            shared: Shared::new(&self.key, id, self.level),
            id,
            ticket: Arc::clone(&self.ticket),
            kvno: self.kvno.cast_unsigned(),
        }))
    }
}

struct ClientSession {
    shared: Shared,
    id: ConnectionId,
    ticket: Arc<Vec<u8>>,
    kvno: u32,
}

impl Session for ClientSession {
    fn overhead(&self) -> (usize, usize) {
        self.shared.overhead()
    }

    fn seal(&mut self, packets: &mut [Outgoing]) {
        self.shared.seal(packets);
    }

    fn open(&mut self, header: &Header, body: &mut [u8]) -> Result<Range<usize>> {
        self.shared.open(header, body)
    }

    fn gathers(&self) -> bool {
        self.shared.level == Level::Crypt
    }

    fn open_all(&mut self, packets: &mut [(Header, &mut [u8])]) -> Vec<Result<Range<usize>>> {
        self.shared.open_all(packets)
    }

    fn challenge(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn accept(&mut self, _: &[u8], _: u32) -> Result<Accepted> {
        refuse(code::INCONSISTENCY)
    }

    fn respond(&mut self, challenge: &[u8], calls: [u32; CHANNELS]) -> Result<Vec<u8>> {
        let mut reader = Reader::new(challenge);
        let (version, nonce, least) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if version != VERSION {
            return refuse(code::PACKET_SHORT);
        }
        if least > self.shared.level as u32 {
            return refuse(code::LEVEL_FAIL);
        }
        let mut fields = Writer::with_capacity(SEALED);
        fields.u32(self.id.epoch).u32(self.id.cid).u32(0).u32(u32::from(RXKAD));
        for call in calls {
            fields.u32(call);
        }
        fields.u32(nonce.wrapping_add(1)).u32(self.shared.level as u32);
        let mut sealed: [u8; SEALED] = fields.finish().try_into().expect("ten words");
        let length = self.ticket.len() as u32;
        let checksum = response_checksum(&sealed, self.kvno, length);
        sealed[8..12].copy_from_slice(&checksum.to_be_bytes());
        self.shared.schedule.encrypt_pcbc(*self.shared.iv, &mut sealed);
        let mut response = Writer::with_capacity(BEFORE + SEALED + AFTER + self.ticket.len());
        response.u32(VERSION).u32(0).fixed(&sealed).u32(self.kvno).u32(length);
        let mut bytes = response.finish();
        bytes.extend_from_slice(&self.ticket);
        Ok(bytes)
    }

    fn stats(&self) -> debug::Security {
        self.shared.stats(0)
    }
}
