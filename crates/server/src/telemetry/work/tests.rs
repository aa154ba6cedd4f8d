use super::*;
use api::{Budget, Peer, Reason};
use observe::ops::{Frontend, Op};
use observe::work::Place;
use std::sync::{Barrier, Weak};

/// A place whose paths come when the barrier lets them.
struct Late(Option<Barrier>);

impl Place for Late {
    fn dataset(&self, node: u64) -> Option<(String, Option<u64>)> {
        Some(("tank/a".to_owned(), Some(node)))
    }

    fn path(&self, node: u64) -> Option<Vec<u8>> {
        if let Some(barrier) = &self.0 {
            barrier.wait();
        }
        (node != 2).then(|| format!("/{node}").into_bytes())
    }
}

/// Goal: paths that are found in time are returned. While a search hangs, replies come without
/// paths, and no further search begins.
#[test]
fn paths_are_not_waited_for() {
    let quick: Arc<dyn Place> = Arc::new(Late(None));
    let late = Arc::new(Late(Some(Barrier::new(2))));
    let of_quick = work::register(Arc::downgrade(&quick));
    let weak: Weak<Late> = Arc::downgrade(&late);
    let of_late = work::register(weak);
    let paths = Paths::default();
    let (quick, slow) = (of_quick.number(), of_late.number());
    let found = paths.of(HashSet::from([(quick, 1), (quick, 2), (u64::MAX, 1)]));
    assert_eq!(found, HashMap::from([((quick, 1), "/1".to_owned())]));
    let began = Instant::now();
    assert_eq!(paths.of(HashSet::from([(slow, 1)])), HashMap::new());
    assert!(began.elapsed() >= PATIENCE);
    let began = Instant::now();
    assert_eq!(paths.of(HashSet::from([(quick, 1)])), HashMap::new());
    assert!(began.elapsed() < PATIENCE, "another search waits for the first");
    if let Some(barrier) = &late.0 {
        barrier.wait();
    }
    while paths.0.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    assert_eq!(paths.of(HashSet::from([(quick, 1)])).len(), 1, "there is a search again");
}

/// Goal: other users learn nothing of what is under way or was slow, and of threads.
#[test]
fn only_for_owners() {
    let pools = Pools::default();
    let peer = Peer { uid: 1000, gid: 1000, pid: Some(1) };
    let other = Caller::of_connection(peer, 0, Budget::of(1 << 20));
    let refused = |error: Option<Error>| error.map(|error| error.reason) == Some(Reason::Permission);
    assert!(refused(under_way(&other, &pools, &Paths::default()).err()));
    assert!(refused(slow(&other, &pools, &SlowQuery::default(), &Paths::default()).err()));
    let query = api::TopQuery { view: api::TopView::Threads, ..api::TopQuery::default() };
    assert!(refused(super::super::top::Start::default().read(&other, &pools, &query).err()));
    let own = Caller::this_process();
    assert!(under_way(&own, &pools, &Paths::default()).is_ok());
}

/// Goal: a job of several threads is one row, with the wait that says the most. Tasks have names,
/// and a request of a command has its method's.
#[test]
fn rows() {
    let began = Instant::now();
    let job = Job {
        kind: Kind::Request(Frontend::Nbd, Op::Read),
        place: 0,
        node: 0,
        pid: 0,
        uid: 0,
        client: 0,
        began,
    };
    let thread = |tid, wait| ThreadState {
        tid,
        name: format!("t{tid}"),
        job: Some(job),
        wait,
        waited: [0; work::WAITS],
    };
    let devices = HashMap::from([(7, "/dev/vdb".to_owned())]);
    let ms = Duration::from_millis;
    let threads = [
        thread(1, Some((Wait::Workers, 0, ms(9)))),
        thread(2, None),
        thread(3, Some((Wait::Read, 7, ms(5)))),
    ];
    let seen = row(&job, &threads, began + ms(10), &devices);
    let wait = Waited { wait: "read".to_owned(), what: "/dev/vdb".to_owned(), ns: 5_000_000 };
    assert_eq!((seen.age_ns, seen.wait, seen.tid, seen.helpers), (10_000_000, Some(wait), 3, 2));
    assert_eq!((seen.subject.frontend.as_str(), seen.subject.op.as_str()), ("nbd", "read"));
    assert_eq!(waited(Wait::Txg, TxgReason::Full as u64, 1, &devices).what, "dirty data at its limit");
    assert_eq!(
        (waited(Wait::Txg, u64::MAX, 1, &devices).what, waited(Wait::Read, 8, 1, &devices).what),
        Default::default()
    );
    let sync = subject(&Job::task(Task::Sync, 41));
    assert_eq!((sync.op.as_str(), sync.txg, sync.frontend.as_str()), ("sync", Some(41), ""));
    let at = METHODS.iter().position(|method| *method == "change_pool").expect("it is a method") as u64;
    let command = subject(&Job::task(Task::Command, at));
    assert_eq!(
        (command.op.as_str(), command.txg, command.frontend.as_str()),
        ("change_pool", None, "control")
    );
    assert_eq!(subject(&Job::task(Task::Command, u64::MAX)).op, "request");
}

/// Goal: this process has this thread, with its name, its time and what it does.
#[test]
fn threads_of_this_process() {
    let thread = std::thread::Builder::new().name("a (b) c".to_owned());
    let seen = thread.spawn(|| {
        let _running = work::begin(Job::task(Task::Sync, 41));
        let _waiting = work::wait(Wait::Log, 0);
        threads(usize::MAX).into_iter().find(|thread| thread.name == "a (b) c")
    });
    let seen = seen.expect("it starts").join().expect("it ends").expect("it is there");
    assert!(seen.doing.starts_with("sync txg 41 (log for ") && seen.tid > 0 && seen.began > 0, "{seen:?}");
    assert_eq!(threads(1).len(), 1);
    assert_eq!([split(0, 20, 10), split(90, 20, 10), split(90, 0, 0)], [(20, 10), (60, 30), (90, 0)]);
    assert_eq!(split(u64::MAX, u64::MAX, 0), (u64::MAX, 0));
}
