//! Two engines over a network that the test owns, and single packets against one engine.

mod hostile;
mod lost;
mod shares;
mod streams;

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Arrived, CallId, Config, ConnectionRef, Datagram, Engine, Event, Source, Time};
use crate::block::{Block, Slice};
use crate::code;
use crate::packet::{Ack, Flags, HEADER, Header, Kind, Reason, Trailer, abort_code};
use crate::security::rxkad::{self, Key, Keys};
use crate::security::{Class, Level, Null};

const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7001);
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7000);
const SERVICE: u16 = 1;

fn engine(config: Config) -> Engine {
    Engine::new(config, vec![Arc::new(Null)], vec![SERVICE])
}

fn keys() -> Arc<Keys> {
    Arc::new(Keys::fixed(vec![Key::new(1, 18, &[5; 32])]))
}

/// A server with rxkad, too.
fn proving() -> Engine {
    let classes: Vec<Arc<dyn Class>> =
        vec![Arc::new(Null), Arc::new(rxkad::Server::new(keys(), Level::Clear))];
    Engine::new(
        Config { started: 1_700_000_000, random: Source::Seed(9), ..Config::default() },
        classes,
        vec![SERVICE],
    )
}

/// How a network treats datagrams.
#[derive(Debug, Clone, Copy)]
struct Faults {
    loss: u64,
    double: u64,
    late: u64,
}

const NONE: Faults = Faults { loss: 0, double: 0, late: 0 };

/// A network between two engines, its clock, and its dice.
struct Net {
    now: Time,
    faults: Faults,
    random: u64,
    flying: BTreeMap<(Time, u64), (SocketAddrV4, SocketAddrV4, Vec<u8>)>,
    count: u64,
}

impl Net {
    fn new(faults: Faults, seed: u64) -> Net {
        Net { now: Time(1), faults, random: seed | 1, flying: BTreeMap::new(), count: 0 }
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % sides
    }

    fn post(&mut self, from: SocketAddrV4, datagram: &Datagram) {
        let bytes = [&datagram.head[..], datagram.body.bytes()].concat();
        if self.dice(100) < self.faults.loss {
            return;
        }
        let copies = if self.dice(100) < self.faults.double { 2 } else { 1 };
        for _ in 0..copies {
            let late = if self.dice(100) < self.faults.late { self.dice(5_000) } else { 0 };
            self.count += 1;
            let at = (Time(self.now.0 + 500 + late), self.count);
            self.flying.insert(at, (from, datagram.to, bytes.clone()));
        }
    }

    /// Sends what two engines have to send.
    fn collect(&mut self, client: &mut Engine, server: &mut Engine) {
        let mut out = Vec::new();
        client.transmit(self.now, &mut out);
        out.iter().for_each(|datagram| self.post(CLIENT, datagram));
        out.clear();
        server.transmit(self.now, &mut out);
        out.iter().for_each(|datagram| self.post(SERVER, datagram));
    }

    /// Goes to the next moment at which something happens. Returns whether there is one.
    fn step(&mut self, client: &mut Engine, server: &mut Engine) -> bool {
        self.collect(client, server);
        let arrives = self.flying.first_key_value().map(|((time, _), _)| *time);
        let Some(next) = [arrives, client.timer(), server.timer()].into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        let mut batches = [Vec::new(), Vec::new()];
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let (from, to, bytes) = entry.remove();
            batches[usize::from(to == CLIENT)].push((from, bytes));
        }
        for (engine, batch) in [&mut *server, &mut *client].into_iter().zip(&mut batches) {
            let arrived = |(from, bytes): &'_ mut (SocketAddrV4, Vec<u8>)| {
                let header = Header::parse(bytes).unwrap().0;
                (*from, header, bytes.split_off(HEADER))
            };
            let mut parts: Vec<_> = batch.iter_mut().map(arrived).collect();
            let mut packets: Vec<Arrived<'_>> = parts
                .iter_mut()
                .map(|(from, header, body)| Arrived { from: *from, header: *header, body })
                .collect();
            engine.receive_all(self.now, &mut packets);
        }
        client.tick(self.now);
        server.tick(self.now);
        true
    }
}

