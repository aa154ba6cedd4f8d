use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::calls::fileserver::MAX_FIDS;
use crate::errors::errno;
use crate::server::fileserver::changed::changing;
use crate::types::CallBack;

/// Goal: a change calls back the other holder before it returns, and not the host that changed it.
#[test]
fn a_change_breaks_the_others() {
    let world = World::new();
    let (writer, reader) = (world.host(1), world.host(2));
    let volume = world.callbacks.volume(VOLUME);
    for host in [&writer, &reader] {
        for number in [1, 2] {
            let promise = volume.promise(host, file(number).0, file(number).1, now());
            assert_eq!((promise.version, promise.expires, promise.kind), (1, 4 * 3600, CallBack::SHARED));
        }
    }
    assert_eq!((world.callbacks.count(), reader.promises()), (4, 2));
    volume.changed(&[file(1)], Some(&writer));
    assert_eq!(world.fake.events(), [broken(2, &[1])]);
    assert_eq!((world.callbacks.count(), writer.promises(), reader.promises()), (3, 2, 1));
    // The promise was broken, so the next change makes no call.
    volume.changed(&[file(1)], Some(&writer));
    assert_eq!(world.fake.events(), []);
    // The change has no host.
    volume.changed(&[file(1), file(2)], None);
    assert_eq!(world.fake.events(), [broken(1, &[1, 2]), broken(2, &[1, 2])]);
    assert_eq!(world.callbacks.count(), 0);
    // The same vnode with another unique is another file.
    volume.promise(&reader, file(1).0, file(1).1, now());
    volume.changed(&[(file(1).0, Unique(99))], None);
    assert_eq!(world.fake.events(), []);
}

/// Goal: a change that comes while the break for an earlier one is under way does not return before
/// the holder knows, either. A promise that is made meanwhile stays.
#[test]
fn a_change_beside_a_break() {
    let (begun, is_begun) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    let (calls, may_go_on) = (AtomicUsize::new(0), Mutex::new(may_go_on));
    let taker: Taker = Box::new(move |_, _| {
        if calls.fetch_add(1, Ordering::AcqRel) == 0 {
            begun.send(()).unwrap();
            may_go_on.lock().recv().unwrap();
        }
    });
    let fake = Fake { taker: Some(taker), ..Fake::default() };
    let world = World::with(fake, Options::default(), Limits::default());
    let (holder, late) = (world.host(1), world.host(2));
    let volume = world.callbacks.volume(VOLUME);
    volume.promise(&holder, file(1).0, file(1).1, now());
    std::thread::scope(|scope| {
        scope.spawn(|| volume.changed(&[file(1)], None));
        is_begun.recv().unwrap();
        world.fake.events();
        volume.changed(&[file(1)], None);
        assert_eq!(world.fake.events(), [broken(1, &[1])]);
        volume.promise(&late, file(1).0, file(1).1, now());
        go_on.send(()).unwrap();
    });
    assert_eq!((holder.promises(), late.promises(), world.callbacks.count()), (0, 1, 1));
}

/// Goal: a client that has gone is called once. It gets all that it is owed with its next call.
#[test]
fn a_silent_client_delays_once() {
    let world = World::new();
    let (writer, gone) = (world.host(1), world.host(2));
    let volume = world.callbacks.volume(VOLUME);
    for number in 1..=3 {
        volume.promise(&gone, file(number).0, file(number).1, now());
    }
    world.fake.silence(peer(2), true);
    for number in [1, 2] {
        volume.changed(&[file(number)], Some(&writer));
    }
    assert_eq!(world.fake.events(), [broken(2, &[1])]);
    assert!(!gone.is_ready());
    // It gets no promises meanwhile, although it is served.
    assert!(!world.hosts.of(peer(2), EPOCH, true).is_ready());
    assert_eq!(volume.promise(&gone, file(4).0, file(4).1, now()), CallBack::dropped());
    assert_eq!(world.fake.events(), [Event::About(peer(2))]);
    world.fake.silence(peer(2), false);
    assert!(Arc::ptr_eq(&gone, &world.hosts.of(peer(2), EPOCH, true)) && gone.is_ready());
    assert_eq!(world.fake.events(), [Event::About(peer(2)), broken(2, &[1, 2])]);
    // What was not changed is still promised.
    volume.changed(&[file(3)], Some(&writer));
    assert_eq!(world.fake.events(), [broken(2, &[3])]);
}

