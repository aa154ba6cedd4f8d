//! Volumes of real pools, served over real sockets to a client of our own.
#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

mod client;
mod tls;

use client::{Client, string};
use dsl::ops::create::{Create, NewVolume};
use dsl::ops::snapshot::Snapshot;
use nbd::abi::{cmd, cmd_flag, flag, opt, rep, state};
use nbd::{Exports, Listener, Listing, Offer, Server, Volumes};
use ondisk::Txg;
use poolhouse::{OpenOptions, Pool};
use spa::create::VdevShape;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK: u64 = 16 << 10;

/// A listener's exports: all of one pool.
struct All(Arc<Volumes>);

impl Exports for All {
    fn find(&self, name: &str) -> Option<Offer> {
        Some(Offer { name: name.to_owned(), volumes: Arc::clone(&self.0), read_only: false })
    }

    fn listing(&self) -> Listing {
        Listing::All(vec![Arc::clone(&self.0)])
    }
}

/// A pool with its volumes served.
struct Stand {
    _listener: Listener,
    _server: Server,
    volumes: Arc<Volumes>,
    pool: Pool,
    dir: tempfile::TempDir,
}

impl Stand {
    /// Makes a pool with the volumes `tank/v` of 8 MiB and `tank/w` of 1 MiB.
    fn new() -> Stand {
        let dir = tempfile::tempdir().unwrap();
        let images = testpools::images(dir.path(), 1, 256 << 20);
        let pool = Pool::with_spa(testpools::new_pool(VdevShape::Single, &images), None).unwrap();
        for (name, size) in [("tank/v", 8 << 20), ("tank/w", 1 << 20)] {
            let contents = Arc::new(NewVolume { size, block: BLOCK as u32 });
            let (name, props) = (name.to_owned(), Vec::new());
            run(&pool, Create { name, contents, props, crypt: None, enforce_limits: false });
        }
        Self::serving(pool, dir)
    }

