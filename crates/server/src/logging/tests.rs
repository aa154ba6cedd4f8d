//! Limits of messages. Whole daemons are in `tests/daemon.rs`.

use super::*;
use std::time::Duration;

/// Goal: one place passes so many messages at once, then so many a second, and tells how many it
/// left out.
#[test]
fn rate() {
    let begin = Instant::now();
    let mut place = Place::new(begin);
    let passed = (0..10_000).filter(|_| place.pass(begin).is_some()).count();
    assert_eq!(passed as f64, BURST);
    assert_eq!(place.pass(begin + Duration::from_secs(1)), Some(10_000 - BURST as u64));
    assert_eq!(place.pass(begin + Duration::from_secs(1)), Some(0));
    let later = begin + Duration::from_secs(100_000);
    let passed = (0..10_000).filter(|_| place.pass(later).is_some()).count();
    assert_eq!(passed as f64, BURST, "nothing is saved up beyond that");
}

/// Goal: a message is one line, of bounded length, in which nothing reaches a terminal that steers
/// it.
#[test]
fn one_line() {
    assert_eq!(line("<4>", b"a\n", 0), "<4>a\n");
    assert_eq!(line("", b"a\nb\x1b[2J\x7f\xc2\x9b\n", 0), "a\\nb\\u{1b}[2J\\u{7f}\\u{9b}\n");
    assert_eq!(line("", b"a\n", 7), "a (7 messages of this kind before it were left out)\n");
    for part in ["a", "ä", "\x1b"] {
        let long = line("<3>", part.repeat(60_000).as_bytes(), 12);
        assert!(long.len() <= LINE_MAX && long.len() > LINE_MAX - 20, "{}", long.len());
        assert!(long.ends_with("… (12 messages of this kind before it were left out)\n"));
    }
}
