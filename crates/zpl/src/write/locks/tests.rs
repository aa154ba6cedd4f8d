use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Goal: overlapping ranges exclude each other if one is written, other ranges don't, and no lock
/// remains without a holder.
#[test]
fn ranges() {
    let locks = Locks::default();
    {
        let held = locks.hold(ObjNum(7));
        let _a = held.range(0, 10, true);
        let _b = held.range(10, 20, false);
        let _c = held.range(15, 30, false);
        assert_eq!(locks.count(), 1);
    }
    assert_eq!(locks.count(), 0);
}

/// Goal: writers of one byte take turns, for any number of threads.
#[test]
fn turns() {
    let locks = Locks::default();
    let inside = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for t in 0..8_u64 {
            let (locks, inside) = (&locks, &inside);
            scope.spawn(move || {
                for i in 0..500 {
                    let held = locks.hold(ObjNum(1));
                    let _whole = if i % 7 == t { held.whole() } else { held.range(5, 6 + i, true) };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(locks.count(), 0);
}