    fn serving(pool: Pool, dir: tempfile::TempDir) -> Stand {
        let volumes = Volumes::new(pool.clone());
        let server = Server::start().unwrap();
        let exports = Arc::new(All(Arc::clone(&volumes)));
        let listener = server.listen_unix(&dir.path().join("sock"), exports, None).unwrap();
        Stand { _listener: listener, _server: server, volumes, pool, dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn client(&self, name: &str) -> Client {
        Client::of(&self.socket(), name)
    }

    fn sync(&self) {
        self.pool.spa().writer().unwrap().sync_all().unwrap();
    }

    /// Ends all connections, and waits until no volume is open.
    fn idle(&self) {
        assert!(self.volumes.close(true));
        self.volumes.reopen();
    }

    fn snapshot(&self, name: &str) {
        run(&self.pool, Snapshot { names: vec![name.into()], props: Vec::new(), enforce_limits: true });
    }

    fn destroy(&self, name: &str) -> Result<(), spa::engine::TaskError> {
        let task = dsl::ops::destroy::DestroyHead { name: name.into() };
        self.pool.spa().writer().unwrap().run(Box::new(task))
    }
}

fn run(pool: &Pool, task: impl dsl::SyncTask + Send + 'static) {
    pool.spa().writer().unwrap().run(Box::new(task)).unwrap();
}

fn import(dir: &Path) -> Pool {
    let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    Pool::open(&[dir], &options).unwrap()
}

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Goal: a client gets descriptions of exports in each way that the protocol has. A refusal leaves
/// the negotiation usable.
#[test]
fn negotiation() {
    let stand = Stand::new();
    stand.snapshot("tank/v@s");
    let mut c = Client::connect(&stand.socket());
    let names = |c: &mut Client| {
        let said = c.option(opt::LIST, b"");
        let (last, names) = said.split_last().unwrap();
        assert_eq!(*last, (rep::ACK, vec![]));
        names
            .iter()
            .map(|(kind, body)| {
                assert_eq!(*kind, rep::SERVER);
                String::from_utf8(body[4..].to_vec()).unwrap()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&mut c), ["tank/v", "tank/w"]);
    for name in ["tank", "tank/none", "tank/v@none", "", "nonsense@@", "tank/v#b", &"x".repeat(4000)] {
        assert_eq!(c.go(name), Err(rep::ERR_UNKNOWN), "{name}");
    }
    assert_eq!(c.option(opt::STARTTLS, b"")[0].0, rep::ERR_UNSUP);
    assert_eq!(c.option(99, b"xyz")[0].0, rep::ERR_UNSUP);
    assert_eq!(c.option(opt::LIST, b"x")[0].0, rep::ERR_INVALID);
    assert_eq!(c.option(opt::GO, b"x")[0].0, rep::ERR_INVALID);
    assert_eq!(c.option(77, &vec![0; 100_000])[0].0, rep::ERR_TOO_BIG);
    let query = |name: &str, q: &str| [string(name), 1u32.to_be_bytes().to_vec(), string(q)].concat();
    let unstructured = c.option(opt::SET_META_CONTEXT, &query("tank/v", "base:allocation"));
    assert_eq!(unstructured[0].0, rep::ERR_INVALID);
    c.option(opt::STRUCTURED_REPLY, b"");
    let list = c.option(opt::LIST_META_CONTEXT, &query("tank/v", "base:"));
    assert_eq!(list, [(rep::META_CONTEXT, b"\0\0\0\0base:allocation".to_vec()), (rep::ACK, vec![])]);
    assert_eq!(c.option(opt::LIST_META_CONTEXT, &query("tank/v", "x-other:"))[0].0, rep::ACK);
    assert_eq!(c.option(opt::LIST_META_CONTEXT, &query("tank/none", "base:"))[0].0, rep::ERR_UNKNOWN);
    let said = c.option(opt::INFO, &[string("tank/v"), vec![0, 3, 0, 1, 0, 2, 0, 3]].concat());
    let kinds: Vec<_> = said.iter().map(|(kind, body)| (*kind, body.get(..2).map(|b| b[1]))).collect();
    let info = |kind| (rep::INFO, Some(kind));
    assert_eq!(kinds, [info(0), info(1), info(2), info(3), (rep::ACK, None)]);
    assert_eq!(said[1].1[2..], *b"tank/v");
    assert_eq!(said[3].1[2..], [1, BLOCK as u32, 32 << 20].map(u32::to_be_bytes).concat());
    // A description does not open the export.
    assert!(stand.volumes.users().is_empty());
    // A context selected for another export doesn't count.
    c.option(opt::SET_META_CONTEXT, &query("tank/w", "base:allocation"));
    c.go("tank/v").unwrap();
    assert_eq!(c.size, 8 << 20);
    let all = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES;
    let more = flag::SEND_DF | flag::CAN_MULTI_CONN | flag::SEND_CACHE | flag::SEND_FAST_ZERO;
    assert_eq!(c.flags, all | more);
    assert_eq!(c.ask(cmd::BLOCK_STATUS, 0, 0, 4096, b"").error, 22);
    let users = stand.volumes.users();
    assert_eq!((users.len(), users[0].name.as_str(), users[0].connections), (1, "tank/v", 1));
    let mut aborts = Client::connect(&stand.socket());
    assert_eq!(aborts.option(opt::ABORT, b"")[0].0, rep::ACK);
    assert!(aborts.is_over());
}

/// Goal: clients that begin in an older way get simple replies. A refusal ends the connection.
#[test]
fn older_clients() {
    let stand = Stand::new();
    for (flags, zeroes) in [(3, 0), (1, 124), (0, 124)] {
        let stream = UnixStream::connect(stand.socket()).unwrap();
        let mut c = Client::greet(stream, flags);
        c.send_option(opt::EXPORT_NAME, b"tank/w");
        let said = c.take(10 + zeroes);
        assert_eq!(said[..8], (1u64 << 20).to_be_bytes());
        c.write(5, b"simple");
        c.send(cmd::READ, 0, 5, 6, b"");
        let head = c.take(16);
        assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        assert_eq!(c.take(6), b"simple");
        c.send(cmd::READ, 0, 1 << 20, 1, b"");
        assert_eq!(c.take(16)[4..8], [0, 0, 0, 22]);
        c.bye();
    }
    let mut unknown = Client::connect(&stand.socket());
    unknown.send_option(opt::EXPORT_NAME, b"tank/none");
    assert!(unknown.is_over());
    let mut flags = Client::greet(UnixStream::connect(stand.socket()).unwrap(), 4);
    assert!(flags.is_over());
}

/// Goal: after changes by several connections at once, answered in any order, a volume equals an
/// array. Its holes are reported.
#[test]
fn like_an_array() {
    let stand = Stand::new();
    let mut model = vec![0u8; 8 << 20];
    let mut clients: Vec<Client> = (0..3).map(|_| stand.client("tank/v")).collect();
    let mut dice = Dice(5);
    for round in 0..12 {
        // Each client has a third of the volume, so their order doesn't matter.
        let third = model.len() as u64 / 3;
        let mut sent = Vec::new();
        for (n, c) in clients.iter_mut().enumerate() {
            let begin = n as u64 * third;
            let at = begin + dice.below(third - 5 * BLOCK);
            let len = 1 + dice.below(5 * BLOCK);
            let range = at as usize..(at + len) as usize;
            let (command, flags) = match dice.below(4) {
                0 => (cmd::WRITE_ZEROES, [0, cmd_flag::NO_HOLE][dice.below(2) as usize]),
                _ => (cmd::WRITE, [0, cmd_flag::FUA][dice.below(2) as usize]),
            };
            let data =
                if command == cmd::WRITE { testpools::noise(dice.0, len as usize) } else { Vec::new() };
            sent.push((c.send(command, flags, at, len as u32, &data), c.send(cmd::FLUSH, 0, 0, 0, b"")));
            match command {
                cmd::WRITE => model[range].copy_from_slice(&data),
                _ => model[range].fill(0),
            }
        }
        for (c, (first, second)) in clients.iter_mut().zip(sent) {
            let mut cookies = [c.answer(), c.answer()].map(|a| {
                assert_eq!(a.error, 0);
                a.cookie
            });
            cookies.sort_unstable();
            assert_eq!(cookies, [first, second]);
        }
        let c = &mut clients[round % 3];
        let from = dice.below(6 << 20);
        assert!(c.read(from, 2 << 20) == model[from as usize..][..2 << 20], "round {round}");
    }
    let status = clients[0].ask(cmd::BLOCK_STATUS, 0, 0, 8 << 20, b"");
    let mut at = 0;
    for (len, what) in &status.extents {
        let zero = model[at..at + *len as usize].iter().all(|b| *b == 0);
        assert!(*what == 0 || (*what == state::HOLE | state::ZERO && zero));
        at += *len as usize;
    }
    assert_eq!(at, 8 << 20);
    assert!(status.extents.iter().any(|(_, what)| *what != 0));
    assert!(clients[0].ask(cmd::READ, 0, 0, 8 << 20, b"").holes > 0);
    assert!(clients[0].read(0, 8 << 20) == model);
    assert!(clients[0].ask(cmd::CACHE, 0, 0, 8 << 20, b"").error == 0);
    clients.into_iter().for_each(Client::bye);
    stand.idle();
    stand.pool.export().unwrap();
    let dir = stand.dir.path().to_owned();
    let Stand { _listener, _server, volumes, pool, dir: _kept } = stand;
    drop((_listener, _server, volumes, pool));
    testpools::judge(&dir, "tank");
}

/// Goal: a client may have hundreds of requests in progress. Each is answered once, in any order.
#[test]
fn many_in_flight() {
    let stand = Stand::new();
    let mut c = stand.client("tank/v");
    c.write(0, &testpools::noise(1, 4 << 20));
    let mut to = Client { stream: c.stream.try_clone().unwrap(), ..Client::connect(&stand.socket()) };
    let sender = std::thread::spawn(move || {
        (0..1000u64).map(|n| to.send(cmd::READ, 0, n * 4096, 4096, b"")).collect::<Vec<_>>()
    });
    let mut cookies: Vec<u64> = (0..1000)
        .map(|_| {
            let answer = c.answer();
            assert_eq!((answer.error, answer.data.len()), (0, 1));
            answer.cookie
        })
        .collect();
    cookies.sort_unstable();
    assert_eq!(cookies, sender.join().unwrap());
}

/// Goal: a flush on one connection covers changes acknowledged on another, and a forced write is
/// durable. Both survive a crash and a replay.
#[test]
fn flushed_is_kept() {
    let stand = Stand::new();
    let (mut a, mut b) = (stand.client("tank/v"), stand.client("tank/v"));
    let noise = testpools::noise(9, 200_000);
    a.flush();
    a.write(1000, &noise);
    b.flush();
    let forced = b.ask(cmd::WRITE, cmd_flag::FUA, 3 << 20, 6, b"forced");
    assert_eq!(forced.error, 0);
    let zeroed = a.ask(cmd::WRITE_ZEROES, cmd_flag::FUA, 2000, 50_000, b"");
    assert_eq!(zeroed.error, 0);
    // The image as a crash would leave it now: the open transaction keeps its group from being
    // written.
    let live = stand.pool.spa().writer().unwrap();
    let hold = live.tx(0).unwrap();
    live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
    let left = tempfile::tempdir().unwrap();
    std::fs::copy(stand.dir.path().join("d0.img"), left.path().join("d0.img")).unwrap();
    drop(hold);
    testpools::judge(left.path(), "tank");
    let after = import(left.path());
    let volume = after.open_volume(after.dataset("tank/v").unwrap().dsl()).unwrap();
    let mut want = vec![0; 8 << 20];
    want[1000..201_000].copy_from_slice(&noise);
    want[2000..52_000].fill(0);
    want[3 << 20..][..6].copy_from_slice(b"forced");
    let mut found = vec![0; 8 << 20];
    volume.read_at(&mut found, 0).unwrap();
    assert!(found == want);
}

/// Goal: trimmed or zeroed space is free after the next group, and is reported as a hole. A
/// snapshot keeps its data, which can be read and not written.
#[test]
fn trimmed_is_free() {
    let stand = Stand::new();
    let used = || {
        stand.sync();
        stand.sync();
        let root = stand.pool.dataset("tank").unwrap();
        let used = root.dsl().property(dsl::Prop::Used).unwrap().unwrap().value;
        let dsl::Value::Number(used) = used else { panic!("{used:?}") };
        used
    };
    let empty = used();
    let mut c = stand.client("tank/v");
    let noise = testpools::noise(2, 6 << 20);
    c.write(0, &noise);
    let full = used();
    assert!(full > empty + (6 << 20));
    stand.snapshot("tank/v@kept");
    assert_eq!(c.ask(cmd::TRIM, 0, 0, 3 << 20, b"").error, 0);
    assert!(used() > full - (1 << 20));
    let mut old = stand.client("tank/v@kept");
    assert_eq!(old.flags & (flag::READ_ONLY | flag::SEND_TRIM), flag::READ_ONLY);
    assert!(old.read(0, 6 << 20) == noise);
    for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
        assert_eq!(old.ask(command, 0, 0, 1, &b"x"[..usize::from(command == cmd::WRITE)]).error, 1);
    }
    let task = || dsl::ops::destroy::DestroySnapshots { names: vec!["tank/v@kept".into()], defer: false };
    assert!(stand.pool.spa().writer().unwrap().run(Box::new(task())).is_err());
    old.bye();
    drop(stand.client("tank/v@kept"));
    drop(c);
    stand.idle();
    run(&stand.pool, task());
    let mut c = stand.client("tank/v");
    assert!(used() < full - (2 << 20));
    assert_eq!(c.ask(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, 3 << 20, 3 << 20, b"").error, 0);
    assert!(used() < empty + (1 << 20));
    assert_eq!(c.ask(cmd::BLOCK_STATUS, 0, 0, 8 << 20, b"").extents, [(8 << 20, 3)]);
}

/// Goal: a volume is in use while it has clients, and free afterwards. The close of a pool waits
/// for them, or ends them.
#[test]
fn in_use() {
    let stand = Stand::new();
    let mut c = stand.client("tank/w");
    assert!(stand.destroy("tank/w").is_err());
    assert!(!stand.volumes.close(false));
    c.write(0, b"still here");
    assert!(stand.volumes.close(true));
    assert!(c.is_over());
    let mut late = Client::connect(&stand.socket());
    assert_eq!(late.go("tank/w"), Err(rep::ERR_SHUTDOWN));
    stand.volumes.reopen();
    late.go("tank/w").unwrap();
    late.bye();
    stand.idle();
    stand.destroy("tank/w").unwrap();
    assert_eq!(Client::connect(&stand.socket()).go("tank/w"), Err(rep::ERR_UNKNOWN));
}

/// Goal: a volume resized in use keeps the remaining data, and its clients can't pass the new end.
#[test]
fn resized() {
    let stand = Stand::new();
    let mut c = stand.client("tank/w");
    c.write(0, &testpools::noise(1, 1 << 20));
    let object = stand.pool.dataset("tank/w").unwrap().dsl().object().0;
    let resize = |blocks: u64| stand.volumes.resize(object, blocks * BLOCK).unwrap();
    resize(1).unwrap();
    assert_eq!(c.ask(cmd::READ, 0, BLOCK - 1, 2, b"").error, 22);
    assert_eq!(c.ask(cmd::WRITE, 0, BLOCK - 1, 2, b"xy").error, 28);
    resize(100).unwrap();
    assert!(c.read(BLOCK, (99 * BLOCK) as u32).iter().all(|b| *b == 0));
    assert_eq!(stand.client("tank/w").size, 100 * BLOCK);
    assert!(stand.volumes.resize(object, 0).unwrap().is_err());
    assert!(stand.volumes.resize(u64::MAX, BLOCK).is_none());
}

/// Goal: thousands of connections that end at any point, and ten silent ones, delay no other client
/// and leave nothing open.
#[test]
fn come_and_gone() {
    let stand = Stand::new();
    let silent: Vec<UnixStream> = (0..10).map(|_| UnixStream::connect(stand.socket()).unwrap()).collect();
    for n in 0..3000 {
        let mut stream = UnixStream::connect(stand.socket()).unwrap();
        match n % 50 {
            0 => {
                let mut c = Client::of(&stand.socket(), "tank/v");
                c.send(cmd::READ, 0, 0, 1 << 20, b"");
            }
            1 => {
                let mut c = Client::of(&stand.socket(), "tank/v");
                // Fewer bytes than the header announces.
                c.send(cmd::WRITE, 0, 0, 1 << 20, &[1; 5000]);
            }
            2 => stream.write_all(&[0, 0, 0, 3, b'I', b'H']).unwrap(),
            _ => {}
        }
    }
    let mut c = stand.client("tank/v");
    assert!(c.read(0, 4096).iter().all(|b| *b == 0));
    drop((c, silent));
    stand.idle();
    stand.destroy("tank/v").unwrap();
}

/// Goal: no bytes of a client break the server, or keep it from others.
#[test]
fn hostile_bytes() {
    let stand = Stand::new();
    let mut watching = stand.client("tank/w");
    watching.write(0, b"untouched");
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut c = match seed % 3 {
            0 => Client::connect(&stand.socket()),
            _ => Client::of(&stand.socket(), "tank/v"),
        };
        for _ in 0..1 + dice.below(6) {
            let mut message = match seed % 3 {
                0 => {
                    let data = testpools::noise(dice.0, dice.below(300) as usize);
                    let len = [data.len() as u32, u32::MAX, 1 << 19][dice.below(8).min(2) as usize];
                    let option = dice.below(12) as u32;
                    [&b"IHAVEOPT"[..], &option.to_be_bytes(), &len.to_be_bytes(), &data].concat()
                }
                _ => {
                    let words = [0, 1, BLOCK, 8 << 20, 1 << 32, 1 << 63, u64::MAX];
                    let offset = words[dice.below(7) as usize].wrapping_add(dice.below(3)).wrapping_sub(1);
                    let len = words[dice.below(6) as usize] as u32;
                    let (flags, command) = (dice.below(64) as u16, dice.below(10) as u16);
                    [
                        &0x2560_9513u32.to_be_bytes()[..],
                        &flags.to_be_bytes(),
                        &command.to_be_bytes(),
                        &[0; 8],
                        &offset.to_be_bytes(),
                        &len.to_be_bytes(),
                    ]
                    .concat()
                }
            };
            if dice.below(4) == 0 {
                let at = dice.below(message.len() as u64) as usize;
                message[at] ^= 1 << dice.below(8);
            }
            // The server may have disconnected.
            if c.stream.write_all(&message).is_err() {
                break;
            }
        }
    }
    assert_eq!(watching.read(0, 9), b"untouched");
    drop(watching);
    stand.idle();
    stand.destroy("tank/v").unwrap();
}

/// Goal: a server that ends finishes the requests in progress and removes its socket. A socket that
/// a dead server left is replaced.
#[test]
fn ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let stand = Stand::new();
    let server = Server::start().unwrap();
    let exports: Arc<dyn Exports> = Arc::new(All(Arc::clone(&stand.volumes)));
    let listener = server.listen_unix(&path, Arc::clone(&exports), None).unwrap();
    assert!(server.listen_unix(&path, Arc::clone(&exports), None).is_err());
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert!(server.listen_unix(&file, exports, None).is_err());
    let mut c = Client::of(&path, "tank/w");
    c.write(0, b"x");
    drop(listener);
    assert!(!path.exists());
    c.write(1, b"y");
    drop(server);
    assert!(c.is_over());
    assert_eq!(stand.client("tank/w").read(0, 2), b"xy");
}
