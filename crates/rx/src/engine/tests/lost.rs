//! Programs that are killed and started again amid calls, and what must not be taken for that.

use super::*;

/// The window of a new call, in packets.
const WINDOW: u32 = 64;

/// What a test restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    Server,
    Client,
}

/// A call of many bytes each way, whose server or client is replaced when it has come so far.
#[derive(Debug)]
struct Broken {
    request: usize,
    reply: usize,
    /// Bytes of the request or of the reply that have arrived before.
    after: usize,
    who: Restart,
}

/// Breaks a call. Returns with which code it failed at the end that lives on, and how long that
/// took.
fn broken(class: &dyn Class, faults: Faults, seed: u64, call: &Broken) -> (i32, Duration) {
    let mut net = Net::new(faults, seed);
    let (mut client, mut server) = (engine(Config::default()), proving());
    let connection = client.connect(net.now, SERVER, SERVICE, class).unwrap();
    let id = client.start(net.now, connection).unwrap().unwrap();
    let body = [&(call.reply as u32).to_be_bytes()[..], &pattern(call.request, 3)].concat();
    client.send(id, [Slice::from(body)], true).unwrap();
    let (mut program, mut sent, mut arrived, mut since) = (None, false, [0, 0], None);
    loop {
        assert!(net.step(&mut client, &mut server), "nothing happens any more");
        assert!(net.now < Time(100_000_000), "the call is not ended: {arrived:?}");
        for event in events(&mut server) {
            match event {
                Event::Start(of) | Event::Readable(of) => {
                    program = Some(of);
                    let read = server.take(of).unwrap();
                    arrived[0] += read.bytes.len();
                    if read.done && !sent {
                        server.send(of, [Slice::from(pattern(call.reply, 7))], true).unwrap();
                        sent = true;
                    }
                }
                Event::Failed(of, code) if since.is_some() => {
                    assert_eq!((Some(of), call.who), (program, Restart::Client));
                    return (code, net.now.since(since.unwrap()));
                }
                Event::Failed(..) => panic!("{event:?}"),
                _ => {}
            }
        }
        for event in events(&mut client) {
            match event {
                Event::Readable(_) => arrived[1] += client.take(id).unwrap().bytes.len(),
                Event::Failed(_, code) => {
                    assert!(since.is_some() && call.who == Restart::Server);
                    return (code, net.now.since(since.unwrap()));
                }
                _ => {}
            }
        }
        let far = if call.reply > 0 { arrived[1] } else { arrived[0] } > call.after;
        if far && since.is_none() {
            since = Some(net.now);
            match call.who {
                Restart::Server => server = proving(),
                Restart::Client => client = engine(Config { epoch: 7, ..Config::default() }),
            }
        }
    }
}