fn pattern(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| (i.wrapping_mul(31).wrapping_add(seed) >> 3) as u8).collect()
}

/// A program that answers a request with as many bytes as its first word says, then the request.
#[derive(Default)]
struct Echo {
    requests: HashMap<CallId, Vec<u8>>,
}

impl Echo {
    fn serve(&mut self, server: &mut Engine) {
        while let Some(event) = server.event() {
            match event {
                Event::Start(id) | Event::Readable(id) => {
                    let read = server.take(id).unwrap();
                    let request = self.requests.entry(id).or_default();
                    request.extend(read.bytes);
                    if read.done {
                        let request = self.requests.remove(&id).unwrap();
                        let size = u32::from_be_bytes(request[..4].try_into().unwrap()) as usize;
                        let parts = [Slice::from(pattern(size, 7)), Slice::from(request)];
                        server.send(id, parts, true).unwrap();
                        server.finish(id);
                    }
                }
                Event::Failed(id, _) => server.finish(id),
                Event::Writable(_) | Event::Free(_) => {}
            }
        }
    }
}

/// One call after the other over a network. Returns the time that they took.
fn calls(faults: Faults, seed: u64, sizes: &[(usize, usize)]) -> Duration {
    calls_by(&Null, faults, seed, sizes)
}

fn calls_by(class: &dyn Class, faults: Faults, seed: u64, sizes: &[(usize, usize)]) -> Duration {
    let mut net = Net::new(faults, seed);
    let (mut client, mut server) = (engine(Config::default()), proving());
    let (mut echo, mut left) = (Echo::default(), sizes.iter());
    let connection = client.connect(net.now, SERVER, SERVICE, class).unwrap();
    let mut current: Option<(CallId, Vec<u8>, Vec<u8>)> = None;
    loop {
        if current.is_none() {
            let Some((request, reply)) = left.next() else { break };
            let body = [&(*reply as u32).to_be_bytes()[..], &pattern(*request, 3)].concat();
            let id = client.start(net.now, connection).unwrap().expect("a channel is free");
            client.send(id, [Slice::from(body.clone())], true).unwrap();
            current = Some((id, [pattern(*reply, 7), body].concat(), Vec::new()));
        }
        assert!(net.step(&mut client, &mut server), "nothing happens any more");
        assert!(net.now < Time(600_000_000), "the calls take ten minutes");
        echo.serve(&mut server);
        while let Some(event) = client.event() {
            match event {
                Event::Readable(id) => {
                    let (own, expected, got) = current.as_mut().unwrap();
                    assert_eq!(*own, id);
                    let read = client.take(id).unwrap();
                    got.extend(read.bytes);
                    if read.done {
                        assert!(got == expected, "other bytes than were sent");
                        client.finish(id);
                        current = None;
                    }
                }
                Event::Failed(_, code) => panic!("the call failed with {code} at {:?}", net.now),
                _ => {}
            }
        }
    }
    net.now.since(Time(0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Goal: requests and replies of any size arrive as they were sent, over a network that loses,
    /// doubles and reorders datagrams.
    #[test]
    fn bytes_arrive_over_a_bad_network(
        seed: u64,
        loss in 0u64..15,
        double in 0u64..15,
        late in 0u64..40,
        sizes in prop::collection::vec((0usize..200_000, 0usize..200_000), 1..4),
    ) {
        calls(Faults { loss, double, late }, seed, &sizes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Goal: the same with clients that prove themselves, at each level. Challenges and responses
    /// are lost, too.
    #[test]
    fn bytes_of_proven_clients_arrive(
        seed: u64,
        loss in 0u64..15,
        double in 0u64..15,
        late in 0u64..40,
        level in prop::sample::select(vec![Level::Clear, Level::Auth, Level::Crypt]),
        sizes in prop::collection::vec((0usize..60_000, 0usize..60_000), 1..4),
    ) {
        let class = rxkad::Client::local(&keys(), "user", level).unwrap();
        calls_by(&class, Faults { loss, double, late }, seed, &sizes);
    }
}

/// Goal: a network that loses one packet in a hundred makes no call wait for time-outs.
#[test]
fn losses_cost_little() {
    for seed in 1..6 {
        let took = calls(Faults { loss: 1, ..NONE }, seed, &[(0, 4 << 20)]);
        assert!(took < Duration::from_millis(1_200), "{took:?}");
    }
}

/// Goal: a proven client may change its address, by a packet with the seal of its session. A packet
/// without it changes nothing.
#[test]
fn a_proven_client_may_move() {
    let (mut net, mut server, mut client) = (Net::new(NONE, 1), proving(), engine(Config::default()));
    let class = rxkad::Client::local(&keys(), "user", Level::Auth).unwrap();
    let connection = client.connect(net.now, SERVER, SERVICE, &class).unwrap();
    let (mut echo, mut moved) = (Echo::default(), Vec::new());
    for round in 0..2 {
        let id = client.start(net.now, connection).unwrap().unwrap();
        client.send(id, [Slice::from(vec![0; 4])], true).unwrap();
        if round == 1 {
            client.transmit(net.now, &mut moved);
            break;
        }
        while client.take(id).is_ok_and(|read| !read.done) {
            net.step(&mut client, &mut server);
            echo.serve(&mut server);
        }
        client.finish(id);
    }
    let new = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 77), 9);
    let datagram = moved.iter().find(|d| Header::parse(&d.head).unwrap().0.kind == Kind::Data).unwrap();
    let (header, body) = (Header::parse(&datagram.head).unwrap().0, datagram.body.bytes());
    let mut forged = body.to_vec();
    forged[2] ^= 1;
    assert!(server.knows(new, &header));
    server.receive(net.now, new, &header, &mut forged);
    echo.serve(&mut server);
    assert!(sent(&mut server, net.now).iter().all(|(header, _)| header.call == 1));
    server.receive(net.now, new, &header, &mut body.to_vec());
    echo.serve(&mut server);
    let mut out = Vec::new();
    server.transmit(net.now, &mut out);
    assert!(!out.is_empty() && out.iter().all(|datagram| datagram.to == new));
    assert_eq!(peers(&server), [new]);
}

fn peers(engine: &Engine) -> Vec<SocketAddrV4> {
    (0..engine.debug_peers()).map(|index| engine.debug_peer(index).unwrap().address).collect()
}

/// Goal: a ticket that expires ends its connection with the code for that.
#[test]
fn an_expired_ticket_ends_the_connection() {
    let (mut net, mut server, mut client) = (Net::new(NONE, 1), proving(), engine(Config::default()));
    let class = rxkad::Client::local(&keys(), "user", Level::Clear).unwrap();
    let connection = client.connect(net.now, SERVER, SERVICE, &class).unwrap();
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![0; 4])], true).unwrap();
    let mut echo = Echo::default();
    while client.take(id).is_ok_and(|read| !read.done) {
        net.step(&mut client, &mut server);
        echo.serve(&mut server);
    }
    client.finish(id);
    // The tickets of `local` end in 2038.
    net.now = Time(500_000_000_000_000);
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![0; 4])], true).unwrap();
    let mut out = Vec::new();
    client.transmit(net.now, &mut out);
    let (header, body) = (Header::parse(&out[0].head).unwrap().0, out[0].body.bytes());
    server.receive(net.now, CLIENT, &header, &mut body.to_vec());
    let answers = sent(&mut server, net.now);
    let abort = answers.iter().find(|(header, _)| header.kind == Kind::Abort).unwrap();
    assert_eq!(abort_code(&abort.1).unwrap(), code::KAD_EXPIRED);
}

