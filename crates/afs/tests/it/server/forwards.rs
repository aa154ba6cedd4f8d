//! Volumes that go to several servers at once.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use afs::calls::volserver::{Call, Reply, attach};
use afs::errors::rx::RX_CALL_DEAD;
use afs::partition::PartitionId;
use afs::types::{Date, Destination, Fid, Replica, RestoreCookie, VolumeId};
use afs::wire::{Chars, List};
use parking_lot::Mutex;
use rx::security::{Level, Null, rxkad};
use rx::{Endpoint, Service};

use super::files::quota;
use super::{Rig, TIME, VOLUME, root};

const CLONE: VolumeId = VolumeId(VOLUME.0 + 1);
const COPY: VolumeId = VolumeId(VOLUME.0 + 20);
/// More than all buffers between two servers hold, and less than a reply of a test may have.
const LONG: usize = 12 << 20;
const REFUSAL: i32 = 4711;

/// What another server does with a dump.
enum Behavior {
    /// It refuses the dump after so many bytes, with a code.
    Refuses(usize, i32),
    /// It reads nothing until the test says so, and then sends the dump to the test.
    Waits(Mutex<Receiver<()>>, Sender<Vec<u8>>),
}

impl Service for Behavior {
    fn quick(&self, _: &rx::Request) -> Option<rx::Reply> {
        None
    }

    fn run(&self, call: &mut rx::Call) -> Result<(), i32> {
        let mut arguments = vec![0; 4];
        call.read_exact(&mut arguments).map_err(|_| 1)?;
        let opcode = u32::from_be_bytes([arguments[0], arguments[1], arguments[2], arguments[3]]);
        arguments.resize(Call::size_before_data(opcode).ok_or(2)?, 0);
        call.read_exact(&mut arguments).map_err(|_| 3)?;
        match self {
            Self::Refuses(after, code) => {
                call.read_exact(&mut vec![0; *after]).map_err(|_| 4)?;
                Err(*code)
            }
            Self::Waits(until, to) => {
                until.lock().recv().map_err(|_| 5)?;
                to.send(call.read_all(2 * LONG).map_err(|_| 6)?).map_err(|_| 7)
            }
        }
    }
}

/// Another volume server.
fn stub(rig: &Rig, behavior: Behavior) -> (Endpoint, Replica) {
    let key = rxkad::Server::new(Arc::clone(&rig.keys), Level::Clear);
    let options = rx::Options {
        classes: vec![Arc::new(Null), Arc::new(key)],
        services: vec![(4, Arc::new(behavior))],
        workers: 2,
        ..rx::Options::default()
    };
    let endpoint = Endpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), options).unwrap();
    let replica = Replica { transaction: 1, server: destination(endpoint.address()) };
    (endpoint, replica)
}

fn destination(address: SocketAddrV4) -> Destination {
    Destination { host: address.ip().to_bits(), port: address.port().into(), security: 1 }
}

/// A server whose volume has a file of [`LONG`] bytes and a clone, and the file.
fn source(limits: afs::server::ForwardLimits) -> (Rig, Fid) {
    source_of(limits, LONG)
}

fn source_of(limits: afs::server::ForwardLimits, length: usize) -> (Rig, Fid) {
    let mut rig = Rig::new();
    let image = rig.dir.path().join("d0");
    rig.stop();
    rig.open(image);
    // All of these are about dumps.
    rig.start_with(|options| options.forwards = afs::server::ForwardLimits { blocks: false, ..limits });
    rig.volume(VOLUME, "v");
    rig.client(Some("admin")).call(quota(0)).unwrap();
    let (operator, client) = (rig.operator(), rig.client(None));
    let file = client.create(root(VOLUME), "f").unwrap().fid;
    client.store(file, 0, &testpools::noise(7, length), length as u64).unwrap();
    let transaction = operator.begin(VOLUME, attach::BUSY).unwrap();
    operator.clone_volume(transaction, 1, "v.readonly", CLONE).unwrap();
    operator.end(transaction).unwrap();
    let transaction = operator.begin(CLONE, attach::OFFLINE).unwrap();
    operator.complete(transaction);
    (rig, file)
}

