//! The soak, in short. `make soak` runs it at length, with kills.

use sim::crash::SplitMix;
use sim::soak::{Faults, Life, Op, Second, Shape, Terms, plan};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The digest of a life in this directory. The labels contain its path.
fn live(dir: &Path, shape: Shape, seed: u64, steps: u64) -> String {
    let mut life =
        Life::begin(dir, Terms { shape, seed, faults: Faults::None, streams: false, second: None }, 1)
            .unwrap();
    (0..steps).for_each(|_| drop(life.step().unwrap()));
    life.export().unwrap();
    life.check().unwrap();
    life.digest().unwrap()
}

/// Goal: operations of all kinds leave the state of the model. With one worker, the same seed
/// leaves the same bytes.
#[test]
fn same_seed_same_bytes() {
    let (dir, shape) = (tempfile::tempdir().unwrap(), Shape::ALL[0]);
    assert_eq!(live(dir.path(), shape, 7, 60), live(dir.path(), shape, 7, 60));
}

/// Goal: the same on a raidz, and after continuing from a pool that was not exported.
#[test]
fn goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let terms = Terms { shape: Shape::ALL[2], seed: 11, faults: Faults::None, streams: false, second: None };
    let mut life = Life::begin(dir.path(), terms, 2).unwrap();
    (0..25).for_each(|_| drop(life.step().unwrap()));
    // The pool is not exported, so its labels still say that it is in use.
    drop(life);
    let mut life = Life::resume(dir.path(), terms, 2, 25).unwrap();
    assert_eq!(life.steps(), 25);
    (0..25).for_each(|_| drop(life.step().unwrap()));
    life.export().unwrap();
    life.check().unwrap();
}

/// Lives a life with faults of its devices. Every `between` steps the pool is dropped without an
/// export, so unflushed writes are lost. All faults are removed at the end.
fn survive(terms: Terms, steps: u64, between: u64) {
    let dir = tempfile::tempdir().unwrap();
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

/// Terms with the kinds of faults that existed when the seed was found.
fn early(shape: usize, seed: u64) -> Terms {
    Terms { shape: Shape::ALL[shape], seed, faults: Faults::Early, streams: false, second: None }
}

/// Goal: device faults within the redundancy lose nothing, and none is left in the end. The pool is
/// a mirror with a hot spare whose children are attached and detached.
#[test]
fn devices_of_a_mirror() {
    survive(early(1, 21), 120, 37);
}

/// Goal: the same on a draid with a distributed spare.
#[test]
fn devices_of_a_draid() {
    survive(early(6, 22), 120, 41);
}

/// Goal: a distributed spare that is activated just before a device is replaced does not prevent
/// the replacement. The seed is of a long soak.
#[test]
fn a_spare_before_a_replacement() {
    survive(early(6, 20_261_136), 190, 67);
}

/// Goal: a device that is detached while a hot spare stands in for it leaves together with the
/// spare, and the model expects that. The seed is of a long soak.
#[test]
fn a_spare_before_a_detach() {
    survive(early(1, 20_261_313), 382, 67);
}

/// Lives a life with all kinds of faults.
///
/// The latest kinds are lost writes, sequential rebuilds, and random bytes in labels, while the
/// pool is in use or exported.
fn survive_all(shape: usize, seed: u64, steps: u64, between: u64, wanted: &[&str]) {
    let terms = Terms { shape: Shape::ALL[shape], seed, faults: Faults::All, streams: false, second: None };
    let befell: BTreeSet<&str> = plan(terms, steps)
        .iter()
        .filter_map(|op| match op {
            Op::Device(op) => Some(op.word()),
            _ => None,
        })
        .collect();
    let missing: Vec<_> = wanted.iter().filter(|word| !befell.contains(**word)).collect();
    assert!(missing.is_empty(), "{missing:?} befall nobody");
    survive(terms, steps, between);
}

const LATE: [&str; 4] = ["losing writes", "labels spoiled", "labels spoiled while exported", "replaced -s"];

/// Goal: lost writes and spoiled labels are noticed and repaired from the mirror, although
/// sequential rebuilds copy without verifying.
#[test]
fn lost_writes_of_a_mirror() {
    survive_all(1, 41, 140, 37, &[&LATE[..], &["attached -s"]].concat());
}

/// Goal: the same on a draid, whose devices are rebuilt from all others.
#[test]
fn lost_writes_of_a_draid() {
    survive_all(9, 32, 140, 41, &LATE);
}

/// Goal: a device without redundancy tolerates the loss of all labels but one.
#[test]
fn spoiled_labels_of_a_disk() {
    survive_all(0, 35, 110, 29, &LATE[1..3]);
}

/// Goal: snapshots that are sent and received in a pool, whole and onto each other, have the
/// contents of the model, also after their pool was not exported.
#[test]
fn streams_between_heads() {
    let terms = Terms { shape: Shape::ALL[1], seed: 53, faults: Faults::None, streams: true, second: None };
    let steps = plan(terms, 160);
    let received = |onto: bool| {
        let is_it = |op: &&Op| matches!(op, Op::Receive(t) if t.base.is_some() == onto);
        steps.iter().filter(is_it).count()
    };
    assert!(received(false) >= 3 && received(true) >= 2, "{} and {}", received(false), received(true));
    survive(terms, 160, 31);
}

/// Lives a life of two pools. In about every fifth step, the power fails at any write.
///
/// Returns what happened to receives.
fn survive_crashes(terms: Terms, steps: u64) -> BTreeMap<&'static str, u64> {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = SplitMix(terms.seed);
    let mut life = Life::begin(dir.path(), terms, 2).unwrap();
    let mut happened = BTreeMap::new();
    let mut note = |life: &Life| {
        life.happened().into_iter().for_each(|(what, count)| *happened.entry(what).or_default() += count);
    };
    while life.steps() < steps {
        if dice.below(5) == 0 {
            note(&life);
            let done = life.steps();
            life.crash(dice.below(400));
            life = Life::resume(dir.path(), terms, 2, done).unwrap();
        } else {
            life.step().unwrap();
        }
    }
    note(&life);
    life.finish().unwrap();
    happened
}

