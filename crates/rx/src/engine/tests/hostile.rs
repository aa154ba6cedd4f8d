//! Forgers, and clients that stall.

use super::shares::check_shares;
use super::*;
use crate::engine::random::Random;

/// An address of its own for each number.
pub(super) fn host(n: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(0x0b00_0000 + n), 7001)
}

/// A packet of the connection with this number.
pub(super) fn of(connection: u32, call: u32, seq: u32, flags: Flags) -> Header {
    Header { cid: connection << 2, ..packet(call, seq, flags, Kind::Data) }
}

/// A proven connection of a host, whose call 1 is done.
pub(super) fn known(server: &mut Engine, now: Time, from: SocketAddrV4, connection: u32) {
    server.receive(now, from, &of(connection, 1, 1, Flags::LAST), &mut [0; 4]);
    let started = events(server);
    let Some(Event::Start(id)) = started.last().copied() else { panic!("no call: {started:?}") };
    server.send(id, [Slice::from(vec![1])], true).unwrap();
    server.finish(id);
    let reply = sent(server, now).into_iter().find(|(header, _)| header.cid == connection << 2);
    answer(server, now, from, &reply.expect("there is a reply").0);
}

/// Goal: a large request starts no program before its client has shown that it receives packets. A
/// ping requests that, and its answer is enough.
#[test]
fn incomplete_requests_of_strangers_start_nothing() {
    let mut server = engine(Config::default());
    let mut out = Vec::new();
    for seq in 1..=20 {
        server.receive(Time(1), CLIENT, &packet(1, seq, Flags::default(), Kind::Data), &mut [0; 1_412]);
        out.extend(sent(&mut server, Time(1)));
    }
    assert_eq!(events(&mut server), []);
    let (ping, body) = out.last().unwrap();
    assert_eq!((ping.kind, Ack::parse(body).unwrap().reason), (Kind::Ack, Reason::PING));
    answer(&mut server, Time(2), CLIENT, ping);
    assert!(matches!(events(&mut server)[..], [Event::Start(_)]));
}

/// Goal: no acknowledgement of a forger proves an address: it must echo a number that was sent.
/// Those without one move nothing, so a forger can't have a reply sent to its victim.
#[test]
fn blind_acks_prove_nothing() {
    let mut server = engine(Config::default());
    request(&mut server, Time(1), 1);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.send(id, [Slice::from(vec![0; 1 << 20])], true).unwrap();
    server.finish(id);
    let out = sent(&mut server, Time(1));
    let serials: Vec<u32> = out.iter().map(|(header, _)| header.serial).collect();
    assert!(serials[0] > 1_000, "serial numbers begin at a number that can be guessed: {serials:?}");
    let trailer = Trailer { max_mtu: 1444, if_mtu: 1444, window: 255, jumbo: 1 };
    for (serial, reason) in [
        (0, Reason::DELAY),
        (1, Reason::IDLE),
        (4, Reason::REQUESTED),
        (serials[0].wrapping_sub(1), Reason::IDLE),
        (serials[3] + 1, Reason::PING_RESPONSE),
    ] {
        for first in 2..=5 {
            let ack = Ack { first, previous: 4, serial, reason, states: &[], max_mtu: None, window: None };
            let header = packet(1, 0, Flags::default(), Kind::Ack);
            server.receive(Time(2), CLIENT, &header, &mut ack.encode(&trailer));
        }
    }
    let all = packet(1, 0, Flags::default(), Kind::AckAll);
    server.receive(Time(2), CLIENT, &all, &mut []);
    assert_eq!((sent(&mut server, Time(2)).len(), server.shared.totals[1].connections), (0, 0));
    // The real client answers what the last packet requests.
    assert!(out[3].0.flags.has(Flags::REQUEST_ACK));
    let ack = Ack {
        first: 5,
        previous: 4,
        serial: serials[3],
        reason: Reason::REQUESTED,
        states: &[],
        max_mtu: None,
        window: None,
    };
    let header = packet(1, 0, Flags::default(), Kind::Ack);
    server.receive(Time(3), CLIENT, &header, &mut ack.encode(&trailer));
    assert_eq!(server.shared.totals[1].connections, 1);
    assert!(sent(&mut server, Time(3)).len() > 4);
}

