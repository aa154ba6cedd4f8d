use super::*;
use api::{Budget, Peer, TraceCondition};
use observe::ops::{Ended, Frontend, Op, OpTable};
use observe::work::{Job, Kind, Place, Wait};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The sessions of a process are few, so tests take turns.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The user of the tests' operations: other tests make events meanwhile.
const USER: u32 = 77_001;

fn caller(uid: u32, pid: Option<u32>) -> Caller {
    Caller::of_connection(Peer { uid, gid: uid, pid }, 0, Budget::of(1 << 20))
}

fn ask(query: &TraceQuery) -> Result<Traced, Error> {
    trace(&caller(0, Some(std::process::id())), &Pools::default(), query, &Paths::default())
}

fn condition(text: &str) -> TraceCondition {
    let mut words = text.split(' ').map(str::to_owned);
    let mut next = || words.next().expect("three words");
    TraceCondition { field: next(), test: next(), value: next() }
}

fn query(event: &str, conditions: &[&str], keys: &[&str]) -> TraceQuery {
    let conditions = conditions.iter().copied().chain(["uid = 77001"]).map(condition).collect();
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    TraceQuery { event: event.to_owned(), conditions, keys, ..TraceQuery::default() }
}

/// Two directories and a file that can't be found.
struct Tree;

impl Place for Tree {
    fn dataset(&self, node: u64) -> Option<(String, Option<u64>)> {
        Some((if node < 3 { "tank/a" } else { "tank/b" }.to_owned(), Some(node)))
    }

    fn path(&self, node: u64) -> Option<Vec<u8>> {
        (node != 3).then(|| format!("/{node}").into_bytes())
    }
}

/// Does operations that fail, and one wait each.
fn does(place: u64, node: u64, op: Op, errno: Option<i32>, device: u64) {
    let of = Arc::new(OpTable::default()).dataset((1, 1));
    let (kind, began) = (Kind::Request(Frontend::Nbd, op), Instant::now());
    let job = Job { kind, place, node, pid: std::process::id(), uid: USER, client: 0, began };
    let _running = observe::work::begin(job);
    drop(observe::work::wait(Wait::Read, device));
    let ended = Ended { op, began, took: Duration::from_secs(5), bytes: 4096, failed: errno };
    of.count(Frontend::Nbd, &ended, || "tank/a".to_owned());
}

/// The groups by their keys, with their counts.
fn groups(traced: &Traced) -> Vec<(String, u64)> {
    let mut all: Vec<_> = traced.groups.iter().map(|group| (group.keys.join(" "), group.count)).collect();
    all.sort();
    all
}

/// Goal: numbers of events have their names in a reply: operations, errnos, datasets, paths, waits.
/// Groups of one dataset are one.
#[test]
fn names() {
    let _alone = alone();
    let tree: Arc<dyn Place> = Arc::new(Tree);
    let weak: Weak<dyn Place> = Arc::downgrade(&tree);
    let place = observe::work::register(weak);
    let ops = query("op_done", &["op != read", "ns >= 1s"], &["frontend", "op", "errno", "dataset"]);
    let waits = query("wait_done", &["wait = read"], &["wait", "dataset", "op"]);
    let files = query("op_done", &["errno = ENOTEMPTY"], &["file"]);
    let mut kept = TraceQuery { raw: true, ..query("op_done", &["dataset ~ tank/?"], &[]) };
    let begun: Vec<u64> =
        [&ops, &waits, &files, &kept].map(|query| ask(query).expect("a session").session).to_vec();
    for (node, op, errno) in [(1, Op::Rmdir, Some(39)), (2, Op::Rmdir, Some(39)), (3, Op::Rmdir, Some(39))] {
        does(place.number(), node, op, errno, 7);
    }
    does(place.number(), 4, Op::Read, None, 7);
    does(place.number(), 4, Op::Trim, None, 7);
    let read = |number: usize| {
        let session = Some(begun[number]);
        ask(&TraceQuery { session, end: true, ..TraceQuery::default() }).expect("a reading")
    };
    let all = read(0);
    assert_eq!(
        groups(&all),
        [("nbd rmdir ENOTEMPTY tank/a".to_owned(), 3), ("nbd trim 0 tank/a".to_owned(), 1)]
    );
    let names: Vec<&str> = all.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["frontend", "op", "errno", "dataset"]);
    let expected = [
        ("read tank/a rmdir", 2),
        ("read tank/b read", 1),
        ("read tank/b rmdir", 1),
        ("read tank/b trim", 1),
    ];
    assert_eq!(groups(&read(1)), expected.map(|(keys, count)| (keys.to_owned(), count)));
    let expected = [("/1", 1), ("/2", 1), ("object 3", 1)];
    assert_eq!(groups(&read(2)), expected.map(|(keys, count)| (keys.to_owned(), count)));
    kept.session = Some(begun[3]);
    kept.end = true;
    let kept = ask(&kept).expect("a reading").kept;
    let me = observe::slow::process_name(std::process::id());
    let expected =
        ["rmdir", "nbd", "tank/a", &me, &std::process::id().to_string(), "4096", "ENOTEMPTY", "5000000000"];
    assert_eq!((kept.len(), &kept[0].values[..]), (5, &expected.map(str::to_owned)[..]));
    let gone = ask(&TraceQuery { session: Some(begun[0]), ..TraceQuery::default() });
    assert!(matches!(gone.map_err(|error| error.reason), Err(Reason::BadValue { .. })), "it has ended");
}

