use super::*;

/// Goal: a new host says who it is and gets a reset, once.
#[test]
fn a_new_host_is_asked_and_reset() {
    let world = World::new();
    world.fake.set(peer(1), Some(1));
    assert!(world.hosts.known(peer(1), EPOCH).is_none());
    let host = world.hosts.of(peer(1), EPOCH, true);
    assert!(host.is_ready() && host.wants_unified());
    assert_eq!((host.uuid(), host.address()), (Some(Uuid([1; 16])), Some(peer(1))));
    assert_eq!(world.fake.events(), [Event::About(peer(1)), Event::Reset(peer(1), true)]);
    assert!(Arc::ptr_eq(&host, &world.hosts.of(peer(1), EPOCH, true)));
    assert!(Arc::ptr_eq(&host, &world.hosts.known(peer(1), EPOCH).unwrap()));
    assert_eq!(world.fake.events(), []);
}

/// Goal: a client without a UUID is a host, too, with the old reset.
#[test]
fn old_clients_have_no_uuid() {
    let world = World::new();
    world.fake.peers.lock().insert(peer(1), Behaviour::default());
    let host = world.hosts.of(peer(1), EPOCH, true);
    assert!(host.is_ready() && !host.wants_unified() && host.uuid().is_none());
    assert_eq!(world.fake.events(), [Event::About(peer(1)), Event::Reset(peer(1), false)]);
}

/// Goal: a client that does not answer is served, and asked again only after the pause.
#[test]
fn silent_clients_are_asked_again_after_a_pause() {
    let world = World::with(Fake::default(), Options::default(), Limits::default());
    let host = world.hosts.of(peer(1), EPOCH, true);
    assert!(!host.is_ready());
    assert_eq!(world.fake.events(), [Event::About(peer(1))]);
    world.fake.set(peer(1), Some(1));
    assert!(!world.hosts.of(peer(1), EPOCH, true).is_ready());
    assert_eq!(world.fake.events(), []);

    let world = World::new();
    world.fake.silence(peer(1), true);
    assert!(!world.hosts.of(peer(1), EPOCH, true).is_ready());
    world.fake.set(peer(1), Some(1));
    assert!(world.hosts.of(peer(1), EPOCH, true).is_ready());
}

/// Goal: concurrent first calls of a client ask it once, and other clients don't wait for it.
#[test]
fn concurrent_calls_ask_once() {
    let world = World::new();
    world.fake.set(peer(1), Some(1));
    world.fake.set(peer(2), Some(2));
    world.fake.held.lock().push(peer(1));
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| world.hosts.of(peer(1), EPOCH, true).number())).collect();
        while world.hosts.talks() < 4 {
            std::thread::yield_now();
        }
        assert!(world.hosts.of(peer(2), EPOCH, true).is_ready());
        world.fake.release();
        let numbers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    });
    let asked = world.fake.events().into_iter().filter(|event| *event == Event::About(peer(1)));
    assert_eq!(asked.count(), 1);
}

/// Goal: silent clients take a bounded number of threads.
#[test]
fn few_threads_wait_for_clients() {
    let options = Options { talks: 1, ..Options::default() };
    let world = World::with(Fake::default(), options, Limits::default());
    world.fake.set(peer(1), Some(1));
    world.fake.set(peer(2), Some(2));
    world.fake.held.lock().push(peer(1));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| world.hosts.of(peer(1), EPOCH, true));
        while world.hosts.talks() < 1 {
            std::thread::yield_now();
        }
        assert!(!world.hosts.of(peer(2), EPOCH, true).is_ready());
        world.fake.release();
        assert!(first.join().unwrap().is_ready());
    });
    assert!(world.hosts.of(peer(2), EPOCH, true).is_ready());
}