/// Goal: a good network carries a large reply at the speed of its window, without a time-out.
#[test]
fn a_good_network_is_used() {
    let took = calls(NONE, 1, &[(0, 4 << 20), (4 << 20, 0)]);
    // 64 packets of 1,412 bytes for each round trip of a millisecond, and slow start before.
    assert!(took < Duration::from_millis(160), "{took:?}");
}

/// A packet of a client to an engine.
fn packet(call: u32, seq: u32, flags: Flags, kind: Kind) -> Header {
    Header {
        epoch: 5,
        cid: 0x100,
        call,
        seq,
        serial: seq,
        kind,
        flags: flags.with(Flags::CLIENT),
        user_status: 0,
        security: 0,
        checksum: 0,
        service: SERVICE,
    }
}

fn sent(engine: &mut Engine, now: Time) -> Vec<(Header, Vec<u8>)> {
    let mut out = Vec::new();
    engine.transmit(now, &mut out);
    out.iter().map(|d| (Header::parse(&d.head).unwrap().0, d.body.bytes().to_vec())).collect()
}

fn events(engine: &mut Engine) -> Vec<Event> {
    std::iter::from_fn(|| engine.event()).collect()
}

/// An acknowledgement of nothing new, with this serial number.
fn echo_of(serial: u32, reason: Reason) -> Vec<u8> {
    let ack = Ack { first: 1, previous: 0, serial, reason, states: &[], max_mtu: None, window: None };
    ack.encode(&Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 })
}

