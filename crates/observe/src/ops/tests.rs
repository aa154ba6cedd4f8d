use super::*;
use std::time::{Duration, Instant};

fn ended(op: Op, ns: u64, bytes: u64, failed: Option<i32>) -> Ended {
    Ended { op, began: Instant::now(), took: Duration::from_nanos(ns), bytes, failed }
}

/// The operations of one kind through FUSE: how many, the sum of their times, bytes, failures.
fn of(all: &[OpSnapshot], op: Op) -> (u64, u64, u64, u64) {
    let found = all.iter().find(|one| one.op == op && one.frontend == Frontend::Fuse);
    found.map_or((0, 0, 0, 0), |one| (one.times.count(), one.times.sum, one.bytes, one.codes.sum()))
}

/// Goal: an operation counts for its dataset by front end and kind, with its code. The numbers are
/// exact whichever threads count.
#[test]
fn counts() {
    const ENOENT: i32 = 2;
    let table = Arc::new(OpTable::default());
    let (fuse, nbd) = (table.dataset((7, 1)), table.dataset((8, 1)));
    assert_eq!((table.ops(), table.datasets().0.len()), (Vec::new(), 0), "no counters before the first");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                fuse.count(Frontend::Fuse, &ended(Op::Read, 100, 4096, None), || "p/a".to_owned());
                fuse.count(Frontend::Fuse, &ended(Op::Rmdir, 200, 0, Some(ENOENT)), || "p/a".to_owned());
                fuse.count(Frontend::Fuse, &ended(Op::Unlink, 300, 0, None), || "p/a".to_owned());
                nbd.count(Frontend::Nbd, &ended(Op::Read, 400, 512, None), || "p/v".to_owned());
            });
        }
    });
    let mut ops: Vec<_> =
        table.ops().into_iter().map(|op| (op.frontend, op.op, op.bytes, op.codes.codes)).collect();
    ops.sort();
    let expected = [
        (Frontend::Fuse, Op::Read, 4 * 4096, Vec::new()),
        (Frontend::Fuse, Op::Unlink, 0, Vec::new()),
        (Frontend::Fuse, Op::Rmdir, 0, vec![(ENOENT, 4)]),
        (Frontend::Nbd, Op::Read, 4 * 512, Vec::new()),
    ];
    assert_eq!(ops, expected);
    let (mut datasets, others) = table.datasets();
    datasets.sort_by_key(|dataset| dataset.name());
    let names: Vec<_> = datasets.iter().map(|dataset| dataset.name()).collect();
    assert_eq!((names, others), (vec!["p/a".to_owned(), "p/v".to_owned()], Vec::new()));
    let seen = datasets[0].snapshot();
    assert_eq!((of(&seen, Op::Read), of(&seen, Op::Rmdir)), ((4, 400, 4 * 4096, 0), (4, 800, 0, 4)));
    assert!(datasets[0].number() != datasets[1].number() && datasets[1].number() < next_number());
    let found = table.of((7, 1)).map(|dataset| dataset.number());
    assert_eq!((found, table.of((7, 2)).is_none()), (Some(datasets[0].number()), true));
}

/// Goal: a failed operation moved no bytes.
#[test]
fn failed_bytes() {
    let of = |failed| Ended::now(Op::Write, Instant::now(), 10, failed).bytes;
    assert_eq!((of(None), of(Some(5))), (10, 0));
}

