use super::*;
use crate::work::{Job, Kind, Wait};

fn see(slowest: &Slowest, took_ns: u64, minute: u64) {
    let ended = Ended {
        op: Op::Read,
        began: Instant::now(),
        took: Duration::from_nanos(took_ns),
        bytes: 5,
        failed: None,
    };
    slowest.see(Frontend::Fuse, &ended, took_ns, minute, || "p/a".to_owned());
}

fn kept(slowest: &Slowest) -> Vec<u64> {
    slowest.since(SystemTime::UNIX_EPOCH, Duration::ZERO).iter().map(|op| op.took_ns).collect()
}

/// Goal: the slowest operations of each minute are kept, for a day.
#[test]
fn slowest_of_each_minute() {
    let slowest = Slowest::default();
    (1..=100).for_each(|ns| see(&slowest, ns, 0));
    (1..=100).rev().for_each(|ns| see(&slowest, ns * 1000, 1));
    let mut all = kept(&slowest);
    all.sort_unstable();
    let expected: Vec<u64> = (85..=100).chain((85..=100).map(|ns| ns * 1000)).collect();
    assert_eq!(all, expected);
    let long = slowest.since(SystemTime::UNIX_EPOCH, Duration::from_nanos(99_000));
    assert_eq!(long.iter().map(|op| op.took_ns).collect::<Vec<_>>(), [100_000, 99_000]);
    assert!(slowest.since(SystemTime::now() + Duration::from_secs(60), Duration::ZERO).is_empty());
    see(&slowest, 1, KEPT_MINUTES);
    assert_eq!(kept(&slowest).len(), EACH + 1, "the first minute is gone");
    see(&slowest, 2, 2);
    assert_eq!(kept(&slowest).len(), EACH + 2, "what comes late counts for the last minute");
}

/// Goal: a watch returns each operation once, in order, from its time on, and says how many it
/// missed.
#[test]
fn watches() {
    let slowest = Slowest::default();
    see(&slowest, 1_000_000, 1);
    let first = slowest.watch(Duration::from_nanos(10), None);
    assert_eq!((first.ops, first.lost), (Vec::new(), 0));
    let mut next = first.next;
    (0..20).for_each(|_| see(&slowest, 100, 1));
    see(&slowest, 9, 1);
    see(&slowest, 10, 1);
    let mut read = |least| {
        let watched = slowest.watch(Duration::from_nanos(least), Some(next));
        next = watched.next;
        (watched.ops.iter().map(|op| op.took_ns).collect::<Vec<_>>(), watched.lost)
    };
    assert_eq!(read(10), ([vec![100; 20], vec![10]].concat(), 0));
    assert_eq!(read(10), (vec![], 0));
    see(&slowest, 50, 1);
    see(&slowest, 60, 1);
    assert_eq!(read(60), (vec![60], 0), "another watch has a shorter time");
    (0..RECENT as u64 + 3).for_each(|_| see(&slowest, 11, 1));
    let (ops, lost) = read(10);
    assert_eq!((ops.len(), lost), (RECENT, 3));
    see(&slowest, 11, 1);
    assert_eq!(read(10), (vec![11], 0), "what makes room was read before");
}

/// Goal: a watch without readings ends, and then nothing more is kept for it, though another goes
/// on. A reader that comes back learns that it missed something.
#[test]
fn watches_end() {
    let slowest = Slowest::default();
    let end = |least| slowest.lists.lock().watches.insert(least, Instant::now() - Duration::from_secs(1));
    slowest.watch(Duration::ZERO, None);
    let next = slowest.watch(Duration::from_nanos(50), None).next;
    end(0);
    (0..100).for_each(|_| see(&slowest, 1, 1));
    assert_eq!((slowest.watched_ns.load(Relaxed), slowest.lists.lock().recent.len()), (50, 0));
    see(&slowest, 50, 1);
    assert_eq!(slowest.lists.lock().recent.len(), 1);
    end(50);
    (0..100).for_each(|_| see(&slowest, 50, 1));
    assert_eq!((slowest.watched_ns.load(Relaxed), slowest.lists.lock().recent.len()), (u64::MAX, 0));
    let back = slowest.watch(Duration::ZERO, Some(next));
    assert_eq!((back.ops.len(), back.lost), (0, 2));
}

/// Goal: an operation is kept with its client, node and waits.
#[test]
fn all_is_kept() {
    let slowest = Slowest::default();
    let kind = Kind::Request(Frontend::Fuse, Op::Unlink);
    let pid = std::process::id();
    let _running =
        work::begin(Job { kind, place: 3, node: 4, pid, uid: 6, client: 0, began: Instant::now() });
    drop(work::wait(Wait::Flush, 9));
    let ended = Ended {
        op: Op::Unlink,
        began: Instant::now(),
        took: Duration::from_millis(2),
        bytes: 0,
        failed: Some(39),
    };
    slowest.see(Frontend::Fuse, &ended, 2_000_000, 1, || "p/a".to_owned());
    let found = slowest.since(SystemTime::UNIX_EPOCH, Duration::ZERO).remove(0);
    assert_eq!((found.op, found.failed, found.dataset.as_str()), (Op::Unlink, Some(39), "p/a"));
    assert_eq!((found.place, found.node, found.pid, found.uid), (3, 4, pid, 6));
    assert_eq!(found.process, process_name(pid));
    assert!(!found.process.is_empty());
    assert_eq!(found.spent.longest.map(|longest| longest.what), Some(9));
    assert_eq!(process_name(u32::MAX), "");
}