/// A client answers a packet of the server, and so proves its address.
fn answer(server: &mut Engine, now: Time, from: SocketAddrV4, packet: &Header) {
    let header = Header { kind: Kind::Ack, flags: Flags::CLIENT, seq: 0, serial: 1, ..*packet };
    server.receive(now, from, &header, &mut echo_of(packet.serial, Reason::PING_RESPONSE));
}

/// A server with a client that has proved its address by its call 1, which is done.
fn acquainted(config: Config) -> Engine {
    let mut server = engine(config);
    request(&mut server, Time(1), 1);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.send(id, [Slice::from(vec![1])], true).unwrap();
    server.finish(id);
    let out = sent(&mut server, Time(1));
    answer(&mut server, Time(1), CLIENT, &out[0].0);
    assert_eq!(server.shared.totals[1].connections, 1);
    server
}

/// Sends a whole request of one packet.
fn request(engine: &mut Engine, now: Time, call: u32) {
    engine.receive(now, CLIENT, &packet(call, 1, Flags::LAST, Kind::Data), &mut [0; 4]);
}

/// Goal: a call that arrives while the channel's last one is served starts when that ends. It is
/// acknowledged, and no BUSY packet is sent.
#[test]
fn the_next_call_waits_for_the_program() {
    let mut server = engine(Config::default());
    request(&mut server, Time(1), 1);
    let [Event::Start(first)] = events(&mut server)[..] else { panic!("no call") };
    request(&mut server, Time(2), 2);
    assert_eq!(events(&mut server), [Event::Failed(first, code::USER_ABORT)]);
    assert!(server.send(first, [Slice::from(vec![1])], true).is_err());
    server.tick(Time(500_000));
    let acks = sent(&mut server, Time(500_000));
    assert!(acks.iter().all(|(header, _)| (header.kind, header.call) == (Kind::Ack, 2)), "{acks:?}");
    assert_eq!(acks.len(), 1);
    server.finish(first);
    let [Event::Start(second)] = events(&mut server)[..] else { panic!("no second call") };
    assert_eq!(second.number, 2);
}

