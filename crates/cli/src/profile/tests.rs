//! What `poolhouse profile` prints and writes.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink;
use api::{Caller, Error, FakeService, InProcess, TraceGroup};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// A daemon that has seen some threads, and keeps the requests.
struct Daemon(Arc<Mutex<Vec<TraceQuery>>>);

impl FakeService for Daemon {
    fn trace(&self, _: &Caller, query: &TraceQuery) -> Result<Traced, Error> {
        self.0.lock().unwrap().push(query.clone());
        let group = |keys: [&str; 4], count| TraceGroup {
            keys: keys.map(str::to_owned).into(),
            count,
            ..TraceGroup::default()
        };
        let groups = vec![
            group(["write", "tank/db", "lock", "zil pending"], 90),
            group(["fsync", "tank/db", "flush", "/dev/a;b"], 710),
            group(["txg_sync", "", "computes", ""], 50),
            group(["read", "tank/<i>\u{1b}", "computes", ""], 120),
        ];
        let others = Some(TraceGroup { count: 30, ..TraceGroup::default() });
        Ok(Traced { process: 1, session: 7, groups, others, ns: 10_000_000_000, ..Traced::default() })
    }
}

fn ran(line: &str) -> (i32, String, String, Vec<TraceQuery>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let service = Rc::new(InProcess::new(Box::new(Daemon(Arc::clone(&asked)))));
    let (code, out, err) = sink::ran(service, line, run);
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    (code, out, err, asked)
}

/// Goal: rows say what threads did, the most frequent first, with their share, and how many threads
/// that were on average. The session is read while it lasts, and ends.
#[test]
fn rows() {
    let (code, out, err, asked) = ran("-p -w op!=read");
    assert_eq!((code, err.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
    let of = |n: usize| rows[n][rows[n].len() - COLUMNS.len()..].to_vec();
    assert_eq!(of(1), ["7100", "710", "0.72", "fsync", "tank/db", "flush: /dev/a;b"]);
    assert_eq!(of(3), ["900", "90", "0.09", "write", "tank/db", "lock: zil pending"]);
    assert_eq!(of(4), ["500", "50", "0.05", "txg_sync", "-", "computes"]);
    assert_eq!(of(5), ["300", "30", "0.03", "other", "-", "other"]);
    assert!(asked.len() > 4 && asked[0].session.is_none() && asked[0].event == "sample");
    assert!(asked[1..].iter().all(|query| query.session == Some(7)) && asked.last().unwrap().end);
    assert_eq!(asked[0].conditions.len(), 1);
    let (_, text, _, _) = ran("-t 1");
    assert!(text.contains("DOES") && text.contains("fsync") && !text.contains("write"), "{text}");
}

/// A field of a message of protocol buffers: its number, and its number or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(first & 0x7f) << shift;
            shift += 7;
            if first & 0x80 == 0 {
                return number;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let number = varint(&mut bytes);
        let inner = match key & 7 {
            0 => &[][..],
            _ => {
                let (inner, rest) = bytes.split_at(usize::try_from(number).unwrap());
                bytes = rest;
                inner
            }
        };
        found.push((key >> 3, number, inner));
    }
    found
}

/// Goal: the files have all stacks: lines, boxes whose widths are the shares, and pprof's messages.
/// Names with markup stay text.
#[test]
fn files() {
    let dir = tempfile::tempdir().unwrap();
    let read = |ending: &str| {
        let path = dir.path().join(format!("x.{ending}"));
        let (code, _, err, _) = ran(&format!("-o {}", path.display()));
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("wrote 5 stacks to"), "{err}");
        std::fs::read(path).unwrap()
    };
    let folded = String::from_utf8(read("folded")).unwrap();
    assert!(folded.starts_with("fsync;tank/db;flush;/dev/a_b 710\n"), "{folded}");
    assert!(
        folded.contains("\ntxg_sync;computes 50\n") && folded.ends_with("\nother;other 30\n"),
        "{folded}"
    );

    let svg = String::from_utf8(read("svg")).unwrap();
    assert!(svg.contains("width=\"852.0\"") && svg.contains("fsync: 710 samples, 71.0 %"), "{svg}");
    assert!(svg.contains("tank/&lt;i&gt;") && !svg.contains("<i>") && !svg.contains('\u{1b}'), "{svg}");
    assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());

    let bytes = read("pb");
    let all = fields(&bytes);
    let of = |number: u64| all.iter().filter(move |field| field.0 == number).map(|field| field.2);
    let texts: Vec<&str> = of(6).map(|text| std::str::from_utf8(text).unwrap()).collect();
    assert_eq!(texts[0], "");
    let names: HashMap<u64, String> = of(5)
        .map(|function| {
            let parts = fields(function);
            (parts[0].1, texts[usize::try_from(parts[1].1).unwrap()].to_owned())
        })
        .collect();
    let first = fields(of(2).next().unwrap());
    let frames: Vec<&str> =
        first.iter().filter(|field| field.0 == 1).map(|field| names[&field.1].as_str()).collect();
    assert_eq!(frames, ["/dev/a;b", "flush", "tank/db", "fsync"]);
    let values: Vec<u64> = first.iter().filter(|field| field.0 == 2).map(|field| field.1).collect();
    assert_eq!(values, [710, 710 * 10_101_010]);
}

/// Goal: a file without a known ending is refused before anything is counted.
#[test]
fn options() {
    let (code, _, err, asked) = ran("-o x.png");
    assert_eq!((code, asked.len()), (2, 0));
    assert!(err.contains("end it with .svg, .pb or .folded"), "{err}");
    assert_eq!(ran("-o /nix/x.svg").0, 1);
    assert_eq!(ran("-n 0").0, 2);
    assert_eq!(ran("-t 0").0, 2);
    assert_eq!(ran("more").0, 2);
}