fn classes() -> Vec<Box<dyn Class>> {
    let sealed = |level| Box::new(rxkad::Client::local(&keys(), "user", level).unwrap());
    vec![Box::new(Null), sealed(Level::Clear), sealed(Level::Crypt)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Goal: a client that sends a large request learns that its server was started again, over a
    /// bad network too, however far it is.
    #[test]
    fn a_restarted_server_ends_requests(
        seed: u64,
        loss in 0u64..10,
        double in 0u64..15,
        late in 0u64..40,
        after in prop::sample::select(vec![40_000usize, 80_000, 200_000, 900_000]),
    ) {
        for class in classes() {
            let call = Broken { request: 2_000_000, reply: 0, after, who: Restart::Server };
            let (code, took) = broken(&*class, Faults { loss, double, late }, seed, &call);
            prop_assert_eq!(code, code::RESTARTING);
            prop_assert!(took < Duration::from_secs(30), "{:?}", took);
        }
    }

    /// Goal: the same of a client that has a part of a reply, and only acknowledges; and of a
    /// server whose client was started again, at either half of a call.
    #[test]
    fn a_restart_ends_replies_and_calls(
        seed: u64,
        loss in 0u64..10,
        late in 0u64..40,
        server in prop::bool::ANY,
        replies in prop::bool::ANY,
    ) {
        let who = if server { Restart::Server } else { Restart::Client };
        let (request, reply) = if server || replies { (0, 2_000_000) } else { (2_000_000, 0) };
        for class in classes() {
            let call = Broken { request, reply, after: 100_000, who };
            let (code, took) = broken(&*class, Faults { loss, late, double: 0 }, seed, &call);
            prop_assert_eq!(code, code::RESTARTING);
            prop_assert!(took < Duration::from_secs(30), "{:?}", took);
        }
    }
}

/// Goal: over a good network, a peer learns of a restart at its next packet beyond the first
/// window, or at its next ping. Inside of the first window it takes as long as a first packet may.
#[test]
fn a_restart_is_known_soon() {
    let request = Broken { request: 2_000_000, reply: 0, after: 200_000, who: Restart::Server };
    for (call, millis) in [
        (Broken { after: 40_000, ..request }, 5_500),
        (Broken { request: 0, reply: 2_000_000, ..request }, 2_100),
        (Broken { request: 0, reply: 2_000_000, who: Restart::Client, ..request }, 1_100),
        (Broken { who: Restart::Client, ..request }, 2_100),
        (request, 600),
    ] {
        for class in classes() {
            let (code, took) = broken(&*class, NONE, 1, &call);
            assert_eq!(code, code::RESTARTING);
            assert!(took < Duration::from_millis(millis), "{call:?}: {took:?}");
        }
    }
}

/// The aborts among what leaves: the call and the code of each.
fn aborts(server: &mut Engine, now: Time) -> Vec<(u32, i32)> {
    let out = sent(server, now);
    let aborts = out.iter().filter(|(header, _)| header.kind == Kind::Abort);
    aborts.map(|(header, body)| (header.call, abort_code(body).unwrap())).collect()
}

/// Lets time pass up to a moment. Returns the aborts that left.
fn pass(server: &mut Engine, until: Time) -> Vec<(u32, i32)> {
    let mut all = Vec::new();
    while let Some(next) = server.timer().filter(|next| *next <= until) {
        server.tick(next);
        all.extend(aborts(server, next));
    }
    all
}

fn data(server: &mut Engine, now: Time, call: u32, seq: u32, flags: Flags) {
    server.receive(now, CLIENT, &packet(call, seq, flags, Kind::Data), &mut [0; 8]);
}

/// Goal: the first packet of a call may come seconds after all others of its window, on a new
/// connection as on a known one.
#[test]
fn a_late_first_packet_begins_a_call() {
    for (mut server, call) in [(engine(Config::default()), 1), (acquainted(Config::default()), 2)] {
        let begun = Time(10_000_000);
        for seq in (2..=WINDOW).rev() {
            let flags = if seq == WINDOW { Flags::LAST } else { Flags::default() };
            data(&mut server, begun, call, seq, flags);
        }
        assert_eq!(aborts(&mut server, begun), []);
        let late = begun.after(Duration::from_millis(4_900));
        assert_eq!(pass(&mut server, late), []);
        data(&mut server, late, call, 1, Flags::default());
        let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
        assert_eq!(server.take(id).unwrap().bytes.len(), 8 * WINDOW as usize);
        assert_eq!(pass(&mut server, late.after(Duration::from_secs(10))), []);
        assert!(server.info(id).is_some());
    }
}

/// Goal: a call without its first packet is ended after a while, once. Its later packets get the
/// abort again, and a new call of the channel is served.
#[test]
fn a_call_without_its_first_packet_is_ended() {
    let mut server = acquainted(Config::default());
    for seq in 40..50 {
        data(&mut server, Time(10_000_000), 2, seq, Flags::default());
    }
    assert_eq!(pass(&mut server, Time(14_999_999)), []);
    assert_eq!(pass(&mut server, Time(30_000_000)), [(2, code::RESTARTING)]);
    assert_eq!((server.bytes(), server.counts().debug.calls), (0, 0));
    data(&mut server, Time(30_000_000), 2, 41, Flags::default());
    assert_eq!(aborts(&mut server, Time(30_000_000)), [(2, code::RESTARTING)]);
    request(&mut server, Time(30_000_001), 3);
    assert!(matches!(events(&mut server)[..], [Event::Start(_)]));
}

/// Goal: a packet beyond the window of a new call ends the call at once, also if packets inside of
/// the window came before.
#[test]
fn what_no_new_call_sends_ends_a_call() {
    let mut server = acquainted(Config::default());
    data(&mut server, Time(5), 2, WINDOW, Flags::default());
    assert_eq!(aborts(&mut server, Time(5)), []);
    data(&mut server, Time(5), 2, WINDOW + 1, Flags::default());
    assert_eq!(aborts(&mut server, Time(5)), [(2, code::RESTARTING)]);
    assert_eq!((server.bytes(), server.counts().debug.calls), (0, 0));
    // What is left of its window gets the abort again, and not for ever.
    for round in 0..20 {
        data(&mut server, Time(6), 3, WINDOW + 1 + round, Flags::default());
        let expected = if round <= 8 { vec![(3, code::RESTARTING)] } else { Vec::new() };
        assert_eq!(aborts(&mut server, Time(6)), expected, "{round}");
    }
}

/// Goal: packets that a known call explains abort nothing: those of finished and older calls, and
/// those beyond the window of a call that has its first packet.
#[test]
fn known_calls_are_not_lost() {
    let mut server = acquainted(Config::default());
    for seq in [1, WINDOW, WINDOW + 1, 9_000] {
        data(&mut server, Time(5), 1, seq, Flags::default());
    }
    data(&mut server, Time(5), 2, 1, Flags::default());
    for (call, seq) in [(2, WINDOW + 2), (2, 9_000), (1, 9_000), (3, 9_000)] {
        data(&mut server, Time(5), call, seq, Flags::default());
    }
    let ack = packet(3, 0, Flags::default(), Kind::Ack);
    server.receive(Time(5), CLIENT, &ack, &mut ack_up_to(9, Reason::PING));
    assert_eq!(aborts(&mut server, Time(5)), []);
    data(&mut server, Time(6), 2, 2, Flags::LAST);
    assert!(matches!(events(&mut server)[..], [Event::Start(_)]));
}

/// An acknowledgement of all packets before one.
fn ack_up_to(first: u32, reason: Reason) -> Vec<u8> {
    let ack = Ack { first, previous: 0, serial: 1, reason, states: &[], max_mtu: None, window: None };
    ack.encode(&Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 })
}