/// Goal: a reply takes the place of the acknowledgement of its request.
#[test]
fn a_reply_is_all_that_is_sent() {
    let mut server = acquainted(Config::default());
    request(&mut server, Time(1), 2);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    assert!(server.take(id).unwrap().done);
    server.send(id, [Slice::from(vec![1, 2, 3, 4])], true).unwrap();
    server.finish(id);
    let out = sent(&mut server, Time(2));
    let [(header, body)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((header.kind, header.flags, header.seq), (Kind::Data, Flags::LAST, 1));
    assert_eq!(body[..], [1, 2, 3, 4]);
    // The next call ends this one. A late packet of it is of no interest.
    request(&mut server, Time(3), 3);
    request(&mut server, Time(4), 2);
    assert_eq!(events(&mut server).len(), 1);
}

/// Serves a call that arrived, and returns what leaves with the reply.
fn reply_of(server: &mut Engine) -> Vec<(Header, Vec<u8>)> {
    let [Event::Start(id)] = events(server)[..] else { panic!("no call") };
    assert!(server.take(id).unwrap().done);
    server.send(id, [Slice::from(vec![1])], true).unwrap();
    server.finish(id);
    sent(server, Time(2))
}

/// Goal: Linux's client measures the server by the acknowledgement that it requests with the end of
/// its request. It gets that before the reply, although the reply is ready at once.
#[test]
fn a_requested_acknowledgement_leaves_before_the_reply() {
    for packets in 1..=3 {
        let mut server = acquainted(Config::default());
        for seq in 1..=packets {
            let flags = if seq == packets { Flags::LAST.with(Flags::REQUEST_ACK) } else { Flags::default() };
            let header = Header { serial: 70 + seq, ..packet(2, seq, flags, Kind::Data) };
            server.receive(Time(1), CLIENT, &header, &mut [0; 4]);
        }
        let out = reply_of(&mut server);
        let [(first, body), (second, _)] = &out[..] else { panic!("{out:?}") };
        assert_eq!((first.kind, second.kind), (Kind::Ack, Kind::Data));
        assert!(first.serial < second.serial);
        let ack = Ack::parse(body).unwrap();
        assert_eq!((ack.reason, ack.serial, ack.first), (Reason::REQUESTED, 70 + packets, packets + 1));
        // Time adds no other one.
        server.tick(Time(450_000));
        assert!(sent(&mut server, Time(450_000)).iter().all(|(header, _)| header.kind == Kind::Data));
    }
}

/// Goal: the reply to an OpenAFS client is one datagram, however its request was sent. It does
/// request acknowledgements, but of packets before the last one.
#[test]
fn replies_to_openafs_are_all_that_is_sent() {
    let ask = Flags::REQUEST_ACK;
    for flags in [&[Flags::LAST][..], &[ask, Flags::LAST], &[Flags::default(), ask, Flags::LAST]] {
        let mut server = acquainted(Config::default());
        for (flags, seq) in flags.iter().zip(1..) {
            server.receive(Time(1), CLIENT, &packet(2, seq, *flags, Kind::Data), &mut [0; 4]);
        }
        let out = reply_of(&mut server);
        let [(header, _)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(header.kind, Kind::Data);
    }
}

/// Goal: Linux sends a reply again after some 20 ms. A client acknowledges it at once.
#[test]
fn a_reply_is_acknowledged_at_once() {
    let mut client = engine(Config::default());
    let connection = client.connect(Time(1), SERVER, SERVICE, &Null).unwrap();
    let id = client.start(Time(1), connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![1])], true).unwrap();
    let request = sent(&mut client, Time(1))[0].0;
    let reply = Header { serial: 9, flags: Flags::LAST, ..request };
    client.receive(Time(2), SERVER, &reply, &mut [7]);
    assert_eq!(events(&mut client), [Event::Readable(id)]);
    assert!(client.take(id).unwrap().done);
    client.finish(id);
    let out = sent(&mut client, Time(2));
    let [(header, body)] = &out[..] else { panic!("{out:?}") };
    let ack = Ack::parse(body).unwrap();
    assert_eq!((header.kind, ack.reason, ack.serial, ack.first), (Kind::Ack, Reason::DELAY, 9, 2));
}

