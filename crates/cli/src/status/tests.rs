//! What `poolhouse status` prints, and its options.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::sink;
use api::{Caller, Error, FakeService, InProcess, Prop, Reason, ScanStat, Source, SuspendReason};
use std::rc::Rc;

/// A daemon with a busy pool, an idle one that is scrubbed, and a suspended one.
struct Daemon;

impl FakeService for Daemon {
    fn pool_names(&self, _: &Caller) -> Result<Vec<String>, Error> {
        Ok(["busy", "idle", "stuck"].map(str::to_owned).into())
    }

    fn pool(&self, _: &Caller, name: &str, query: &PoolQuery) -> Result<Pool, Error> {
        assert!(query.props);
        if !["busy", "idle", "stuck"].contains(&name) {
            return Err(Error::new(name, Reason::NoSuchPool));
        }
        let health = if name == "stuck" { "SUSPENDED" } else { "ONLINE" };
        let props = [("health", health), ("capacity", "7%")];
        let scan = ScanStat {
            func: ScanFunc::Scrub,
            state: ScanState::Scanning,
            to_examine: 300,
            skipped: 100,
            issued: 50,
            ..ScanStat::default()
        };
        Ok(Pool {
            name: name.to_owned(),
            suspended: (name == "stuck").then_some(SuspendReason::IoWait),
            scan: (name == "idle").then_some(scan),
            props: props.map(|(name, text)| Prop::new(name, text, Source::default())).into(),
            ..Pool::default()
        })
    }

    fn trace(&self, _: &Caller, query: &TraceQuery) -> Result<Traced, Error> {
        let group = |keys: &[&str], count, sum, sums: &[u64]| TraceGroup {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            count,
            sum,
            sums: sums.to_vec(),
            ..TraceGroup::default()
        };
        let is_of_waits = query.event == "wait_done" || query.session == Some(2);
        let groups = match is_of_waits {
            true => vec![
                group(&["busy/db", "flush", "/dev/a"], 90, 600_000_000, &[]),
                group(&["busy", "flush", "/dev/a"], 10, 110_000_000, &[]),
                group(&["busy/db@snap", "lock", "zil pending"], 5, 120_000_000, &[]),
                group(&["busy/db", "read", "/dev/b"], 5, 9_000_000, &[]),
                group(&["", "write", "/dev/a"], 5, 9_000_000_000, &[]),
                group(&["busybody", "write", "/dev/a"], 5, 9_000_000_000, &[]),
            ],
            false => vec![
                group(&["busy/db"], 1500, 900_000_000, &[150_000_000]),
                group(&["busy"], 500, 100_000_000, &[11_000_000]),
                group(&["busybody"], 500, 900_000_000, &[0]),
            ],
        };
        let session = if is_of_waits { 2 } else { 1 };
        Ok(Traced { process: 1, session, groups, ns: 500_000_000, ..Traced::default() })
    }
}

fn ran(line: &str) -> (i32, String, String) {
    sink::ran(Rc::new(InProcess::new(Box::new(Daemon))), line, run)
}

/// Goal: a line says what limits a pool: the longest waits of its operations, those of its datasets
/// and snapshots together, each with its share of their time. Other pools, and waits of the
/// engine's own threads, don't count.
#[test]
fn limits() {
    let (code, out, err) = ran("-p");
    assert_eq!((code, err.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
    let of = |n: usize| rows[n][rows[n].len() - COLUMNS.len()..].to_vec();
    let limit = "flush /dev/a 71 %, processor 16 %, lock zil pending 12 %";
    assert_eq!(of(1), ["busy", "ONLINE", "7%", "4000", "2.00", "500000", limit, "-"]);
    assert_eq!(of(2), ["idle", "ONLINE", "7%", "0", "0.00", "-", "idle", "scrub 25 %"]);
    assert_eq!(of(3)[1..], ["SUSPENDED", "7%", "0", "0.00", "-", "it is suspended: zpool clear stuck", "-"]);
    let (_, text, _) = ran("");
    assert!(text.contains("LIMITED BY") && text.contains(limit), "{text}");
}

/// Goal: pools are chosen by name; a wrong one is reported, and the others are printed.
#[test]
fn chosen() {
    let (code, out, err) = ran("-p idle nix");
    assert_eq!((code, out.lines().count()), (1, 2));
    assert!(err.contains("cannot read the state of 'nix'"), "{err}");
    assert_eq!(ran("-n 0").0, 2);
    assert_eq!(ran("-x").0, 2);
    let document = ran("-j busy").1;
    assert!(
        document.contains(r#""limited_by":"flush /dev/a 71 %"#) || document.contains("limited_by"),
        "{document}"
    );
}
