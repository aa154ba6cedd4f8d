use super::*;

fn part(n: u8) -> Slice {
    vec![n; 10].into()
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

/// Goal: a receiver that often has another one wait, but takes a part in time, is not left behind,
/// though the delays take longer than the limit together.
#[test]
fn delays_do_not_add_up() {
    const DELAY: Duration = Duration::from_millis(50);
    let fan = Fan::new(2, Some(20 * DELAY));
    let (slow, fast) = (fan.receiver(0), fan.receiver(1));
    let count = DEPTH as u8 + 30;
    std::thread::scope(|scope| {
        let maker = fan.maker();
        scope.spawn(move || {
            assert!((0..count).all(|n| maker.push(&part(n))));
            maker.end();
        });
        let all = scope.spawn(move || take_all(&fast));
        for n in 0..count {
            std::thread::sleep(DELAY);
            assert!(matches!(slow.next(), Next::Part(part) if part.bytes()[0] == n));
        }
        assert!(matches!(slow.next(), Next::End));
        assert_eq!(all.join().unwrap().0.len(), usize::from(count));
    });
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
