//! Shared flushes.

use super::{Flushed, Turns};
use crate::write::flush::FlushError;
use device::{DeviceError, Op};
use ondisk::Guid;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

fn lost() -> Flushed {
    let source = Arc::new(DeviceError::ReadOnly { op: Op::Flush, device: "d".to_owned() });
    Flushed::Lost(FlushError { guid: Guid(1), source })
}

/// Holds a first flush while `others` more callers come. Returns their outcomes, and how many
/// flushes there were besides the first.
fn beside_one(others: usize, next: fn() -> Flushed) -> (Vec<Flushed>, u32) {
    let (turns, flushes) = (&Turns::default(), &AtomicU32::new(0));
    let (go, held) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let came = thread::scope(|scope| {
        let first = scope.spawn(move || {
            turns.take(|| {
                begun.send(()).unwrap();
                held.recv().unwrap();
                Flushed::Durable
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
        assert!(matches!(first.join().unwrap(), Flushed::Durable));
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    (came, flushes.load(SeqCst))
}

/// Goal: all callers that come during a flush are served by one that begins after they came, and
/// not by the one under way.
#[test]
fn one_serves_all_who_wait() {
    let (came, flushes) = beside_one(9, || Flushed::Durable);
    assert!(came.iter().all(|f| matches!(f, Flushed::Durable)));
    assert_eq!(flushes, 1);
}

/// Goal: a flush that fails fails for every caller that it served.
#[test]
fn failure_is_everybodys() {
    let (came, flushes) = beside_one(9, lost);
    assert!(came.iter().all(|f| matches!(f, Flushed::Lost(_))), "{came:?}");
    assert_eq!(flushes, 1);
    let (came, _) = beside_one(3, || Flushed::Faulted);
    assert!(came.iter().all(|f| matches!(f, Flushed::Faulted)), "{came:?}");
}

/// Goal: a caller that comes when none is under way gets the result of its own flush, whatever the
/// outcomes before.
#[test]
fn alone() {
    let turns = Turns::default();
    assert!(matches!(turns.take(lost), Flushed::Lost(_)));
    assert!(matches!(turns.take(|| Flushed::Durable), Flushed::Durable));
}
