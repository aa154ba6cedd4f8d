use crate::sync_all::{Turns, may_be_frozen};
use ondisk::Guid;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);

/// A sync that reports its start and waits for permission, with both channels.
fn held() -> (crate::sync_all::Work, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((begins, begun), (go, goes)) = (mpsc::channel(), mpsc::channel());
    let work = move || begins.send(()).is_ok() && goes.recv().is_ok();
    (Box::new(work), begun, go)
}

/// Goal: calls during a sync share the next one, which begins after them, and take no threads.
#[test]
fn calls_share_a_sync_that_begins_after_them() {
    let (turns, pool, count) = (Turns::new(LONG), Guid(1), Arc::new(AtomicU64::new(0)));
    let (work, begun, go) = held();
    assert_eq!(turns.ask(pool, work), Some(1));
    begun.recv().unwrap();
    for _ in 0..100 {
        let count = Arc::clone(&count);
        let counts = move || count.fetch_add(1, Ordering::Relaxed) == 0;
        assert_eq!(turns.ask(pool, Box::new(counts)), Some(2));
    }
    assert!(!turns.wait(pool, 1, Instant::now()));
    assert_eq!(turns.ask(Guid(2), Box::new(|| false)), Some(1));
    let end = Instant::now() + LONG;
    assert!(!turns.wait(Guid(2), 1, end), "another pool waits for nobody, and failed");
    go.send(()).unwrap();
    assert!(turns.wait(pool, 2, end));
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

/// Goal: while a sync is overdue, no call waits for its pool. The next sync covers the calls made
/// meanwhile.
#[test]
fn nobody_waits_for_what_is_overdue() {
    let (turns, pool) = (Turns::new(Duration::ZERO), Guid(1));
    let (work, begun, go) = held();
    assert_eq!(turns.ask(pool, work), Some(1));
    begun.recv().unwrap();
    assert_eq!(turns.ask(pool, Box::new(|| true)), None);
    go.send(()).unwrap();
    assert!(turns.wait(pool, 2, Instant::now() + LONG));
}

/// Goal: a daemon started from a user's session is recognised by its control group, and a system
/// daemon is not mistaken for one.
#[test]
fn sessions() {
    assert!(may_be_frozen("0::/user.slice/user-0.slice/session-3.scope"));
    for line in ["0::/system.slice/poolhouse.service", "0::/", "1:cpu:/superuser.slice", ""] {
        assert!(!may_be_frozen(line), "{line}");
    }
}