/// Goal: a packet that says that everything arrived, and echoes nothing, ends no reply to a
/// stranger.
#[test]
fn a_blind_ack_of_all_ends_nothing() {
    let mut server = engine(Config::default());
    request(&mut server, Time(1), 1);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.send(id, [Slice::from(vec![0; 9])], true).unwrap();
    server.finish(id);
    let out = sent(&mut server, Time(1));
    let all = packet(1, 0, Flags::default(), Kind::AckAll);
    server.receive(Time(2), CLIENT, &all, &mut []);
    assert_eq!(server.counts().debug.calls, 1);
    answer(&mut server, Time(3), CLIENT, &out[0].0);
    server.receive(Time(4), CLIENT, &all, &mut []);
    assert_eq!(server.counts().debug.calls, 0);
}

/// Goal: what one connection has proved helps no forger that names the same address and port.
#[test]
fn proof_is_of_a_connection() {
    let mut server = acquainted(Config::default());
    server.receive(Time(2), CLIENT, &of(0x77, 1, 1, Flags::LAST), &mut [0; 4]);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.send(id, [Slice::from(vec![0; 1 << 20])], true).unwrap();
    assert_eq!(sent(&mut server, Time(2)).len(), 4);
}

/// Drives an engine whose client has a call, and does something each second. Returns how many
/// seconds the call lives.
fn lives(server: &mut Engine, mut each: impl FnMut(&mut Engine, Time, u32)) -> u32 {
    for second in 1..400 {
        let now = Time(1 + u64::from(second) * 1_000_000);
        each(server, now, second);
        server.tick(now);
        sent(server, now);
        if server.shared.totals[1].calls == 0 {
            return second;
        }
    }
    400
}

/// Goal: a request that trickles in is ended after a while, though its client is never silent. One
/// that comes at a slow line's speed is not.
#[test]
fn a_trickling_request_is_ended() {
    for (bytes, range) in [(10, 55..70), (1_400, 80..100), (8_192, 400..401)] {
        let mut server = acquainted(Config::default());
        let lived = lives(&mut server, |server, now, second| {
            let header = packet(2, second, Flags::default(), Kind::Data);
            server.receive(now, CLIENT, &header, &mut vec![0; bytes]);
            for event in events(server) {
                let (Event::Start(id) | Event::Readable(id)) = event else { continue };
                let _ = server.take(id);
            }
        });
        assert!(range.contains(&lived), "{bytes} bytes a second: {lived}");
    }
}

/// Goal: a client that takes a reply too slowly loses it. A program that is slow does not.
#[test]
fn a_slow_reader_is_ended() {
    let mut server = acquainted(Config::default());
    request(&mut server, Time(1), 2);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.send(id, [Slice::from(vec![0; 4 << 20])], false).unwrap();
    let header = packet(2, 0, Flags::default(), Kind::Ack);
    let ping = |server: &mut Engine, now| {
        let mut body = echo_of(0, Reason::PING);
        server.receive(now, CLIENT, &header, &mut body);
    };
    let lived = lives(&mut server, |server, now, _| ping(server, now));
    assert!((55..70).contains(&lived), "{lived}");
    assert_eq!(events(&mut server), [Event::Failed(id, code::CALL_TIMEOUT)]);
    let mut server = acquainted(Config::default());
    request(&mut server, Time(1), 2);
    assert_eq!(events(&mut server).len(), 1);
    assert_eq!(lives(&mut server, |server, now, _| ping(server, now)), 400);
}

/// Goal: a program may allow its client more time.
#[test]
fn a_program_has_more_patience() {
    let mut server = acquainted(Config::default());
    for seq in 1..=20 {
        server.receive(Time(1), CLIENT, &packet(2, seq, Flags::default(), Kind::Data), &mut [0; 1_412]);
    }
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.take(id).unwrap();
    server.set_patience(id, Duration::from_secs(200));
    let header = packet(2, 0, Flags::default(), Kind::Ack);
    let lived = lives(&mut server, |server, now, _| {
        server.receive(now, CLIENT, &header, &mut echo_of(0, Reason::PING));
    });
    assert!((195..210).contains(&lived), "{lived}");
}

