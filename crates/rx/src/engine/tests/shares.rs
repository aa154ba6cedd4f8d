//! What strangers and greedy hosts can take.

use proptest::prelude::*;

use super::hostile::{host, known, of};
use super::*;
use crate::engine::connection::CALL;
use crate::engine::taken::Taken;

/// Goal: spoofed incomplete requests take nothing from proven clients, and a new client still
/// becomes proven in the middle of them.
#[test]
fn spoofed_requests_leave_room() {
    let config = Config { bytes: 400_000, bytes_per_host: 200_000, ..Config::default() };
    let mut server = acquainted(config);
    let spoof = |server: &mut Engine, from: std::ops::Range<u32>| {
        for n in from {
            server.receive(Time(2), host(n), &of(n, 1, 2, Flags::default()), &mut [0; 1_412]);
        }
        sent(server, Time(2));
    };
    spoof(&mut server, 1..1_000);
    assert!(server.shared.totals[0].requests <= 100_000, "{}", server.bytes());
    for seq in 1..=60 {
        server.receive(Time(3), CLIENT, &packet(2, seq, Flags::default(), Kind::Data), &mut [0; 1_412]);
    }
    let [Event::Start(call)] = events(&mut server)[..] else { panic!("the proven client has no call") };
    assert_eq!(server.take(call).unwrap().bytes.len(), 60 * 1_412);
    // A new client sends, gets a ping, and answers after some more spoofed packets.
    let new = host(5_000);
    server.receive(Time(4), new, &of(5_000, 1, 1, Flags::default()), &mut [0; 1_412]);
    server.receive(Time(4), new, &of(5_000, 1, 2, Flags::default()), &mut [0; 1_412]);
    let mut out = Vec::new();
    server.transmit(Time(4), &mut out);
    let ping = out.iter().find(|datagram| datagram.to == new).expect("a ping");
    spoof(&mut server, 1_000..1_020);
    answer(&mut server, Time(5), new, &Header::parse(&ping.head).unwrap().0);
    spoof(&mut server, 1_020..3_000);
    for seq in 3..=20 {
        server.receive(Time(6), new, &of(5_000, 1, seq, Flags::default()), &mut [0; 1_412]);
    }
    assert!(matches!(events(&mut server)[..], [Event::Start(_)]));
}

/// Goal: spoofed connections in the name of a client neither end its connections nor lock it out.
#[test]
fn a_victim_is_not_locked_out() {
    let config = Config { connections: 1_000, connections_per_host: 40, ..Config::default() };
    let mut server = engine(config);
    for n in 1..=5 {
        known(&mut server, Time(1), CLIENT, n);
    }
    for n in 100..1_000 {
        // Incomplete requests stay; complete ones would, too.
        server.receive(Time(2), CLIENT, &of(n, 1, 1, Flags::default()), &mut [0; 4]);
    }
    assert!(server.connections() <= 15, "{}", server.connections());
    for n in 1..=5 {
        server.receive(Time(3), CLIENT, &of(n, 2, 1, Flags::LAST), &mut [0; 4]);
    }
    assert_eq!(events(&mut server).iter().filter(|event| matches!(event, Event::Start(_))).count(), 5);
    known(&mut server, Time(4), CLIENT, 5_000);
    assert_eq!(server.shared.totals[1].connections, 6);
}

/// Goal: of what is left, a host gets no more than is free. So one that has nothing gets something,
/// however many others take all that they can.
#[test]
fn greedy_hosts_leave_something() {
    let config = Config { bytes: 1_000_000, bytes_per_host: 400_000, ..Config::default() };
    let mut server = engine(config);
    for n in 1..=9 {
        known(&mut server, Time(1), host(n), n);
        for seq in 1..=64 {
            for (call, channel) in [(2, 0), (1, 1), (1, 2), (1, 3)] {
                let header = Header { cid: n << 2 | channel, ..of(n, call, seq + 1, Flags::default()) };
                server.receive(Time(2), host(n), &header, &mut [0; 1_412]);
            }
        }
    }
    assert!(server.bytes() <= 750_000, "{}", server.bytes());
    let before = server.bytes();
    known(&mut server, Time(3), host(50), 50);
    server.receive(Time(3), host(50), &of(50, 2, 1, Flags::default()), &mut [0; 1_000]);
    assert_eq!(server.bytes(), before + CALL + 1_000);
}

