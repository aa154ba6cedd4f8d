use crate::scan::queue::SCAN_CHECKPOINT_INTVAL;
use crate::scan::walk::{Counted, Walk};

fn counted(examined: u64) -> Counted {
    Counted { examined, skipped: 1, processed: 2, errors: 3 }
}

/// Goal: the record is the walk as it was when the queue was last empty; it is gone when the queue
/// is empty again.
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

/// Goal: a scan that an import resumed is young until something was verified.
#[test]
fn young_until_it_has_looked() {
    let mut walk = Walk { young: true, ..Walk::from_the_beginning() };
    walk.drained();
    assert!(walk.young, "nothing has waited");
    walk.draining = true;
    walk.drained();
    assert!(!walk.young && !walk.draining);
}

/// Goal: queued blocks are due when they have waited for the set time, and only then.
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
