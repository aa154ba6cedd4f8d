//! Datagrams of AFS clients and servers: packets, tickets, files of keys, and conversations.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use ::rx::Slice;
use ::rx::engine::{Config, Datagram, Engine, Event, Time};
use ::rx::packet::debug::Question;
use ::rx::packet::{Ack, Flags, HEADER, Header, Kind, Reason, Trailer, abort_code};
use ::rx::security::rxkad::{self, Client, Key, Keys};
use ::rx::security::{Class, ConnectionId, Level, Null};
use ::rx::xdr::{Reader, Writer};

const ID: ConnectionId = ConnectionId { epoch: 0x8000_0001, cid: 4 };
const NOW: u32 = 1_700_000_000;
/// Bytes of requests that the engine of a conversation may hold.
const BYTES: usize = 64 << 10;

/// A ticket that the first of [`keys`] opens. Its session key is `abcdefgh`.
#[rustfmt::skip]
const TICKET: [u8; 155] = [
    0x30, 0x81, 0x98, 0xa0, 0x03, 0x02, 0x01, 0x12, 0xa1, 0x03, 0x02, 0x01, 0x01, 0xa2, 0x81, 0x8b,
    0x04, 0x81, 0x88, 0x71, 0xdf, 0xb8, 0xb3, 0x51, 0x97, 0xf2, 0x6b, 0xf1, 0x76, 0x7c, 0x45, 0xb9,
    0xef, 0xb0, 0x2b, 0x80, 0x77, 0x94, 0x01, 0xdb, 0x75, 0xbb, 0x22, 0x4a, 0xf8, 0x11, 0xf5, 0xbc,
    0x64, 0x1a, 0x59, 0x16, 0x0f, 0xa7, 0x3a, 0x8b, 0x66, 0xd8, 0x65, 0x41, 0xc6, 0x52, 0xe0, 0xff,
    0x31, 0xfc, 0xf2, 0xe6, 0xdd, 0x98, 0xb6, 0xac, 0x50, 0xbd, 0x27, 0x42, 0x6d, 0x73, 0xab, 0x9f,
    0x0d, 0xa4, 0xd8, 0x3a, 0xa9, 0x11, 0x4c, 0x59, 0x86, 0x66, 0x4a, 0xb5, 0xbe, 0xe0, 0xaf, 0x8a,
    0x05, 0xd0, 0x83, 0x87, 0x73, 0x96, 0x1b, 0x9b, 0xda, 0xa2, 0xc8, 0x96, 0x7a, 0x66, 0x2d, 0x6d,
    0xdb, 0x68, 0x1b, 0x58, 0xde, 0xb9, 0x9f, 0x8f, 0x70, 0x0a, 0x77, 0x74, 0x40, 0x11, 0xe9, 0x6a,
    0x97, 0xd8, 0x6f, 0x35, 0x84, 0x05, 0x7c, 0x4e, 0x87, 0x45, 0x7c, 0xf3, 0xc4, 0xc2, 0x94, 0x14,
    0xc1, 0x0a, 0x08, 0xf2, 0x0f, 0xf4, 0xf6, 0x55, 0xcb, 0xfc, 0xf4,
];

fn keys() -> Arc<Keys> {
    Arc::new(Keys::fixed(vec![
        Key::new(1, 18, &[1; 32]),
        Key::new(1, 17, &[1; 16]),
        Key::new(1, 23, &[1; 16]),
    ]))
}

/// A packet of any type.
pub fn packet(data: &[u8]) {
    let Ok((header, body)) = Header::parse(data) else { return };
    assert_eq!(header.encode(), data[..HEADER]);
    let _ = Ack::parse(body).map(|ack| assert!(ack.states.len() <= body.len()));
    let _ = Question::parse(body);
    let _ = abort_code(body);
}

