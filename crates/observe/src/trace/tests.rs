//! Sessions with events of threads of the tests.

use super::*;
use crate::event::{EVENTS, OP_DONE, WAIT_DONE};
use crate::ops::{DatasetUse, Ended, Frontend, Op, OpTable};
use crate::work::Wait;
use std::collections::BTreeMap;
use std::sync::MutexGuard as StdGuard;

/// The tests share the sessions of the process.
fn alone() -> StdGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

const ENOTEMPTY: i32 = 39;
/// The user of this test's operations. Other tests make events meanwhile.
const USER: u32 = 4242;

fn plan(keys: &[&str]) -> Plan {
    let source = |name: &&str| Source::named(&OP_DONE, name).expect("a field");
    let mine = Condition { source: source(&"uid"), test: Test::Is(USER.into()) };
    Plan {
        event: &OP_DONE,
        conditions: vec![mine],
        keys: keys.iter().map(source).collect(),
        measure: None,
        buckets: Buckets::None,
        sums: Vec::new(),
        is_raw: false,
    }
}

fn source(name: &str) -> Source {
    Source::named(&OP_DONE, name).expect("a field")
}

fn dataset() -> DatasetUse {
    Arc::new(OpTable::default()).dataset((1, 1))
}

/// An operation of this process.
fn does(of: &DatasetUse, op: Op, ns: u64, bytes: u64, failed: Option<i32>) {
    let (kind, began) = (Kind::Request(Frontend::Fuse, op), Instant::now());
    let job = Job { kind, place: 0, node: 0, pid: std::process::id(), uid: USER, client: 0, began };
    let _running = work::begin(job);
    let ended = Ended { op, began, took: Duration::from_nanos(ns), bytes, failed };
    of.count(Frontend::Fuse, &ended, || "tank/a".to_owned());
}

/// The groups by their keys.
fn counts(reading: &Reading) -> BTreeMap<Keys, u64> {
    reading.groups.groups.iter().map(|(keys, counted)| (*keys, counted.count)).collect()
}

/// A session without a limit of its cost, so that it takes all.
fn begin_exact(plan: Plan) -> Arc<Session> {
    let session = begin(plan).expect("a session");
    session.governor.take_all();
    session
}

/// Goal: events of several threads are counted by their keys, exactly, in one reading or several.
#[test]
fn counts_by_keys() {
    let _alone = alone();
    let session = begin_exact(plan(&["op", "errno"]));
    let of = dataset();
    let work = || {
        (0..7817).for_each(|_| does(&of, Op::Rmdir, 10, 0, Some(ENOTEMPTY)));
        (0..5).for_each(|_| does(&of, Op::Rmdir, 10, 0, None));
    };
    std::thread::scope(|scope| {
        // A scope waits for the closures of its threads; a join, for their thread-locals also.
        for thread in [scope.spawn(work), scope.spawn(work)] {
            thread.join().expect("a thread that counts");
        }
    });
    let rmdir = Op::Rmdir as u64;
    let expected = BTreeMap::from([([rmdir, 39, 0, 0], 2 * 7817), ([rmdir, 0, 0, 0], 10)]);
    let reading = session.read(false);
    assert_eq!((counts(&reading), reading.met, reading.one_of), (expected.clone(), 2 * 7822, 1));
    assert!(reading.seen >= reading.met && !reading.is_sampled);
    assert!(session.tables.lock().all.len() <= 1, "threads that ended leave no table");
    does(&of, Op::Rmdir, 10, 0, None);
    assert_eq!(session.read(false).met, 2 * 7822 + 1);
    assert_eq!(counts(&session.read(true))[&[rmdir, 0, 0, 0]], 11, "counts go on");
    assert_eq!(counts(&session.read(true)), BTreeMap::new(), "and begin anew");
    session.end();
    assert!(super::session(session.number()).is_none());
}

