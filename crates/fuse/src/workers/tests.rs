use super::*;

/// Goal: the thread that alone sends requests is waited for after a while, and no longer once
/// another thread sends some.
#[test]
fn who_asks_alone_is_waited_for() {
    let mut pace = Pace::default();
    let waited_for = (1..=STREAK).filter(|_| pace.note(7)).count();
    assert_eq!(waited_for, 1, "the last of the streak is the first that is waited for");
    assert!(pace.note(0), "what the kernel asks by itself is nobody's");
    assert!(pace.note(7));
    assert!((0..2 * STREAK).all(|i| !pace.note(i % 2 + 8)), "two in turns are never waited for");
}

/// Goal: after a few vain waits there is none for a while, and then there is again.
#[test]
fn waiting_in_vain_ends() {
    let mut pace = Pace::default();
    while !pace.note(7) {}
    for _ in 0..VAIN_MAX - 1 {
        pace.waited(false);
    }
    pace.waited(true);
    assert!(pace.note(7), "once in time counts for all that was in vain");
    for _ in 0..VAIN_MAX {
        pace.waited(false);
    }
    let refused = (0..).take_while(|_| !pace.note(7)).count();
    assert_eq!(refused, (VAIN_STREAK + STREAK) as usize - 1);
    // Requests of another thread don't shorten that.
    for _ in 0..VAIN_MAX {
        pace.waited(false);
    }
    assert!((0..VAIN_STREAK).all(|i| !pace.note(i % 2 + 8)));
}
