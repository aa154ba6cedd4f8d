//! The soak, at small scale; `make soak` runs it at length, with kills.

use sim::soak::{Faults, Life, Op, Shape, Terms, plan};
use std::collections::BTreeSet;
use std::path::Path;

/// The digest of a life in this folder: its path is in the labels.
fn live(dir: &Path, shape: Shape, seed: u64, steps: u64) -> String {
    let mut life = Life::begin(dir, Terms { shape, seed, faults: Faults::None }, 1).unwrap();
    (0..steps).for_each(|_| drop(life.step().unwrap()));
    life.export().unwrap();
    life.check().unwrap();
    life.digest().unwrap()
}

/// Goal: operations of all kinds leave what the model says, and with one worker the same seed leaves the same bytes.
#[test]
fn same_seed_same_bytes() {
    let (dir, shape) = (tempfile::tempdir().unwrap(), Shape::ALL[0]);
    assert_eq!(live(dir.path(), shape, 7, 60), live(dir.path(), shape, 7, 60));
}

/// Goal: so it is on parity, and after going on from what an actor left.
#[test]
fn goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let terms = Terms { shape: Shape::ALL[2], seed: 11, faults: Faults::None };
    let mut life = Life::begin(dir.path(), terms, 2).unwrap();
    (0..25).for_each(|_| drop(life.step().unwrap()));
    // Left as it is: nothing says that it is exported.
    drop(life);
    let mut life = Life::resume(dir.path(), terms, 2, 25).unwrap();
    assert_eq!(life.steps(), 25);
    (0..25).for_each(|_| drop(life.step().unwrap()));
    life.export().unwrap();
    life.check().unwrap();
}

/// A life under faults of its devices, left as it is now and then: what was not flushed is lost; settled in the end.
fn survive(terms: Terms, steps: u64, between: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut life = Life::begin(dir.path(), terms, 2).unwrap();
    while life.steps() < steps {
        let until = life.steps() + between;
        while life.steps() < until {
            life.step().unwrap();
        }
        drop(life);
        life = Life::resume(dir.path(), terms, 2, until).unwrap();
    }
    life.finish().unwrap();
}

/// Of the faults that there were when the seed was found.
fn early(shape: usize, seed: u64) -> Terms {
    Terms { shape: Shape::ALL[shape], seed, faults: Faults::Early }
}

/// Goal: whatever befalls devices within redundancy, nothing is lost, and in the end nothing is wrong: a mirror that gets and loses sides, with a hot spare.
#[test]
fn devices_of_a_mirror() {
    survive(early(1, 21), 120, 37);
}

/// Goal: so it is on a draid with a distributed spare.
#[test]
fn devices_of_a_draid() {
    survive(early(6, 22), 120, 41);
}

/// Goal: a distributed spare that steps in just before a device is replaced keeps nobody from it. Seeds of a long soak.
#[test]
fn a_spare_before_a_replacement() {
    survive(early(6, 20_261_129), 200, 67);
    survive(early(6, 20_261_136), 190, 67);
}

/// Goal: a device that leaves its mirror while a hot spare stands in for it leaves with that, and the model counts on none that stays. A seed of a long soak.
#[test]
fn a_spare_before_a_detach() {
    survive(early(1, 20_261_313), 382, 67);
}

/// A life in which all that came last befalls devices: they lose writes, get rubbish in labels while the pool is used or exported, and are copied in the order of their space.
fn survive_all(shape: usize, seed: u64, steps: u64, between: u64, wanted: &[&str]) {
    let terms = Terms { shape: Shape::ALL[shape], seed, faults: Faults::All };
    let befell: BTreeSet<&str> = plan(terms, steps)
        .iter()
        .filter_map(|op| match op {
            Op::Device(op) => Some(op.word()),
            _ => None,
        })
        .collect();
    let missing: Vec<_> = wanted.iter().filter(|word| !befell.contains(**word)).collect();
    assert!(missing.is_empty(), "{missing:?} befall nobody");
    survive(terms, steps, between);
}

const LATE: [&str; 4] = ["losing writes", "labels spoiled", "labels spoiled while exported", "replaced -s"];

/// Goal: devices that lose writes and labels are noticed, and put right from their mirror, though others are copied from them without being verified.
#[test]
fn lost_writes_of_a_mirror() {
    survive_all(1, 41, 140, 37, &[&LATE[..], &["attached -s"]].concat());
}

/// Goal: so it is on a draid, whose devices are rebuilt from all others.
#[test]
fn lost_writes_of_a_draid() {
    survive_all(9, 32, 140, 41, &LATE);
}

/// Goal: a device that has no other to take its place bears losing all labels but one.
#[test]
fn spoiled_labels_of_a_disk() {
    survive_all(0, 35, 110, 29, &LATE[1..3]);
}