/// Goal: a program that sends a little each second keeps its call, though its client acknowledges
/// each part late.
#[test]
fn late_acks_of_small_parts_do_not_add_up() {
    let mut server = acquainted(Config::default());
    request(&mut server, Time(1), 2);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    assert!(server.take(id).unwrap().done);
    let trailer = Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 };
    let lived = lives(&mut server, |server, now, second| {
        let acked = Time(now.0 - 100_000);
        let ack = Ack { first: second, ..Ack::parse(&echo_of(0, Reason::DELAY)).unwrap() }.encode(&trailer);
        let header = packet(2, 0, Flags::default(), Kind::Ack);
        server.tick(acked);
        server.receive(acked, CLIENT, &header, &mut ack.clone());
        sent(server, acked);
        server.send(id, [Slice::from(vec![0; 1_412])], false).unwrap();
    });
    assert_eq!(lived, 400);
}

/// A proven client by rxkad with a done call, and the first packet of its next call.
pub(super) fn recorded(level: Level) -> (Engine, Engine, ConnectionRef, Net) {
    let (mut net, mut server, mut client) = (Net::new(NONE, 1), proving(), engine(Config::default()));
    let class = rxkad::Client::local(&keys(), "user", level).unwrap();
    let connection = client.connect(net.now, SERVER, SERVICE, &class).unwrap();
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![0; 4])], true).unwrap();
    let mut echo = Echo::default();
    while client.take(id).is_ok_and(|read| !read.done) {
        net.step(&mut client, &mut server);
        echo.serve(&mut server);
    }
    client.finish(id);
    (client, server, connection, net)
}

/// Goal: a client that moves with all that it holds is a stranger at its new address, and exceeds
/// their part no more than any other: older ones make room.
#[test]
fn a_move_exceeds_no_share() {
    let (mut client, mut server, connection, net) = recorded(Level::Auth);
    (server.config.bytes, server.config.bytes_per_host) = (200_000, 200_000);
    for n in 1..=8 {
        server.receive(net.now, host(n), &of(n, 1, 2, Flags::default()), &mut [0; 5_000]);
    }
    assert!(server.shared.totals[0].requests > 40_000);
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![0; 20_000])], true).unwrap();
    let packets = data(&mut client, net.now);
    let (last, held) = packets.split_last().unwrap();
    for (header, body) in held {
        server.receive(net.now, CLIENT, header, &mut body.clone());
    }
    server.receive(net.now, host(77), &last.0, &mut last.1.clone());
    assert!(peers(&server).contains(&host(77)) && !peers(&server).contains(&CLIENT));
    assert!(server.shared.totals[0].requests <= 50_000, "{:?}", server.shared.totals[0]);
    check_shares(&server);
}

/// The data packets that a client sends now.
fn data(client: &mut Engine, now: Time) -> Vec<(Header, Vec<u8>)> {
    sent(client, now).into_iter().filter(|(header, _)| header.kind == Kind::Data).collect()
}

