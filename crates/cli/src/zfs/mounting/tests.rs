//! The progress line of mounting.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::*;

/// Goal: the line shows how many file systems were read, and then how many are mounted. Each text
/// covers the one before. The line is cleared at the end, and nothing appears before the request
/// begins.
#[test]
fn the_line_follows_and_goes() {
    let at = |phase, loaded, done, total| Some(MountProgress { phase, loaded, total, done });
    let answers = VecDeque::from([
        None,
        at(MountPhase::Load, 17, 0, 0),
        at(MountPhase::Mount, 2603, 999, 2603),
        at(MountPhase::Load, 3, 0, 0),
    ]);
    let (end, ended) = channel::<()>();
    let left = RefCell::new((answers, Some(end)));
    let ask = || {
        let (answers, end) = &mut *left.borrow_mut();
        let answer = answers.pop_front().flatten();
        if answers.is_empty() {
            drop(end.take());
        }
        answer
    };
    let mut out = Vec::new();
    watch(&ask, &ended, Duration::ZERO, &mut out);
    let lines = ["Reading ZFS config: 17", "Mounting ZFS filesystems: (999/2603)"];
    let blank = " ".repeat(lines[1].len());
    let last = format!("{:<1$}", "Reading ZFS config: 3", blank.len());
    let expected = format!("\r{}\r{}\r{last}\r{blank}\r", lines[0], lines[1]);
    assert_eq!(String::from_utf8(out).expect("text"), expected);
}

/// Goal: without anything to show, nothing is written, not even blanks.
#[test]
fn what_is_over_at_once_shows_nothing() {
    let (end, ended) = channel::<()>();
    drop(end);
    let mut out = Vec::new();
    watch(&|| panic!("nobody is asked"), &ended, Duration::ZERO, &mut out);
    assert!(out.is_empty());
}

/// Goal: the summary has each phase with its duration, in OpenZFS's words. Failed mounts count as
/// tried.
#[test]
fn phases_are_told() {
    let name = "tank/bad".to_owned();
    let error = Error::new(&name, api::Reason::Busy);
    let failures = vec![api::MountFailure { name, error }];
    let report = MountReport { total: 9, mounted: 7, failures, load_ms: 12, mount_ms: 345, other_ms: 6 };
    let said = "Reading ZFS config: done. (12 ms)\nMounting ZFS filesystems: (8/9) (345 ms, 6 ms other)\n";
    assert_eq!(phases(&report), said);
}