/// Goal: a client that moves to another address is the same host, and keeps its promises.
#[test]
fn a_host_moves_with_its_uuid() {
    let world = World::new();
    let host = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    volume.promise(&host, file(1).0, file(1).1, now());
    world.fake.set(peer(9), Some(1));
    let moved = world.hosts.of(peer(9), EPOCH, true);
    assert!(Arc::ptr_eq(&host, &moved) && host.is_ready());
    assert_eq!(host.address(), Some(peer(9)));
    assert_eq!(world.fake.events(), [Event::About(peer(9))]);
    assert_eq!(world.hosts.count(), 1);
    volume.changed(&[file(1)], None);
    assert_eq!(world.fake.events(), [broken(9, &[1])]);
}

/// Goal: another client at the address of a host is another host, and the first one still gets what
/// it is owed.
#[test]
fn another_client_takes_an_address() {
    let world = World::new();
    let first = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    volume.promise(&first, file(1).0, file(1).1, now());
    // The same address and another program: its epoch is another one.
    world.fake.set(peer(1), Some(2));
    let second = world.hosts.of(peer(1), EPOCH + 1, true);
    assert!(!Arc::ptr_eq(&first, &second) && second.is_ready() && !first.is_ready());
    assert_eq!(world.fake.events(), [Event::About(peer(1)), Event::Reset(peer(1), true)]);
    volume.changed(&[file(1)], None);
    assert_eq!(world.fake.events(), []);
    world.fake.set(peer(3), Some(1));
    assert!(Arc::ptr_eq(&first, &world.hosts.of(peer(3), EPOCH, true)));
    assert_eq!(world.fake.events(), [Event::About(peer(3)), broken(3, &[1])]);
    assert_eq!(world.hosts.count(), 2);
}

/// Goal: when all hosts are owed a reset, so is one that has lost its address.
#[test]
fn hosts_without_an_address_are_reset() {
    let world = World::new();
    let first = world.host(1);
    world.fake.set(peer(1), Some(2));
    let second = world.hosts.of(peer(1), EPOCH + 1, true);
    assert!(second.is_ready() && first.address().is_none());
    world.hosts.owe_resets();
    assert!(!second.is_ready());
    world.fake.events();
    world.fake.set(peer(3), Some(1));
    assert!(Arc::ptr_eq(&first, &world.hosts.of(peer(3), EPOCH, true)));
    assert_eq!(world.fake.events(), [Event::About(peer(3)), Event::Reset(peer(3), true)]);
}

/// Goal: a client that was started again says who it is, and stays the same host.
#[test]
fn a_restarted_client_is_asked_again() {
    let world = World::new();
    let host = world.host(1);
    for epoch in [EPOCH + 1, EPOCH, EPOCH + 1] {
        assert!(Arc::ptr_eq(&host, &world.hosts.of(peer(1), epoch, true)));
    }
    assert_eq!(world.fake.events(), [Event::About(peer(1))]);
}

/// Goal: hosts beyond the limit are served without promises, and are not kept.
#[test]
fn hosts_are_bounded() {
    let options = Options { hosts: 8, ..Options::default() };
    let world = World::with(Fake::default(), options, Limits::default());
    let hosts: Vec<_> = (1..=8).map(|number| world.host(number)).collect();
    world.fake.set(peer(9), Some(9));
    assert!(!world.hosts.of(peer(9), EPOCH, true).is_ready());
    assert_eq!(world.hosts.count(), 8);
    // Those with promises stay when room is made.
    let volume = world.callbacks.volume(VOLUME);
    for host in &hosts[..4] {
        volume.promise(host, file(1).0, file(1).1, now());
    }
    world.hosts.forget_idle(now());
    assert_eq!(world.hosts.count(), 6);
    assert!(hosts[..4].iter().all(|host| host.is_ready()));
    assert!(world.hosts.of(peer(9), EPOCH, true).is_ready());
}

/// Goal: hosts with promises that are gone are found by a probe.
#[test]
fn idle_hosts_are_probed() {
    let world = World::new();
    let (there, gone, unused) = (world.host(1), world.host(2), world.host(3));
    let volume = world.callbacks.volume(VOLUME);
    for host in [&there, &gone] {
        volume.promise(host, file(1).0, file(1).1, now());
    }
    world.fake.silence(peer(2), true);
    let later = now() + Duration::from_secs(1000);
    world.hosts.probe_idle(Duration::from_secs(900), later);
    let mut events = world.fake.events();
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(events, [Event::Probe(peer(1)), Event::Probe(peer(2))]);
    assert!(there.is_ready() && !gone.is_ready() && unused.is_ready());
    volume.changed(&[file(1)], None);
    assert_eq!(world.fake.events(), [broken(1, &[1])]);
}