/// Goal: of packets without a connection, those of old calls get an abort for the end that sent
/// them, no larger than they are. A ping of a call without a reply, and an abort, get none.
#[test]
fn packets_without_a_connection() {
    let (client, server) = (Flags::CLIENT, Flags::default());
    let abort = 7i32.to_be_bytes().to_vec();
    for (kind, flags, call, body, answered) in [
        (Kind::Ack, client, 5, ack_up_to(2, Reason::DELAY), true),
        (Kind::Ack, client, 5, ack_up_to(1, Reason::PING), false),
        (Kind::Ack, client, 0, ack_up_to(2, Reason::PING), false),
        (Kind::Ack, client, 5, vec![0; 4], false),
        (Kind::Ack, server, 5, ack_up_to(1, Reason::PING), true),
        (Kind::Data, server, 5, vec![0; 4], true),
        (Kind::Data, server, 5, vec![0; 3], false),
        (Kind::Abort, server, 5, abort.clone(), false),
        (Kind::Abort, client, 5, abort, false),
        (Kind::Busy, server, 5, vec![0; 40], false),
        (Kind::Challenge, server, 5, vec![0; 40], false),
    ] {
        let mut engine = engine(Config::default());
        let header = Header { flags, ..packet(call, 9, flags, kind) };
        engine.receive(Time(5), CLIENT, &header, &mut body.clone());
        let out = sent(&mut engine, Time(5));
        assert_eq!(out.len(), usize::from(answered), "{kind:?} {flags:?} {body:?}");
        for (answer, code) in out {
            assert_eq!(abort_code(&code).unwrap(), code::RESTARTING);
            assert_eq!((answer.kind, answer.call, answer.cid), (Kind::Abort, call, header.cid));
            assert_eq!(answer.flags.has(Flags::CLIENT), !flags.has(Flags::CLIENT));
            assert!(code.len() <= body.len());
        }
        assert_eq!(engine.connections(), 0);
    }
}

