//! The output of commands with `-j`, compared with that of OpenZFS 2.3.2 for the same pool
//! (`data/json.txt`).
//!
//! OpenZFS had imported the pool read-only from files in `/scratch/dev`, with the altroot `/m`.

use crate::common::{good, run};
use api::Requests;
use serde_json::Value;
use server::service::LocalService;
use std::rc::Rc;

/// Values that are not compared:
///
/// * The kernel module loads no space maps of a read-only pool, and reports it as empty.
/// * Counters of what was read since the import.
/// * Values of mounts, because nothing is mounted here.
const OTHER: &[&str] = &[
    "allocated",
    "free",
    "capacity",
    "fragmentation",
    "alloc_space",
    "read_ops",
    "read_bytes",
    "load_guid",
    "mounted",
    "readonly",
];

/// Each value as a line with its path, as in `pools/tank/name = "tank"`.
fn flat(at: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Object(all) => {
            for (name, below) in all.iter().filter(|(name, _)| !OTHER.contains(&name.as_str())) {
                flat(&format!("{at}/{name}"), below, lines);
            }
        }
        leaf => lines.push(format!("{at} = {leaf}")),
    }
}

fn lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if !text.is_empty() {
        flat("", &serde_json::from_str(text).expect(text), &mut lines);
    }
    lines
}

/// Goal: keys, values, types and nesting are OpenZFS's, for each command of the transcript.
#[test]
fn as_openzfs_prints() {
    let fixture = testkit::load("mirror2");
    let copy = fixture.copy();
    let dir = copy.dir().display().to_string();
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    good(&format!("zpool import -d {dir} -N -o readonly=on -R /m -a"), &house);
    let transcript = include_str!("../data/json.txt").replace("/scratch/dev", &dir);
    let mut rest = transcript.lines();
    let mut commands = 0;
    while let Some(line) = rest.next() {
        let line = line.strip_prefix("$ ").expect(line);
        let [code, err, out] = std::array::from_fn(|_| rest.next().expect("three lines follow a command"));
        let ran = run(line, house.clone());
        assert_eq!((ran.code.to_string().as_str(), ran.err.trim_end()), (code, err), "{line}");
        assert_eq!(lines(&ran.out), lines(out), "{line}");
        commands += 1;
    }
    assert_eq!(commands, 20);
}