/// Goal: packets that arrive together are acknowledged together.
#[test]
fn one_ack_answers_many_packets() {
    let mut server = engine(Config::default());
    for seq in 1..=10 {
        server.receive(Time(1), CLIENT, &packet(1, seq, Flags::default(), Kind::Data), &mut [0; 100]);
    }
    let out = sent(&mut server, Time(1));
    let [(header, body)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(header.kind, Kind::Ack);
    assert_eq!(Ack::parse(body).unwrap().first, 11);
}

/// Goal: what the sender must know is said at once: gaps, duplicates, what is beyond the window.
#[test]
fn gaps_and_duplicates_are_acknowledged_at_once() {
    let mut server = acquainted(Config::default());
    let mut ack = |seq| {
        server.receive(Time(1), CLIENT, &packet(2, seq, Flags::default(), Kind::Data), &mut [0; 8]);
        let out = sent(&mut server, Time(1));
        out.first().map(|(_, body)| {
            let ack = Ack::parse(body).unwrap();
            (ack.first, ack.reason, ack.states.to_vec())
        })
    };
    assert_eq!(ack(1), None);
    assert_eq!(ack(4), Some((2, Reason::OUT_OF_SEQUENCE, vec![0, 0, 1])));
    assert_eq!(ack(4), Some((2, Reason::DUPLICATE, vec![0, 0, 1])));
    assert_eq!(ack(1), Some((2, Reason::DUPLICATE, vec![0, 0, 1])));
    assert_eq!(ack(400), Some((2, Reason::EXCEEDS_WINDOW, vec![0, 0, 1])));
}

/// Goal: an unknown service or security class is answered by an abort, no larger than the packet.
#[test]
fn unknown_services_are_aborted() {
    let mut server = engine(Config::default());
    let data = packet(1, 1, Flags::LAST, Kind::Data);
    for header in [Header { service: 99, ..data }, Header { security: 2, ..data }] {
        server.receive(Time(1), CLIENT, &header, &mut [0; 4]);
        let out = sent(&mut server, Time(1));
        assert_eq!((out.len(), out[0].0.kind), (1, Kind::Abort));
        assert_eq!(abort_code(&out[0].1).unwrap(), code::INVALID_OPERATION);
    }
    assert_eq!((server.connections(), server.counts().refused_service), (0, 2));
}

/// Goal: an address that never acknowledged anything gets four packets at once, and three
/// repetitions, then nothing.
#[test]
fn strangers_get_little() {
    let mut server = engine(Config::default());
    request(&mut server, Time(1), 1);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.send(id, [Slice::from(vec![0; 1 << 20])], true).unwrap();
    server.finish(id);
    let (mut now, mut packets) = (Time(1), sent(&mut server, Time(1)).len());
    assert_eq!(packets, 4);
    while let Some(next) = server.timer().filter(|next| *next < Time(60_000_000)) {
        now = now.max(next);
        server.tick(now);
        packets += sent(&mut server, now).iter().filter(|(header, _)| header.kind == Kind::Data).count();
    }
    assert!(packets <= 4 + 3 * 2, "{packets}");
}

/// Goal: a peer that falls silent gets pings, and its call fails after the time for that.
#[test]
fn a_silent_peer_is_dead() {
    let (mut net, mut client) = (Net::new(NONE, 1), engine(Config::default()));
    let connection = client.connect(net.now, SERVER, SERVICE, &Null).unwrap();
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![1])], true).unwrap();
    let mut seen = Vec::new();
    sent(&mut client, net.now);
    while let Some(next) = client.timer() {
        net.now = net.now.max(next);
        client.tick(net.now);
        sent(&mut client, net.now);
        seen.extend(events(&mut client));
        if !seen.is_empty() {
            break;
        }
    }
    assert_eq!(seen, [Event::Failed(id, code::CALL_DEAD)]);
    assert!((12_000_000..13_000_000).contains(&net.now.0), "{:?}", net.now);
    assert!(client.counts().debug.pings > 2);
}

/// Goal: a server that works for a minute keeps its call by answering pings.
#[test]
fn a_slow_program_keeps_its_call() {
    let mut net = Net::new(NONE, 1);
    let (mut client, mut server) = (engine(Config::default()), engine(Config::default()));
    let connection = client.connect(net.now, SERVER, SERVICE, &Null).unwrap();
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![1; 4])], true).unwrap();
    let mut started = None;
    while net.now < Time(60_000_000) {
        assert!(net.step(&mut client, &mut server));
        assert_eq!(events(&mut client), []);
        started = started.or(events(&mut server).first().copied());
    }
    let Some(Event::Start(call)) = started else { panic!("no call") };
    server.send(call, [Slice::from(vec![2])], true).unwrap();
    while events(&mut client) != [Event::Readable(id)] {
        assert!(net.step(&mut client, &mut server));
    }
    assert_eq!(client.take(id).unwrap().bytes, [2]);
}

