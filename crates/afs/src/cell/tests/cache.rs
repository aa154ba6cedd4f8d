use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::super::cache::{Answer, Cache};
use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const RETRY: Duration = Duration::from_secs(30);

/// Goal: a fresh answer needs no question, and a fresh refusal needs none.
#[test]
fn fresh_answers_are_not_asked_again() {
    let cache: Cache<u32, u32> = Cache::new(10, RETRY);
    let now = Instant::now();
    assert_eq!(cache.get(&1, now, || Answer::Known(5, HOUR)), Ok(5));
    assert_eq!(cache.get(&1, now + HOUR / 2, || panic!("it is fresh")), Ok(5));
    assert_eq!(cache.get(&1, now + HOUR, || Answer::Known(6, HOUR)), Ok(6));
    assert_eq!(cache.get(&2, now, || Answer::Refused(-7, RETRY)), Err(-7));
    assert_eq!(cache.get(&2, now + RETRY / 2, || panic!("it is fresh")), Err(-7));
    assert_eq!(cache.get(&2, now + RETRY, || Answer::Known(7, HOUR)), Ok(7));
}

/// Goal: while no server answers, the old answer is used, and a question follows after a pause.
#[test]
fn old_answers_are_used_while_the_server_is_away() {
    let cache: Cache<u32, u32> = Cache::new(10, RETRY);
    let now = Instant::now();
    assert_eq!(cache.get(&1, now, || Answer::Away(-3)), Err(-3));
    assert_eq!(cache.get(&1, now, || Answer::Known(5, HOUR)), Ok(5));
    let later = now + 100 * HOUR;
    assert_eq!(cache.get(&1, later, || Answer::Away(-3)), Ok(5));
    assert_eq!(cache.get(&1, later + RETRY / 2, || panic!("the pause has not ended")), Ok(5));
    assert_eq!(cache.get(&1, later + RETRY, || Answer::Known(6, HOUR)), Ok(6));
    // A refusal ends the use of the old answer.
    assert_eq!(cache.get(&1, later + 9 * HOUR, || Answer::Refused(9, RETRY)), Err(9));
}

/// Goal: threads that want the same answer make one question.
#[test]
fn one_thread_asks() {
    let cache: Cache<u32, u32> = Cache::new(10, RETRY);
    let (asked, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let now = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                waiting.fetch_add(1, Ordering::SeqCst);
                let answer = cache.get(&1, now, || {
                    asked.fetch_add(1, Ordering::SeqCst);
                    while waiting.load(Ordering::SeqCst) < 4 {
                        std::thread::yield_now();
                    }
                    Answer::Known(5, HOUR)
                });
                assert_eq!(answer, Ok(5));
            });
        }
    });
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// Goal: an answer to a question from before a removal is not kept, and new questions are made.
#[test]
fn removals_reach_answers_under_way() {
    let cache: Cache<u32, u32> = Cache::new(10, RETRY);
    let now = Instant::now();
    let answer = cache.get(&1, now, || {
        cache.remove(|_, _| true);
        assert_eq!(cache.get(&1, now, || Answer::Known(6, HOUR)), Ok(6));
        Answer::Known(5, HOUR)
    });
    assert_eq!(answer, Ok(5));
    assert_eq!(cache.get(&1, now, || panic!("the new answer was kept")), Ok(6));
    assert_eq!(cache.get(&2, now, || Answer::Known(8, HOUR)), Ok(8));
    cache.remove(|_, value| value == Some(&6));
    assert_eq!(cache.get(&1, now, || Answer::Known(7, HOUR)), Ok(7));
    assert_eq!(cache.get(&2, now, || panic!("it was not removed")), Ok(8));
}

/// Goal: entries are bounded, and those in use stay.
#[test]
fn entries_are_bounded() {
    let cache: Cache<u32, u32> = Cache::new(16, RETRY);
    let now = Instant::now();
    let asked = AtomicUsize::new(0);
    for number in 0..1_000 {
        cache.get(&number, now, || Answer::Known(number, HOUR)).unwrap();
        let again = cache.get(&0, now, || {
            asked.fetch_add(1, Ordering::SeqCst);
            Answer::Known(0, HOUR)
        });
        assert_eq!(again, Ok(0));
        assert!(cache.len() <= 16);
        if number % 100 == 0 {
            cache.remove(|key, _| key % 3 == 1);
        }
    }
    assert_eq!(cache.len(), 16);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// Goal: a thread that panics while it asks does not leave the others waiting.
#[test]
fn a_panic_ends_the_question() {
    let cache: Cache<u32, u32> = Cache::new(16, RETRY);
    let now = Instant::now();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cache.get(&1, now, || panic!("as the test wants"))
    }));
    assert!(panicked.is_err());
    assert_eq!(cache.get(&1, now, || Answer::Known(5, HOUR)), Ok(5));
}