/// Sends a volume to several servers, and returns the code of each.
fn forward(rig: &Rig, volume: VolumeId, to: Vec<Replica>) -> Vec<i32> {
    let operator = rig.operator();
    let transaction = operator.begin(volume, attach::BUSY).unwrap();
    let cookie = RestoreCookie { name: Chars::new(b"copy"), parent: COPY, ..RestoreCookie::default() };
    let (since, to) = (Date(0), List::new(to).unwrap());
    let call = Call::ForwardMultiple { transaction, since, to, spare: 0, cookie };
    let Reply::ForwardMultiple(codes) = operator.call(call).unwrap() else { panic!() };
    operator.end(transaction).unwrap();
    codes.into_vec()
}

/// The dump that ForwardMultiple sends.
fn dump(rig: &Rig, volume: VolumeId) -> Vec<u8> {
    let operator = rig.operator();
    let transaction = operator.begin(volume, attach::BUSY).unwrap();
    let dump = operator.raw(&Call::DumpV2 { transaction, since: Date(0), flags: 1 }, &[]).unwrap();
    operator.end(transaction).unwrap();
    dump
}

/// Goal: a server that refuses a dump in the middle has its code, and another one gets the volume
/// nevertheless. That holds for a volume that may change, and for a clone.
#[test]
fn a_server_that_refuses() {
    let (rig, file) = source(Default::default());
    let there = Rig::new();
    for volume in [VOLUME, CLONE] {
        let (_endpoint, refusing) = stub(&there, Behavior::Refuses(100_000, REFUSAL));
        let operator = there.operator();
        let transaction = operator.create(COPY, "copy").unwrap();
        let server = destination(there.server().volume_address().unwrap());
        let codes = forward(&rig, volume, vec![refusing, Replica { transaction, server }]);
        assert_eq!(codes, [REFUSAL, 0], "{volume}");
        operator.complete(transaction);
        let copy = Fid { volume: COPY, ..file };
        let reader = there.client(None);
        let tail = reader.fetch(copy, LONG as i64 - 1000, 9999).unwrap().0;
        assert!(tail == testpools::noise(7, LONG)[LONG - 1000..]);
        let transaction = operator.begin(COPY, attach::OFFLINE).unwrap();
        operator.call(Call::DeleteVolume { transaction }).unwrap();
        operator.end(transaction).unwrap();
    }
}

/// Goal: a server that ends the call with code 0 has not taken the volume.
#[test]
fn a_server_that_refuses_with_code_0() {
    let (rig, _) = source(Default::default());
    let (_endpoint, refusing) = stub(&rig, Behavior::Refuses(100_000, 0));
    assert_eq!(forward(&rig, CLONE, vec![refusing.clone()]), [RX_CALL_DEAD]);
    let operator = rig.operator();
    let transaction = operator.begin(CLONE, attach::BUSY).unwrap();
    let Replica { server: to, transaction: to_transaction } = refusing;
    let cookie = RestoreCookie { name: Chars::new(b"copy"), parent: COPY, ..RestoreCookie::default() };
    let call = Call::Forward { transaction, since: Date(0), to, to_transaction, cookie };
    // The client has the code as an error of its own.
    assert!(matches!(operator.connection.call(call.request(), TIME), Err(rx::Error::Dead)));
    operator.end(transaction).unwrap();
}