/// Goal: what a session can't have is refused by name, and no session begins.
#[test]
fn refusals() {
    let _alone = alone();
    let with = |change: fn(&mut TraceQuery)| {
        let mut query = query("op_done", &[], &["op"]);
        change(&mut query);
        match ask(&query).map_err(|error| error.reason) {
            Err(Reason::BadValue { what }) => what,
            other => panic!("{other:?}"),
        }
    };
    let named = |what: &str, part: &str| assert!(what.contains(part), "{what}");
    named(&with(|query| query.event = "nix".to_owned()), "no event 'nix': choose op_done, ");
    named(&with(|query| query.keys = vec!["nix".to_owned()]), "no field 'nix': choose op, errno");
    named(&with(|query| query.conditions = vec![condition("op = nix")]), "'nix' is no value of 'op'");
    named(&with(|query| query.conditions = vec![condition("op > read")]), "'op' has no order");
    named(&with(|query| query.conditions = vec![condition("ns ~ 3")]), "'ns' is no text");
    named(&with(|query| query.conditions = vec![condition("ns > 3m")]), "'3m' is no value of 'ns'");
    named(&with(|query| query.conditions = vec![condition("dataset > a")]), "'dataset' is a text");
    named(&with(|query| query.conditions = vec![condition("file = /a")]), "can't be in a condition");
    named(&with(|query| query.conditions = vec![condition("pid = 1"); 17]), "choose at most 16");
    named(&with(|query| query.keys = vec!["op".to_owned(); 5]), "choose at most 4");
    named(&with(|query| query.measure = "sum:op".to_owned()), "'op' is no number");
    named(&with(|query| query.measure = "sum".to_owned()), "'sum' can't be measured: choose count");
    named(&with(|query| query.measure = "lquantize:ns:0:1s:1".to_owned()), "more than 1000 buckets");
    named(&with(|query| query.measure = "lquantize:ns:5:1:1".to_owned()), "no or more than");
    named(&with(|query| query.sums = vec!["dataset".to_owned()]), "'dataset' is no number");
    named(&with(|query| query.session = Some(u64::MAX)), "has ended");
    let under = TraceQuery { under: true, ..query("op_done", &[], &[]) };
    let hidden = trace(&caller(0, None), &Pools::default(), &under, &Paths::default());
    assert!(matches!(hidden.map_err(|error| error.reason), Err(Reason::BadValue { .. })));
    let other = trace(&caller(1000, None), &Pools::default(), &TraceQuery::default(), &Paths::default());
    assert_eq!(other.map_err(|error| error.reason), Err(Reason::Permission));
    let all: Vec<u64> =
        (0..trace::SESSIONS).map(|_| ask(&query("op_done", &[], &[])).expect("room").session).collect();
    named(&with(|_| ()), "4 sessions already");
    for session in all {
        let end = TraceQuery { session: Some(session), end: true, ..TraceQuery::default() };
        ask(&end).expect("it ends");
    }
}

/// Goal: the list has each event with the fields that can be used, each once.
#[test]
fn lists() {
    let list = ask(&TraceQuery::default()).expect("a list");
    assert_eq!((list.session, list.events.len()), (0, EVENTS.len()));
    for (event, known) in list.events.iter().zip(EVENTS) {
        let names: Vec<&str> =
            event.fields.iter().chain(&event.common).map(|column| column.name.as_str()).collect();
        let unique: HashSet<&&str> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        for name in names {
            let found = source(known, name).expect("a field");
            assert_eq!(words::column(known, found).name, name, "{}", event.name);
        }
    }
}

/// Goal: of a long path the end is kept, cut where a character begins.
#[test]
fn long_paths_are_clipped() {
    assert_eq!(clipped("/a/b"), "/a/b");
    let long = format!("/{}/end", "ä".repeat(5000));
    let short = clipped(&long);
    assert!(short.starts_with("…ä") && short.ends_with("/end") && short.len() < 1030, "{short}");
}
