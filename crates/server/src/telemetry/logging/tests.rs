//! Limits of messages. Whole daemons are in `tests/daemon.rs`.

use crate::telemetry::logging::*;
use std::time::Duration;

/// Goal: one place passes a number of messages at once, then a number each second, and reports how
/// many it left out.
#[test]
fn rate() {
    let begin = Instant::now();
    let mut place = CallSite::new(begin);
    let passed = (0..10_000).filter(|_| place.pass(begin).is_some()).count();
    assert_eq!(passed as f64, BURST);
    assert_eq!(place.pass(begin + Duration::from_secs(1)), Some(10_000 - BURST as u64));
    assert_eq!(place.pass(begin + Duration::from_secs(1)), Some(0));
    let later = begin + Duration::from_secs(100_000);
    let passed = (0..10_000).filter(|_| place.pass(later).is_some()).count();
    assert_eq!(passed as f64, BURST, "nothing is saved up beyond that");
}

/// Goal: a message is one line of limited length. Control characters never reach a terminal.
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

/// Goal: a full log without a successor keeps its name, and is replaced as soon as that is
/// possible. A missing log does not prevent that.
#[test]
fn successor() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log");
    let old = folder.path().join("log.old");
    std::fs::write(&file, "first").expect("it is written");
    let obstacle = folder.path().join("log.new");
    std::fs::create_dir(&obstacle).expect("a folder");
    for _ in 0..2 {
        assert!(renewed(&file).is_err());
        assert_eq!(std::fs::read(&file).expect("it stays"), b"first");
        assert!(!old.exists());
    }
    std::fs::remove_dir(&obstacle).expect("it is empty");
    let write = |opened: OwnedFd, text: &[u8]| rustix::io::write(&opened, text).expect("it is written");
    write(renewed(&file).expect("nothing is in the way"), b"second");
    assert_eq!(std::fs::read(&old).expect("it is kept"), b"first");
    assert_eq!(std::fs::read(&file).expect("it is new"), b"second");
    std::fs::remove_file(&file).expect("it is there");
    write(renewed(&file).expect("nothing is in the way"), b"third");
    assert_eq!(std::fs::read(&file).expect("it is new"), b"third");
}
