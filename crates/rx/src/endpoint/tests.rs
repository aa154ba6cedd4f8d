//! Endpoints that call each other over the loopback interface.

mod gathers;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::pool::Free;
use super::{Connection, Endpoint, Options, Service, call_all};
use crate::block::Slice;
use crate::call::Call;
use crate::packet::{Flags, HEADER, Header, Kind};
use crate::security::Null;
use crate::shard::{Reply, Request};
use crate::{Error, code};

const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
const TIME: Duration = Duration::from_secs(30);

/// Answers small requests at once, and returns large ones from a worker.
struct Echo;

impl Service for Echo {
    fn quick(&self, request: &Request) -> Option<Reply> {
        match request.body.first() {
            Some(b'a') => Some(Reply::Abort(42)),
            Some(b'w') => None,
            _ => Some(Reply::Parts(vec![Slice::from(request.body.clone())])),
        }
    }

    fn run(&self, call: &mut Call) -> Result<(), i32> {
        // A reply begins when the request is complete.
        let request = call.read_all(usize::MAX).map_err(|_| code::SS_UNMARSHAL)?;
        let mut rest = Slice::from(request);
        while !rest.is_empty() {
            call.write(rest.take(300_000)).map_err(|_| code::SS_UNMARSHAL)?;
        }
        Ok(())
    }
}

fn server(shards: usize) -> Endpoint {
    let services: Vec<(u16, Arc<dyn Service>)> = vec![(1, Arc::new(Echo))];
    Endpoint::bind(LOCAL, Options { shards, services, classes: vec![Arc::new(Null)], ..Options::default() })
        .unwrap()
}

fn client() -> Endpoint {
    Endpoint::bind(LOCAL, Options::default()).unwrap()
}

/// Goal: calls of every size come back, by the quick way and through workers, with one socket and
/// with several at both ends.
#[test]
fn calls_come_back() {
    for shards in [1, 3] {
        let server = server(shards);
        let client = Endpoint::bind(LOCAL, Options { shards, ..Options::default() }).unwrap();
        for _ in 0..shards {
            let connection = client.connect(server.address(), 1, &Null).unwrap();
            for size in [1, 1_411, 1_412, 1_413, 100_000, 3_000_000] {
                let body = vec![b'w'; size];
                assert!(connection.call(body.clone(), TIME).unwrap() == body, "{size}");
            }
            assert_eq!(connection.call(b"quick".to_vec(), TIME).unwrap(), b"quick");
            assert!(connection.call(Vec::new(), TIME).unwrap().is_empty());
        }
        assert_eq!(server.counts().calls, 8 * shards as u64);
    }
}

/// Goal: a code of the service reaches the caller, and the connection goes on.
#[test]
fn aborts_reach_the_caller() {
    let (server, client) = (server(1), client());
    let connection = client.connect(server.address(), 1, &Null).unwrap();
    assert!(matches!(connection.call(b"a".to_vec(), TIME), Err(Error::Aborted { code: 42 })));
    assert_eq!(connection.call(b"b".to_vec(), TIME).unwrap(), b"b");
    let unknown = client.connect(server.address(), 2, &Null).unwrap();
    let result = unknown.call(b"bbbb".to_vec(), TIME);
    assert!(matches!(result, Err(Error::Aborted { code: code::INVALID_OPERATION })));
}

/// Goal: more calls than channels run over one connection, from many threads.
#[test]
fn calls_wait_for_a_channel() {
    let (server, client) = (server(1), client());
    let connection = client.connect(server.address(), 1, &Null).unwrap();
    std::thread::scope(|scope| {
        for n in 0..16u8 {
            let connection = &connection;
            scope.spawn(move || {
                for _ in 0..20 {
                    let body = vec![b'w', n];
                    assert_eq!(connection.call(body.clone(), TIME).unwrap(), body);
                }
            });
        }
    });
    assert_eq!(server.counts().calls, 320);
}

/// Goal: one request goes to many servers. One that does not answer delays no other, and fails at
/// the deadline.
#[test]
fn many_servers_are_called_at_once() {
    let (one, two, client) = (server(1), server(1), client());
    let silent = UdpSocket::bind(LOCAL).unwrap();
    let std::net::SocketAddr::V4(silent) = silent.local_addr().unwrap() else { panic!("not IPv4") };
    let connect = |to| client.connect(to, 1, &Null).unwrap();
    let connections = [connect(one.address()), connect(silent), connect(two.address())];
    let results = call_all(&connections, b"hello", Duration::from_millis(300));
    assert_eq!(results[0].as_ref().unwrap(), b"hello");
    assert!(matches!(results[1], Err(Error::Deadline)));
    assert_eq!(results[2].as_ref().unwrap(), b"hello");
}

