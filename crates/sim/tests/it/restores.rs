//! Volume dumps with mutations, restored over contents: a few rounds on each run of the tests.

use fuzzing::mutate::{Rng, mutate};

/// Goal: no mutation of a dump stops a pool, or leaves a volume that can't be dumped and restored.
#[test]
fn mutated_dumps() {
    let rounds = std::env::var("FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let mut rng = Rng::new(0x5eed);
    let mut restored = 0;
    let seeds = fuzzing::afs::dumps();
    for seed in &seeds {
        sim::restores::restored(seed).unwrap();
        for _ in 0..rounds {
            let mut data = seed.clone();
            mutate(&mut rng, &mut data);
            restored += u64::from(sim::restores::restored(&data).is_ok());
        }
    }
    assert!(restored > rounds / 20, "{restored} of {} were restored", seeds.len() as u64 * rounds);
}