/// Goal: calls count, though their packets have no bytes: those of strangers and of a proven
/// client.
#[test]
fn empty_packets_begin_few_calls() {
    let config = Config { bytes: 400_000, bytes_per_host: 100_000, ..Config::default() };
    let mut server = engine(config);
    (1..=100).for_each(|n| known(&mut server, Time(1), CLIENT, n));
    let begin = |server: &mut Engine, from, n: u32| {
        for channel in 0..4 {
            let header = Header { cid: n << 2 | channel, ..of(n, 2, 1, Flags::default()) };
            server.receive(Time(2), from, &header, &mut []);
        }
    };
    (1..=100).for_each(|n| begin(&mut server, CLIENT, n));
    (1_001..=2_000).for_each(|n| begin(&mut server, host(n % 50), n));
    for (class, most) in [(0, 100_000), (1, 100_000)] {
        let taken = &server.shared.totals[class];
        assert!((most / 2 / CALL..=most / CALL).contains(&taken.calls), "{taken:?}");
        assert!(taken.requests >= taken.calls * CALL, "{taken:?}");
    }
    check_shares(&server);
}

/// Goal: a host that proves its connections one after the other, each with what strangers may hold,
/// gets no more than its share in all.
#[test]
fn proof_does_not_exceed_the_share() {
    let config =
        Config { bytes: 4 << 20, bytes_per_host: 400_000, replies_per_host: 200_000, ..Config::default() };
    let mut server = engine(config);
    for n in 1..=40 {
        for seq in 2..=61 {
            server.receive(Time(2), CLIENT, &of(n, 1, seq, Flags::default()), &mut [0; 1_412]);
        }
        let ping = sent(&mut server, Time(2)).pop().unwrap();
        answer(&mut server, Time(2), CLIENT, &ping.0);
        check_shares(&server);
    }
    assert!(server.shared.totals[1].requests > 300_000);
    for n in 1_000..1_040 {
        server.receive(Time(3), CLIENT, &of(n, 1, 1, Flags::LAST), &mut [0; 4]);
        for event in events(&mut server) {
            let Event::Start(id) = event else { continue };
            server.send(id, [Slice::from(vec![0; 45_000])], true).unwrap();
            server.finish(id);
        }
        let reply = sent(&mut server, Time(3)).into_iter().find(|(header, _)| header.cid == n << 2);
        if let Some((reply, _)) = reply {
            answer(&mut server, Time(3), CLIENT, &reply);
        }
        check_shares(&server);
        assert!(server.shared.totals[1].replies <= 200_000, "{}", server.shared.totals[1].replies);
    }
    assert!(server.shared.totals[1].replies > 150_000);
}

/// Goal: replies count. A host whose replies fill its share starts no more calls until it takes
/// them; another host does.
#[test]
fn replies_are_bounded() {
    let config = Config { replies: 8 << 20, replies_per_host: 1 << 20, ..Config::default() };
    let mut server = engine(config);
    for n in 1..=20 {
        known(&mut server, Time(1), CLIENT, n);
    }
    known(&mut server, Time(1), host(1), 100);
    let serve = |server: &mut Engine| {
        let mut started = Vec::new();
        while let Some(event) = server.event() {
            if let Event::Start(id) = event {
                server.send(id, [Slice::from(vec![0; 300_000])], true).unwrap();
                server.finish(id);
                started.push(id);
            }
        }
        started
    };
    for n in 1..=20 {
        server.receive(Time(2), CLIENT, &of(n, 2, 1, Flags::LAST), &mut [0; 4]);
    }
    assert_eq!(serve(&mut server).len(), 4);
    // The other host has a byte of its first reply.
    assert_eq!(server.reply_bytes(), 1_200_001);
    server.receive(Time(2), host(1), &of(100, 2, 1, Flags::LAST), &mut [0; 4]);
    assert_eq!(serve(&mut server).len(), 1);
    // The client gives one reply up, by a new call. Its share has room for one of those that wait.
    sent(&mut server, Time(3));
    let abort = Header { kind: Kind::Abort, ..of(1, 2, 0, Flags::default()) };
    server.receive(Time(4), CLIENT, &abort, &mut [0; 4]);
    assert_eq!(serve(&mut server).len(), 1);
    assert_eq!(server.reply_bytes(), 1_500_000);
    let mut now = Time(5);
    // All are dead in the end, and nothing is counted any more.
    while let Some(next) = server.timer() {
        now = now.max(next);
        server.tick(now);
        serve(&mut server);
        sent(&mut server, now);
    }
    assert_eq!((server.reply_bytes(), server.bytes(), server.connections()), (0, 0, 0));
}

