use super::{Turns, may_be_frozen};
use ondisk::Guid;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);

/// A sync that says when it has begun, and goes on when it is let; and both of these.
fn held() -> (super::Work, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((begins, begun), (go, goes)) = (mpsc::channel(), mpsc::channel());
    let work = move || begins.send(()).is_ok() && goes.recv().is_ok();
    (Box::new(work), begun, go)
}

/// Goal: calls that come while a pool syncs share one sync, which begins after them, and take no
/// thread each.
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

/// Goal: while a sync is overdue, nobody is made to wait for its pool, and the next sync covers
/// who asked meanwhile.
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

/// Goal: a daemon that was started from a user's session is known by its control group, and one of
/// the system is not taken for that.
#[test]
fn sessions() {
    assert!(may_be_frozen("0::/user.slice/user-0.slice/session-3.scope"));
    for line in ["0::/system.slice/poolhouse.service", "0::/", "1:cpu:/superuser.slice", ""] {
        assert!(!may_be_frozen(line), "{line}");
    }
}