/// Goal: what is measured is added up and distributed as the plan says.
#[test]
fn measures() {
    let _alone = alone();
    let of = dataset();
    let (measure, sums) = (Some(source("ns")), vec![source("bytes"), source("cpu")]);
    let powers = Plan { measure, buckets: Buckets::Powers, sums, ..plan(&["op"]) };
    let linear = Buckets::Linear { from: 100, to: 300, step: 100 };
    let (powers, linear) =
        (begin_exact(powers), begin_exact(Plan { measure, buckets: linear, ..plan(&["op"]) }));
    for ns in [0, 1, 99, 100, 255, 256, 299, 300, 5000] {
        does(&of, Op::Read, ns, 512, None);
    }
    let key = [Op::Read as u64, 0, 0, 0];
    let found = powers.read(false).groups.groups[&key].clone();
    let buckets = BTreeMap::from([(0, 1), (1, 1), (64, 2), (128, 1), (256, 3), (4096, 1)]);
    assert_eq!((found.count, found.sum, found.min, found.max), (9, 6310, 0, 5000));
    assert_eq!((found.buckets, found.sums), (buckets, vec![9 * 512, 6310]));
    let found = linear.read(false).groups.groups[&key].clone();
    assert_eq!(found.buckets, BTreeMap::from([(0, 3), (100, 1), (200, 3), (300, 2)]));
    powers.end();
    linear.end();
}

/// Goal: conditions on numbers, names and patterns choose events, and names are those of the
/// dataset and of the process.
#[test]
fn conditions_choose() {
    let _alone = alone();
    let of = dataset();
    let text = |source, text: &str, is_pattern, wanted| Condition {
        source,
        test: Test::Text { text: text.to_owned(), is_pattern, wanted },
    };
    let number = |name, test| Condition { source: source(name), test };
    let me = std::process::id();
    let tests = [
        (text(Source::Dataset, "tank/a", false, true), 3),
        (text(Source::Dataset, "tank/*", false, true), 0),
        (text(Source::Dataset, "tank/*", true, true), 3),
        (text(Source::Dataset, "tank/?", true, false), 0),
        (number("ns", Test::AtLeast(20)), 2),
        (number("ns", Test::Below(20)), 1),
        (number("op", Test::Is(Op::Read as u64)), 3),
        (number("op", Test::IsNot(Op::Read as u64)), 0),
        (number("pid", Test::Is(me.into())), 3),
        (Condition { source: Source::Under(me), test: Test::Is(1) }, 3),
        (Condition { source: Source::Under(parent()), test: Test::Is(1) }, 3),
        (Condition { source: Source::Under(u32::MAX), test: Test::Is(1) }, 0),
    ];
    for (condition, expected) in tests {
        let mut plan = plan(&["process", "dataset"]);
        plan.conditions.push(condition.clone());
        let session = begin_exact(plan);
        [10, 20, 30].into_iter().for_each(|ns| does(&of, Op::Read, ns, 0, None));
        let reading = session.read(false);
        assert_eq!(reading.met, expected, "{condition:?}");
        for keys in reading.groups.groups.keys() {
            let names = (session.text(keys[0]), session.text(keys[1]));
            assert_eq!(names, (crate::slow::process_name(me).into(), "tank/a".into()));
        }
        session.end();
    }
}

fn parent() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    line.trim().parse().expect("a number")
}