/// Goal: a packet that was recorded moves no connection, at any level. At the level clear, not even
/// a new one does: it is a new connection, which is challenged.
#[test]
fn a_replay_moves_nothing() {
    let thief = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 66), 9);
    for level in [Level::Clear, Level::Auth, Level::Crypt] {
        let (mut client, mut server, connection, net) = recorded(level);
        let id = client.start(net.now, connection).unwrap().unwrap();
        client.send(id, [Slice::from(vec![0; 3_000])], true).unwrap();
        let packets = data(&mut client, net.now);
        let serial = server.debug_connection(0, true).unwrap().serial;
        let (header, body) = &packets[0];
        server.receive(net.now, CLIENT, header, &mut body.clone());
        // The same packet again, and one of the call before.
        server.receive(net.now, thief, header, &mut body.clone());
        let old = Header { call: header.call - 1, ..*header };
        server.receive(net.now, thief, &old, &mut body.clone());
        assert!(peers(&server).contains(&CLIENT), "{level:?}");
        let mut out = Vec::new();
        server.transmit(net.now, &mut out);
        let kinds = |datagram: &Datagram| Header::parse(&datagram.head).unwrap().0.kind;
        let to_thief: Vec<_> = out.iter().filter(|d| d.to == thief).map(kinds).collect();
        // A challenge is what any address gets.
        assert!(to_thief.iter().all(|kind| *kind == Kind::Challenge), "{level:?} {to_thief:?}");
        // The second packet is new: it moves the connection where the seal is worth something.
        let (header, body) = &packets[1];
        server.receive(net.now, thief, header, &mut body.clone());
        assert_eq!(!peers(&server).contains(&CLIENT), level > Level::Clear, "{level:?}");
        assert_eq!(server.shared.totals[1].connections, usize::from(level == Level::Clear));
        // What was sent to the old address proves nothing of the new one.
        let before = Header { kind: Kind::Ack, seq: 0, ..*header };
        server.receive(net.now, thief, &before, &mut echo_of(serial, Reason::REQUESTED));
        assert_eq!(server.shared.totals[1].connections, usize::from(level == Level::Clear));
    }
}

/// Goal: a response has the number of the next call, where the client has the whole reply, and that
/// of the present call elsewhere.
#[test]
fn a_response_has_the_next_numbers() {
    let (mut client, mut server, connection, net) = recorded(Level::Clear);
    let id = client.start(net.now, connection).unwrap().unwrap();
    assert_eq!((id.channel, id.number), (0, 2));
    let other = client.start(net.now, connection).unwrap().unwrap();
    assert_eq!((other.channel, other.number), (1, 1));
    client.finish(id);
    let channels = &client.slots[connection.slot as usize].connection.as_ref().unwrap().channels;
    let numbers = channels.each_ref().map(crate::engine::input::next_call);
    assert_eq!(numbers, [3, 1, 0, 0]);
    // The server takes that number, and none before it.
    let server_channel = |server: &Engine| {
        let connection = server.slots.iter().find_map(|slot| slot.connection.as_ref()).unwrap();
        connection.channels[0].number
    };
    assert_eq!(server_channel(&server), 1);
    client.send(other, [Slice::from(vec![0; 4])], true).unwrap();
    let packets = data(&mut client, net.now);
    // After a restart of the server, the client is challenged and says where it is.
    server = proving();
    let (header, body) = packets.last().unwrap();
    server.receive(net.now, CLIENT, header, &mut body.clone());
    let challenge = sent(&mut server, net.now).remove(0);
    client.receive(net.now, SERVER, &challenge.0, &mut challenge.1.clone());
    let response = sent(&mut client, net.now).into_iter().find(|(h, _)| h.kind == Kind::Response).unwrap();
    server.receive(net.now, CLIENT, &response.0, &mut response.1.clone());
    assert_eq!(server_channel(&server), 2);
    assert!(matches!(events(&mut server)[..], [Event::Start(CallId { channel: 1, number: 1, .. })]));
}

/// Goal: the clock of tickets is the present one, whatever it was at the start.
#[test]
fn the_clock_may_change() {
    let (mut client, mut server, connection, net) = recorded(Level::Clear);
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![0; 4])], true).unwrap();
    let (header, body) = data(&mut client, net.now).remove(0);
    // The ticket ends in 2038, at this second. Clocks may differ by a quarter of an hour.
    server.set_clock(net.now, 0x7fff_ffff + 900);
    server.receive(net.now, CLIENT, &header, &mut body.clone());
    assert!(matches!(events(&mut server)[..], [Event::Start(_)]));
    server.set_clock(net.now, 0x7fff_ffff + 901);
    server.receive(net.now, CLIENT, &header, &mut body.clone());
    let aborts = sent(&mut server, net.now);
    let abort = aborts.iter().find(|(header, _)| header.kind == Kind::Abort).expect("an abort");
    assert_eq!(abort_code(&abort.1).unwrap(), code::KAD_EXPIRED);
}

