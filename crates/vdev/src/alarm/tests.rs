use super::*;

fn series(count: u64, secs: u64) -> Series {
    Series { limit: Limit { count, within: Duration::from_secs(secs) }, seen: VecDeque::new(), fired: false }
}

fn at(secs: u64) -> Instant {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BEGAN.get_or_init(Instant::now) + Duration::from_secs(secs)
}

/// Goal: the limit is reached once by enough errors within the time, and not by errors that are too
/// far apart.
#[test]
fn errors_within_a_time() {
    let mut s = series(3, 10);
    let place = |n: u64| Some((n * 512, 512));
    assert!(!s.record(at(0), place(0)) && !s.record(at(5), place(1)));
    // The first is forgotten by now.
    assert!(!s.record(at(11), place(2)));
    assert!(s.record(at(14), place(3)));
    assert!(!s.record(at(14), place(4)), "an alarm is raised once");
}

/// Goal: one bad place counts as one error within the time, however often it is read. After that
/// time it counts again.
#[test]
fn one_place_counts_once() {
    let mut s = series(2, 10);
    assert!((0..10).all(|n| !s.record(at(n), Some((4096, 512)))));
    assert!(s.record(at(10), Some((8192, 512))));
    // An error without a place counts each time.
    let mut s = series(2, 10);
    assert!(!s.record(at(0), None) && s.record(at(1), None));
}

/// Goal: without a limit there is no alarm, and the first error reaches a limit of one.
#[test]
fn limits_at_the_ends() {
    let mut s = series(0, 10);
    assert!((0..100).all(|n| !s.record(at(0), Some((n, 1)))));
    assert!(series(1, 0).record(at(0), None));
}

/// Goal: a ring before the wait counts, once.
#[test]
fn a_bell_is_heard_afterwards() {
    let bell = AlarmQueue::default();
    bell.alarm(Guid(7), Symptom::Io);
    bell.alarm(Guid(7), Symptom::Io);
    assert!(bell.wait(None));
    assert_eq!(bell.take_alarms(), [(Guid(7), Symptom::Io)]);
    assert!(!bell.wait(Some(Duration::ZERO)));
    bell.ring();
    assert!(bell.wait(Some(Duration::ZERO)));
    assert!(bell.take_alarms().is_empty());
}
