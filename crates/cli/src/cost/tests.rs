//! What `poolhouse cost` prints, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink;
use api::{Caller, Error, FakeService, InProcess, Reason};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// A daemon that has seen two kinds of operations, and keeps the requests.
struct Daemon(Arc<Mutex<Vec<TraceQuery>>>);

impl FakeService for Daemon {
    fn trace(&self, _: &Caller, query: &TraceQuery) -> Result<Traced, Error> {
        self.0.lock().unwrap().push(query.clone());
        let group = |keys: &[&str], count, sums: &[u64]| TraceGroup {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            count,
            sums: sums.to_vec(),
            ..TraceGroup::default()
        };
        let is_of_devices = query.event == "dev_io" || query.session == Some(2);
        let groups = match is_of_devices {
            true => vec![group(&["write"], 212, &[3 << 20])],
            false => vec![
                group(&["fuse", "rmdir", "ENOTEMPTY"], 7817, &[0, 40_000_000, 39_000_000, 0, 1_000_000]),
                group(&["fuse", "unlink", "0"], 1, &[0, 520_000_000, 20_000_000, 0, 0, 500_000_000]),
            ],
        };
        let session = if is_of_devices { 2 } else { 1 };
        Ok(Traced { process: 1, session, groups, cpu_ns: 520_000_000, ..Traced::default() })
    }
}

fn ran(line: &str) -> (i32, String, String, Vec<TraceQuery>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let daemon = Daemon(Arc::clone(&asked));
    let (code, out, err) = sink::ran(Rc::new(InProcess::new(Box::new(daemon))), line, run);
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    (code, out, err, asked)
}

/// Goal: the report has the operations with errors and waits, those that took the longest first,
/// and the exit code is the command's. Both sessions are of this process, and end.
#[test]
fn report() {
    let (code, out, err, asked) = ran("-- false");
    assert_eq!((code, out.as_str()), (1, ""));
    let lines: Vec<Vec<&str>> = err.lines().map(|line| line.split_whitespace().collect()).collect();
    let at = lines.iter().position(|words| words.first() == Some(&"OP")).unwrap();
    assert_eq!(lines[at + 1][..8], ["unlink", "fuse", "-", "1", "0", "520", "20.0", "0"]);
    assert_eq!(lines[at + 2][..7], ["rmdir", "fuse", "ENOTEMPTY", "7817", "0", "40.0", "39.0"]);
    assert!(err.contains("processor time 0.520 s") && err.contains("212 writes (3.0 MB)"), "{err}");
    assert!(asked[0].under && asked[0].event == "op_done" && asked[1].event == "dev_io");
    let ends: Vec<_> = asked[asked.len() - 2..].iter().map(|query| (query.session, query.end)).collect();
    assert_eq!(ends, [(Some(1), true), (Some(2), true)]);
}

/// A daemon that goes away after it has begun its sessions.
struct Gone;

impl FakeService for Gone {
    fn trace(&self, _: &Caller, query: &TraceQuery) -> Result<Traced, Error> {
        match query.session {
            Some(_) => Err(Error::new("the daemon", Reason::Daemon { what: "it has gone away".to_owned() })),
            None => Ok(Traced { process: 1, session: 1, ..Traced::default() }),
        }
    }
}

/// Goal: a daemon that goes away costs the counts, not the command nor its exit code.
#[test]
fn daemon_goes_away() {
    let service = Rc::new(InProcess::new(Box::new(Gone)));
    let (code, _, err) = sink::ran(service, "-- false", run);
    assert_eq!(code, 1);
    assert!(err.contains("the daemon's counts are lost"), "{err}");
}

/// Goal: JSON has exact numbers.
#[test]
fn as_json() {
    let (code, _, err, _) = ran("-j true");
    assert_eq!(code, 0);
    let expected =
        r#"{"op":"rmdir","frontend":"fuse","error":"ENOTEMPTY","count":7817,"bytes":0,"took_ns":40000000"#;
    assert!(err.contains(expected) && err.contains(r#""writes":212,"write_bytes":3145728"#), "{err}");
}

/// Goal: a command that can't be run has the exit code of a shell, and the sessions end. Options
/// behind the command are the command's.
#[test]
fn command_lines() {
    let (code, _, err, asked) = ran("no-such-program");
    assert!(code == 127 && err.starts_with("cannot run 'no-such-program'"), "{err}");
    assert_eq!(asked.iter().filter(|query| query.end).count(), 2);
    assert_eq!(ran("").0, 2);
    assert_eq!(ran("-x true").0, 2);
    assert_eq!(ran("--help").0, 0);
    assert_eq!(ran("sh -c exit").0, 0);
}
