//! The crash test, at small scale; `make crash` runs it at length.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sim::crash::{Outcome, promise, record, split};
use spa::create::VdevShape;

/// Crashes at `count` points of a workload, spread evenly, or at all if there are fewer.
fn crash(shape: VdevShape, devices: usize, steps: usize, count: usize) {
    const SEED: u64 = 0x5eed;
    let script = record(shape, devices, steps, SEED);
    let dir = tempfile::tempdir().unwrap();
    let mut reached = std::collections::BTreeSet::new();
    for n in 0..count.min(script.points()) {
        let point = (n + 1) * script.points() / count.min(script.points());
        let seed = SEED + point as u64;
        match script.crash(point, seed, dir.path()).unwrap() {
            Outcome::Step(step) => drop(reached.insert(step)),
            Outcome::Nothing => {}
            Outcome::Wrong(what) => panic!("crash at {point} with seed {seed:#x}: {what}"),
        }
    }
    assert!(reached.len() * 2 > steps, "only {} of {steps} states were reached", reached.len());
}

/// Goal: a pool on one device shows a whole state after any crash.
#[test]
fn one_device() {
    crash(VdevShape::Single, 1, 12, 120);
}

/// Goal: so does a mirror, whose sides are never equally far.
#[test]
fn mirror() {
    crash(VdevShape::Mirror, 2, 12, 80);
}

/// Goal: so does a raidz, whose stripes are torn between devices.
#[test]
fn raidz() {
    crash(VdevShape::Raidz(1), 3, 12, 80);
}

/// Crashes at `count` points of a workload of commits, spread evenly.
fn promises(shape: VdevShape, devices: usize, logs: usize, actors: usize, count: usize) {
    const SEED: u64 = 0x5eed;
    let script = promise(shape, devices, logs, actors, 60 / actors, SEED);
    let dir = tempfile::tempdir().unwrap();
    let mut most = 0;
    for n in 0..count {
        let point = (n + 1) * script.points() / count;
        let seed = SEED + point as u64;
        match script.crash(point, seed, dir.path()).unwrap() {
            Outcome::Step(asked) => most = most.max(asked),
            Outcome::Nothing => {}
            Outcome::Wrong(what) => panic!("crash at {point} with seed {seed:#x}: {what}"),
        }
    }
    assert!(most > 10, "only {most} promises were asked for");
}

/// Goal: what a commit said is there is there, or in the log, after any crash.
#[test]
fn commits_are_kept() {
    promises(VdevShape::Single, 1, 0, 1, 100);
}

/// Goal: so it is when several commit at once, on a mirror with log devices.
#[test]
fn commits_are_kept_on_log_devices() {
    promises(VdevShape::Mirror, 2, 2, 3, 100);
}

/// Goal: wherever the power fails while a pool is split, there is one pool with all devices, or there are two with half of them each, whichever is imported first.
#[test]
fn splits_are_whole() {
    const COUNT: usize = 60;
    let script = split(0x5eed);
    let (first, last) = script.points();
    let dir = tempfile::tempdir().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..=COUNT {
        let point = first + n * (last - first) / COUNT;
        let (seed, new_first) = (0x5eed + point as u64, n % 2 == 0);
        match script.crash(point, seed, new_first, dir.path()).unwrap() {
            Outcome::Step(pools) => drop(seen.insert(pools)),
            what => panic!("crash at {point} with seed {seed:#x}, new first {new_first}: {what:?}"),
        }
    }
    assert_eq!(Vec::from_iter(seen), [1, 2]);
}