/// Goal: the questions of `rxdebug` are answered, and only those of clients.
#[test]
fn rxdebug_is_answered() {
    let (server, socket) = (server(2), UdpSocket::bind(LOCAL).unwrap());
    socket.set_read_timeout(Some(TIME)).unwrap();
    let ask = |kind, flags, body: &[u8]| {
        let header = Header {
            epoch: 1,
            cid: 2,
            call: 3,
            seq: 0,
            serial: 0,
            kind,
            flags,
            user_status: 0,
            security: 0,
            checksum: 0,
            service: 0,
        };
        socket.send_to(&[&header.encode()[..], body].concat(), server.address()).unwrap();
    };
    // This one must get no answer: that of the next comes first.
    ask(Kind::Version, Flags::default(), &[]);
    ask(Kind::Debug, Flags::CLIENT, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let mut bytes = [0; 512];
    let n = socket.recv(&mut bytes).unwrap();
    assert_eq!((n, bytes[20], bytes[HEADER + 14]), (HEADER + 56, Kind::Debug as u8, b'S'));
    ask(Kind::Version, Flags::CLIENT, &[]);
    let n = socket.recv(&mut bytes).unwrap();
    assert_eq!(n, HEADER + 65);
    assert!(bytes[HEADER..].starts_with(b"Poolhouse "));
}

/// Goal: a datagram that is no packet is counted and does no harm.
#[test]
fn rubbish_is_counted() {
    let (server, client) = (server(1), client());
    let socket = UdpSocket::bind(LOCAL).unwrap();
    for length in [0, 1, 27, 28, 1_400, 3_000] {
        socket.send_to(&vec![0xff; length], server.address()).unwrap();
    }
    let connection = client.connect(server.address(), 1, &Null).unwrap();
    assert_eq!(connection.call(b"b".to_vec(), TIME).unwrap(), b"b");
    assert_eq!(server.counts().debug.bogus, 6);
    let stats = server.stats();
    assert_eq!((stats.packets_bogus.get(), stats.calls.get(), stats.refused_limit.get()), (6, 1, 0));
    assert_eq!((stats.bytes_received.get(), stats.bytes_sent.get()), (1, 1));
    // The client acknowledges the first reply of a connection.
    assert!((1..=2).contains(&stats.packets_received.get()));
    assert_eq!(stats.packets_sent.get(), 1);
}

/// Tells how its calls begin and end, and reads or writes until the client lets it end. Of a
/// stranger's call `q` it says `s`.
struct Patient {
    begun: Sender<u8>,
    ended: Sender<bool>,
}

impl Service for Patient {
    fn quick(&self, _: &Request) -> Option<Reply> {
        None
    }

    fn run(&self, call: &mut Call) -> Result<(), i32> {
        let mut kind = [0];
        call.read_exact(&mut kind).map_err(|_| code::SS_UNMARSHAL)?;
        let kind = if kind[0] == b'q' && !call.info().proved { [b's'] } else { kind };
        self.begun.send(kind[0]).map_err(|_| code::USER_ABORT)?;
        let result = match kind[0] {
            b'r' => call.read_all(usize::MAX).map(drop),
            b'w' => (0..100).try_for_each(|_| call.write(vec![0; 300_000])),
            _ => Ok(()),
        };
        let _ = self.ended.send(result.is_ok());
        result.map_err(|_| code::SS_UNMARSHAL)
    }
}

/// A server with a few workers, and what its calls report.
fn patient(workers: usize) -> (Endpoint, Receiver<u8>, Receiver<bool>) {
    let ((begun, begins), (ended, ends)) = (channel(), channel());
    let services: Vec<(u16, Arc<dyn Service>)> = vec![(1, Arc::new(Patient { begun, ended }))];
    let classes: Vec<Arc<dyn crate::security::Class>> = vec![Arc::new(Null)];
    let options = Options { workers: 1, most_workers: workers, services, classes, ..Options::default() };
    (Endpoint::bind(LOCAL, options).unwrap(), begins, ends)
}

/// An endpoint at another address of this machine: another host, for the server.
fn host(n: u8) -> Endpoint {
    let address = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, n), 0);
    Endpoint::bind(address, Options::default()).unwrap()
}

