//! What `poolhouse ops` prints, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink;
use api::{AllUnderWay, Caller, Error, FakeService, InProcess};
use std::rc::Rc;

/// A daemon with these operations under way.
struct Under(AllUnderWay);

impl FakeService for Under {
    fn under_way(&self, _: &Caller) -> Result<AllUnderWay, Error> {
        Ok(self.0.clone())
    }
}

fn ran(all: AllUnderWay, line: &str) -> (i32, String, String) {
    let service = Rc::new(InProcess::new(Box::new(Under(all))));
    sink::ran(service, line, run)
}

fn fsync() -> UnderWay {
    let subject = Subject {
        frontend: "fuse".to_owned(),
        op: "fsync".to_owned(),
        dataset: "tank/a".to_owned(),
        object: Some(7),
        path: Some("/x\u{1b}[2J".to_owned()),
        txg: None,
        pid: 42,
        uid: 1000,
        process: "post\u{7}gres".to_owned(),
        address: None,
    };
    let wait = Waited { wait: "flush".to_owned(), what: "/dev/vdb".to_owned(), ns: 1_500_000 };
    let thread = "fuse-tank-1".to_owned();
    UnderWay { subject, age_ns: 2_000_000, wait: Some(wait), thread, tid: 9, helpers: 1 }
}

fn sync() -> UnderWay {
    let subject = Subject { op: "sync".to_owned(), txg: Some(41), ..Subject::default() };
    UnderWay { subject, age_ns: 500_000, thread: "txg_sync/tank".to_owned(), ..UnderWay::default() }
}

fn both() -> AllUnderWay {
    AllUnderWay { process: 1, ops: vec![fsync(), sync()] }
}

/// Goal: a row names operation, client, file and wait. Names can't control a terminal.
#[test]
fn rows() {
    let (code, out, err) = ran(both(), "");
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert!(!out.contains(['\u{1b}', '\u{7}']), "{out:?}");
    for part in ["2.00", "fsync", "fuse", "[42] u:1000", "tank/a", "flush: /dev/vdb", "1.50", "fuse-tank-1"] {
        assert!(lines[1].contains(part), "{part}: {out}");
    }
    assert!(lines[2].contains("txg 41") && lines[2].contains("txg_sync/tank"), "{out}");
    let (_, out, _) = ran(AllUnderWay { process: 1, ops: Vec::new() }, "");
    assert_eq!(out, "nothing is under way\n");
}

/// Goal: scripts get exact numbers.
#[test]
fn for_scripts() {
    let (_, out, _) = ran(both(), "-p 1 2");
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((lines.len(), lines[0][1], lines[1][1], lines[1][2]), (5, "AGE", "2000000", "fsync"));
    assert_eq!((lines[1][8], lines[1][9], lines[2][7]), ("1500000", "2", "-"));
    let (_, out, _) = ran(both(), "-j");
    assert!(out.contains(r#""age_ns":2000000"#) && out.contains(r#""wait":"flush: /dev/vdb""#), "{out}");
    assert_eq!(out.lines().count(), 1);
}

/// Goal: wrong words are refused by name, and a missing daemon is reported.
#[test]
fn refusals() {
    for (line, part) in [
        ("0", "invalid interval '0'"),
        ("1 x", "invalid count 'x'"),
        ("1 2 3", "too many arguments"),
        ("-x", "invalid option '-x'"),
    ] {
        let (code, out, err) = ran(both(), line);
        assert!(code == 2 && out.is_empty() && err.contains(part), "{line}: {err}");
    }
    let (code, _, err) = ran(AllUnderWay { process: api::process_id(), ops: Vec::new() }, "");
    assert!(code == 1 && err.contains("no poolhouse daemon runs"), "{err}");
    let (code, out, _) = ran(both(), "--help");
    assert!(code == 0 && out.contains("WAITS FOR"), "{out}");
}
