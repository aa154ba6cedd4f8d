//! What `poolhouse slower` prints, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink;
use api::{Caller, Error, FakeService, InProcess, Subject, Waited};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// A daemon with these replies, one after another. The last one stays.
struct Replies {
    replies: Mutex<Vec<SlowOps>>,
    queries: Arc<Mutex<Vec<SlowQuery>>>,
}

impl FakeService for Replies {
    fn slow(&self, _: &Caller, query: &SlowQuery) -> Result<SlowOps, Error> {
        self.queries.lock().unwrap().push(query.clone());
        let mut all = self.replies.lock().unwrap();
        Ok(if all.len() > 1 { all.remove(0) } else { all[0].clone() })
    }
}

/// Runs a line. Returns the exit code, both outputs, and the requests.
fn ran(replies: Vec<SlowOps>, line: &str) -> (i32, String, String, Vec<SlowQuery>) {
    let queries = Arc::default();
    let replies = Replies { replies: Mutex::new(replies), queries: Arc::clone(&queries) };
    let (code, out, err) = sink::ran(Rc::new(InProcess::new(Box::new(replies))), line, run);
    let queries = queries.lock().unwrap().clone();
    (code, out, err, queries)
}

fn op(name: &str, dataset: &str, took_ns: u64) -> SlowOp {
    let (frontend, dataset, process) = ("fuse".to_owned(), dataset.to_owned(), "cp".to_owned());
    let (object, path) = (Some(7), Some("/x".to_owned()));
    let subject = Subject {
        frontend,
        op: name.to_owned(),
        dataset,
        object,
        path,
        pid: 42,
        process,
        ..Subject::default()
    };
    let wait = |wait: &str, ns| Waited { wait: wait.to_owned(), what: "/dev/vdb".to_owned(), ns };
    let waits = vec![("flush".to_owned(), took_ns / 2), ("cache".to_owned(), took_ns / 4)];
    let at_ns = 1_700_000_000_123_000_000;
    let longest = Some(wait("flush", took_ns / 2));
    SlowOp { subject, at_ns, took_ns, bytes: 8192, error: None, waits, longest }
}

fn reply(ops: Vec<SlowOp>, next: u64, lost: u64) -> SlowOps {
    SlowOps { process: 1, ops, next: vec![(3, next)], lost }
}

/// Goal: of the past, each operation is a line with the times of its waits. The rest is its CPU.
#[test]
fn of_the_past() {
    let ops = vec![op("fsync", "tank/a", 80_000_000), op("read", "tank/ab", 20_000_000)];
    let (code, out, err, queries) = ran(vec![reply(ops.clone(), 0, 0)], "--last 10m 15");
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(queries[0].least_ns, 15_000_000);
    assert_eq!(queries[0].since_ns, Some((sink::NOW - 600) * 1_000_000_000));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    let numbers = ["22:13:20.123", "80.0", "20.0", "0", "0", "0", "0", "0", "0", "40.0", "20.0", "fsync"];
    assert_eq!((lines.len(), &lines[1][..12]), (3, &numbers[..]), "{out}");
    assert!(out.contains("cp[42] u:0") && out.contains("flush: /dev/vdb"), "{out}");
    let line = "--last 1h --dataset tank/a --op READ,write --op fsync";
    let (_, _, err, queries) = ran(vec![reply(ops.clone(), 0, 7)], line);
    assert_eq!(
        (queries[0].ops.join(" "), queries[0].dataset.as_deref()),
        ("read write fsync".to_owned(), Some("tank/a"))
    );
    assert_eq!(err, "up to 7 operations are not shown: too many at a time\n");
}

/// Goal: while it watches, each reply continues the one before, for as long as requested. What the
/// daemon lost is reported.
#[test]
fn from_now_on() {
    let first = reply(vec![], 5, 0);
    let second = reply(vec![op("fsync", "tank/a", 80_000_000)], 6, 0);
    let third = reply(vec![], 900, 3);
    let (code, out, err, queries) = ran(vec![first, second, third], "-p -n 1");
    assert_eq!((code, err.as_str()), (0, "up to 3 operations are not shown: too many at a time\n"));
    let next: Vec<_> = queries.iter().map(|query| query.next.clone()).collect();
    assert_eq!(next, [vec![], vec![(3, 5)], vec![(3, 6)]]);
    assert!(queries.iter().all(|query| query.least_ns == 10_000_000 && query.since_ns.is_none()));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((lines.len(), lines[0][1], lines[1][1]), (2, "TOOK", "80000000"), "{out}");
    assert_eq!(lines[1][0], "1700000000123000000");
}

/// Goal: JSON has a line for each, with exact numbers and no escape that a terminal obeys.
#[test]
fn as_json() {
    let mut hostile = op("fsync", "tank/a", 80_000_000);
    hostile.subject.path = Some("/\u{1b}[2J\n".to_owned());
    let (_, out, ..) = ran(vec![reply(vec![hostile.clone()], 0, 0)], "-j --last 90s");
    assert_eq!(out.lines().count(), 1);
    assert!(out.contains(r#""took_ns":80000000"#) && out.contains(r#""time":1700000000123000000"#), "{out}");
    let (_, text, ..) = ran(vec![reply(vec![hostile], 0, 0)], "--last 90s");
    assert!(!text.contains('\u{1b}') && !out.contains('\u{1b}') && text.lines().count() == 2, "{text:?}");
}

/// Goal: wrong words are refused by name, and a missing daemon is reported.
#[test]
fn refusals() {
    for (line, part) in [
        ("x", "invalid time 'x': give milliseconds"),
        ("-1", "invalid option '-1'"),
        ("1 2", "too many arguments"),
        ("--last 2d", "invalid time '2d': choose 1s to 1d"),
        ("--last 0", "invalid time '0'"),
        ("--last é", "invalid time 'é'"),
        ("-n 0", "invalid time '0'"),
        ("-n 1 --last 1h", "'-n' is for operations from now on"),
        ("--op", "missing argument for option '--op'"),
    ] {
        let (code, out, err, _) = ran(vec![reply(vec![], 0, 0)], line);
        assert!(code == 2 && out.is_empty() && err.contains(part), "{line}: {err}");
    }
    let none = SlowOps { process: api::process_id(), ..SlowOps::default() };
    let (code, _, err, _) = ran(vec![none], "");
    assert!(code == 1 && err.contains("no poolhouse daemon runs"), "{err}");
    let (code, out, ..) = ran(vec![reply(vec![], 0, 0)], "--help");
    assert!(code == 0 && out.contains("FLUSH"), "{out}");
}
