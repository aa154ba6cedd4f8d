//! What `poolhouse trace` prints, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink;
use api::{
    Caller, Error, FakeService, InProcess, TraceColumn, TraceCondition, TraceEvent, TraceGroup, TraceKept,
    TraceUnit,
};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// A daemon that gives this reply, and keeps the requests.
struct Daemon(Traced, Arc<Mutex<Vec<TraceQuery>>>);

impl FakeService for Daemon {
    fn trace(&self, _: &Caller, query: &TraceQuery) -> Result<Traced, Error> {
        self.1.lock().unwrap().push(query.clone());
        if query.event == "nix" {
            return Err(Error::new(
                "trace",
                api::Reason::BadValue { what: "there is no event 'nix'".to_owned() },
            ));
        }
        Ok(self.0.clone())
    }
}

fn ran(reply: Traced, line: &str) -> (i32, String, String, Vec<TraceQuery>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let daemon = Daemon(Traced { process: 1, session: 9, ..reply }, Arc::clone(&asked));
    let (code, out, err) = sink::ran(Rc::new(InProcess::new(Box::new(daemon))), line, run);
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    (code, out, err, asked)
}

fn column(name: &str, unit: TraceUnit) -> TraceColumn {
    TraceColumn { name: name.to_owned(), unit }
}

fn group(keys: &[&str], count: u64) -> TraceGroup {
    TraceGroup { keys: keys.iter().map(|key| (*key).to_owned()).collect(), count, ..TraceGroup::default() }
}

fn counted() -> Traced {
    Traced {
        columns: vec![column("op", TraceUnit::Text), column("errno", TraceUnit::Text)],
        seen: 8000,
        met: 7822,
        one_of: 1,
        cost_ppm: 200,
        groups: vec![group(&["rmdir", "0"], 4), group(&["rmdir", "ENOTEMPTY"], 7817)],
        others: Some(group(&[], 1)),
        ..Traced::default()
    }
}

/// Goal: groups are a table with the largest first; what was traced is said apart. The session is
/// read to its end.
#[test]
fn table() {
    let (code, out, err, asked) = ran(counted(), "-w op=rmdir -k op,errno -n 1");
    let expected = "OP        ERRNO      COUNT\nrmdir     ENOTEMPTY   7817\nrmdir     0              4\n(others)  -              1\n";
    assert_eq!((code, out.as_str()), (0, expected));
    assert_eq!(err, "tracing op_done\ntraced 7822 of 8000 events, cost 0.02 % of the daemon's time\n");
    let condition =
        TraceCondition { field: "op".to_owned(), test: "=".to_owned(), value: "rmdir".to_owned() };
    assert_eq!((asked[0].session, &asked[0].conditions[..]), (None, &[condition][..]));
    let ends: Vec<_> = asked[1..].iter().map(|query| (query.session, query.end)).collect();
    assert_eq!(ends, [(Some(9), false), (Some(9), true)]);
    let (_, out, _, _) = ran(counted(), "-k op,errno -n 1 -t 1");
    assert_eq!(out.lines().count(), 3, "a head, the row with the most, and the others: {out}");
    let sampled = Traced { is_sampled: true, one_of: 16, ..counted() };
    let (.., err, _) = ran(sampled, "-k op,errno -n 1");
    assert!(err.contains("estimates, 1 of 16 operations"), "{err}");
}

