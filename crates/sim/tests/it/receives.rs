//! Streams with wrong records under right checksums, received into a pool: a few rounds on each run
//! of the tests.

use fuzzing::mutate::{Rng, mutate};
use fuzzing::stream::snapshots;

/// Goal: no mutation of a stream stops a pool.
#[test]
fn mutated_streams() {
    let rounds = std::env::var("FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(80);
    let mut rng = Rng::new(0x5eed);
    let mut received = 0;
    let seeds: Vec<Vec<u8>> = snapshots().into_iter().chain([sim::receives::raw()]).collect();
    for seed in &seeds {
        sim::receives::receive(seed).unwrap();
        for _ in 0..rounds {
            let mut data = seed.clone();
            mutate(&mut rng, &mut data);
            received += u64::from(sim::receives::receive(&data).is_ok());
        }
    }
    assert!(received > rounds / 20, "{received} of {} were received", seeds.len() as u64 * rounds);
}
