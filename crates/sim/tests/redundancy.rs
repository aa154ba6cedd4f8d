//! Every kind of vdev under faults: some of the table, or all of it with `FAULTS=all`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sim::faults::{Base, Kind, Trial};

/// Trials of each kind that every run makes, within redundancy and beyond.
const SAMPLE: (usize, usize) = (3, 1);

/// So many of these, spread evenly, others for each kind.
fn some(of: Vec<Trial>, count: usize, turn: usize) -> Vec<Trial> {
    let all = of.len();
    let chosen = (0..count.min(all)).map(|n| (n * all / count + turn * 7) % all);
    chosen.map(|n| of[n].clone()).collect()
}

fn tried(number: usize) {
    let kind = Kind::ALL[number];
    let (within, beyond): (Vec<_>, Vec<_>) =
        kind.trials().into_iter().partition(|t| matches!(t, Trial::Within(_)));
    let trials = match std::env::var("FAULTS").as_deref() {
        Ok("all") => [within, beyond].concat(),
        Ok(like) => {
            [within, beyond].concat().into_iter().filter(|t| format!("{t:?}").contains(like)).collect()
        }
        _ => [some(within, SAMPLE.0, number), some(beyond, SAMPLE.1, number)].concat(),
    };
    let base = Base::new(kind).unwrap();
    let wrong: Vec<String> = trials
        .iter()
        .filter_map(|t| base.run(t).err().map(|e| format!("{}, {t:?}: {e}", kind.name)))
        .collect();
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), trials.len(), wrong.join("\n"));
}

macro_rules! kinds {
    ($($name:ident $number:literal),* $(,)?) => {
        $(
            /// Goal: what redundancy makes up for nobody notices, and a scrub puts right; what it doesn't is told of the right file, and no wrong byte is read.
            #[test]
            fn $name() {
                tried($number);
            }
        )*

        /// Goal: the table has no kind that no test takes.
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
