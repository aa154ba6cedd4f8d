//! What `poolhouse txgs` prints, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink;
use api::{Caller, Error, FakeService, InProcess, Txgs, Waited};
use std::rc::Rc;
use std::sync::Mutex;

/// A daemon with these replies, one after another. After the last, it is gone.
struct Replies(Mutex<Vec<Txgs>>);

impl FakeService for Replies {
    fn txgs(&self, _: &Caller, pool: &Option<String>) -> Result<Txgs, Error> {
        let mut all = self.0.lock().unwrap();
        if pool.as_deref() == Some("none") || all.is_empty() {
            return Err(Error::new("none", api::Reason::NoSuchPool));
        }
        Ok(all.remove(0))
    }
}

fn ran(replies: Vec<Txgs>, line: &str) -> (i32, String, String) {
    sink::ran(Rc::new(InProcess::new(Box::new(Replies(Mutex::new(replies))))), line, run)
}

const MS: u64 = 1_000_000;

fn committed(pool: &str, txg: u64) -> TxgRecord {
    TxgRecord {
        pool: pool.to_owned(),
        txg,
        stage: "committed".to_owned(),
        closed: "request".to_owned(),
        requested_by: "fsync".to_owned(),
        dirty: 3 << 20,
        took_ns: [300 * MS, 0, MS, 20 * MS],
        waits: vec![("flush".to_owned(), 12 * MS), ("lock".to_owned(), MS)],
        longest: Some(Waited { wait: "flush".to_owned(), what: "/dev/vdb".to_owned(), ns: 12 * MS }),
        ..TxgRecord::default()
    }
}

fn open(pool: &str, txg: u64) -> TxgRecord {
    let (pool, stage) = (pool.to_owned(), "open".to_owned());
    TxgRecord { pool, txg, stage, took_ns: [7 * MS, 0, 0, 0], ..TxgRecord::default() }
}

fn reply(txgs: Vec<TxgRecord>) -> Txgs {
    Txgs { process: 1, txgs, ..Txgs::default() }
}

/// Goal: a row has why the group closed, the parts of its sync, and a line in proportion.
#[test]
fn rows() {
    let (code, out, err) = ran(vec![reply(vec![committed("tank", 41), open("tank", 42)])], "tank");
    assert_eq!((code, err.as_str()), (0, ""));
    let cells = |line: usize| {
        let line = out.lines().nth(line).unwrap();
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let of_41 = [
        "tank",
        "41",
        "committed",
        "request: fsync",
        "3.0",
        "0.0",
        "0.0",
        "300",
        "0",
        "1.00",
        "20.0",
        "7.00",
        "0",
        "0",
        "12.0",
        "1.00",
        "flush: /dev/vdb",
        "oooooooooooooooooooooooowSS",
    ];
    assert_eq!(
        cells(1),
        of_41.map(|cell| cell.replace("oooooooooooooooooooooooow", &("o".repeat(23) + "w")))
    );
    let of_42 = cells(2);
    assert_eq!(
        (of_42[2].as_str(), of_42[3].as_str(), &of_42[11..16]),
        ("open", "-", &["-"; 5].map(str::to_owned)[..])
    );
    assert_eq!(of_42.last().map(String::len), Some(24));
}

/// Goal: the last groups of each pool are shown.
#[test]
fn the_last_of_each_pool() {
    let all: Vec<_> = (1..=5).flat_map(|txg| [committed("a", txg), committed("b", 10 + txg)]).collect();
    let (_, out, _) = ran(vec![reply(all)], "-p -n 2");
    let of = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        format!("{} {}", cells[1], cells[2])
    };
    let lines: Vec<String> = out.lines().map(of).collect();
    assert_eq!(lines, ["POOL TXG", "a 4", "b 14", "a 5", "b 15"]);
}

/// Goal: with an interval, each group comes once, when it is on disk.
#[test]
fn each_comes_once() {
    let replies = vec![
        reply(vec![committed("tank", 41), open("tank", 42)]),
        reply(vec![committed("tank", 41), committed("tank", 42), open("tank", 43)]),
        reply(vec![committed("tank", 41), committed("tank", 42), open("tank", 43)]),
    ];
    let (code, out, err) = ran(replies, "-p tank 1");
    let numbers: Vec<&str> = out.lines().map(|line| line.split('\t').nth(2).unwrap()).collect();
    assert_eq!(numbers, ["TXG", "41", "42"]);
    // The last request finds no pool.
    assert!(code == 1 && err.contains("cannot read the transaction groups"), "{err}");
}

/// Goal: JSON has exact numbers. Wrong words are refused by name.
#[test]
fn words_and_json() {
    let (_, out, _) = ran(vec![reply(vec![committed("tank", 41)])], "-j");
    assert!(out.contains(r#""flush_ns":12000000"#) && out.contains(r#""closed":"request: fsync""#), "{out}");
    for (line, part) in [
        ("-n 0", "invalid count '0'"),
        ("tank 0", "invalid interval '0'"),
        ("tank 1 2", "too many arguments"),
        ("-x", "invalid option '-x'"),
    ] {
        let (code, out, err) = ran(vec![], line);
        assert!(code == 2 && out.is_empty() && err.contains(part), "{line}: {err}");
    }
    let (code, _, err) = ran(vec![reply(vec![])], "none");
    assert!(code == 1 && err.contains("none"), "{err}");
    let (code, _, err) = ran(vec![Txgs { process: api::process_id(), ..Txgs::default() }], "");
    assert!(code == 1 && err.contains("no poolhouse daemon runs"), "{err}");
    let (code, out, _) = ran(vec![], "--help");
    assert!(code == 0 && out.contains("TIME LINE"), "{out}");
}
