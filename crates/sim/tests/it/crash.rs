//! The crash test, in short. `make crash` runs it at length.

use sim::crash::{Life, Outcome, Tale, live, promise, receive, record, serve, split};
use spa::create::VdevShape;

/// Crashes at `count` points of a workload, spread evenly; at all points if there are fewer.
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

/// Goal: after any crash, a pool on one device shows the state after a step.
#[test]
fn one_device() {
    crash(VdevShape::Single, 1, 12, 120);
}

/// Goal: the same for a mirror, whose children are never equally far.
#[test]
fn mirror() {
    crash(VdevShape::Mirror, 2, 12, 80);
}

/// Goal: the same for a raidz, whose stripes are torn between devices.
#[test]
fn raidz() {
    crash(VdevShape::Raidz(1), 3, 12, 80);
}

/// Goal: after any crash of a receive, what had come can be resumed or received anew, and becomes
/// what was sent.
#[test]
fn receives_are_resumed() {
    const COUNT: usize = 60;
    let script = receive(VdevShape::Mirror, 2, 0x5eed);
    let (first, last) = script.points();
    let dir = tempfile::tempdir().unwrap();
    let mut reached = std::collections::BTreeSet::new();
    for n in 0..COUNT {
        let point = first + (n + 1) * (last - first) / COUNT;
        match script.crash(point, point as u64, dir.path()).unwrap() {
            Outcome::Step(state) => drop(reached.insert(state)),
            other => panic!("crash at {point}: {other:?}"),
        }
    }
    assert_eq!(reached.len(), 5, "{reached:?}");
}

/// Crashes at `count` points of a workload of an AFS server, spread evenly.
fn servers(shape: VdevShape, devices: usize, seed: u64, count: usize) {
    let script = serve(shape, devices, 80, seed);
    let (first, last) = script.points();
    let dir = tempfile::tempdir().unwrap();
    let mut reached = std::collections::BTreeSet::new();
    for n in 0..count {
        let point = first + (n + 1) * (last - first) / count;
        match script.crash(point, point as u64, dir.path()).unwrap() {
            Outcome::Step(state) => drop(reached.insert(state)),
            other => panic!("seed {seed}, crash at {point} of {first} to {last}: {other:?}"),
        }
    }
    assert!(reached.len() * 4 > count, "only {} states were reached", reached.len());
}

/// Goal: after any crash of an AFS server, no client keeps data that the server lost, no fid names
/// another file, and volumes are whole or gone.
#[test]
fn clients_keep_nothing_that_is_lost() {
    servers(VdevShape::Single, 1, 0x5eed, 40);
}

/// Goal: the same when the pool is synced beside all calls, so that transaction groups end amid
/// them.
#[test]
fn clients_keep_nothing_that_is_lost_amid_calls() {
    servers(VdevShape::Mirror, 2, 0x5eee, 40);
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

/// Goal: after any crash, committed changes are in the pool or in its log.
#[test]
fn commits_are_kept() {
    promises(VdevShape::Single, 1, 0, 1, 100);
}

/// Goal: the same with several committing threads, on a mirror with log devices.
#[test]
fn commits_are_kept_on_log_devices() {
    promises(VdevShape::Mirror, 2, 2, 3, 100);
}

/// Goal: a power failure during a split leaves one pool with all devices, or two with half of them
/// each. The order of the imports makes no difference.
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

/// Crashes at `count` points of a tale, spread evenly, and runs all checks.
fn lives(tale: Tale, count: usize) {
    let life = live(tale, 0x5eed);
    let reached = crash_life(&life, 1..life.points() + 1, count);
    assert!(reached * 2 > count.min(8), "only {reached} states were reached");
}

/// Crashes at `count` points of a part of one step.
fn moment(tale: Tale, what: &str, percent: std::ops::Range<usize>, count: usize) {
    let life = live(tale, 0x5eed);
    crash_life(&life, life.points_of(what, percent), count);
}

/// Crashes so many times. Returns the number of different states of the tale.
fn crash_life(life: &Life, points: std::ops::Range<usize>, count: usize) -> usize {
    let mut reached = std::collections::BTreeSet::new();
    for n in 0..count {
        let point = points.start + (n + 1) * (points.len() - 1) / count;
        let seed = 0x5eed + point as u64;
        match life.crash(point, seed, false).unwrap() {
            Outcome::Step(step) => drop(reached.insert(step)),
            Outcome::Nothing => {}
            Outcome::Wrong(what) => panic!("crash at {point} with seed {seed:#x}: {what}"),
        }
    }
    reached.len()
}

/// Goal: when a device is cleared, its spare is released, even if the power fails just then. Once
/// the device's state and the spare's release were in two transaction groups: after a crash between
/// them the spare stayed for good.
#[test]
fn a_cleared_device_lets_its_spare_go() {
    moment(Tale::Spares, "clear d0", 0..100, 6);
    moment(Tale::Distributed, "clear d2", 0..100, 3);
}

/// Goal: after a crash just before its activation, a spare is still a spare. Once its labels were
/// rewritten before the transaction group that adds it. Labels in that state belonged to no pool,
/// and the spare could never be opened again.
#[test]
fn a_spare_that_is_about_to_step_in_is_one() {
    moment(Tale::Spares, "fault d1", 30..70, 6);
}

/// Goal: a device with an active spare is replaced. If the power fails at the end, the spare is
/// released too. Once the release had a transaction group of its own: after a crash before it the
/// spare stayed for good.
#[test]
fn a_replaced_device_lets_its_spare_go() {
    moment(Tale::Spares, "wait after replace d1 d3", 90..100, 6);
}

/// Goal: children of a mirror are attached and detached, with a power failure at any moment.
#[test]
fn sides() {
    lives(Tale::Sides, 16);
}

/// Goal: the same with devices that are replaced.
#[test]
fn replacements() {
    lives(Tale::Replacements, 16);
}

/// Goal: the same with hot spares.
#[test]
fn spares() {
    lives(Tale::Spares, 20);
}

/// Goal: the same with sequential rebuilds.
#[test]
fn rebuilds() {
    lives(Tale::Rebuilds, 14);
}

/// Goal: the same with log, cache and spare devices that are added and removed.
#[test]
fn beside() {
    lives(Tale::Beside, 16);
}

/// Goal: the same with devices that are offline for a while.
#[test]
fn outages() {
    lives(Tale::Outages, 14);
}

/// Goal: the same with the distributed spare of a draid.
#[test]
fn distributed() {
    lives(Tale::Distributed, 8);
}