fn two_pools(shape: usize, seed: u64, second: Second) -> Terms {
    Terms { shape: Shape::ALL[shape], seed, faults: Faults::None, streams: true, second: Some(second) }
}

/// How many steps of a plan are of a kind.
fn count(plan: &[Op], is_it: fn(&Op) -> bool) -> usize {
    plan.iter().filter(|op| is_it(op)).count()
}

/// Goal: what one pool sends and the other receives is what the models say, whenever the power
/// fails: streams in all forms, raw ones, several snapshots at once, interrupted ones.
#[test]
fn streams_between_pools() {
    let (terms, steps) = (two_pools(1, 67, Second::Ample), 120);
    let plan = plan(terms, steps);
    let kinds: [fn(&Op) -> bool; 6] = [
        |op| matches!(op, Op::Receive(t) if t.base.is_some() && t.to.starts_with("copy")),
        |op| matches!(op, Op::Receive(t) if t.snapshot.starts_with("copy")),
        |op| matches!(op, Op::Receive(t) if t.forms.raw),
        |op| matches!(op, Op::Break(..)),
        |op| matches!(op, Op::Resume(_)),
        |op| matches!(op, Op::GiveUp(_)),
    ];
    let counts = kinds.map(|is_it| count(&plan, is_it));
    assert!(counts.iter().all(|n| *n >= 2), "{counts:?}");
    let happened = survive_crashes(terms, steps);
    assert!(happened.contains_key("crashed, kept"), "{happened:?}");
}

/// Goal: a receive that runs out of space loses nothing, and can be resumed once there is space.
#[test]
fn streams_without_space() {
    let (terms, steps) = (two_pools(0, 38, Second::Scarce), 70);
    let cramped = count(&plan(terms, steps), |op| matches!(op, Op::Cramped(..)));
    assert!(cramped >= 4, "{cramped}");
    let happened = survive_crashes(terms, steps);
    assert!(happened.contains_key("out of space, kept"), "{happened:?}");
}
