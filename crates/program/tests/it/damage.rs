//! Commands on pools with a damaged dataset: they show the rest and name the damage.

use crate::common::live::FixtureService;
use crate::common::{in_process, run};
use fuzzing::graft::Graft;
use std::process::Command;
use std::rc::Rc;

/// A copy of `dedup-fast` in which `c2` belongs to no directory.
fn damaged() -> Graft {
    let mut graft = Graft::open(&testkit::load("dedup-fast"));
    let live = FixtureService::open(&[graft.image()]).unwrap();
    let object = live.dsl.dataset("dedup-fast/c2").unwrap().object();
    let bonus = live.spa.mos().objset().dnode(object).unwrap().bonus().to_vec();
    graft.replace(&[(&bonus, &[&[0; 8], &bonus[8..]].concat())]);
    graft
}

/// Goal: `zfs list` prints the other datasets, names the damaged one on standard error, and exits
/// with 1.
#[test]
fn zfs_list_prints_the_rest() {
    let graft = damaged();
    let live = in_process(Rc::new(FixtureService::open(&[graft.image()]).unwrap()));
    for line in ["zfs list -Ho name", "zfs list -rHo name dedup-fast"] {
        let ran = run(line, live.clone());
        let names: Vec<&str> = ran.out.lines().collect();
        assert!(names.contains(&"dedup-fast/c1") && names.contains(&"dedup-fast/sk"), "{line}: {names:?}");
        assert!(!names.contains(&"dedup-fast/c2"));
        assert!(ran.err.starts_with("cannot open 'dedup-fast/c2': "), "{line}: {}", ran.err);
        assert_eq!((ran.err.lines().count(), ran.code), (1, 1), "{line}");
    }
    let ran = run("zfs list -jo name", live);
    assert!(ran.out.contains("dedup-fast/c1") && ran.code == 1, "{ran:?}");
}

/// Goal: `poolhouse ls` and `ls --find` list the other datasets and name those that they could not
/// read.
#[test]
fn a_search_goes_on() {
    let graft = damaged();
    for args in [&["ls", "dedup-fast"][..], &["ls", "--find", "c", "dedup-fast"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        let ran = command.args(args).arg("-d").arg(graft.image()).output().unwrap();
        let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
        assert!(out.lines().any(|name| name == "dedup-fast/c1@s"), "{args:?}: {out}{err}");
        assert!(err.starts_with("poolhouse ls: dedup-fast/c2: ") && err.lines().count() == 1, "{err}");
        assert_eq!(ran.status.code(), Some(1));
    }
}
