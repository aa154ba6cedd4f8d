//! What `poolhouse lockstat` prints, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink;
use api::{Caller, Error, FakeService, InProcess, TopLock};
use std::rc::Rc;
use std::sync::Mutex;

/// A daemon with these replies, one after another.
struct Replies(Mutex<Vec<Top>>);

impl FakeService for Replies {
    fn top(&self, _: &Caller, query: &TopQuery) -> Result<Top, Error> {
        assert_eq!(query.view, TopView::Locks);
        Ok(self.0.lock().unwrap().remove(0))
    }
}

fn ran(replies: Vec<Top>, line: &str) -> (i32, String, String) {
    sink::ran(Rc::new(InProcess::new(Box::new(Replies(Mutex::new(replies))))), line, run)
}

const MS: u64 = 1_000_000;

fn times(count: u64, each: u64) -> TopTimes {
    TopTimes { sum: count * each, max: each, buckets: vec![(each, count)] }
}

/// A reading after so many seconds, with so many waits of 1 ms at one place and of 3 ms at another.
fn reading(seconds: u64, one: u64, other: u64) -> Top {
    let callers = vec![
        ("zil/src/a.rs:1".to_owned(), times(one, MS)),
        ("zil/src/b.rs:2".to_owned(), times(other, 3 * MS)),
    ];
    let waits =
        TopTimes { sum: one * MS + other * 3 * MS, max: 3 * MS, buckets: vec![(MS, one), (3 * MS, other)] };
    let log = TopLock { name: "zil pending".to_owned(), waits, callers };
    let map = TopLock { name: "spa/src/c.rs:3".to_owned(), waits: times(1, MS), callers: Vec::new() };
    Top { process: 1, run: 1, clock_ns: seconds * 1000 * MS, locks: vec![map, log], ..Top::default() }
}

/// Goal: rows are sorted by the time of all waits, with their shares. A row is a lock, or with `-c`
/// a place in the code. With `-n` only new waits count.
#[test]
fn rows_of_locks() {
    let (code, out, err) = ran(vec![reading(10, 4, 5)], "");
    assert_eq!((code, err.as_str()), (0, ""));
    let cells: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(out.lines().next(), Some("10 waits for locks in 10.0 s (1.0 per second), 0.020 s in all"));
    assert_eq!(
        cells[2],
        ["9", "95.0", "95.0", "19.0", "2.11", "3.00", "3.00", "3.00", "zil", "pending", "-"]
    );
    assert_eq!(cells[3][..4], ["1", "5.00", "100", "1.00"]);
    let (_, out, _) = ran(vec![reading(10, 4, 5), reading(12, 6, 6)], "-c -n 2");
    assert_eq!(out.lines().next(), Some("3 waits for locks in 2.0 s (1.5 per second), 0.005 s in all"));
    let lines: Vec<Vec<&str>> = out.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((&lines[0][..2], lines[0][10]), (&["1", "60.0"][..], "zil/src/b.rs:2"), "{out}");
    assert_eq!(
        (&lines[1][..3], lines[1][10], lines.len()),
        (&["2", "40.0", "100"][..], "zil/src/a.rs:1", 2),
        "{out}"
    );
    let (_, out, _) = ran(vec![reading(10, 4, 5), Top { run: 2, ..reading(1, 1, 0) }], "-n 2 -p");
    assert_eq!(out.lines().count(), 3, "another daemon's waits count from zero: {out}");
    let (_, out, _) = ran(vec![reading(10, 4, 5)], "-c -j");
    assert!(out.contains(r#""lock":"zil pending","caller":"zil/src/b.rs:2""#), "{out}");
    assert_eq!(ran(vec![], "-x").0, 2);
    assert_eq!(ran(vec![], "what").0, 2);
}
