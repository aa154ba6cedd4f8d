use super::*;

/// Bytes of a part of these tests, and how many of them a queue takes.
const SIZE: usize = 60_000;
const DEPTH: usize = FULL.div_ceil(SIZE + PART);

fn part(n: u8) -> Slice {
    vec![n; SIZE].into()
}

/// The first bytes of the parts up to what is no part.
fn take_all(receiver: &Receiver<'_>) -> (Vec<u8>, Next) {
    let mut parts = Vec::new();
    loop {
        match receiver.next() {
            Next::Part(part) => parts.push(part.bytes()[0]),
            other => return (parts, other),
        }
    }
}

/// Goal: all receivers get the same parts in the same order, and then the end, though the queues
/// are shorter than the dump.
#[test]
fn all_get_the_same() {
    let fan = Fan::new(3, None);
    let taken: Vec<_> = std::thread::scope(|scope| {
        let take = |lane| {
            let receiver = fan.receiver(lane);
            scope.spawn(move || take_all(&receiver))
        };
        let threads: Vec<_> = (0..3).map(take).collect();
        let maker = fan.maker();
        assert!((0..200).all(|n| maker.push(&part(n))));
        maker.end();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (parts, end) in taken {
        assert_eq!(parts, (0..200).collect::<Vec<u8>>());
        assert!(matches!(end, Next::End));
    }
}

/// Goal: a receiver that has another one wait for too long is left behind with the beginning of
/// the dump, and the other one gets all.
#[test]
fn a_slow_one_is_left_behind() {
    let fan = Fan::new(2, Some(Duration::ZERO));
    let (slow, fast) = (fan.receiver(0), fan.receiver(1));
    let maker = fan.maker();
    for n in 0..200 {
        assert!(maker.push(&part(n)));
        assert!(matches!(fast.next(), Next::Part(part) if part.bytes()[0] == n));
    }
    maker.end();
    assert!(matches!(fast.next(), Next::End));
    let (parts, end) = take_all(&slow);
    assert_eq!(parts, (0..DEPTH as u8).collect::<Vec<u8>>());
    assert!(matches!(end, Next::Behind));
}

/// Goal: the time of a receiver that has others wait begins anew when it takes a part. A receiver
/// that takes none for the whole time is left behind.
#[test]
fn delays_do_not_add_up() {
    const LAG: Duration = Duration::from_secs(60);
    let fan = Fan::new(2, Some(LAG));
    let (slow, fast) = (fan.receiver(0), fan.receiver(1));
    let maker = fan.maker();
    let push = |n| {
        assert!(maker.push(&part(n)));
        assert!(matches!(fast.next(), Next::Part(part) if part.bytes()[0] == n));
    };
    let use_up = || fan.state.lock().lanes[0].blocks = Some(Instant::now() - LAG);
    (0..DEPTH as u8).for_each(push);
    use_up();
    assert!(matches!(slow.next(), Next::Part(_)));
    push(98);
    assert!(fan.state.lock().lanes[0].stage == Stage::Follows);
    use_up();
    push(99);
    let (parts, end) = take_all(&slow);
    assert_eq!((parts.len(), parts.last()), (DEPTH, Some(&98)));
    assert!(matches!(end, Next::Behind));
}

/// Goal: receivers that are equally slow are waited for, however long that takes.
#[test]
fn equally_slow_ones_stay() {
    let fan = Fan::new(2, Some(Duration::ZERO));
    let (one, other) = (fan.receiver(0), fan.receiver(1));
    let maker = fan.maker();
    assert!((0..DEPTH as u8).all(|n| maker.push(&part(n))));
    std::thread::scope(|scope| {
        let pushed = scope.spawn(|| maker.push(&part(99)));
        for receiver in [&one, &other] {
            assert!(matches!(receiver.next(), Next::Part(_)));
        }
        assert!(pushed.join().unwrap());
    });
    maker.end();
    for receiver in [&one, &other] {
        let (parts, end) = take_all(receiver);
        assert_eq!((parts.len(), parts.last()), (DEPTH, Some(&99)));
        assert!(matches!(end, Next::End));
    }
}

/// Goal: a receiver that is gone has no one wait, and the maker stops when all are gone.
#[test]
fn receivers_that_are_gone() {
    let fan = Fan::new(2, None);
    let (one, other) = (fan.receiver(0), fan.receiver(1));
    let maker = fan.maker();
    assert!((0..DEPTH as u8).all(|n| maker.push(&part(n))));
    // The queues are full, so the maker waits until the receiver is gone.
    std::thread::scope(|scope| {
        let pushed = scope.spawn(|| maker.push(&part(99)));
        assert!(matches!(other.next(), Next::Part(_)));
        drop(one);
        assert!(pushed.join().unwrap());
    });
    drop(other);
    assert!(!maker.push(&part(100)));
}

/// Goal: if the dump can't be made, no receiver takes what came for a whole one.
#[test]
fn a_dump_that_fails() {
    let fan = Fan::new(1, None);
    let (receiver, maker) = (fan.receiver(0), fan.maker());
    assert!(maker.push(&part(1)));
    drop(maker);
    let (parts, end) = take_all(&receiver);
    assert_eq!(parts, [1]);
    assert!(matches!(end, Next::Failed));
}

/// Goal: small parts between large ones do not make a queue shorter, and many empty ones do not
/// make it endless.
#[test]
fn a_queue_is_full_of_bytes() {
    let filled = |sizes: &[usize]| {
        let fan = Fan::new(2, Some(Duration::ZERO));
        let (_slow, fast, maker) = (fan.receiver(0), fan.receiver(1), fan.maker());
        let mut bytes = 0;
        for size in sizes.iter().cycle().take(100_000) {
            assert!(maker.push(&vec![1; *size].into()));
            assert!(matches!(fast.next(), Next::Part(_)));
            let slow = &fan.state.lock().lanes[0];
            if slow.stage == Stage::Behind {
                return (bytes, slow.queue.len());
            }
            bytes += size;
        }
        panic!("the queue is endless")
    };
    for sizes in [&[SIZE][..], &[SIZE, 3], &[3, SIZE, 1, 70]] {
        let (bytes, _) = filled(sizes);
        assert!((FULL - FULL / 50..FULL + SIZE).contains(&bytes), "{sizes:?}: {bytes}");
    }
    let (_, parts) = filled(&[0]);
    assert_eq!(parts, FULL / PART);
}

/// Goal: no dump is made for receivers that all leave without a part, and one is made as soon as
/// one of them waits for it.
#[test]
fn the_dump_begins_when_it_is_needed() {
    let fan = Fan::new(2, None);
    let (one, other) = (fan.receiver(0), fan.receiver(1));
    drop(one);
    std::thread::scope(|scope| {
        let begun = scope.spawn(|| fan.maker().begin());
        drop(other);
        assert!(!begun.join().unwrap());
    });
    let fan = Fan::new(2, None);
    let (one, other) = (fan.receiver(0), fan.receiver(1));
    drop(one);
    std::thread::scope(|scope| {
        let taken = scope.spawn(move || take_all(&other));
        let maker = fan.maker();
        assert!(maker.begin() && maker.push(&part(7)));
        maker.end();
        let (parts, end) = taken.join().unwrap();
        assert_eq!(parts, [7]);
        assert!(matches!(end, Next::End));
    });
}
