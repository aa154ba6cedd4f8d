//! Numbers that the tests of both programs share.

use super::*;

/// Every counter that OpenZFS's programs read, each with some number.
pub(crate) fn kstats() -> Vec<Kstat> {
    let mut all: Vec<Kstat> = Vec::new();
    for line in include_str!("../../tests/data/arc/counted.txt").lines() {
        let [kstat, name, n] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        if all.last().is_none_or(|k| k.name != kstat) {
            all.push(Kstat { pool: None, name: kstat.to_owned(), values: Vec::new(), text: None });
        }
        let n: i64 = n.parse().expect("a number");
        let value = u64::try_from(n).map_or(KstatValue::Signed(n), KstatValue::Number);
        all.last_mut().expect("it was put there").values.push((name.to_owned(), value));
    }
    all
}

/// Goal: the balance's targets for the four lists add up to the whole. A counter that is missing is
/// an error with its name.
#[test]
fn shares() {
    let mut counts = Counts::default();
    counts.add(&kstats(), "arcstats", "").expect("it is there");
    let lists = [false, true].map(|frequent| [false, true].map(|metadata| List { frequent, metadata }));
    let sum: f64 = lists.iter().flatten().map(|list| counts.target(*list).expect("it is known")).sum();
    assert!((sum - WHOLE).abs() < 4.0, "{sum}");
    let missing = Err("nothing is counted as 'no'".to_owned());
    assert_eq!(counts.get("no"), missing);
    assert_eq!(counts.add(&kstats(), "no", "").map(|()| 0), missing);
}