/// Makes calls until the connection is proven.
fn acquaint(connection: &Connection, begins: &Receiver<u8>) {
    loop {
        assert!(connection.call(b"q".to_vec(), TIME).unwrap().is_empty());
        match begins.recv_timeout(TIME).unwrap() {
            b'q' => return,
            kind => assert_eq!(kind, b's', "another call has begun"),
        }
    }
}

/// Goal: a host with many incomplete requests and many replies that it doesn't read has its share
/// of the workers. Another host's calls are served at once.
#[test]
fn a_stalling_host_leaves_workers() {
    let (server, begins, _ends) = patient(8);
    let (greedy, other) = (host(2), host(3));
    let connections: Vec<_> = (0..10).map(|_| greedy.connect(server.address(), 1, &Null).unwrap()).collect();
    connections.iter().for_each(|connection| acquaint(connection, &begins));
    let mut stalled = Vec::new();
    for (at, connection) in connections.iter().enumerate() {
        let mut call = connection.open(TIME).unwrap();
        if at % 2 == 0 {
            call.write(vec![b'r'; 60_000]).unwrap();
        } else {
            // The reply is not read.
            call.write_last(vec![b'w']).unwrap();
        }
        stalled.push(call);
    }
    // Two of eight workers are the share of a host.
    let begun = [begins.recv_timeout(TIME).unwrap(), begins.recv_timeout(TIME).unwrap()];
    assert!(begun.iter().all(|kind| b"rw".contains(kind)), "{begun:?}");
    for _ in 0..20 {
        let connection = other.connect(server.address(), 1, &Null).unwrap();
        acquaint(&connection, &begins);
    }
}

/// Goal: two calls that arrive at the same moment both find a worker, though only one is idle and
/// neither call ends.
#[test]
fn calls_that_arrive_together_find_workers() {
    for _ in 0..30 {
        let (server, begins, _ends) = patient(8);
        let greedy = host(2);
        let connections = [(); 2].map(|()| greedy.connect(server.address(), 1, &Null).unwrap());
        connections.iter().for_each(|connection| acquaint(connection, &begins));
        let mut calls = connections.each_ref().map(|connection| connection.open(TIME).unwrap());
        calls.iter_mut().for_each(|call| call.write_last(vec![b'w']).unwrap());
        assert_eq!([begins.recv_timeout(TIME), begins.recv_timeout(TIME)], [Ok(b'w'); 2]);
    }
}

/// Goal: the end of an endpoint aborts its calls with the code for that, lets their workers go on,
/// and joins them.
#[test]
fn the_end_of_an_endpoint_aborts_calls() {
    let (server, begins, ends) = patient(8);
    let client = client();
    let connection = client.connect(server.address(), 1, &Null).unwrap();
    acquaint(&connection, &begins);
    while let Ok(ended) = ends.try_recv() {
        assert!(ended);
    }
    let mut call = connection.open(TIME).unwrap();
    call.write(vec![b'r'; 60_000]).unwrap();
    assert_eq!(begins.recv_timeout(TIME), Ok(b'r'));
    drop(server);
    // The worker is joined: its service is gone, and so is what it reports to.
    assert_eq!(ends.try_recv(), Ok(false));
    assert!(begins.recv_timeout(TIME).is_err());
    assert!(matches!(call.read(), Err(Error::Aborted { code: code::RESTARTING })));
    // The other end: a client's endpoint ends, and its connections are of no use.
    drop(client);
    assert!(matches!(connection.call(b"q".to_vec(), TIME), Err(Error::Gone)));
}

/// Goal: calls to many connections without a free channel have one deadline in all.
#[test]
fn many_busy_connections_have_one_deadline() {
    let client = client();
    let silent = UdpSocket::bind(LOCAL).unwrap();
    let std::net::SocketAddr::V4(silent) = silent.local_addr().unwrap() else { panic!("not IPv4") };
    let connections: Vec<_> = (0..40).map(|_| client.connect(silent, 1, &Null).unwrap()).collect();
    let busy: Vec<_> = connections.iter().map(|one| [(); 4].map(|()| one.open(TIME).unwrap())).collect();
    let begun = Instant::now();
    let results = call_all(&connections, b"hello", Duration::from_millis(250));
    assert!(results.iter().all(|result| matches!(result, Err(Error::Deadline))));
    // Ten seconds, if each had its own.
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(busy);
}

