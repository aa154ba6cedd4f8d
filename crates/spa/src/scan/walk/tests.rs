use crate::scan::queue::SCAN_CHECKPOINT_INTVAL;
use crate::scan::walk::{Counted, Walk};

fn counted(examined: u64) -> Counted {
    Counted { examined, skipped: 1, processed: 2, errors: 3 }
}

/// Goal: what is recorded is the walk as it was when nothing waited, and nothing of what was recorded before; it is gone when nothing waits again.
#[test]
fn what_is_recorded() {
    let mut walk = Walk { position: (5, 7), ..Walk::from_the_beginning() };
    walk.record(counted(10));
    walk.position = (6, 0);
    let recorded = walk.recorded.as_ref().unwrap();
    assert_eq!((recorded.walk.position, recorded.counted.examined), ((5, 7), 10));
    walk.record(counted(20));
    let recorded = walk.recorded.as_ref().unwrap();
    assert_eq!((recorded.walk.position, recorded.counted.examined), ((6, 0), 20));
    assert!(recorded.walk.recorded.is_none());
    walk.drained();
    assert!(walk.recorded.is_none() && walk.position == (6, 0));
}

/// Goal: a scan that an import goes on with is young until something was looked at.
#[test]
fn young_until_it_has_looked() {
    let mut walk = Walk { young: true, ..Walk::from_the_beginning() };
    walk.drained();
    assert!(walk.young, "nothing has waited");
    walk.draining = true;
    walk.drained();
    assert!(!walk.young && !walk.draining);
}

/// Goal: what waits is looked at when it has waited for as long as is set, and only then.
#[test]
fn what_waits_too_long() {
    let mut walk = Walk::from_the_beginning();
    assert!(!walk.is_due());
    walk.record(counted(0));
    assert!(!walk.is_due());
    SCAN_CHECKPOINT_INTVAL.set(0);
    assert!(walk.is_due());
    walk.drained();
    assert!(!walk.is_due(), "nothing waits");
    SCAN_CHECKPOINT_INTVAL.set(SCAN_CHECKPOINT_INTVAL.default());
}