/// Goal: the list of timers has one entry for each connection, however much traffic there is.
#[test]
fn timers_do_not_pile_up() {
    let mut server = acquainted(Config::default());
    let mut now = Time(1);
    for call in 2..500 {
        request(&mut server, now, call);
        for event in events(&mut server) {
            if let Event::Start(id) = event {
                server.send(id, [Slice::from(vec![1])], true).unwrap();
                server.finish(id);
            }
        }
        // Then nothing is due until the connection is idle for long.
        let serial = sent(&mut server, now)[0].0.serial;
        let ack = Ack { first: 2, ..Ack::parse(&echo_of(serial, Reason::REQUESTED)).unwrap() }
            .encode(&Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 });
        let header = packet(call, 0, Flags::default(), Kind::Ack);
        server.receive(now, CLIENT, &header, &mut ack.clone());
        sent(&mut server, now);
        now = Time(now.0 + 1_000_000);
        server.tick(now);
    }
    assert_eq!((server.timer_entries(), server.connections()), (1, 1));
}

/// Goal: when the program ends, each call that goes on is aborted with the code for that, at both
/// ends, and new ones are refused. A reply that was given whole stays.
#[test]
fn the_end_aborts_calls() {
    let mut server = acquainted(Config::default());
    request(&mut server, Time(2), 2);
    let [Event::Start(running)] = events(&mut server)[..] else { panic!("no call") };
    server.receive(Time(2), host(1), &of(9, 1, 1, Flags::default()), &mut [0; 4]);
    let own = server.connect(Time(2), SERVER, SERVICE, &Null).unwrap();
    let call = server.start(Time(2), own).unwrap().unwrap();
    server.send(call, [Slice::from(vec![1])], true).unwrap();
    sent(&mut server, Time(2));
    server.shut_down();
    let mut out = Vec::new();
    server.transmit(Time(3), &mut out);
    let aborts: Vec<SocketAddrV4> = out
        .iter()
        .filter(|datagram| Header::parse(&datagram.head).unwrap().0.kind == Kind::Abort)
        .inspect(|datagram| assert_eq!(abort_code(datagram.body.bytes()).unwrap(), code::RESTARTING))
        .map(|datagram| datagram.to)
        .collect();
    assert_eq!(aborts.len(), 3);
    assert!([CLIENT, host(1), SERVER].iter().all(|to| aborts.contains(to)), "{aborts:?}");
    let failed = events(&mut server);
    assert!([running, call].iter().all(|id| failed.contains(&Event::Failed(*id, code::RESTARTING))));
    request(&mut server, Time(4), 3);
    server.receive(Time(4), host(2), &of(10, 1, 1, Flags::LAST), &mut [0; 4]);
    let refused = sent(&mut server, Time(4));
    assert!(refused.iter().all(|(header, body)| {
        header.kind == Kind::Abort && abort_code(body).unwrap() == code::RESTARTING
    }));
    assert_eq!((refused.len(), events(&mut server)), (2, vec![]));
    assert!(server.start(Time(5), own).is_err() && server.connect(Time(5), SERVER, 1, &Null).is_err());
}

/// Goal: numbers of the system don't repeat, also over many fetches, and two engines share none.
#[test]
fn random_numbers_do_not_repeat() {
    let (mut one, mut two) = (Random::new(Source::System), Random::new(Source::System));
    let mut all: Vec<u64> = (0..4_000)
        .map(|at| {
            let random = if at % 2 == 0 { &mut one } else { &mut two };
            u64::from(random.next().unwrap()) << 32 | u64::from(random.next().unwrap())
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4_000);
    let cid = |source| {
        let mut engine = engine(Config { random: source, ..Config::default() });
        engine.connect(Time(1), SERVER, SERVICE, &Null).unwrap();
        engine.debug_connection(0, true).unwrap().cid
    };
    assert_ne!(cid(Source::Seed(1)), cid(Source::Seed(2)));
    assert_eq!(cid(Source::Seed(1)), cid(Source::Seed(1)));
}
