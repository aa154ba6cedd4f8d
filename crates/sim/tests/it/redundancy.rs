//! Every kind of vdev under faults.
//!
//! The tests run a sample of the table. `FAULTS=all` runs all of it, and `FAULTS_PART=1/4` a part.

use sim::faults::{Base, Fault, Kind, Outcome, Trial};

/// How many trials of each kind a plain run makes: within the redundancy, and beyond.
const SAMPLE: (usize, usize) = (3, 1);

/// Reorders trials: first `count` that are spread evenly, by `turn`, then the others.
fn spread(of: Vec<Trial>, count: usize, turn: usize) -> Vec<Trial> {
    let all = of.len();
    let mut order: Vec<usize> = (0..count.min(all)).map(|n| (n * all / count + turn * 7) % all).collect();
    let rest: Vec<usize> = (0..all).filter(|n| !order.contains(n)).collect();
    order.extend(rest);
    order.into_iter().map(|n| of[n].clone()).collect()
}

/// Runs trials until `most` were possible. Returns their number.
fn try_all(base: &Base, name: &str, trials: &[Trial], most: usize, wrong: &mut Vec<String>) -> usize {
    let mut tried = 0;
    for trial in trials {
        if tried == most {
            break;
        }
        match base.run(trial) {
            Ok(Outcome::Untried) => {}
            Ok(Outcome::Tried) => tried += 1,
            Err(e) => {
                tried += 1;
                wrong.push(format!("{name}, {trial:?}: {e}"));
            }
        }
    }
    tried
}

/// Keeps the part of the trials that `FAULTS_PART` names: `2/5` is the second of five.
fn part(trials: &mut Vec<Trial>) {
    let Ok(part) = std::env::var("FAULTS_PART") else { return };
    let numbers = part.split_once('/').and_then(|(n, of)| Some((n.parse().ok()?, of.parse().ok()?)));
    let (number, of): (usize, usize) =
        numbers.filter(|(n, of)| (1..=*of).contains(n)).expect("FAULTS_PART is as 2/5");
    let mut at = 0..;
    trials.retain(|_| at.next().is_some_and(|at: usize| at % of == number - 1));
}

fn tried(number: usize) {
    let kind = Kind::ALL[number];
    let (mut within, mut beyond): (Vec<_>, Vec<_>) =
        kind.trials().into_iter().partition(|t| matches!(t, Trial::Within(_)));
    let mut most = (usize::MAX, usize::MAX);
    match std::env::var("FAULTS").as_deref() {
        Ok("all") => {}
        Ok(like) => [&mut within, &mut beyond]
            .into_iter()
            .for_each(|all| all.retain(|t| format!("{t:?}").contains(like))),
        Err(_) => {
            (within, beyond) = (spread(within, SAMPLE.0, number), spread(beyond, SAMPLE.1, number));
            most = SAMPLE;
        }
    }
    if most == (usize::MAX, usize::MAX) {
        [&mut within, &mut beyond].into_iter().for_each(part);
    }
    let base = Base::new(kind).unwrap();
    let mut wrong = Vec::new();
    let inside = try_all(&base, kind.name, &within, most.0, &mut wrong);
    let outside = try_all(&base, kind.name, &beyond, most.1, &mut wrong);
    println!("{}: {inside} of {} within, {outside} of {} beyond", kind.name, within.len(), beyond.len());
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), inside + outside, wrong.join("\n"));
    // A trial without a victim does not count.
    assert_eq!(inside, within.len().min(most.0));
    assert!(outside > 0 || beyond.is_empty(), "no block is on devices that all fail");
}

macro_rules! kinds {
    ($($name:ident $number:literal),* $(,)?) => {
        $(
            /// Goal: within the redundancy, no user notices a fault, and a scrub repairs it. Beyond
            /// it, the error names the right file, and no wrong byte is read.
            #[test]
            fn $name() {
                tried($number);
            }
        )*

        /// Goal: each kind of the table has a test.
        #[test]
        fn all_kinds() {
            assert_eq!([$($number),*], std::array::from_fn(|n| n));
            assert_eq!(Kind::ALL.len(), [$($number),*].len());
        }
    };
}

kinds! {
    mirror2 0, mirror3 1, raidz1 2, raidz2 3, raidz3 4, draid1 5, draid1_spare 6, draid2 7, draid2_spare 8, draid3 9, draid3_spare 10,
    copies2 11, copies3 12, classes 13,
}

/// Goal: a distributed spare was filled while another device was away. The pool does not rely on
/// parts of the spare that could not be filled.
#[test]
fn a_spare_beside_one_that_is_gone() {
    let kind = Kind::ALL.into_iter().find(|kind| kind.name == "draid2 with a spare").unwrap();
    let base = Base::new(kind).unwrap();
    let faults = vec![(1, Fault::Gone), (2, Fault::Stale)];
    assert!(matches!(base.run(&Trial::Within(faults)), Ok(Outcome::Tried)));
}
