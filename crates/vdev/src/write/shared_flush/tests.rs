//! Shared flushes.

use super::{FlushOutcome, SharedFlush};
use crate::write::flush::FlushError;
use device::{DeviceError, Op};
use ondisk::Guid;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

fn lost() -> FlushOutcome {
    let source = Arc::new(DeviceError::ReadOnly { op: Op::Flush, device: "d".to_owned() });
    FlushOutcome::Lost(FlushError { guid: Guid(1), source })
}

/// Holds a first flush while `others` more callers come. Returns their outcomes, and how many
/// flushes there were besides the first.
fn beside_one(others: usize, next: fn() -> FlushOutcome) -> (Vec<FlushOutcome>, u32) {
    let (turns, flushes) = (&SharedFlush::default(), &AtomicU32::new(0));
    let (go, held) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let came = thread::scope(|scope| {
        let first = scope.spawn(move || {
            turns.take(|| {
                begun.send(()).unwrap();
                held.recv().unwrap();
                FlushOutcome::Durable
            })
        });
        has_begun.recv().unwrap();
        let work = move || {
            turns.take(|| {
                flushes.fetch_add(1, SeqCst);
                next()
            })
        };
        let all: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
        while turns.waiting() < others {
            thread::yield_now();
        }
        go.send(()).unwrap();
        assert!(matches!(first.join().unwrap(), FlushOutcome::Durable));
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    (came, flushes.load(SeqCst))
}

/// Goal: all callers that come during a flush are served by one that begins after they came, and
/// not by the one under way.
#[test]
fn one_serves_all_who_wait() {
    let (came, flushes) = beside_one(9, || FlushOutcome::Durable);
    assert!(came.iter().all(|f| matches!(f, FlushOutcome::Durable)));
    assert_eq!(flushes, 1);
}

/// Goal: a flush that fails fails for every caller that it served.
#[test]
fn failure_is_everybodys() {
    let (came, flushes) = beside_one(9, lost);
    assert!(came.iter().all(|f| matches!(f, FlushOutcome::Lost(_))), "{came:?}");
    assert_eq!(flushes, 1);
    let (came, _) = beside_one(3, || FlushOutcome::Faulted);
    assert!(came.iter().all(|f| matches!(f, FlushOutcome::Faulted)), "{came:?}");
}

/// Goal: a caller that comes when none is under way gets the result of its own flush, whatever the
/// outcomes before.
#[test]
fn alone() {
    let turns = SharedFlush::default();
    assert!(matches!(turns.take(lost), FlushOutcome::Lost(_)));
    assert!(matches!(turns.take(|| FlushOutcome::Durable), FlushOutcome::Durable));
}