/// Goal: a dataset keeps its counters under another name, also one that it got between two uses,
/// and another dataset of the same object number gets its own.
#[test]
fn renames() {
    let table = Arc::new(OpTable::default());
    let one = table.dataset((7, 1));
    one.rename_to(|| "p/unused".to_owned());
    one.count(Frontend::Fuse, &ended(Op::Read, 1, 1, None), || "p/a".to_owned());
    one.rename_to(|| "p/b".to_owned());
    let names = || {
        let mut names: Vec<_> = table.datasets().0.iter().map(|dataset| dataset.name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["p/b"]);
    drop(one);
    let again = table.dataset((7, 1));
    again.count(Frontend::Fuse, &ended(Op::Read, 1, 1, None), || "p/c".to_owned());
    assert_eq!((names(), of(&table.ops(), Op::Read).0), (vec!["p/c".to_owned()], 2));
    let reborn = table.dataset((7, 2));
    reborn.count(Frontend::Fuse, &ended(Op::Read, 1, 1, None), || "p/d".to_owned());
    assert_eq!(names(), ["p/c", "p/d"]);
}

/// Goal: the number of datasets with counters is bounded. Those that were used last keep theirs,
/// those in use keep theirs in any case, and no operation is lost.
#[test]
fn bounded() {
    let table = Arc::new(OpTable::default());
    let count = |object: u64, second: u64| {
        let used = table.dataset((object, 1));
        let began = *crate::op::BEGAN.get_or_init(Instant::now) + Duration::from_secs(second);
        used.count(Frontend::Fuse, &Ended { began, ..ended(Op::Write, 10, 3, None) }, || {
            format!("p/{object}")
        });
        used
    };
    let kept = KEPT as u64;
    // The first two were used long ago. The second is still in use.
    drop(count(0, 1));
    let used = count(1, 1);
    (2..kept).for_each(|object| drop(count(object, 100)));
    assert_eq!(table.datasets().0.len(), KEPT);
    drop(count(kept, 200));
    let (datasets, others) = table.datasets();
    assert_eq!(datasets.len(), KEPT - ROOM + 1);
    assert_eq!(of(&others, Op::Write).0, ROOM as u64);
    let has = |name: &str| datasets.iter().any(|dataset| dataset.name() == name);
    assert!(!has("p/0") && has("p/1") && has(&format!("p/{kept}")));
    drop(used);
    assert_eq!(of(&table.ops(), Op::Write).2, 3 * (kept + 1));
    // All in use: the next counts, and has no counters of its own, nor a name.
    let in_use: Vec<_> = (0..kept).map(|object| count(10_000 + object, 300)).collect();
    let before = table.datasets();
    assert_eq!(before.0.len(), KEPT);
    let late = count(20_000, 400);
    late.rename_to(|| "p/late".to_owned());
    let after = table.datasets();
    assert!(after.0.iter().all(|dataset| dataset.name() != "p/late") && after.0.len() == KEPT);
    assert_eq!(of(&after.1, Op::Write).0, of(&before.1, Op::Write).0 + 1);
    assert_eq!(of(&table.ops(), Op::Write).0, 2 * kept + 2);
    // When there is room, it gets counters of its own.
    drop(in_use);
    (0..RETRY)
        .for_each(|_| late.count(Frontend::Fuse, &ended(Op::Write, 1, 1, None), || "p/late".to_owned()));
    assert!(table.datasets().0.iter().any(|dataset| dataset.name() == "p/late"));
    assert_eq!(of(&table.ops(), Op::Write).0, 2 * kept + 2 + RETRY);
}

/// Goal: a reading in progress keeps no dataset from getting counters.
#[test]
fn readers_take_no_room() {
    let table = Arc::new(OpTable::default());
    let count = |object| {
        let used = table.dataset((object, 1));
        used.count(Frontend::Fuse, &ended(Op::Write, 1, 1, None), || format!("p/{object}"));
        used
    };
    (0..KEPT as u64).for_each(|object| drop(count(object)));
    let reading = table.datasets();
    let late = count(KEPT as u64);
    assert!(table.datasets().0.iter().any(|dataset| dataset.name() == format!("p/{KEPT}")));
    // Threads that begin at once are one use.
    let twice = table.dataset((9_000, 1));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                twice.count(Frontend::Fuse, &ended(Op::Write, 1, 1, None), || "p/twice".to_owned())
            });
        }
    });
    assert_eq!(table.of((9_000, 1)).map(|ops| ops.uses.load(Relaxed)), Some(1));
    drop(twice);
    assert_eq!(table.of((9_000, 1)).map(|ops| ops.uses.load(Relaxed)), Some(0));
    drop((reading, late));
}

/// Goal: each kind and class has a name of its own.
#[test]
fn names() {
    let mut names: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Op::ALL.len());
    assert!(Op::ALL.iter().enumerate().all(|(at, op)| *op as usize == at));
    assert!(Class::ALL.iter().enumerate().all(|(at, class)| *class as usize == at));
}