/// Goal: a pattern fits as in a shell.
#[test]
fn patterns() {
    for (pattern, text, fit) in [
        ("", "", true),
        ("*", "", true),
        ("a*c", "abbc", true),
        ("a*c", "abcb", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*ab*ab", "abxabyab", true),
        ("tank/db*", "tank/db", true),
        ("tank/db*", "tank/d", false),
    ] {
        assert_eq!(plan::fits(pattern, text), fit, "{pattern} {text}");
    }
}

/// Goal: beyond the room for groups and texts, events count together, and none is lost.
#[test]
fn too_many_keys() {
    let _alone = alone();
    let session = begin_exact(plan(&["bytes"]));
    let (of, count) = (dataset(), GROUPS as u64 + 2000);
    (0..count).for_each(|bytes| does(&of, Op::Read, 1, bytes, None));
    let reading = session.read(false);
    let groups: u64 = reading.groups.groups.values().map(|counted| counted.count).sum();
    assert_eq!((reading.groups.groups.len(), groups + reading.groups.others.count), (GROUPS, count));
    session.end();
    let mut names = Names::default();
    let numbers: Vec<u64> = (0..30_000).map(|n| names.number(&n.to_string())).collect();
    assert_eq!((&*names.text(numbers[5]), &*names.text(numbers[29_999])), ("5", "(others)"));
    let nodes: Vec<u64> = (0..130_000).map(|n| names.node((7, n))).collect();
    assert_eq!((names.node_of(nodes[9]), names.node_of(nodes[129_999])), ((7, 9), (0, 0)));
}

/// Goal: events are kept in order, each once; of too many, the newest.
#[test]
fn keeps_events() {
    let _alone = alone();
    let raw = Plan { is_raw: true, ..plan(&["op", "bytes", "ns", "errno", "pid"]) };
    let session = begin_exact(raw);
    let of = dataset();
    (0..3).for_each(|n| does(&of, Op::Write, 10 + n, n, None));
    let seen: Vec<[u64; 4]> =
        session.read(false).events.iter().map(|event| event.values[..4].try_into().expect("four")).collect();
    let write = Op::Write as u64;
    assert_eq!(seen, [[write, 0, 10, 0], [write, 1, 11, 0], [write, 2, 12, 0]]);
    assert_eq!(session.read(false).events, []);
    let count = RING as u64 + 10;
    (0..count).for_each(|n| does(&of, Op::Write, 1, n, None));
    let reading = session.read(false);
    assert_eq!((reading.events.len(), reading.lost), (RING, 10));
    assert_eq!(reading.events[0].values[1], 10, "the oldest ones are lost");
    session.end();
}

/// Goal: a session ends without a reader, and when its reader says so. There are only so many, and
/// one that would be too large is refused. After the last one, no session wants the event.
#[test]
fn sessions_end() {
    let _alone = alone();
    assert!(!OP_DONE.is_wanted());
    let all: Vec<_> = (0..SESSIONS).map(|_| begin(plan(&["op"])).expect("room")).collect();
    assert_eq!(begin(plan(&["op"])).err(), Some(Refused::TooMany));
    assert!(OP_DONE.is_wanted() && !WAIT_DONE.is_wanted());
    all[0].until.store(0, Relaxed);
    assert!(session(all[0].number()).is_none(), "it is over");
    let new = begin(plan(&["op"])).expect("its place is free");
    new.end();
    new.end();
    all[1..].iter().for_each(|session| session.end());
    assert!(!OP_DONE.is_wanted());
    let wide = Plan { keys: vec![Source::Op; KEYS + 1], ..plan(&[]) };
    assert_eq!(begin(wide).err(), Some(Refused::TooLarge));
    let buckets = Buckets::Linear { from: 0, to: LINEAR * 2 + 2, step: 1 };
    assert_eq!(begin(Plan { buckets, ..plan(&[]) }).err(), Some(Refused::TooLarge));
    let buckets = Buckets::Linear { from: 0, to: 1, step: 0 };
    assert_eq!(begin(Plan { buckets, ..plan(&[]) }).err(), Some(Refused::TooLarge));
}

/// Goal: a session that costs too much takes a part of the operations, and its counts are within
/// five standard errors of the truth.
#[test]
fn estimates() {
    let _alone = alone();
    let session = begin(plan(&["op"])).expect("a session");
    let of = dataset();
    let (began, mut count) = (Instant::now(), 0u64);
    // This thread does nothing but make events, so their cost is far above the limit.
    while began.elapsed() < Duration::from_millis(1500) {
        (0..1000).for_each(|_| does(&of, Op::Read, 1, 0, None));
        count += 1000;
    }
    let reading = session.read(false);
    assert!(reading.is_sampled && reading.one_of > 1, "{reading:?}");
    // Each that was taken stands for at most so many.
    let most = (1u64 << session.governor.most()) as f64;
    let bound = 5.0 * (count as f64 * most).sqrt();
    let error = reading.met.abs_diff(count) as f64;
    assert!(error < bound, "{} of {count}, bound {bound}", reading.met);
    session.end();
}

/// Goal: waits are events, with their kind and time, also within an operation.
#[test]
fn waits_are_events() {
    let _alone = alone();
    let keys = ["wait", "what", "op", "uid"].map(|name| Source::named(&WAIT_DONE, name).expect("a field"));
    let mine = Condition { source: keys[3], test: Test::Is(USER.into()) };
    let (conditions, keys) = (vec![mine], keys[..3].to_vec());
    let session = begin_exact(Plan { event: &WAIT_DONE, conditions, keys, ..plan(&[]) });
    let kind = Kind::Request(Frontend::Nbd, Op::Flush);
    let job = Job { kind, place: 0, node: 0, pid: 0, uid: USER, client: 0, began: Instant::now() };
    let running = work::begin(job);
    drop(work::wait(Wait::Flush, 77));
    drop(running);
    drop(work::wait(Wait::Flush, 78));
    let expected = BTreeMap::from([([Wait::Flush as u64, 77, 1 + Op::Flush as u64, 0], 1)]);
    assert_eq!(counts(&session.read(false)), expected);
    session.end();
}

/// Goal: names of events and of their fields are different, and fields are found by them.
#[test]
fn names_are_unique() {
    let names: std::collections::HashSet<&str> = EVENTS.iter().map(|event| event.name).collect();
    assert_eq!(names.len(), EVENTS.len());
    for event in EVENTS {
        for (at, field) in event.fields.iter().enumerate() {
            assert_eq!(event.field(field.name), Some(at), "{} {}", event.name, field.name);
        }
        assert!(Source::named(event, "no such").is_none());
        assert_eq!(Source::named(event, "cpu").is_some(), event.name == "op_done");
    }
}

/// Goal: samples say what threads with a job do: each look sees each of them once, whether it waits
/// or computes. The thread that looks ends with its last session.
#[test]
fn samples() {
    let _alone = alone();
    let source = |name: &str| Source::named(&event::SAMPLE, name).expect("a field");
    let conditions = vec![Condition { source: source("uid"), test: Test::Is(USER.into()) }];
    let keys = ["op", "wait", "what"].map(source).into();
    let session = begin_exact(Plan { event: &event::SAMPLE, conditions, keys, ..plan(&[]) });
    let (end, ended) = (AtomicBool::new(false), std::sync::mpsc::channel::<()>());
    let job = |op| Job {
        kind: Kind::Request(Frontend::Fuse, op),
        place: 0,
        node: 0,
        pid: 0,
        uid: USER,
        client: 0,
        began: Instant::now(),
    };
    let (seen, later) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _running = work::begin(job(Op::Read));
            while !end.load(Relaxed) {
                std::thread::yield_now();
            }
        });
        let waits = ended.1;
        let thread = scope.spawn(move || {
            let _running = work::begin(job(Op::Fsync));
            let _waiting = work::wait(work::Wait::Log, 7);
            let _ = waits.recv();
        });
        let counted = || {
            let reading = session.read(false);
            let of = |op: Op, wait: u64, what: u64| {
                reading.groups.groups.get(&[1 + op as u64, wait, what, 0]).map_or(0, |counted| counted.count)
            };
            (of(Op::Read, work::WAITS as u64, 0), of(Op::Fsync, work::Wait::Log as u64, 7))
        };
        let enough = |(computes, waits): &(u64, u64)| *computes >= 20 && *waits >= 20;
        let seen = std::iter::repeat_with(counted).inspect(|_| std::thread::yield_now()).find(enough);
        end.store(true, Relaxed);
        drop(ended.0);
        thread.join().expect("it ends");
        (seen.expect("samples"), counted())
    });
    assert!(seen.0.abs_diff(seen.1) <= 2, "each look sees both: {seen:?}");
    assert!(later.1 - seen.1 <= 1, "it is seen no more: {seen:?}, {later:?}");
    session.end();
    while sampler::is_running() {
        std::thread::yield_now();
    }
}