/// Goal: scripts get exact numbers, with tabs or as JSON.
#[test]
fn for_scripts() {
    let (_, out, err, _) = ran(counted(), "-k op,errno -n 1 -p");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        (lines[0], lines[1], err.as_str()),
        ("OP\tERRNO\tCOUNT\tSUM\tMIN\tMAX", "rmdir\tENOTEMPTY\t7817\t0\t0\t0", "tracing op_done\n")
    );
    let (_, out, _, _) = ran(counted(), "-k op,errno -n 1 -j");
    assert!(out.contains(r#""groups":[{"op":"rmdir","errno":"ENOTEMPTY","count":7817}"#), "{out}");
    assert!(out.contains(r#""events":8000,"met":7822,"one_of":1,"sampled":false"#), "{out}");
}

/// Goal: a series of counts without keys is a column of numbers, also for intervals without events.
#[test]
fn series() {
    let one = Traced { groups: vec![group(&[], 26_929)], ..Traced::default() };
    let (_, out, _, asked) = ran(one, "-i 1 -n 2");
    assert_eq!(out, "26929\n26929\n");
    let due: Vec<bool> = asked[1..].iter().map(|query| query.anew).collect();
    assert_eq!(due, [false, true, false, true], "it counts anew with each line");
    assert_eq!(ran(Traced::default(), "-n 1").1, "0\n");
}

/// Goal: a distribution is printed as DTrace does, with units of the field.
#[test]
fn distribution() {
    let of = TraceGroup {
        sum: 40 << 20,
        max: 3 << 20,
        buckets: vec![(1 << 18, 30), (1 << 20, 10)],
        ..group(&["fsync"], 40)
    };
    let columns = vec![column("op", TraceUnit::Text)];
    let traced = Traced { columns, measured: TraceUnit::Time, groups: vec![of], ..Traced::default() };
    let (_, out, _, asked) = ran(traced, "-k op -a quantize:ns -n 1");
    let bar = |n: usize| format!("{:<40}", "@".repeat(n));
    let expected = [
        String::new(),
        "  fsync".to_owned(),
        "           value  ------------- Distribution ------------- count".to_owned(),
        format!("          262 us |{} 30", bar(30)),
        format!("         1048 us |{} 10", bar(10)),
        "  n 40  mean 1.05 ms  max 3.15 ms".to_owned(),
    ];
    assert_eq!(
        (out.lines().collect::<Vec<_>>(), asked[0].measure.as_str()),
        (expected.iter().map(String::as_str).collect(), "quantize:ns")
    );
}

/// Goal: events are printed as they come, and written to a file that is JSON with their times.
#[test]
fn events() {
    let columns = vec![
        column("op", TraceUnit::Text),
        column("process", TraceUnit::Text),
        column("ns", TraceUnit::Time),
    ];
    let values = ["rmdir", "a\u{1b}[31m\"b", "2500000"].map(str::to_owned).to_vec();
    let kept = vec![TraceKept { at_ns: 1_800_000_000_000_000_000, tid: 7, values }];
    let traced = Traced { columns, kept, lost: 3, ..Traced::default() };
    let (_, out, err, asked) = ran(traced.clone(), "-r -n 0.5");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("TIME ") && lines[1].contains("rmdir"), "{out}");
    assert!(
        lines[1].ends_with(" 2.50") && !out.contains('\u{1b}'),
        "names have no control characters: {out}"
    );
    assert!(err.contains("\n3 events are not shown") && asked[0].raw, "{err}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.json");
    let (code, out, ..) = ran(traced, &format!("-o {} -n 1", file.display()));
    assert_eq!((code, out.as_str()), (0, ""));
    let text = std::fs::read_to_string(&file).unwrap();
    let event = r#"{"name":"rmdir","ph":"X","ts":1799999999997500.000,"dur":2500.000,"pid":1,"tid":7,"#;
    assert_eq!(text.matches(event).count(), 2, "each reading has one: {text}");
    assert!(text.starts_with("[\n{") && text.ends_with("}\n]\n"), "{text}");
    let (code, _, err, _) = ran(Traced::default(), &format!("-o {}/none/x -n 1", dir.path().display()));
    assert_eq!((code, err.starts_with("cannot write")), (1, true), "{err}");
}

/// Goal: wrong command lines are refused by name. Without a terminal, something must end it.
#[test]
fn wrong_lines() {
    for (line, part) in [
        ("-k op", "without a terminal"),
        ("-w op -n 1", "'op' is no condition"),
        ("-w =3 -n 1", "is no condition"),
        ("-a nix -n 1", "unknown measure 'nix'"),
        ("-t 0 -n 1", "invalid number of rows"),
        ("-r -i 1", "without '-a' and '-i'"),
        ("-n x", "'x'"),
        ("-n 1 what", "too many arguments"),
    ] {
        let (code, out, err, asked) = ran(Traced::default(), line);
        assert!(code == 2 && out.is_empty() && err.contains(part) && asked.is_empty(), "{line}: {err}");
    }
    let (code, _, err, _) = ran(Traced::default(), "-e nix -n 1");
    assert_eq!((code, err.contains("there is no event 'nix'")), (1, true));
    let all = conditions::read("op = rmdir and ns>=20ms and dataset!~tank/*").unwrap();
    let all: Vec<_> = all.iter().map(|c| (c.field.as_str(), c.test.as_str(), c.value.as_str())).collect();
    assert_eq!(all, [("op", "=", "rmdir"), ("ns", ">=", "20ms"), ("dataset", "!~", "tank/*")]);
}

/// Goal: the list has the events with their fields.
#[test]
fn list() {
    let fields = vec![column("op", TraceUnit::Text), column("ns", TraceUnit::Time)];
    let common = vec![column("pid", TraceUnit::Number)];
    let event = TraceEvent { name: "op_done".to_owned(), about: "It has ended.".to_owned(), fields, common };
    let traced = Traced { events: vec![event], ..Traced::default() };
    assert_eq!(ran(traced.clone(), "-l -p").1, "op_done\top,ns\tpid\n");
    assert!(ran(traced, "-l").1.contains("its fields: op, ns\n"));
}