/// Goal: datagrams that the system refuses are counted where an operator sees them.
#[test]
fn refused_sends_are_counted() {
    let client = client();
    let nowhere = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let connection = client.connect(nowhere, 1, &Null).unwrap();
    assert!(matches!(connection.call(b"q".to_vec(), Duration::from_millis(50)), Err(Error::Deadline)));
    assert!(client.stats().send_failures.get() > 0);
    assert!(client.counts().debug.send_failures > 0);
}

/// Goal: a host that asks `rxdebug`'s questions in a flood gets no answer to most of them.
#[test]
fn questions_have_a_rate() {
    let (server, socket) = (server(1), UdpSocket::bind(LOCAL).unwrap());
    let header = Header {
        epoch: 1,
        cid: 2,
        call: 3,
        seq: 0,
        serial: 0,
        kind: Kind::Version,
        flags: Flags::CLIENT,
        user_status: 0,
        security: 0,
        checksum: 0,
        service: 0,
    };
    let deadline = Instant::now() + TIME;
    while server.stats().refused_questions.get() == 0 {
        assert!(Instant::now() < deadline, "each question was answered");
        for _ in 0..100 {
            socket.send_to(&header.encode(), server.address()).unwrap();
        }
    }
}

/// Its calls `b` wait until they are released, of which the endpoint knows nothing, and its calls
/// `n` need a thread. All others are answered at once with whether the client is proven.
struct Blocking {
    begun: Sender<()>,
    /// Free when the calls may end.
    gate: Arc<observe::lock::Mutex<()>>,
}

impl Service for Blocking {
    fn quick(&self, request: &Request) -> Option<Reply> {
        (request.body != b"b" && request.body != b"n")
            .then(|| Reply::Parts(vec![Slice::from(vec![u8::from(request.info.proved)])]))
    }

    fn run(&self, call: &mut Call) -> Result<(), i32> {
        if call.read_all(1).map_err(|_| code::SS_UNMARSHAL)? == b"b" {
            self.begun.send(()).map_err(|_| code::USER_ABORT)?;
            drop(self.gate.lock());
        }
        Ok(())
    }
}

/// Goal: calls that block elsewhere than at their client take no socket's thread with them, even
/// if all threads for calls are taken.
#[test]
fn blocked_calls_do_not_end_the_receipt() {
    const MOST: u8 = 4;
    for shards in [1, 2] {
        let (begun, begins) = channel();
        let gate = Arc::new(observe::lock::Mutex::new(()));
        let closed = gate.lock();
        let service = Blocking { begun, gate: Arc::clone(&gate) };
        let services: Vec<(u16, Arc<dyn Service>)> = vec![(1, Arc::new(service))];
        let classes: Vec<Arc<dyn crate::security::Class>> = vec![Arc::new(Null)];
        let most_workers = usize::from(MOST);
        let options = Options { shards, workers: 1, most_workers, services, classes, ..Options::default() };
        let server = Endpoint::bind(LOCAL, options).unwrap();
        // A host has one of four threads, and the last one has to wait.
        let hosts: Vec<Endpoint> = (2..3 + MOST).map(host).collect();
        let connect = |from: &Endpoint| from.connect(server.address(), 1, &Null).unwrap();
        let connections: Vec<_> = hosts.iter().map(connect).collect();
        let mut calls = Vec::new();
        for (at, connection) in connections.iter().enumerate() {
            while connection.call(b"q".to_vec(), TIME).unwrap() != [1] {}
            let mut call = connection.open(TIME).unwrap();
            call.write_last(b"b".to_vec()).unwrap();
            if at < most_workers {
                begins.recv_timeout(TIME).unwrap();
            }
            calls.push(call);
        }
        connections.iter().for_each(|one| assert_eq!(one.call(b"q".to_vec(), TIME).unwrap(), [1]));
        drop(closed);
        calls.into_iter().for_each(|mut call| assert!(call.read_all(0).unwrap().is_empty()));
    }
}

/// Goal: what stays free is seen, however often others come and go, and it is taken first.
#[test]
fn what_stays_free_is_seen() {
    let mut free = Free::default();
    free.put("quiet");
    assert!(!free.look());
    free.put("busy");
    assert!(free.look());
    assert_eq!((free.take(), free.take(), free.take()), (Some("quiet"), Some("busy"), None));
    for _ in 0..3 {
        free.put("busy");
        assert!(!free.look());
        assert_eq!(free.take(), Some("busy"));
    }
}