/// Goal: a reply counts with the whole blocks that it keeps in memory, until the client has the
/// last of its bytes from each. A block counts once, however many parts of it follow each other.
#[test]
fn replies_count_whole_blocks() {
    const BLOCK: usize = 300_000;
    let config = Config { replies: 8 << 20, replies_per_host: 1 << 20, ..Config::default() };
    let mut server = engine(config);
    (1..=20).for_each(|n| known(&mut server, Time(1), CLIENT, n));
    for n in 1..=20 {
        server.receive(Time(2), CLIENT, &of(n, 2, 1, Flags::LAST), &mut [0; 4]);
    }
    let mut started = 0;
    while let Some(event) = server.event() {
        let Event::Start(id) = event else { continue };
        let block: Block = Arc::new(vec![0u8; BLOCK]);
        let parts = [0..1, 1..9, 200..300].map(|range| Slice::new(Arc::clone(&block), range));
        server.send(id, parts, true).unwrap();
        server.finish(id);
        started += 1;
    }
    assert_eq!((started, server.reply_bytes()), (4, 4 * BLOCK));

    let mut server = acquainted(Config::default());
    request(&mut server, Time(2), 2);
    let [Event::Start(id)] = events(&mut server)[..] else { panic!("no call") };
    let blocks = [1, 2].map(|_| Arc::new(vec![0u8; BLOCK]) as Block);
    server.send(id, blocks.map(|block| Slice::new(block, 0..BLOCK)), true).unwrap();
    server.finish(id);
    let (mut now, mut held, mut left, mut next) = (Time(3), Vec::new(), Vec::new(), 1);
    while server.reply_bytes() > 0 {
        held.push(server.reply_bytes());
        next += sent(&mut server, now).iter().filter(|(header, _)| header.kind == Kind::Data).count() as u32;
        now = now.after(Duration::from_millis(1));
        // All but the last packet, which is the only one of the next round.
        for first in [next - 1, next] {
            let ack = Ack {
                first,
                previous: 0,
                serial: 1,
                reason: Reason::DELAY,
                states: &[],
                max_mtu: None,
                window: None,
            };
            let mut body = ack.encode(&Trailer { max_mtu: 1444, if_mtu: 1444, window: 32, jumbo: 1 });
            server.receive(now, CLIENT, &packet(2, 0, Flags::default(), Kind::Ack), &mut body);
            held.push(server.reply_bytes());
            left.push(server.unacknowledged(id));
        }
    }
    held.dedup();
    assert_eq!(held, [2 * BLOCK, BLOCK, 0]);
    // The program sees each packet that is taken.
    left.dedup();
    assert!(left.len() > 2 * BLOCK / 1_444 / 32 && left.is_sorted_by(|one, next| one > next), "{left:?}");
}

/// Goal: replies to forged addresses push each other out, and none of a proven client.
#[test]
fn replies_of_strangers_are_bounded() {
    let config = Config { replies: 4 << 20, ..Config::default() };
    let mut server = acquainted(config);
    for n in 1..200 {
        server.receive(Time(2), host(n), &of(n, 1, 1, Flags::LAST), &mut [0; 4]);
        for event in events(&mut server) {
            let Event::Start(id) = event else { continue };
            server.send(id, [Slice::from(vec![0; 100_000])], true).unwrap();
            server.finish(id);
        }
        assert!(server.reply_bytes() <= (1 << 20) + 100_000, "{}", server.reply_bytes());
    }
    assert_eq!(server.shared.totals[1].connections, 1);
}