/// Goal: a forger makes few aborts leave for an address, by whichever packets.
#[test]
fn forgers_get_few_aborts() {
    let mut server = engine(Config::default());
    let mut count = 0;
    for n in 1..=3_000 {
        let now = Time(1 + u64::from(n) * 1_000);
        let header = Header { cid: n << 2, ..packet(5, 900, Flags::default(), Kind::Data) };
        server.receive(now, CLIENT, &header, &mut [0; 8]);
        let ack = Header { cid: (n + 1_000_000) << 2, kind: Kind::Ack, ..header };
        server.receive(now, CLIENT, &ack, &mut ack_up_to(9, Reason::DELAY));
        let known = Header { kind: Kind::Ack, call: 6, ..header };
        server.receive(now, CLIENT, &known, &mut ack_up_to(9, Reason::DELAY));
        count += aborts(&mut server, now).len();
    }
    // In three seconds.
    assert!((64..100).contains(&count), "{count}");
}

/// The aborts for packets that arrive one each millisecond, three seconds long.
fn aborts_of(server: &mut Engine, from: SocketAddrV4, packet: impl Fn(u32) -> Header) -> usize {
    let each = (1..=3_000).map(|n| {
        let now = Time(1_000_000 + u64::from(n) * 1_000);
        server.receive(now, from, &packet(n), &mut [0; 8]);
        aborts(server, now).len()
    });
    each.sum()
}

/// Goal: packets of a host are answered by few aborts, whatever the reason: by fewer if it has
/// proved nothing. Another host gets its own, and the program's aborts of calls all leave.
#[test]
fn no_host_gets_an_abort_for_each_packet() {
    let (proven, stranger) = (1_000..=1_301, 64..=95);
    let beyond = |n: u32| packet(n, WINDOW + 1, Flags::default(), Kind::Data);
    for (reason, packet, few) in [
        ("new calls that began before", &(|n: u32| beyond(n + 1)) as &dyn Fn(u32) -> Header, &proven),
        ("packets of calls that were aborted", &|n| beyond(n / 8 + 2), &proven),
        ("a service that is not here", &|n| Header { service: 77, cid: n << 2, ..beyond(1) }, &stranger),
    ] {
        let mut server = acquainted(Config::default());
        data(&mut server, Time(5), 2, WINDOW, Flags::default());
        let count = aborts_of(&mut server, CLIENT, packet);
        assert!(few.contains(&count), "{reason}: {count}");
        let now = Time(4_000_001);
        let other = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 77), 7001);
        server.receive(now, other, &Header { service: 77, ..beyond(1) }, &mut [0; 8]);
        assert_eq!(aborts(&mut server, now).len(), 1, "{reason}: another host");
        server.receive(now, other, &Header { service: 77, ..beyond(1) }, &mut [0; 3]);
        assert_eq!(aborts(&mut server, now).len(), 0, "{reason}: an answer that is larger");
        for call in 10_000..12_000 {
            request(&mut server, now, call);
            let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
            server.abort(id, 42);
            assert_eq!(aborts(&mut server, now), [(call, 42)], "{reason}: an abort of the program");
        }
    }
}

