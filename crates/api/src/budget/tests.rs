//! Budgets, by themselves.

use super::*;

/// Goal: memory of one answer is missing to other requests of its user, and to all users, until the
/// answer is sent.
#[test]
fn shares() {
    let (own, all) = (Share::of(100), Share::of(150));
    let of_one = || Budget::new(vec![Arc::clone(&own), Arc::clone(&all)], None);
    let (first, second) = (of_one(), of_one());
    first.take("a", 60).expect("there is as much");
    assert_eq!(second.take("a", 41).expect_err("its user has 40").reason, Reason::TooMuch);
    second.take("a", 40).expect("what failed took nothing");
    let other = Budget::new(vec![Share::of(100), Arc::clone(&all)], None);
    assert!(other.take("b", 51).is_err(), "all users have 50");
    drop(first);
    other.take("b", 100).expect("what the first took is back");
    drop((second, other));
    of_one().take("a", 100).expect("everything is back");
    assert_eq!(all.left.load(Ordering::Relaxed), 150);
}

/// Goal: an answer that takes too long ends, however small it is.
#[test]
fn time() {
    let past = Instant::now().checked_sub(Duration::from_secs(1)).expect("the machine runs longer");
    let late = Budget::new(vec![Share::of(100)], Some(past));
    assert_eq!(late.take("a", 0).expect_err("it is late").about, "a");
    Budget::new(Vec::new(), None).take("a", u64::MAX).expect("no limit");
}
