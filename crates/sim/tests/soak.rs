//! The soak, at small scale; `make soak` runs it at length, with kills.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sim::soak::{Life, Shape};
use std::path::Path;

/// The digest of a life in this folder: its path is in the labels.
fn live(dir: &Path, shape: Shape, seed: u64, steps: u64) -> String {
    let mut life = Life::begin(dir, shape, seed, 1).unwrap();
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
    let mut life = Life::begin(dir.path(), Shape::ALL[2], 11, 2).unwrap();
    (0..25).for_each(|_| drop(life.step().unwrap()));
    // Left as it is: nothing says that it is exported.
    drop(life);
    let mut life = Life::resume(dir.path(), 11, 2, 25).unwrap();
    assert_eq!(life.steps(), 25);
    (0..25).for_each(|_| drop(life.step().unwrap()));
    life.export().unwrap();
    life.check().unwrap();
}
