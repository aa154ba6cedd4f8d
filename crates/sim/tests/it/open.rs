//! Whole pools with wrong blocks under right checksums, opened and walked: a few rounds on each run
//! of the tests.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sim::open::Rounds;

/// Number of rounds of each pool. `FUZZ_ROUNDS` in the environment sets another.
fn rounds() -> u64 {
    std::env::var("FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

fn survives(name: &str) {
    let mut pool = Rounds::on(name);
    let (mut opened, mut broken) = (0, Vec::new());
    for seed in 0..rounds() {
        match catch_unwind(AssertUnwindSafe(|| pool.seeded(seed))) {
            Ok(could) => opened += u64::from(could),
            Err(_) => {
                broken.push(seed);
                pool = Rounds::on(name);
            }
        }
    }
    assert!(broken.is_empty(), "{name} panicked with the seeds {broken:?}");
    assert!(opened > rounds() / 3, "only {opened} of {} could be opened: the walk hardly ran", rounds());
}

/// Goal: the oldest format, with its own znodes and ACLs, never causes a panic.
#[test]
fn version_1() {
    survives("v1");
}

/// Goal: the same for the newest format: system attributes, fat directories with long names.
#[test]
fn long_names() {
    survives("longname");
}

/// Goal: the same for dedup tables with a log.
#[test]
fn dedup_tables() {
    survives("dedup-fast");
}

/// Goal: the same for cloned blocks, unreplayed logs, volumes and gang blocks.
#[test]
fn clones_logs_volumes_and_gangs() {
    for name in ["block-clone", "zil-freeze", "zvols", "gang"] {
        survives(name);
    }
}