/// Goal: a host that is owed more files than are kept gets a reset, which ends all its promises.
#[test]
fn a_long_debt_becomes_a_reset() {
    let world = World::new();
    let gone = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    for number in 1..=1_500 {
        volume.promise(&gone, file(number).0, file(number).1, now());
    }
    world.fake.silence(peer(1), true);
    for number in 1..=1_200 {
        volume.changed(&[file(number)], None);
    }
    world.fake.events();
    world.fake.silence(peer(1), false);
    assert!(world.hosts.of(peer(1), EPOCH, true).is_ready());
    assert_eq!(world.fake.events(), [Event::About(peer(1)), Event::Reset(peer(1), true)]);
    assert_eq!(gone.promises(), 0);
    // The other files are not promised any more.
    volume.changed(&[file(1_500)], None);
    assert_eq!(world.fake.events(), []);
}

/// Goal: the time of a promise depends on the number of holders.
#[test]
fn promises_are_shorter_with_more_holders() {
    let world = World::new();
    let volume = world.callbacks.volume(VOLUME);
    let hosts: Vec<_> = (1..=80).map(|number| world.host(number)).collect();
    let times: Vec<_> =
        hosts.iter().map(|host| volume.promise(host, file(1).0, file(1).1, now()).expires / 60).collect();
    let expected = [240, 60, 30, 15, 15, 10, 10, 10, 7, 7];
    for (step, minutes) in expected.into_iter().enumerate() {
        assert_eq!(times[8 * step..8 * step + 8], [minutes; 8], "step {step}");
    }
    // The promise for a volume does not depend on it.
    let times: Vec<_> = hosts.iter().map(|host| volume.promise_volume(host, now()).expires).collect();
    assert_eq!(times, [2 * 3600; 80]);
}

/// Goal: a changed volume breaks all its promises with one file number for all files.
#[test]
fn a_changed_volume_breaks_everything() {
    let world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    let (volume, other) = (world.callbacks.volume(VOLUME), world.callbacks.volume(VolumeId(7)));
    volume.promise(&one, file(1).0, file(1).1, now());
    volume.promise(&one, file(2).0, file(2).1, now());
    volume.promise_volume(&two, now());
    other.promise(&two, file(1).0, file(1).1, now());
    volume.volume_changed();
    assert_eq!(world.fake.events(), [broken(1, &[0]), broken(2, &[0])]);
    assert_eq!((volume.count(), other.count(), world.callbacks.count()), (0, 1, 1));
    volume.volume_changed();
    assert_eq!(world.fake.events(), []);
}

/// Goal: a host that gives promises up is not called.
#[test]
fn promises_are_given_up() {
    let world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    let volume = world.callbacks.volume(VOLUME);
    for number in 1..=3 {
        for host in [&one, &two] {
            volume.promise(host, file(number).0, file(number).1, now());
        }
    }
    volume.give_up(&one, &[file(1), file(9)]);
    volume.changed(&[file(1)], None);
    assert_eq!(world.fake.events(), [broken(2, &[1])]);
    world.callbacks.give_up_all(&one);
    assert_eq!(one.promises(), 0);
    volume.changed(&[file(2)], None);
    assert_eq!(world.fake.events(), [broken(2, &[2])]);
    // A promise that is made after all were given up counts.
    volume.promise(&one, file(3).0, file(3).1, now());
    assert_eq!(one.promises(), 1);
    volume.changed(&[file(3)], Some(&two));
    assert_eq!(world.fake.events(), [broken(1, &[3])]);
    assert_eq!((one.promises(), two.promises(), world.callbacks.count()), (0, 1, 1));
}

/// Goal: promises that ended are not broken, and their memory is released.
#[test]
fn promises_end() {
    let world = World::new();
    let host = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    volume.promise(&host, file(1).0, file(1).1, now());
    volume.promise_volume(&host, now());
    // Two hours and the time that the server adds.
    world.callbacks.maintain(now() + Duration::from_secs(2 * 3600 + 60));
    assert_eq!(volume.count(), 2);
    world.callbacks.maintain(now() + Duration::from_secs(2 * 3600 + 240));
    assert_eq!((volume.count(), host.promises()), (1, 1));
    world.callbacks.maintain(now() + Duration::from_secs(5 * 3600));
    assert_eq!((volume.count(), host.promises(), world.callbacks.count()), (0, 0, 0));
    // The host called more than four hours before.
    assert_eq!(world.hosts.count(), 0);
}

/// Goal: a volume that is dropped takes its promises with it.
#[test]
fn a_dropped_volume_has_no_promises() {
    let world = World::new();
    let host = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    volume.promise(&host, file(1).0, file(1).1, now());
    drop(volume);
    assert_eq!((host.promises(), world.callbacks.count()), (0, 0));
}