/// Arguments of calls: each byte chooses how the next value is read.
pub fn xdr(data: &[u8]) {
    let (choices, values) = data.split_at(data.len() / 4);
    let mut reader = Reader::new(values);
    for choice in choices {
        let limit = usize::from(*choice);
        let read = match choice % 8 {
            0 => reader.u32().map(drop),
            1 => reader.i64().map(drop),
            2 => reader.bool().map(drop),
            3 => reader.opaque(limit).map(|bytes| assert!(bytes.len() <= limit)),
            4 => reader.string(limit).map(|bytes| assert!(!bytes.contains(&0))),
            5 => reader.array(limit, 4).map(|count| assert!(count * 4 <= reader.rest().len())),
            6 => reader.fixed(limit).map(drop),
            _ => reader.u64().map(drop),
        };
        if read.is_err() {
            return;
        }
    }
    let _ = reader.finish();
}

/// A ticket as clients send it, in both forms, and what is inside of an encrypted one.
pub fn ticket(data: &[u8]) {
    for version in [256, 213] {
        let mut response = Writer::new();
        response.u32(2).u32(0).fixed(&[7; 40]).u32(version).u32(data.len() as u32);
        let bytes = [&response.finish()[..], data].concat();
        self::response(&bytes);
    }
    let _ = rxkad::is_ticket_content(data);
}

/// A response to the challenge of a server, and a challenge to a client.
pub fn response(data: &[u8]) {
    let server = rxkad::Server::new(keys(), Level::Clear);
    let Ok(mut session) = server.server(ID, 1) else { return };
    let _ = session.accept(data, NOW);
    if let Ok(client) = Client::with_ticket(1, b"abcdefgh", 213, vec![1; 50], Level::Crypt)
        && let Ok(mut session) = client.client(ID)
    {
        let _ = session.respond(data, [0; 4]);
    }
}

/// The file of a cell's keys.
pub fn key_file(data: &[u8]) {
    let _ = rxkad::keys::parse(data);
}

fn engine() -> Engine {
    let config = Config { connections: 50, bytes: BYTES, bytes_per_host: BYTES, ..Config::default() };
    let classes: Vec<Arc<dyn Class>> =
        vec![Arc::new(Null), Arc::new(rxkad::Server::new(keys(), Level::Clear))];
    Engine::new(config, classes, vec![1, 4])
}

/// Answers what the engine reports, as a program would.
fn serve(engine: &mut Engine, now: Time, choice: u8) {
    while let Some(event) = engine.event() {
        match event {
            Event::Start(id) | Event::Readable(id) => {
                // Of a call that was not ended, it wants more than there is, or what there may be.
                if choice & 32 == 32 && matches!(event, Event::Start(_)) {
                    let has = engine.want(now, id, usize::from(choice) << 10);
                    assert!(has.is_ok_and(|has| !has || engine.timer().is_some()));
                    continue;
                }
                if choice & 64 == 64 {
                    engine.will_stream(id);
                }
                let Ok(read) = engine.take(id) else { continue };
                if read.done || choice & 1 == 1 {
                    let reply = vec![choice; usize::from(choice) * 100];
                    let _ = engine.send(id, [Slice::from(reply)], choice & 2 == 0);
                }
                match choice & 12 {
                    4 => engine.abort(id, 5),
                    8 => engine.finish(id),
                    _ if read.done => engine.finish(id),
                    _ => {}
                }
            }
            Event::Failed(id, _) => engine.finish(id),
            Event::Writable(_) | Event::Free(_) => {}
        }
    }
}

/// The receiver of a datagram shows that it got it.
fn echo(engine: &mut Engine, now: Time, datagram: &Datagram) {
    let Ok((header, _)) = Header::parse(&datagram.head) else { return };
    let ack = Ack {
        first: 1,
        previous: 0,
        serial: header.serial,
        reason: Reason::PING_RESPONSE,
        states: &[],
        max_mtu: None,
        window: None,
    };
    let mut body = ack.encode(&Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 });
    let header = Header { kind: Kind::Ack, flags: Flags(header.flags.0 ^ Flags::CLIENT.0), ..header };
    engine.receive(now, datagram.to, &header, &mut body);
}

