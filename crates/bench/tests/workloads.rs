//! The tables of workloads: names, help text, and a run of each workload.

use bench::Work;
use bench::drive::Group;
use bench::help::{self, Found};
use bench::peers::{WORKLOADS, Workload};
use bench::streams::Part;
use std::ffi::OsStr;
use std::path::Path;

/// The names of the workloads without a peer.
fn names() -> Vec<&'static str> {
    let streams = Part::ALL.iter().map(|part| part.name());
    Work::ALL.iter().map(|w| w.name).chain(Group::ALL.iter().map(|g| g.name)).chain(streams).collect()
}

/// Goal: each workload runs with the settings that it lists, and uses no other setting.
#[test]
fn each_runs() {
    let dir = tempfile::tempdir().unwrap();
    for work in WORKLOADS.iter().filter(|w| !w.mounts()) {
        // A scrub and a send find the image that the workload before them made.
        let image = format!("image={}", work.name.trim_end_matches("-image"));
        let small = [
            image.as_str(),
            "msecs=1",
            "threads=1,2",
            "obj_mb=1",
            "objs=2",
            "count=2000",
            "rs=512",
            "ashift=9",
            "size_mb=256",
        ];
        let known = work.knobs();
        let set: Vec<String> = small
            .iter()
            .filter(|pair| known.iter().any(|k| pair.split('=').next() == Some(k.name)))
            .map(|pair| (*pair).to_owned())
            .collect();
        let answer = work.run(None, dir.path(), &set).unwrap_or_else(|e| panic!("{}: {e:#}", work.name));
        assert!(!answer.figures.is_empty(), "{}", work.name);
    }
}

/// Goal: no two workloads or settings have the same name. An error about an unknown name lists the
/// known ones.
#[test]
fn told() {
    let names: std::collections::BTreeSet<&str> = WORKLOADS.iter().map(|w| w.name).collect();
    assert_eq!(names.len(), WORKLOADS.len());
    for work in &WORKLOADS {
        let names: std::collections::BTreeSet<&str> = work.knobs().iter().map(|k| k.name).collect();
        assert_eq!(names.len(), work.knobs().len(), "{}", work.name);
    }
    let said = Workload::by_name("nonsense").unwrap_err().to_string();
    assert_eq!(
        said,
        "there is no workload nonsense for peers; there are reads, storm, free, unmap, overwrite, scrub-image, scrub, send-image, send, fio, mail"
    );
    let refused = |name: &str, kind: Option<&str>| {
        Workload::by_name(name).unwrap().run(kind, Path::new("/"), &[]).is_err()
    };
    assert!(refused("fio", None) && refused("reads", Some("poolhouse")));
}

/// Goal: the help has a line for each workload, with all settings and their defaults. No two
/// workloads have the same name.
#[test]
fn lists_all() {
    let text = help::text();
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let own = names();
    for name in own.iter().copied().chain(WORKLOADS.iter().map(|w| w.name)) {
        assert_eq!(lines.iter().filter(|l| l.starts_with(&format!("{name:<15} "))).count(), 1, "{name}");
    }
    for knob in WORKLOADS.iter().flat_map(|w| w.knobs()) {
        assert!(lines.iter().any(|l| l.starts_with(&format!("{}={} ", knob.name, knob.otherwise))));
    }
    assert_eq!(own.iter().collect::<std::collections::BTreeSet<_>>().len(), own.len());
}

/// Goal: workloads are found by name. An error about an unknown name lists all others.
#[test]
fn by_name() {
    assert!(matches!(help::find(OsStr::new("traverse")), Ok(Found::Work(w)) if !w.makes && w.zdb));
    assert!(matches!(help::find(OsStr::new("mount8115")), Ok(Found::Work(w)) if w.makes));
    assert!(matches!(help::find(OsStr::new("mount-tree")), Ok(Found::Groups(g)) if g.len() == 1));
    assert!(matches!(help::find(OsStr::new("mounts")), Ok(Found::Groups(g)) if g.len() == Group::ALL.len()));
    assert!(matches!(help::find(OsStr::new("streams")), Ok(Found::Streams(p)) if p == Part::ALL));
    assert!(matches!(help::find(OsStr::new("streams-library")), Ok(Found::Streams(p)) if p.len() == 1));
    let said = help::find(OsStr::new("nonsense")).unwrap_err().to_string();
    for name in names().into_iter().chain(["mounts", "streams"]) {
        assert!(said.contains(name), "{said}");
    }
}
