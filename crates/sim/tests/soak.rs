//! The soak, at small scale; `make soak` runs it at length, with kills.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sim::soak::{Life, Shape, Terms};
use std::path::Path;

/// The digest of a life in this folder: its path is in the labels.
fn live(dir: &Path, shape: Shape, seed: u64, steps: u64) -> String {
    let mut life = Life::begin(dir, Terms { shape, seed, faults: false }, 1).unwrap();
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
    let terms = Terms { shape: Shape::ALL[2], seed: 11, faults: false };
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
fn survive(shape: usize, seed: u64, steps: u64, between: u64) {
    let dir = tempfile::tempdir().unwrap();
    let terms = Terms { shape: Shape::ALL[shape], seed, faults: true };
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

/// Goal: whatever befalls devices within redundancy, nothing is lost, and in the end nothing is wrong: a mirror that gets and loses sides, with a hot spare.
#[test]
fn devices_of_a_mirror() {
    survive(1, 21, 120, 37);
}

/// Goal: so it is on a draid with a distributed spare.
#[test]
fn devices_of_a_draid() {
    survive(6, 22, 120, 41);
}

/// Goal: a distributed spare that steps in just before a device is replaced keeps nobody from it. Seeds of a long soak.
#[test]
fn a_spare_before_a_replacement() {
    survive(6, 20_261_129, 200, 67);
    survive(6, 20_261_136, 190, 67);
}

/// Goal: a device that leaves its mirror while a hot spare stands in for it leaves with that, and the model counts on none that stays. A seed of a long soak.
#[test]
fn a_spare_before_a_detach() {
    survive(1, 20_261_313, 382, 67);
}
