//! The bounds of the table, and that no count is lost.

use std::net::Ipv4Addr;

use rx::security::{ConnectionId, Identity, Level};

use super::*;

const CREATE_FILE: u32 = 137;
const MOST: usize = PARTS * CLIENTS;
/// How long each call takes.
const TOOK: Duration = Duration::from_nanos(3);

fn info(address: u32, user: Option<&str>, proved: bool) -> Info {
    let identity = user.map(|name| {
        let (name, cell) = name.split_once('@').unwrap_or((name, ""));
        let (name, cell) = (name.to_owned(), cell.to_owned());
        Arc::new(Identity { name, cell, level: Level::Clear, expires: 0, kvno: 1 })
    });
    Info {
        peer: SocketAddrV4::new(Ipv4Addr::from_bits(address), 7001),
        service: 1,
        security: 0,
        identity,
        user_status: 0,
        connection: ConnectionId { epoch: 1, cid: 4 },
        proved,
    }
}

fn sum(clients: &Clients) -> Done {
    let (all, mut sum, _) = clients.snapshot();
    all.iter().for_each(|(_, done)| sum += *done);
    sum
}

/// Goal: calls are counted by client, user and kind. One address with two users is two clients.
#[test]
fn kinds_and_users() {
    let clients = Clients::default();
    for (user, number, failed) in [
        (None, 132, false),
        (Some("alice"), CREATE_FILE, true),
        (Some("alice"), 65_538, false),
        (Some("bob@other.test"), 65_537, false),
        (Some("bob@other.test"), 4711, false),
    ] {
        let client = clients.of(&info(1, user, true), 0);
        client.read.add(10);
        clients.ended(&client, number, TOOK, failed, 0);
    }
    let (mut all, others, next) = clients.snapshot();
    all.sort_by_key(|(client, _)| client.number);
    let of = |kinds: &[Kind], errors, read| {
        let ns = 3 * kinds.len() as u64;
        let mut done = Done { errors, read, ns, ..Done::default() };
        kinds.iter().for_each(|kind| done.kinds[*kind as usize] += 1);
        done
    };
    let seen: Vec<_> = all.iter().map(|(client, done)| (client.user.as_deref(), *done)).collect();
    let expected = [
        (None, of(&[Kind::Status], 0, 10)),
        (Some("alice"), of(&[Kind::MakeFile, Kind::StoreData], 1, 20)),
        (Some("bob@other.test"), of(&[Kind::Fetch, Kind::Other], 0, 20)),
    ];
    assert_eq!((seen.as_slice(), others, next), (expected.as_slice(), Done::default(), 4));
}

/// Goal: 100,000 made-up clients take no more places than there are, and not those of clients that
/// proved their addresses. The totals have each of their calls.
#[test]
fn made_up_clients() {
    let clients = Clients::default();
    let known: Vec<_> = (0..200).map(|at| clients.of(&info(at, None, true), 0)).collect();
    known.iter().for_each(|client| clients.ended(client, CREATE_FILE, TOOK, false, 0));
    for at in 0..100_000 {
        let client = clients.of(&info(1_000 + at, None, false), 7);
        client.written.add(3);
        clients.ended(&client, 132, TOOK, true, 7);
    }
    let (all, others, _) = clients.snapshot();
    assert!(all.len() <= MOST && all.len() > MOST / 2, "{}", all.len());
    assert!(known.iter().all(|client| !client.has_left.load(Ordering::SeqCst)));
    let total = sum(&clients);
    assert_eq!((total.calls(), total.errors, total.written), (100_200, 100_000, 300_000));
    assert!(others.calls() > 90_000, "{others:?}");
}

/// Goal: a client that made room gets new counters, and what is counted at its old ones is in the
/// total at once.
#[test]
fn late_calls() {
    let clients = Clients::default();
    let late = clients.of(&info(1, None, false), 0);
    clients.ended(&late, 132, TOOK, false, 0);
    // Enough for each part.
    (0..100_000).for_each(|at| _ = clients.of(&info(1_000 + at, None, false), 1));
    assert!(late.has_left.load(Ordering::SeqCst));
    let before = sum(&clients).calls();
    late.read.add(5);
    clients.ended(&late, 132, TOOK, false, 1);
    assert_eq!((sum(&clients).calls() - before, sum(&clients).read), (1, 5));
    assert!(clients.of(&info(1, None, false), 1).number > late.number);
}

/// Goal: no call is lost while clients make room in other threads, and none counts twice.
#[test]
fn calls_beside_room() {
    const CALLS: u32 = 20_000;
    let clients = Clients::default();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let clients = &clients;
            scope.spawn(move || {
                let mut client = clients.of(&info(thread, None, false), 0);
                for call in 0..CALLS {
                    client.read.add(1);
                    clients.ended(&client, 132, TOOK, false, 0);
                    if call % 4 == 0 {
                        client = clients.of(&info(thread * CALLS + call, None, false), 0);
                    }
                }
            });
        }
        // Totals of one reader never shrink.
        let mut last = 0;
        for _ in 0..200 {
            let now = sum(&clients).calls();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    });
    let total = sum(&clients);
    assert_eq!((total.calls(), total.read), (u64::from(3 * CALLS), u64::from(3 * CALLS)));
}
