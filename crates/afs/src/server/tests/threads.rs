//! Many threads at the same time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::*;

const CLIENTS: u8 = 4;
const FILES: u32 = 6;
const ROUNDS: u32 = 3_000;

/// What a client caches of a file: the version, and how often it was called back.
#[derive(Default)]
struct Cached {
    version: Option<u64>,
    breaks: u64,
}

type Caches = Arc<Vec<Vec<Mutex<Cached>>>>;

/// Goal: once a change has returned, no client believes in an older version, whatever other threads
/// do. All counters agree in the end.
#[test]
fn caches_are_never_stale() {
    let caches: Caches =
        Arc::new((0..CLIENTS).map(|_| (0..FILES).map(|_| Mutex::default()).collect()).collect());
    let taken = Arc::clone(&caches);
    let taker: Taker = Box::new(move |peer, fids| {
        for fid in fids {
            let client = &taken[usize::from(peer.ip().octets()[3]) - 1];
            let mut cached = client[fid.unique.0 as usize].lock();
            (cached.version, cached.breaks) = (None, cached.breaks + 1);
        }
    });
    let fake = Fake { taker: Some(taker), ..Fake::default() };
    let world = World::with(fake, Options::default(), Limits::default());
    let hosts: Vec<_> = (1..=CLIENTS).map(|number| world.host(number)).collect();
    let volume = world.callbacks.volume(VOLUME);
    let versions: Vec<AtomicU64> = (0..FILES).map(|_| AtomicU64::new(0)).collect();
    let seed = AtomicU32::new(1);
    let read = |client: usize, number: u32| {
        let cached = &caches[client][number as usize];
        let before = cached.lock().breaks;
        let promise = volume.promise(&hosts[client], file(number).0, Unique(number), now());
        let version = versions[number as usize].load(Ordering::SeqCst);
        let mut cached = cached.lock();
        // A client that is called back during its call does not keep the answer.
        if cached.breaks == before && promise.expires > 0 {
            cached.version = Some(version);
        }
    };
    let write = |number: u32| {
        let version = versions[number as usize].fetch_add(1, Ordering::SeqCst) + 1;
        volume.changed(&[(file(number).0, Unique(number))], None);
        for client in &*caches {
            let cached = client[number as usize].lock().version;
            assert!(cached.is_none_or(|cached| cached >= version), "{cached:?} after {version}");
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (read, write, seed, world, hosts) = (&read, &write, &seed, &world, &hosts);
            scope.spawn(move || {
                let mut random = seed.fetch_add(0x9e37_79b9, Ordering::Relaxed) | 1;
                for _ in 0..ROUNDS {
                    random ^= random << 13;
                    random ^= random >> 17;
                    random ^= random << 5;
                    let (client, number) = (random as usize / 64 % usize::from(CLIENTS), random % FILES);
                    match thread {
                        0 | 1 => write(number),
                        2 => world.callbacks.maintain(now()),
                        _ => read(client, number),
                    }
                    assert!(hosts[client].is_ready());
                }
            });
        }
    });
    assert_eq!(hosts.iter().map(|host| host.promises()).sum::<usize>(), world.callbacks.count());
    assert_eq!(volume.count(), world.callbacks.count());
    (0..FILES).for_each(write);
    assert_eq!((volume.count(), world.callbacks.count()), (0, 0));
}

/// Goal: hosts that come, move and vanish while files change end up told of each change.
#[test]
fn hosts_that_move_are_told_in_the_end() {
    let world = World::new();
    let host = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    world.fake.set(peer(2), Some(1));
    std::thread::scope(|scope| {
        let (world, volume, host) = (&world, &volume, &host);
        scope.spawn(move || {
            for round in 0..500u32 {
                // From both addresses in turns. Who does not answer is another host.
                let found = world.hosts.of(peer(1 + (round % 2) as u8), EPOCH, true);
                assert!(!found.is_ready() || found.number() == host.number());
                volume.promise(&found, file(1).0, file(1).1, now());
            }
        });
        scope.spawn(move || (0..500).for_each(|_| volume.changed(&[file(1)], None)));
        scope.spawn(move || {
            for round in 0..500 {
                world.fake.silence(peer(1), round % 3 == 0);
            }
            world.fake.silence(peer(1), false);
        });
    });
    assert!(world.hosts.of(peer(2), EPOCH, true).is_ready());
    assert!(host.is_ready() && host.address() == Some(peer(2)));
    assert_eq!(host.promises(), world.callbacks.count());
}