/// Goal: a server that takes nothing for a while does not keep another one waiting, and gets all
/// of the dump of a clone later.
#[test]
fn a_slow_server() {
    let limits = afs::server::ForwardLimits { lag: Duration::ZERO, ..Default::default() };
    let (rig, _) = source(limits);
    let there = Rig::new();
    let (go_on, until) = channel();
    let (to, taken) = channel();
    let (_endpoint, slow) = stub(&there, Behavior::Waits(Mutex::new(until), to));
    let operator = there.operator();
    let transaction = operator.create(COPY, "copy").unwrap();
    let server = destination(there.server().volume_address().unwrap());
    let codes = std::thread::scope(|scope| {
        let fast = Replica { transaction, server };
        let codes = scope.spawn(|| forward(&rig, CLONE, vec![slow, fast]));
        let begun = Instant::now();
        let is_restored = || {
            let Reply::Monitor(all) = operator.call(Call::Monitor {}).unwrap() else { panic!() };
            let ours = all.iter().find(|status| status.id == transaction).unwrap();
            ours.last_call.as_bytes() == b"Restore" && ours.has_call == 0
        };
        while !is_restored() {
            assert!(begun.elapsed() < TIME, "the fast server waits for the slow one");
            std::thread::yield_now();
        }
        go_on.send(()).unwrap();
        codes.join().unwrap()
    });
    assert_eq!(codes, [0, 0]);
    let (taken, expected) = (taken.recv().unwrap(), dump(&rig, CLONE));
    assert_eq!(taken.len(), expected.len());
    assert!(taken == expected, "the dump has other bytes");
}

/// Goal: a server that takes nothing at all is given up.
#[test]
fn a_server_that_hangs() {
    let limits = afs::server::ForwardLimits { idle: Duration::from_millis(100), ..Default::default() };
    let (rig, _) = source(limits);
    let (go_on, until) = channel();
    let (_endpoint, hanging) = stub(&rig, Behavior::Waits(Mutex::new(until), channel().0));
    for volume in [VOLUME, CLONE] {
        assert_eq!(forward(&rig, volume, vec![hanging.clone()]), [RX_CALL_DEAD], "{volume}");
    }
    drop(go_on);
}

/// Goal: a server that takes nothing is given up in the same time if the dump was written whole,
/// and waits in the buffers of both sides.
#[test]
fn a_server_that_hangs_with_a_short_dump() {
    let limits = afs::server::ForwardLimits { idle: Duration::from_millis(100), ..Default::default() };
    let (rig, _) = source_of(limits, 600_000);
    let (go_on, until) = channel();
    let (_endpoint, hanging) = stub(&rig, Behavior::Waits(Mutex::new(until), channel().0));
    assert_eq!(forward(&rig, CLONE, vec![hanging]), [RX_CALL_DEAD]);
    drop(go_on);
}

/// Goal: neither a partition that is forced out nor a server that ends waits for a server that
/// takes nothing.
#[test]
fn forwards_that_end_early() {
    for is_forced_out in [true, false] {
        let (mut rig, _) = source(Default::default());
        let there = Rig::new();
        let (go_on, until) = channel();
        let (_endpoint, hanging) = stub(&there, Behavior::Waits(Mutex::new(until), channel().0));
        let (operator, watcher) = (rig.operator(), rig.operator());
        let transaction = operator.begin(CLONE, attach::BUSY).unwrap();
        let cookie = RestoreCookie { name: Chars::new(b"copy"), parent: COPY, ..RestoreCookie::default() };
        let (since, to) = (Date(0), List::new(vec![hanging]).unwrap());
        let call = Call::ForwardMultiple { transaction, since, to, spare: 0, cookie };
        std::thread::scope(|scope| {
            // The reply depends on which end it sees first.
            scope.spawn(|| drop(operator.connection.call(call.request(), TIME)));
            let begun = Instant::now();
            let is_running = || {
                let Reply::Monitor(all) = watcher.call(Call::Monitor {}).unwrap() else { panic!() };
                all.iter().any(|status| status.id == transaction && status.has_call != 0)
            };
            while !is_running() {
                assert!(begun.elapsed() < TIME, "the call does not begin");
                std::thread::yield_now();
            }
            let begun = Instant::now();
            match is_forced_out {
                true => rig.server().force_out(PartitionId(0)).unwrap(),
                false => drop(rig.server.take()),
            }
            assert!(begun.elapsed() < TIME, "the end waits for the other server");
        });
        drop(go_on);
    }
}
