use super::*;

fn series(count: u64, secs: u64) -> Series {
    Series { limit: Limit { count, within: Duration::from_secs(secs) }, seen: VecDeque::new(), fired: false }
}

fn at(secs: u64) -> Instant {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BEGAN.get_or_init(Instant::now) + Duration::from_secs(secs)
}

/// Goal: so many errors within the time are too many, once; errors that are too far apart are not.
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

/// Goal: one bad place is one error, however often it is met within the time, and another one after that.
#[test]
fn one_place_counts_once() {
    let mut s = series(2, 10);
    assert!((0..10).all(|n| !s.record(at(n), Some((4096, 512)))));
    assert!(s.record(at(10), Some((8192, 512))));
    // What has no place is counted each time.
    let mut s = series(2, 10);
    assert!(!s.record(at(0), None) && s.record(at(1), None));
}

/// Goal: without a limit nothing is too much, and a limit of one is reached by the first.
#[test]
fn limits_at_the_ends() {
    let mut s = series(0, 10);
    assert!((0..100).all(|n| !s.record(at(0), Some((n, 1)))));
    assert!(series(1, 0).record(at(0), None));
}

/// Goal: a bell that rang before anybody waited is heard, once.
#[test]
fn a_bell_is_heard_afterwards() {
    let bell = Bell::default();
    bell.alarm(Guid(7), Symptom::Io);
    bell.alarm(Guid(7), Symptom::Io);
    assert!(bell.wait(None));
    assert_eq!(bell.take_alarms(), [(Guid(7), Symptom::Io)]);
    assert!(!bell.wait(Some(Duration::ZERO)));
    bell.ring();
    assert!(bell.wait(Some(Duration::ZERO)));
    assert!(bell.take_alarms().is_empty());
}
