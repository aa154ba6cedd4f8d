use super::*;
use std::sync::Barrier;

const MS: Duration = Duration::from_millis(1);

fn job(node: u64) -> Job {
    let kind = Kind::Request(Frontend::Fuse, Op::Fsync);
    Job { kind, place: 0, node, pid: 7, uid: 8, client: 9, began: Instant::now() }
}

/// Lets time pass.
fn pass(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::thread::yield_now();
    }
}

fn state_of(tid: u32) -> ThreadState {
    threads().into_iter().find(|thread| thread.tid == tid).expect("this thread has a slot")
}

fn tid() -> u32 {
    MINE.with(|mine| mine.slot.tid)
}

/// Goal: each kind of job has a code of its own, and 0 is none.
#[test]
fn codes() {
    let requests =
        Frontend::ALL.iter().flat_map(|frontend| Op::ALL.iter().map(move |op| Kind::Request(*frontend, *op)));
    let all: Vec<Kind> = requests.chain(Task::ALL.iter().map(|task| Kind::Task(*task))).collect();
    for kind in &all {
        assert_eq!(Kind::of_code(kind.code()), Some(*kind));
    }
    let codes: std::collections::HashSet<u64> = all.iter().map(|kind| kind.code()).collect();
    assert_eq!((codes.len(), Kind::of_code(0)), (all.len(), None));
    for wrong in [u64::from(u16::MAX), 1 << 16 | 255, 1 << 16 | 255 << 8, u64::MAX] {
        assert_eq!(Kind::of_code(wrong), None, "{wrong:#x}");
    }
}

/// Goal: a wait counts for the job and the thread. Of a wait within another, the inner one counts,
/// and the outer one continues. All waits together take no longer than the job.
#[test]
fn waits_are_added_up() {
    let before = state_of(tid()).waited;
    let began = Instant::now();
    let running = begin(job(1));
    {
        let _outer = wait(Wait::Log, 0);
        pass(4 * MS);
        {
            let _inner = wait(Wait::Flush, 77);
            pass(20 * MS);
        }
        pass(4 * MS);
    }
    let total = nanos(began.elapsed());
    let (seen, spent) = current().expect("it runs");
    assert_eq!((seen.node, seen.pid, seen.uid), (1, 7, 8));
    assert!(spent.of(Wait::Log) >= 8_000_000, "{spent:?}");
    assert!(spent.of(Wait::Flush) >= 20_000_000, "{spent:?}");
    assert!(spent.ns.iter().sum::<u64>() <= total, "{spent:?} in {total}");
    let longest = spent.longest.expect("it waited");
    assert_eq!((longest.wait, longest.what, longest.ns), (Wait::Flush, 77, spent.of(Wait::Flush)));
    drop(running);
    assert_eq!(current(), None);
    let after = state_of(tid()).waited;
    for wait in Wait::ALL {
        let at = *wait as usize;
        assert_eq!(after[at] - before[at], spent.ns[at], "{wait:?}");
    }
    let _next = begin(job(2));
    assert_eq!(current().map(|(_, spent)| spent), Some(Spent::default()), "the next job begins anew");
}

/// Goal: another thread sees what a thread works on, for what it waits and how long already, and
/// sees nothing of a thread that has ended.
#[test]
fn others_see_it() {
    let (begun, seen) = (Barrier::new(2), Barrier::new(2));
    let tid = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("observed".to_owned());
        let worker = thread
            .spawn_scoped(scope, || {
                let _running = begin(job(3));
                let _waiting = wait_txg(TxgReason::Full);
                begun.wait();
                seen.wait();
                tid()
            })
            .unwrap();
        begun.wait();
        pass(3 * MS);
        let state = threads().into_iter().find(|thread| thread.name == "observed").expect("it has a slot");
        let job = state.job.expect("it has a job");
        assert_eq!((job.kind, job.node), (Kind::Request(Frontend::Fuse, Op::Fsync), 3));
        assert!(job.began.elapsed() >= 3 * MS);
        let (wait, what, since) = state.wait.expect("it waits");
        assert_eq!((wait, what), (Wait::Txg, TxgReason::Full as u64));
        assert!(since >= 3 * MS && since <= job.began.elapsed());
        seen.wait();
        worker.join().unwrap()
    });
    assert!(threads().iter().all(|thread| thread.tid != tid || thread.name != "observed"));
}

/// Goal: a thread that waits for a team spends the time as the others did. What a job does not wait
/// for counts for no job.
#[test]
fn teams() {
    let running = begin(job(4));
    let team = Team::new();
    std::thread::scope(|scope| {
        let helper = scope.spawn(|| {
            let helping = team.help().expect("there is a job");
            assert_eq!(current().map(|(job, _)| job.node), Some(4));
            {
                let _reading = wait(Wait::Read, 5);
                pass(30 * MS);
            }
            drop(helping);
            assert_eq!(current(), None);
        });
        team.wait(|| helper.join().unwrap());
    });
    let (_, spent) = current().unwrap();
    let (read, workers) = (spent.of(Wait::Read), spent.of(Wait::Workers));
    assert!(read >= 25_000_000 && read > 9 * workers, "{spent:?}");
    assert_eq!(spent.longest.map(|longest| (longest.wait, longest.what)), Some((Wait::Read, 5)));
    drop(running);
    assert!(Team::new().help().is_none(), "without a job there is nothing to help with");
}

/// Goal: the time that a job waited for its thread counts.
#[test]
fn queued() {
    let mut early = job(6);
    early.began = Instant::now();
    pass(5 * MS);
    let _running = begin_queued(early);
    let (_, spent) = current().unwrap();
    assert!(spent.of(Wait::Queue) >= 5_000_000, "{spent:?}");
}

/// Goal: a place is found by its number, and no longer when it is dropped or unregistered.
#[test]
fn places_have_numbers() {
    struct Here;
    impl Place for Here {
        fn dataset(&self, node: u64) -> Option<(String, Option<u64>)> {
            Some(("p/a".to_owned(), Some(node + 1)))
        }
        fn path(&self, _: u64) -> Option<Vec<u8>> {
            None
        }
    }
    let here: Arc<dyn Place> = Arc::new(Here);
    let one = register(Arc::downgrade(&here));
    let other = register(Arc::downgrade(&here));
    assert_ne!(one.number(), other.number());
    let found = place(one.number()).expect("it is there");
    assert_eq!(found.dataset(1), Some(("p/a".to_owned(), Some(2))));
    drop(found);
    let number = one.number();
    drop(one);
    assert!(place(number).is_none());
    drop(here);
    assert!(place(other.number()).is_none() && place(0).is_none());
}

/// Goal: a lock's wait counts for the job, with its site.
#[test]
fn locks_are_waits() {
    static HERE: crate::Site = crate::Site::new("observe work test");
    let lock = crate::Mutex::of(&HERE, ());
    let (held, tried) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.lock();
            held.wait();
            tried.wait();
            pass(20 * MS);
            drop(guard);
        });
        held.wait();
        let _running = begin(job(8));
        tried.wait();
        drop(lock.lock());
        let (_, spent) = current().unwrap();
        assert!(spent.of(Wait::Lock) > 0, "{spent:?}");
        let longest = spent.longest.unwrap();
        assert_eq!((longest.wait, crate::site_name(longest.what)), (Wait::Lock, Some("observe work test")));
    });
    assert_eq!((crate::site_name(0), crate::site_name(u64::MAX)), (None, None));
}