/// Goal: a host with many complete requests has some of them with the program, and the rest wait
/// without any abort. Another host's call starts before them.
#[test]
fn calls_of_a_host_wait_for_its_share() {
    let mut server = engine(Config { calls_per_host: 8, ..Config::default() });
    for n in 1..=20 {
        known(&mut server, Time(1), CLIENT, n);
    }
    known(&mut server, Time(1), host(1), 100);
    for n in 1..=20 {
        server.receive(Time(2), CLIENT, &of(n, 2, 1, Flags::LAST), &mut [0; 4]);
    }
    server.receive(Time(2), host(1), &of(100, 2, 1, Flags::LAST), &mut [0; 4]);
    let mut running: Vec<CallId> = Vec::new();
    let mut served = 0;
    for round in 0..30 {
        for event in events(&mut server) {
            let Event::Start(id) = event else { continue };
            running.push(id);
        }
        assert!(running.len() <= 9 && (round > 0 || running.len() == 9), "{}", running.len());
        // They end in both ways.
        if let Some(id) = running.pop() {
            if round % 2 == 0 {
                server.finish(id)
            } else {
                server.abort(id, 1)
            }
            served += 1;
        }
    }
    assert_eq!((served, server.shared.totals[1].started), (21, 0));
    assert_eq!(server.counts().refused_limit, 0);
}

proptest! {
    /// Goal: the lists that `rxdebug` reads by index have each connection and each peer once, and
    /// those with calls, whatever came and went.
    #[test]
    fn indices_reach_everything(steps in prop::collection::vec((0u32..40, 0u8..4), 1..200)) {
        let mut server = engine(Config { connections: 30, connections_per_host: 12, ..Config::default() });
        let mut now = Time(1);
        for (n, what) in steps {
            now = Time(now.0 + 1_000_000);
            let from = host(n % 7);
            match what {
                0 => server.receive(now, from, &of(n, 1, 1, Flags::LAST), &mut [0; 4]),
                1 => server.receive(now, from, &of(n, 1, 1, Flags::default()), &mut [0; 4]),
                2 => {
                    let abort = Header { kind: Kind::Abort, call: 0, ..of(n, 1, 0, Flags::default()) };
                    server.receive(now, from, &abort, &mut [0; 4]);
                }
                _ => {
                    for event in events(&mut server) {
                        if let Event::Start(id) = event {
                            server.abort(id, 1);
                        }
                    }
                }
            }
            server.tick(now);
            let out = sent(&mut server, now);
            if n % 3 == 0 && let Some((header, _)) = out.first() {
                answer(&mut server, now, from, header);
            }
            let shown = |all| -> Vec<_> {
                let count = server.debug_connections(all);
                assert!(server.debug_connection(count, all).is_none());
                let shown = (0..count).map(|at| server.debug_connection(at, all).unwrap());
                let mut shown: Vec<_> = shown.map(|c| (c.peer, c.cid)).collect();
                shown.sort_unstable();
                shown
            };
            let expected = |all: bool| -> Vec<_> {
                let connections = server.slots.iter().filter_map(|slot| slot.connection.as_ref());
                let wanted = connections.filter(|c| all || !c.is_idle());
                let mut wanted: Vec<_> = wanted.map(|c| (c.address, c.id.cid)).collect();
                wanted.sort_unstable();
                wanted
            };
            prop_assert_eq!(shown(true), expected(true));
            prop_assert_eq!(shown(false), expected(false));
            let mut addresses: Vec<_> = expected(true).into_iter().map(|(address, _)| address).collect();
            addresses.dedup();
            let mut peers = peers(&server);
            peers.sort_unstable();
            prop_assert_eq!(peers, addresses);
            let calls = server.slots.iter().filter_map(|slot| slot.connection.as_ref());
            let calls: usize = calls.map(|c| c.channels.iter().filter(|c| c.call.is_some()).count()).sum();
            prop_assert_eq!(server.counts().debug.calls as usize, calls);
            prop_assert!(server.timer_entries() <= server.connections());
        }
    }
}

