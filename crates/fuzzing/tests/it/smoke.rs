//! A few rounds of every fuzz target on each run of the tests, the same on every machine.

use fuzzing::mutate::{Rng, mutate};
use fuzzing::{DECODERS, seeds};

const ROUNDS: u64 = 2000;

/// Goal: no decoder panics, overflows or hangs on mutations of real bytes.
#[test]
fn decoders_survive_mutations() {
    let mut broken = Vec::new();
    for (name, target) in DECODERS {
        let seeds = seeds::of(name);
        for round in 0..ROUNDS {
            let mut rng = Rng::new(round);
            let mut input = seeds[rng.below(seeds.len())].clone();
            if round >= seeds.len() as u64 {
                mutate(&mut rng, &mut input);
            }
            if std::panic::catch_unwind(|| target(&input)).is_err() {
                broken.push(format!("{name} in round {round}"));
                break;
            }
        }
    }
    assert!(broken.is_empty(), "panicked: {broken:?}");
}