/// Goal: events of more files than a session has room for are counted by their dataset, if it is
/// read now and then.
#[test]
fn many_files_of_one_dataset() {
    struct Here;
    impl work::Place for Here {
        fn dataset(&self, node: u64) -> Option<(String, Option<u64>)> {
            Some((if node.is_multiple_of(3) { "tank/a" } else { "tank/b" }.to_owned(), Some(node)))
        }
        fn path(&self, _: u64) -> Option<Vec<u8>> {
            None
        }
    }
    let _alone = alone();
    let here: Arc<dyn work::Place> = Arc::new(Here);
    let place = work::register(Arc::downgrade(&here));
    let source = |name: &str| Source::named(&WAIT_DONE, name).expect("a field");
    let conditions = vec![Condition { source: source("uid"), test: Test::Is(USER.into()) }];
    let keys = vec![source("dataset")];
    let session = begin_exact(Plan { event: &WAIT_DONE, conditions, keys, ..plan(&[]) });
    let files = 3 * GROUPS as u64;
    let mut last = Reading::default();
    for node in 0..files {
        let kind = Kind::Request(Frontend::Fuse, Op::Read);
        let (place, began) = (place.number(), Instant::now());
        let _running = work::begin(Job { kind, place, node, pid: 0, uid: USER, client: 0, began });
        drop(work::wait(Wait::Read, 0));
        if node % 5000 == 4999 {
            last = session.read(false);
        }
    }
    let found: BTreeMap<String, u64> = (last.groups.groups.iter())
        .map(|(keys, counted)| (session.home(keys[0]).expect("a text").to_string(), counted.count))
        .collect();
    let expected = [("tank/a", files / 3), ("tank/b", files / 3 * 2)];
    assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)).into());
    assert_eq!((last.groups.others.count, last.met), (0, files));
    session.end();
}
