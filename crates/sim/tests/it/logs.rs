//! Intent logs with wrong records under right checksums: a few rounds on each run of the tests.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sim::logs::Logs;

/// Number of rounds. `FUZZ_ROUNDS` in the environment sets another.
fn rounds() -> u64 {
    std::env::var("FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(24)
}

/// Goal: whatever its logs contain, a pool is imported and written.
#[test]
fn wrong_records() {
    let logs = Logs::of("zil-freeze");
    let (mut imported, mut replayed, mut ended, mut broken) = (0, 0, 0, Vec::new());
    for seed in 0..rounds() {
        match catch_unwind(AssertUnwindSafe(|| logs.seeded(seed))) {
            Ok(Ok(round)) => {
                imported += u64::from(round.imported);
                replayed += round.replayed;
                ended += round.ended;
            }
            Ok(Err(what)) => broken.push((seed, what)),
            Err(_) => broken.push((seed, "it panicked".to_owned())),
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(imported > rounds() / 2 && replayed > rounds() && ended > 0, "{imported}, {replayed}, {ended}");
}