/// Goal: many forged first calls take few places and no host's place. Real hosts are found as
/// before: those that Rx has proved, and those that answer.
#[test]
fn forged_calls_displace_no_host() {
    let options = Options { hosts: 8, strangers: 4, retry: Duration::ZERO, ..Options::default() };
    let world = World::with(Fake::default(), options, Limits::default());
    let early = world.host(1);
    for number in 100..200 {
        assert!(!world.hosts.of(peer(number), EPOCH, false).is_ready());
        assert!(world.hosts.entries() <= 1 + 4);
    }
    assert!(early.is_ready());
    assert_eq!((world.hosts.count(), world.hosts.entries(), world.hosts.all().len()), (1, 5, 1));
    for number in 2..=4 {
        world.host(number);
    }
    // The first call of a host can be one of a stranger. Its answer proves the address.
    for number in 5..=8 {
        world.fake.set(peer(number), Some(number));
        assert!(world.hosts.of(peer(number), EPOCH, false).is_ready());
    }
    assert_eq!((world.hosts.count(), world.hosts.entries()), (8, 11));
    // A stranger that is proved when all places are taken is served as before.
    world.fake.set(peer(199), Some(199));
    assert!(!world.hosts.of(peer(199), EPOCH, true).is_ready());
    assert_eq!((world.hosts.count(), world.hosts.entries()), (8, 11));
    // When there is room, it gets a place. Strangers don't count for that.
    world.hosts.forget_idle(now());
    assert_eq!((world.hosts.count(), world.hosts.entries()), (6, 9));
    assert!(world.hosts.of(peer(199), EPOCH, true).is_ready());
    assert_eq!((world.hosts.count(), world.hosts.entries()), (7, 9));
}

/// Goal: a first call with the address of a known host, which can be forged, changes nothing of
/// that host and makes no call to it.
#[test]
fn forged_calls_leave_hosts_alone() {
    let world = World::new();
    let host = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    volume.promise(&host, file(1).0, file(1).1, now());
    let forged = world.hosts.of(peer(1), EPOCH + 1, false);
    assert!(!forged.is_ready() && !Arc::ptr_eq(&forged, &host));
    assert!(host.is_ready());
    assert_eq!(world.fake.events(), []);
    volume.changed(&[file(1)], None);
    assert_eq!(world.fake.events(), [broken(1, &[1])]);
    // Another connection of the same program, which begins.
    world.fake.silence(peer(1), true);
    volume.promise(&host, file(2).0, file(2).1, now());
    volume.changed(&[file(2)], None);
    world.fake.silence(peer(1), false);
    world.fake.events();
    assert!(Arc::ptr_eq(&host, &world.hosts.of(peer(1), EPOCH, false)));
    assert_eq!(world.fake.events(), [Event::About(peer(1)), broken(1, &[2])]);
}

/// Goal: silent strangers take no thread from hosts whose addresses are proved.
#[test]
fn strangers_have_threads_of_their_own() {
    let options = Options { talks: 1, ..Options::default() };
    let world = World::with(Fake::default(), options, Limits::default());
    (1..=3).for_each(|number| world.fake.set(peer(number), Some(number)));
    world.fake.held.lock().push(peer(1));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| world.hosts.of(peer(1), EPOCH, false));
        while world.hosts.talks() < 1 {
            std::thread::yield_now();
        }
        assert!(!world.hosts.of(peer(2), EPOCH, false).is_ready());
        assert!(world.hosts.of(peer(3), EPOCH, true).is_ready());
        world.fake.release();
        assert!(first.join().unwrap().is_ready());
    });
    assert!(world.hosts.of(peer(2), EPOCH, false).is_ready());
}