/// What each host and each class takes is what its connections take, and no limit is exceeded.
pub(super) fn check_shares(server: &Engine) {
    let mut totals = [Taken::default(); 2];
    let mut hosts: HashMap<Ipv4Addr, [Taken; 2]> = HashMap::new();
    for connection in server.slots.iter().filter_map(|slot| slot.connection.as_deref()) {
        let (taken, class) = (connection.measure(), usize::from(connection.member));
        assert_eq!(taken, connection.taken);
        let host = hosts.entry(*connection.address.ip()).or_default();
        for sum in [&mut totals[class], &mut host[class]] {
            sum.connections += taken.connections;
            sum.requests += taken.requests;
            sum.replies += taken.replies;
            sum.started += taken.started;
            sum.calls += taken.calls;
        }
    }
    assert_eq!(totals, server.shared.totals);
    assert_eq!(hosts.len(), server.hosts.len());
    for (address, taken) in hosts {
        let host = server.hosts.get(server.hosts.find(&address).unwrap());
        assert_eq!(host.uses.each_ref().map(|part| part.taken), taken);
        let limits = [server.config.bytes_per_host / 4, server.config.bytes_per_host];
        assert!(taken.iter().zip(limits).all(|(taken, limit)| taken.requests <= limit), "{taken:?}");
    }
    let config = &server.config;
    assert!(totals[0].requests <= config.bytes / 4 && totals[1].requests <= config.bytes - config.bytes / 4);
    assert!(server.connections() <= config.connections && totals[0].connections <= config.connections / 2);
}

/// Random packets and a program that is random, too.
struct Chaos {
    server: Engine,
    now: Time,
    running: Vec<CallId>,
    last: HashMap<SocketAddrV4, Header>,
}

impl Chaos {
    fn step(&mut self, n: u32, what: u8, seq: u32, size: usize) {
        let (server, from) = (&mut self.server, host(n % 6));
        self.now = Time(self.now.0 + 50_000);
        let call = 1 + u32::from(what) % 3;
        let header = Header { cid: n << 2 | seq & 3, ..of(n, call, seq, Flags::default()) };
        let end = (!self.running.is_empty()).then(|| n as usize % self.running.len());
        match (what, end) {
            (0..=3, _) => server.receive(self.now, from, &header, &mut vec![0; size]),
            (4 | 5, _) => {
                let header = Header { flags: Flags::CLIENT.with(Flags::LAST), ..header };
                server.receive(self.now, from, &header, &mut vec![0; size]);
            }
            (6, _) => {
                let header = Header { kind: Kind::Abort, call: header.call * (seq & 1), ..header };
                server.receive(self.now, from, &header, &mut [0; 4]);
            }
            (7 | 8, _) => {
                if let Some(packet) = self.last.get(&from) {
                    answer(server, self.now, from, packet);
                }
            }
            (9, Some(at)) => {
                let id = self.running.swap_remove(at);
                let _ = server.take(id);
                let _ = server.send(id, [Slice::from(vec![0; size * 10])], true);
                server.finish(id);
            }
            (10, Some(at)) => server.abort(self.running.swap_remove(at), 1),
            _ => self.now = Time(self.now.0 + u64::from(n) * 100_000),
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.server.tick(self.now);
        let started = events(&mut self.server).into_iter().filter_map(|event| match event {
            Event::Start(id) => Some(id),
            _ => None,
        });
        self.running.extend(started);
        let mut out = Vec::new();
        self.server.transmit(self.now, &mut out);
        for datagram in out {
            self.last.insert(datagram.to, Header::parse(&datagram.head).unwrap().0);
        }
        check_shares(&self.server);
    }
}

proptest! {
    /// Goal: whatever hosts send and programs do, shares are counted rightly, limits hold, and in
    /// the end nothing is left.
    #[test]
    fn shares_are_counted(
        steps in prop::collection::vec((0u32..60, 0u8..12, 0u32..5, 0usize..1_500), 1..300),
    ) {
        let server = engine(Config {
            connections: 24,
            connections_per_host: 8,
            bytes: 40_000,
            bytes_per_host: 16_000,
            replies: 60_000,
            replies_per_host: 20_000,
            calls_per_host: 4,
            ..Config::default()
        });
        let mut chaos = Chaos { server, now: Time(1), running: Vec::new(), last: HashMap::new() };
        for (n, what, seq, size) in steps {
            chaos.step(n, what, seq, size);
        }
        while let Some(next) = chaos.server.timer() {
            prop_assert!(chaos.now < Time(10_000_000_000), "something is never forgotten");
            chaos.running.drain(..).for_each(|id| chaos.server.finish(id));
            chaos.now = chaos.now.max(next);
            chaos.settle();
        }
        let server = chaos.server;
        prop_assert_eq!((server.connections(), server.hosts.len(), server.peers.len()), (0, 0, 0));
        prop_assert!(server.keys.is_empty() && server.timers.is_empty());
    }
}
