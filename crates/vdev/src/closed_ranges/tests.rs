use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;

const VDEV: VdevId = VdevId(3);

/// Goal: a writer elsewhere does not wait, and a writer there waits until the range is open again.
/// A thread that closes the range waits until the writer is done.
#[test]
fn places_are_kept_apart() {
    let closed_ranges = ClosedRanges::default();
    let elsewhere = vec![(VDEV, 0..10), (VdevId(4), 10..20), (VDEV, 20..30)];
    let closed = closed_ranges.close(VDEV, 10..20);
    drop(closed_ranges.pass(elsewhere));
    let (through, written) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pass = closed_ranges.pass(vec![(VDEV, 0..1), (VDEV, 19..40)]);
            through.store(true, SeqCst);
            // The range may not be closed again before this is over.
            std::thread::yield_now();
            written.store(true, SeqCst);
            drop(pass);
        });
        while !closed_ranges.is_awaited() {
            assert!(!through.load(SeqCst));
            std::thread::yield_now();
        }
        assert!(!through.load(SeqCst));
        drop(closed);
        while !through.load(SeqCst) {
            std::thread::yield_now();
        }
        assert!(!closed_ranges.is_awaited());
        let _closed = closed_ranges.close(VDEV, 0..100);
        assert!(written.load(SeqCst));
    });
}