/// Goal: neither the end of the program, nor that of a ticket, nor a wrong response has each packet
/// answered.
#[test]
fn ends_are_said_a_few_times() {
    let mut server = acquainted(Config::default());
    server.shut_down();
    let calls = |n| packet(n + 1, 1, Flags::LAST, Kind::Data);
    assert!((1_000..=1_301).contains(&aborts_of(&mut server, CLIENT, calls)));
    let strangers = |n: u32| Header { cid: n << 12, ..calls(n) };
    assert!((64..=95).contains(&aborts_of(&mut server, CLIENT, strangers)));

    // A connection for each response.
    let response = |n: u32| {
        let kind = if n.is_multiple_of(2) { Kind::Data } else { Kind::Response };
        Header { cid: (n / 2) << 2, security: 2, ..packet(1, 1, Flags::default(), kind) }
    };
    assert!((64..=95).contains(&aborts_of(&mut proving(), CLIENT, response)));

    let (mut client, mut server, connection, net) = super::hostile::recorded(Level::Clear);
    let id = client.start(net.now, connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![0; 4])], true).unwrap();
    let header = sent(&mut client, net.now).remove(0).0;
    server.set_clock(net.now, u32::MAX);
    assert!((1_000..=1_301).contains(&aborts_of(&mut server, CLIENT, |_| header)));
}

/// Goal: an abort that was lost is said again to a peer that asks, and not for ever.
#[test]
fn a_lost_abort_is_repeated() {
    let mut server = acquainted(Config::default());
    request(&mut server, Time(2), 2);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    server.abort(id, 42);
    assert_eq!(aborts(&mut server, Time(2)), [(2, 42)]);
    let ack = packet(2, 0, Flags::default(), Kind::Ack);
    server.receive(Time(3), CLIENT, &ack, &mut ack_up_to(1, Reason::DELAY));
    assert_eq!(aborts(&mut server, Time(3)), []);
    for round in 0..20 {
        server.receive(Time(3), CLIENT, &ack, &mut ack_up_to(1, Reason::PING));
        assert_eq!(aborts(&mut server, Time(3)).len(), usize::from(round < 8), "{round}");
    }
}

/// Goal: a server that goes on with a reply learns that its client aborted the call, though the
/// first abort was lost.
#[test]
fn a_client_repeats_its_abort() {
    let mut client = engine(Config::default());
    let connection = client.connect(Time(1), SERVER, SERVICE, &Null).unwrap();
    let id = client.start(Time(1), connection).unwrap().unwrap();
    client.send(id, [Slice::from(vec![1])], true).unwrap();
    let request = sent(&mut client, Time(1)).remove(0).0;
    client.abort(id, 42);
    assert_eq!(aborts(&mut client, Time(1)), [(1, 42)]);
    let reply = Header { flags: Flags::default(), ..request };
    client.receive(Time(2), SERVER, &reply, &mut [0; 8]);
    assert_eq!(aborts(&mut client, Time(2)), [(1, 42)]);
}

/// Goal: a call without its first packet stays while a stranger may get no abort, as that packet
/// may still come.
#[test]
fn a_call_is_not_lost_in_silence() {
    let mut server = engine(Config::default());
    let begun = Time(10_000_000);
    data(&mut server, begun, 1, 2, Flags::LAST);
    let late = begun.after(Duration::from_secs(6));
    for n in 1..=100 {
        let ack = Header { cid: n << 12, ..packet(5, 0, Flags::default(), Kind::Ack) };
        server.receive(late, CLIENT, &ack, &mut ack_up_to(9, Reason::DELAY));
    }
    assert_eq!(pass(&mut server, late).iter().filter(|(call, _)| *call == 1).count(), 0);
    data(&mut server, late, 1, 1, Flags::default());
    assert!(matches!(events(&mut server)[..], [Event::Start(_)]));
}