/// Datagrams to one engine, which serves calls and makes one of its own.
///
/// Each has a length of two bytes, a byte that chooses the sender and the time, and a byte that
/// chooses what the program does, and whether a receiver proves itself.
pub fn conversation(mut data: &[u8]) {
    let (mut engine, mut now, mut out) = (engine(), Time(1), Vec::new());
    let server = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 7_001);
    if let Ok(connection) = engine.connect(now, server, 1, &Null)
        && let Ok(Some(id)) = engine.start(now, connection)
    {
        let _ = engine.send(id, [Slice::from(vec![1; 5_000])], true);
    }
    while let Some(([high, low, place, choice], rest)) = data.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (datagram, after) = rest.split_at(length);
        data = after;
        now = Time(now.0 + 1_000 * u64::from(*place & 0xf0) * u64::from(*place & 0xf0));
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, *place & 3), 7_001);
        let from = if place & 4 == 4 { server } else { from };
        if let Ok((header, body)) = Header::parse(datagram) {
            engine.receive(now, from, &header, &mut body.to_vec());
        }
        engine.tick(now);
        serve(&mut engine, now, *choice);
        engine.transmit(now, &mut out);
        if *choice & 16 == 16
            && let Some(answer) = out.first()
        {
            echo(&mut engine, now, answer);
        }
        out.clear();
        assert!(engine.timer_entries() <= engine.connections());
        assert!(engine.bytes() <= BYTES + 2 * length && engine.connections() <= 51);
    }
    assert_eq!(engine.counts().debug.sent[Kind::Busy as usize - 1], 0);
}

/// One datagram of a conversation.
fn turn(kind: Kind, call: u32, seq: u32, body: &[u8]) -> Vec<u8> {
    let header = Header {
        epoch: ID.epoch,
        cid: ID.cid,
        call,
        seq,
        serial: seq,
        kind,
        flags: Flags::CLIENT.with(Flags::LAST),
        user_status: 0,
        security: 0,
        checksum: 0,
        service: 1,
    };
    let datagram = [&header.encode()[..], body].concat();
    [&(datagram.len() as u16).to_be_bytes()[..], &[0x11, 40], &datagram].concat()
}

/// Conversations, as clients have them.
#[must_use]
pub fn conversations() -> Vec<Vec<u8>> {
    let trailer = Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 };
    let ack = Ack {
        first: 2,
        previous: 3,
        serial: 1,
        reason: Reason::PING,
        states: &[1, 0, 1],
        max_mtu: None,
        window: None,
    };
    let call = turn(Kind::Data, 1, 1, &[0; 8]);
    let ack = turn(Kind::Ack, 1, 0, &ack.encode(&trailer));
    let abort = turn(Kind::Abort, 1, 0, &[0; 4]);
    let next = turn(Kind::Data, 2, 1, &[1; 1_412]);
    vec![call.clone(), [call.clone(), ack, next.clone()].concat(), [call, abort, next].concat()]
}

/// Packets of each type.
#[must_use]
pub fn packets() -> Vec<Vec<u8>> {
    let kinds = [Kind::Data, Kind::Ack, Kind::Abort, Kind::Challenge, Kind::Response, Kind::Debug];
    kinds
        .map(|kind| {
            turn(kind, 1, 1, &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 6, 1, 1])[4..].to_vec()
        })
        .to_vec()
}

/// A whole response with a ticket.
#[must_use]
pub fn responses() -> Vec<Vec<u8>> {
    let client = Client::with_ticket(1, b"abcdefgh", 213, TICKET.to_vec(), Level::Crypt);
    let Ok(client) = client else { return Vec::new() };
    let Ok(mut session) = client.client(ID) else { return Vec::new() };
    let challenge = [2u32, 1, 0, 0].map(u32::to_be_bytes).concat();
    session.respond(&challenge, [1, 2, 3, 4]).into_iter().collect()
}

/// A ticket.
#[must_use]
pub fn tickets() -> Vec<Vec<u8>> {
    vec![TICKET.to_vec()]
}

/// A file with two keys.
#[must_use]
pub fn key_files() -> Vec<Vec<u8>> {
    let words = [2u32, 16, 2, 1, 18, 32].map(u32::to_be_bytes).concat();
    let second = [16u32, 2, 2, 23, 16].map(u32::to_be_bytes).concat();
    vec![[&words[..], &[1; 32], &second, &[2; 16]].concat()]
}
