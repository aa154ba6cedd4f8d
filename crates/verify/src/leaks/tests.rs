//! The search for leaks, on pools that OpenZFS wrote and that have no leak.

use super::*;
use crate::block_stats::{BlockStats, Known, Verify};
use dsl::traverse::{Root, pool_roots, traverse};
use spa::import::{Claim, Options, SystemClock, import};
use spa::{Host, discover};

fn open(name: &str) -> Spa {
    let found = discover(&testkit::fixture(name));
    let options = Options { claim: Claim::Nothing, ..Options::default() };
    import(&found.pools[0], &options, &Host::of_system(), &SystemClock).expect("it imports")
}

fn all_roots(spa: &Spa) -> Vec<Root> {
    pool_roots(spa.mos().objset(), |e| panic!("it is readable: {e}"))
}

fn claim_all(spa: &Spa, roots: Vec<Root>) -> (Vec<Leak>, u64) {
    let claims = LeakCheck::load(spa).expect("its space maps are right").expect("nothing is being removed");
    let zio = spa.cache().zio();
    let census = BlockStats::new(zio, Verify::None, Known::default()).claiming(&claims);
    traverse(zio, roots, 2, &census);
    let counts = census.finish();
    assert_eq!(counts.failures, 0);
    let (leaks, wrong, _) = claims.finish();
    (leaks, wrong)
}

/// Goal: the walk claims skipped raidz sectors, gang headers and members, and segments of removed
/// devices.
#[test]
fn nothing_leaks() {
    for name in ["raidz3-7", "draid1", "gang", "removed-vdev", "stripe-classes", "checkpoint"] {
        let spa = open(name);
        let roots = all_roots(&spa);
        let (leaks, wrong) = claim_all(&spa, roots);
        // A separate log device holds one block that only a log refers to.
        let leaks: Vec<_> =
            leaks.iter().filter(|l| l.vdev != VdevId(3) || name != "stripe-classes").collect();
        assert!(leaks.is_empty() && wrong == 0, "{name}: {leaks:?}, {wrong} wrong");
    }
}

/// Goal: without a dataset's root, the space of that dataset counts as leaked.
#[test]
fn hidden_blocks_are_leaks() {
    let spa = open("mirror2");
    let mut roots = all_roots(&spa);
    let hidden = roots.pop().expect("it has datasets");
    let (leaks, wrong) = claim_all(&spa, roots);
    assert_eq!(wrong, 0);
    let offset = hidden.bp.stored().and_then(|s| s.dvas[0]).expect("it is on a device").offset.0;
    assert!(leaks.iter().any(|l| (l.offset..l.offset + l.size).contains(&offset)), "{leaks:?}");
}

/// Goal: a second claim of the same block fails, as if two blocks owned its space.
#[test]
fn claiming_twice_is_wrong() {
    let spa = open("mirror2");
    let mut roots = all_roots(&spa);
    let again = roots.last().expect("it has datasets").clone();
    roots.push(again);
    let (leaks, wrong) = claim_all(&spa, roots);
    assert!(leaks.is_empty(), "{leaks:?}");
    assert!(wrong > 0);
}

/// Goal: the sums of the classes and the logs' changes add up to what is allocated.
#[test]
fn sums_of_classes() {
    let spa = open("stripe-classes");
    let mut classes = Classes::read(&spa).expect("its space maps are right");
    let claims = LeakCheck::load(&spa).expect("its space maps are right").expect("nothing is being removed");
    classes.unflushed = claims.unflushed;
    let (leaks, _, _) = claims.finish();
    assert_eq!(classes.total(), leaks.iter().map(|l| l.size).sum::<u64>());
    assert!(classes.special.present && !classes.dedup.present && classes.special.alloc > 0);
}

/// Goal: `Verify::All` verifies the bytes of all stored blocks, those that the traversal reads too.
#[test]
fn all_verified_bytes_count() {
    let spa = open("mirror2");
    let zio = spa.cache().zio();
    for verify in [Verify::None, Verify::All] {
        let census = BlockStats::new(zio, verify, Known::default());
        traverse(zio, all_roots(&spa), 2, &census);
        let counts = census.finish();
        let stored = counts.total().psize;
        assert!(stored > 0);
        assert_eq!(counts.bytes_verified, if verify == Verify::All { stored } else { 0 }, "{verify:?}");
    }
}