/// A connection of a stranger with an address of its own.
fn stranger(server: &mut Engine, n: u32, flags: Flags) {
    let from = SocketAddrV4::new(Ipv4Addr::from(0x0b00_0000 + n), 7001);
    let header = Header { cid: n << 2, ..packet(1, 1, flags, Kind::Data) };
    server.receive(Time(u64::from(n)), from, &header, &mut [0; 4]);
    sent(server, Time(u64::from(n)));
}

/// Goal: when there are too many connections, the oldest idle one makes room. One with a call does
/// not.
#[test]
fn connections_are_bounded() {
    let mut server = engine(Config { connections: 10, ..Config::default() });
    for n in 1..=1_000 {
        stranger(&mut server, n, Flags::LAST);
        for event in events(&mut server) {
            if let Event::Start(id) = event {
                server.send(id, [], true).unwrap();
                server.finish(id);
            }
        }
        assert!(server.connections() <= 10);
    }
    // Strangers have half of the places.
    assert_eq!((server.counts().evicted, server.connections()), (995, 5));
    let mut server = engine(Config { connections: 10, ..Config::default() });
    for n in 1..=20 {
        stranger(&mut server, n, Flags::LAST);
        events(&mut server);
    }
    assert_eq!((server.connections(), server.counts().refused_limit), (5, 15));
    let mut server = engine(Config { connections_per_host: 12, ..Config::default() });
    for n in 1..=9 {
        let header = Header { cid: n << 2, ..packet(1, 1, Flags::LAST, Kind::Data) };
        server.receive(Time(1), CLIENT, &header, &mut [0; 4]);
        events(&mut server);
    }
    assert_eq!((server.connections(), server.counts().refused_limit), (3, 6));
}

/// Bytes of memory that this process uses.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Goal: a million strangers open a connection each, half of them with a call that is served.
/// Memory stays within a limit, and a client that is known keeps its connection.
#[test]
fn a_million_connections() {
    for is_served in [true, false] {
        let mut server = acquainted(Config::default());
        let before = resident();
        for n in 1..=500_000 {
            stranger(&mut server, n, Flags::LAST);
            while let Some(event) = server.event() {
                if let Event::Start(id) = event
                    && is_served
                {
                    server.send(id, [], true).unwrap();
                    server.finish(id);
                }
            }
        }
        // Strangers have half of the places.
        let most = Config::default().connections / 2 + 1;
        assert_eq!((server.connections(), server.counts().debug.peers as usize), (most, most));
        assert!(resident().saturating_sub(before) < 256 << 20);
        request(&mut server, Time(500_000), 2);
        assert!(matches!(events(&mut server)[..], [Event::Start(_)]));
    }
}

/// Goal: the bytes of requests are bounded for an address and in all, and are given back.
#[test]
fn bytes_of_requests_are_bounded() {
    let config = Config { bytes: 30_000, bytes_per_host: 8_000, ..Config::default() };
    let mut server = engine(config);
    for n in 1..=100u32 {
        let from = SocketAddrV4::new(Ipv4Addr::from(0x0b00_0000 + n % 10), 7001);
        for seq in 1..=10 {
            let header = Header { cid: n << 2, ..packet(1, seq, Flags::default(), Kind::Data) };
            server.receive(Time(1), from, &header, &mut [0; 1000]);
        }
    }
    // Strangers have a quarter.
    assert!(server.bytes() <= 7_500 && server.bytes() >= 4_500, "{}", server.bytes());
    let mut now = Time(1);
    while let Some(next) = server.timer().filter(|next| *next < Time(700_000_000)) {
        now = now.max(next);
        server.tick(now);
        sent(&mut server, now);
    }
    assert_eq!((server.bytes(), server.connections()), (0, 0));
}