/// Waits until a thread has done its work.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

/// Goal: shortly before the bound in all, those promises are broken that end first.
#[test]
fn the_thread_makes_room() {
    let limits = Limits { promises: 64, ..Limits::default() };
    let world = World::with(Fake::default(), Options::default(), limits);
    let host = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    let begun = now();
    for number in 1..=60 {
        let at = begun + Duration::from_secs(number.into());
        assert_eq!(volume.promise(&host, file(number).0, file(number).1, at).kind, CallBack::SHARED);
    }
    assert_eq!(world.callbacks.count(), 60);
    volume.promise(&host, file(61).0, file(61).1, begun + Duration::from_secs(61));
    until(|| !world.fake.log.lock().is_empty());
    assert_eq!(world.fake.events(), [broken(1, &[1, 2, 3, 4, 5])]);
    assert_eq!((volume.count(), host.promises(), world.callbacks.count()), (56, 56, 56));
}

/// Goal: a host with too many promises loses its own, and no other host does.
#[test]
fn a_host_is_bounded() {
    let limits = Limits { promises_per_host: 160, ..Limits::default() };
    let world = World::with(Fake::default(), Options::default(), limits);
    let (greedy, other) = (world.host(1), world.host(2));
    let volume = world.callbacks.volume(VOLUME);
    volume.promise(&other, file(1).0, file(1).1, now());
    for number in 1..=150 {
        volume.promise(&greedy, file(number).0, file(number).1, now());
    }
    until(|| !world.fake.log.lock().is_empty());
    let events = world.fake.events();
    assert!(events.iter().all(|event| matches!(event, Event::CallBack(at, files)
        if *at == peer(1) && files.len() <= MAX_FIDS)));
    until(|| greedy.promises() <= 140);
    assert_eq!(other.promises(), 1);
}

/// Goal: at the bound, no promise is made, and the file is served without one.
#[test]
fn no_promise_beyond_the_bound() {
    let limits = Limits { promises: 3, ..Limits::default() };
    let world = World::with(Fake::default(), Options::default(), limits);
    let (one, two) = (world.host(1), world.host(2));
    let volume = world.callbacks.volume(VOLUME);
    let made = (1..=20).filter(|number| {
        let host = if number % 2 == 0 { &one } else { &two };
        volume.promise(host, file(*number).0, file(*number).1, now()).kind == CallBack::SHARED
    });
    let made = made.count();
    assert!(made >= 3);
    assert!(world.callbacks.count() <= 3 && volume.count() <= 3);
}

/// Goal: a change of many files takes several calls, none of which is too long.
#[test]
fn many_files_need_several_calls() {
    let world = World::new();
    let host = world.host(1);
    let volume = world.callbacks.volume(VOLUME);
    let files: Vec<_> = (1..=120).map(file).collect();
    for (vnode, unique) in &files {
        volume.promise(&host, *vnode, *unique, now());
    }
    volume.changed(&files, None);
    let lengths: Vec<_> = world
        .fake
        .events()
        .into_iter()
        .map(|event| match event {
            Event::CallBack(_, files) => files.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [50, 50, 20]);
}

/// Goal: a call that fails after it changed a file breaks the promises for it, also those of its
/// caller. A call that was refused breaks none.
#[test]
fn changes_of_failed_calls_are_told() {
    let world = World::new();
    let (caller, other) = (world.host(1), world.host(2));
    let volume = world.callbacks.volume(VOLUME);
    let call = |operation: Result<(), i32>, later: Result<(), i32>| {
        for host in [&caller, &other] {
            volume.promise(host, file(1).0, file(1).1, now());
        }
        let done = changing(&volume, Some(&caller), |changed| {
            changed.by(&[file(1)], operation)?;
            later
        });
        let mut events = world.fake.events();
        events.sort_by_key(|event| format!("{event:?}"));
        (done, events)
    };
    let both = || vec![broken(1, &[1]), broken(2, &[1])];
    assert_eq!(call(Ok(()), Ok(())), (Ok(()), vec![broken(2, &[1])]));
    assert_eq!(call(Ok(()), Err(errno::EIO)), (Err(errno::EIO), both()));
    // An operation that fails so may have changed the file.
    assert_eq!(call(Err(errno::EIO), Ok(())), (Err(errno::EIO), both()));
    assert_eq!(call(Err(errno::EEXIST), Ok(())), (Err(errno::EEXIST), vec![]));
}