/// Goal: a socket whose thread is blocked in a call is served, however busy the other one is.
#[test]
fn a_busy_socket_leaves_no_other_deaf() {
    let ((begun, begins), gate) = (channel(), Arc::new(observe::lock::Mutex::new(())));
    let closed = gate.lock();
    let services: Vec<(u16, Arc<dyn Service>)> =
        vec![(1, Arc::new(Blocking { begun, gate: Arc::clone(&gate) }))];
    let classes: Vec<Arc<dyn crate::security::Class>> = vec![Arc::new(Null)];
    let server =
        Endpoint::bind(LOCAL, Options { shards: 2, services, classes, ..Options::default() }).unwrap();
    let hosts: Vec<Endpoint> = (10..40).map(host).collect();
    let connect = |from: &Endpoint| from.connect(server.address(), 1, &Null).unwrap();
    let (mut busy, mut quiet) = (Vec::new(), Vec::new());
    for connection in hosts.iter().map(connect) {
        let served = || server.shards[0].lock().engine.counts().calls;
        let before = served();
        while connection.call(b"q".to_vec(), TIME).unwrap() != [1] {}
        let side = if served() > before { &mut busy } else { &mut quiet };
        side.push(connection);
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_on = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for connection in busy.iter().take(4) {
            scope.spawn(move || {
                while is_on() {
                    connection.call(b"n".to_vec(), TIME).unwrap();
                }
            });
        }
        // They are under way.
        let many = server.counts().calls + 1_000;
        while server.counts().calls < many {
            std::thread::yield_now();
        }
        let mut call = quiet[0].open(TIME).unwrap();
        call.write_last(b"b".to_vec()).unwrap();
        begins.recv_timeout(TIME).unwrap();
        let answer = quiet[1].call(b"q".to_vec(), Duration::from_secs(10));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(closed);
        assert_eq!(answer.unwrap(), [1]);
        call.read_all(0).unwrap();
    });
}

/// Reads requests in large parts: first until 30,000 bytes are there, with deadlines that pass, and
/// then the rest. Tells the sizes of the parts.
struct Parts(Sender<usize>);

impl Service for Parts {
    fn quick(&self, _: &Request) -> Option<Reply> {
        None
    }

    fn run(&self, call: &mut Call) -> Result<(), i32> {
        let (mut bytes, mut got) = (vec![1; 10], 0);
        while got < 30_000 {
            match call.read_into(&mut bytes, 100_000, Instant::now() + Duration::from_millis(1)) {
                Ok(()) => got += bytes.len(),
                Err(Error::Deadline) => assert!(bytes.is_empty()),
                Err(_) => return Err(code::SS_UNMARSHAL),
            }
        }
        let _ = self.0.send(got);
        loop {
            let read = call.read_into(&mut bytes, 100_000, Instant::now() + TIME);
            read.map_err(|_| code::SS_UNMARSHAL)?;
            let _ = self.0.send(bytes.len());
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Goal: a thread that waits for many bytes gets those that there are at its deadline, and else as
/// many as it waits for, or the last ones.
#[test]
fn a_stream_is_read_in_large_parts() {
    let (sizes, parts) = channel();
    let services: Vec<(u16, Arc<dyn Service>)> = vec![(1, Arc::new(Parts(sizes)))];
    let options = Options { services, classes: vec![Arc::new(Null)], ..Options::default() };
    let server = Endpoint::bind(LOCAL, options).unwrap();
    let client = client();
    let connection = client.connect(server.address(), 1, &Null).unwrap();
    let mut call = connection.open(TIME).unwrap();
    call.write(vec![7; 30_000 + 1_412]).unwrap();
    let first = parts.recv_timeout(TIME).unwrap();
    assert!((30_000..=31_412).contains(&first), "{first}");
    call.write_last(vec![7; 500_000]).unwrap();
    assert_eq!(call.read_all(0).unwrap(), []);
    let mut rest: Vec<usize> = parts.try_iter().collect();
    assert_eq!(rest.pop(), Some(0));
    assert_eq!(first + rest.iter().sum::<usize>(), 531_412);
    assert!(rest[..rest.len() - 1].iter().all(|size| *size >= 100_000), "{rest:?}");
}