/// Goal: an acknowledgement of what was never sent, or of another call, changes nothing.
#[test]
fn impossible_acks_are_ignored() {
    let mut server = engine(Config::default());
    request(&mut server, Time(1), 1);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.send(id, [Slice::from(vec![0; 5_000])], true).unwrap();
    let out = sent(&mut server, Time(1));
    assert_eq!(out.len(), 4);
    let trailer = Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 };
    for (call, first) in [(1, 6), (1, u32::MAX), (1, 0), (2, 5)] {
        let ack = Ack {
            first,
            previous: 0,
            serial: out[3].0.serial,
            reason: Reason::IDLE,
            states: &[1; 255],
            max_mtu: None,
            window: None,
        };
        let mut body = ack.encode(&trailer);
        server.receive(Time(2), CLIENT, &packet(call, 0, Flags::default(), Kind::Ack), &mut body);
    }
    // When time passes, the last packet is a probe. Then all four are repeated, two at a time.
    let again = |server: &mut Engine, time| {
        server.tick(time);
        let out = sent(server, time);
        let data = out.iter().filter(|(header, _)| header.kind == Kind::Data);
        data.map(|(header, _)| header.seq).collect::<Vec<_>>()
    };
    assert_eq!(again(&mut server, Time(2_000_000)), [4]);
    assert_eq!(again(&mut server, Time(4_000_000)), [1, 2]);
}

/// Goal: an abort of the client reaches the program, and one of the program reaches the client,
/// also when the client's packet comes late.
#[test]
fn aborts_pass_both_ways() {
    let mut server = engine(Config::default());
    request(&mut server, Time(1), 1);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    let abort = packet(1, 0, Flags::default(), Kind::Abort);
    server.receive(Time(2), CLIENT, &abort, &mut 42i32.to_be_bytes());
    assert_eq!(events(&mut server), [Event::Failed(id, 42)]);
    server.finish(id);
    request(&mut server, Time(3), 2);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.abort(id, -455);
    for round in 0..20 {
        let out = sent(&mut server, Time(4));
        assert_eq!(out.len(), usize::from(round < 9), "{round}");
        request(&mut server, Time(4), 2);
    }
}

/// Goal: the last bytes are not lost when they waited for the program to read.
#[test]
fn what_waited_for_room_is_read() {
    let mut server = acquainted(Config::default());
    let whole = (256 << 10) / 1_412 + 10;
    for seq in 1..=whole {
        let flags = if seq == whole { Flags::LAST } else { Flags::default() };
        server.receive(Time(1), CLIENT, &packet(2, seq, flags, Kind::Data), &mut [0; 1_412]);
        sent(&mut server, Time(1));
    }
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    let (first, second) = (server.take(id).unwrap(), server.take(id).unwrap());
    assert_eq!((first.done, second.done), (false, true));
    assert_eq!(first.bytes.len() + second.bytes.len(), whole as usize * 1_412);
}

/// Goal: the sender stops while the program reads nothing, and goes on when it reads.
#[test]
fn a_program_that_does_not_read_stops_the_sender() {
    let mut net = Net::new(NONE, 1);
    let (mut client, mut server) = (engine(Config::default()), engine(Config::default()));
    let connection: ConnectionRef = client.connect(net.now, SERVER, SERVICE, &Null).unwrap();
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(pattern(2 << 20, 3))], true).unwrap();
    for _ in 0..2_000 {
        net.step(&mut client, &mut server);
    }
    let held = server.bytes();
    assert_eq!(client.counts().debug.resent, 0);
    assert!((256 << 10..512 << 10).contains(&held), "{held}");
    let Some(Event::Start(call)) = events(&mut server).first().copied() else { panic!("no call") };
    let mut got = Vec::new();
    loop {
        let read = server.take(call).unwrap();
        got.extend(read.bytes);
        if read.done {
            break;
        }
        assert!(net.step(&mut client, &mut server));
    }
    assert!(got == pattern(2 << 20, 3));
}
