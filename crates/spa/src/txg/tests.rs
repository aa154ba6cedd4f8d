use crate::txg::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
struct Log {
    synced: Mutex<Vec<u64>>,
    fail_at: AtomicU64,
    go_on: Mutex<Vec<u64>>,
    suspension: Arc<Suspension>,
    counts: Arc<TxCounts>,
    waiters: Arc<AtomicU64>,
}

impl Log {
    fn counted(&self, name: &str) -> u64 {
        self.counts.named().into_iter().find(|(n, _)| *n == name).unwrap().1
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no device is left")]
struct NoDevice;

impl SyncTxg for Log {
    fn sync(&self, txg: Txg) -> Result<After, Arc<dyn std::error::Error + Send + Sync>> {
        if self.fail_at.load(Ordering::Relaxed) == txg.0 {
            return Err(Arc::new(NoDevice));
        }
        self.synced.lock().push(txg.0);
        Ok(if self.go_on.lock().contains(&txg.0) { After::GoOn } else { After::Rest })
    }

    fn suspension(&self) -> Arc<Suspension> {
        self.suspension.clone()
    }

    fn counts(&self) -> Arc<TxCounts> {
        self.counts.clone()
    }

    fn waiters(&self) -> Arc<AtomicU64> {
        self.waiters.clone()
    }
}

fn never() -> Tunables {
    Tunables { timeout: Duration::from_secs(1 << 30), ..Tunables::default() }
}

/// Goal: txgs sync in order, once each, and a waiter returns only after its own.
#[test]
fn groups_sync_in_order() {
    let log = Arc::new(Log::default());
    let txgs = Txgs::start("t", Txg(10), never(), log.clone());
    for _ in 0..5 {
        let txg = txgs.hold(100).unwrap().txg();
        txgs.wait_synced(txg).unwrap();
        assert!(log.synced.lock().contains(&txg.0));
    }
    assert_eq!(txgs.dirty(), 0);
    drop(txgs);
    let synced = log.synced.lock();
    assert!(synced.windows(2).all(|w| w[1] == w[0] + 1), "{synced:?}");
    assert_eq!(synced.first(), Some(&11));
}

/// Goal: a txg is not synced while it has a holder, and no thread enters the next one before.
#[test]
fn a_holder_keeps_its_group_from_syncing() {
    let log = Arc::new(Log::default());
    let txgs = Arc::new(Txgs::start("t", Txg(0), never(), log.clone()));
    let hold = txgs.hold(1).unwrap();
    let waiter = std::thread::spawn({
        let txgs = txgs.clone();
        move || txgs.wait_synced(Txg(1))
    });
    while txgs.open() == Txg(1) {
        std::thread::yield_now();
    }
    let next = std::thread::spawn({
        let txgs = txgs.clone();
        move || txgs.hold(1).unwrap().txg()
    });
    assert!(!next.is_finished());
    assert!(log.synced.lock().is_empty());
    drop(hold);
    assert_eq!(next.join().unwrap(), Txg(2));
    waiter.join().unwrap().unwrap();
    assert_eq!(log.synced.lock().first(), Some(&1));
}

/// Goal: what was changed before the txgs are dropped is synced; an unchanged txg is not.
#[test]
fn dropping_syncs_what_is_open() {
    let log = Arc::new(Log::default());
    let txgs = Txgs::start("t", Txg(4), never(), log.clone());
    drop(txgs.hold(7).unwrap());
    drop(txgs);
    assert_eq!(*log.synced.lock(), [5]);
    let log = Arc::new(Log::default());
    drop(Txgs::start("t", Txg(4), never(), log.clone()));
    assert!(log.synced.lock().is_empty());
}

/// Goal: after a failed sync no thread waits for ever, and nothing later is synced; the witness
/// gets the cause, once.
#[test]
fn a_failure_stops_the_pool() {
    let log = Arc::new(Log::default());
    log.fail_at.store(2, Ordering::Relaxed);
    let txgs = Txgs::start("t", Txg(0), never(), log.clone());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tell = heard.clone();
    txgs.on_stop(move |stopped| tell.lock().push((stopped.is_broken(), stopped.source.clone())));
    let txg = txgs.hold(1).unwrap().txg();
    txgs.wait_synced(txg).unwrap();
    let txg = txgs.hold(1).unwrap().txg();
    assert!(txgs.wait_synced(txg).unwrap_err().source.is_some());
    assert!(txgs.hold(1).is_err());
    drop(txgs);
    assert_eq!(*log.synced.lock(), [1]);
    let [(true, Some(cause))] = &heard.lock()[..] else { panic!("{heard:?}") };
    assert_eq!(cause.to_string(), "no device is left");
}

/// Goal: writers beyond the limit of dirty data wait for a txg to sync, and then go on.
#[test]
fn dirty_data_is_bounded() {
    let log = Arc::new(Log::default());
    let tunables = Tunables { dirty_max: 1000, delay_min_percent: 100, ..never() };
    let txgs = Arc::new(Txgs::start("t", Txg(0), tunables, log.clone()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let txgs = txgs.clone();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let _hold = txgs.hold(300).unwrap();
                    assert!(txgs.dirty() <= 1000);
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    txgs.sync_all().unwrap();
    assert_eq!(txgs.dirty(), 0);
}

/// Goal: the delay starts at its threshold, grows with the dirty data, and has a limit.
#[test]
fn the_delay_grows() {
    let t = Tunables { dirty_max: 1000, ..Tunables::default() };
    assert_eq!(t.delay(600), None);
    assert!(t.delay(700).unwrap() < t.delay(900).unwrap());
    assert_eq!(t.delay(800).unwrap(), Duration::from_nanos(t.delay_scale_ns));
    assert_eq!(t.delay(2000).unwrap(), Duration::from_millis(100));
}

/// Goal: a txg that leaves work is followed by another at once, without a request.
#[test]
fn work_goes_on() {
    let log = Arc::new(Log::default());
    log.go_on.lock().extend([1, 2]);
    let txgs = Txgs::start("t", Txg(0), never(), log.clone());
    drop(txgs.hold(1).unwrap());
    txgs.wait_synced(Txg(1)).unwrap();
    while txgs.synced() < Txg(3) {
        std::thread::yield_now();
    }
    assert_eq!(*log.synced.lock(), [1, 2, 3]);
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

/// Goal: each kind of delay counts once for each change that it delays, and so does each change
/// that got in.
#[test]
fn what_is_in_the_way_is_counted() {
    let log = Arc::new(Log::default());
    // A txg that closed because it is full would keep this thread, which holds it, out of the next.
    let tunables =
        Tunables { dirty_max: 1000, sync_percent: 100, delay_min_percent: 50, delay_scale_ns: 0, ..never() };
    let txgs = Arc::new(Txgs::start("t", Txg(0), tunables, log.clone()));
    let in_a_thread = |bytes| {
        let txgs = txgs.clone();
        std::thread::spawn(move || txgs.hold(bytes).map(|hold| hold.txg()))
    };
    let first = txgs.hold(600).unwrap();
    // Delayed by a delay of 0.
    drop(txgs.hold(1).unwrap());
    assert_eq!((log.counted("dmu_tx_dirty_delay"), log.counted("dmu_tx_dirty_over_max")), (1, 0));
    // No more fits until the sync of the txg, which has a holder.
    let second = in_a_thread(500);
    until(|| log.counted("dmu_tx_dirty_over_max") == 1);
    until(|| txgs.open() == Txg(2));
    let third = in_a_thread(1);
    until(|| log.counted("dmu_tx_group") > 0);
    assert_eq!(log.counted("dmu_tx_assigned"), 2);
    drop(first);
    assert_eq!(second.join().unwrap().unwrap(), Txg(2));
    assert_eq!(third.join().unwrap().unwrap(), Txg(2));
    assert_eq!((log.counted("dmu_tx_assigned"), log.counted("dmu_tx_dirty_over_max")), (4, 1));
    // The other may have been delayed too when it was woken, but neither twice.
    assert!(log.counted("dmu_tx_group") <= 2);
    // A caller that also needs space counts for itself.
    drop(txgs.enter(1, true).unwrap().unwrap());
    assert_eq!(log.counted("dmu_tx_assigned"), 4);
    log.suspension.attend("t", zio::FailMode::Continue, Box::new(|| {}));
    log.suspension.suspend(zio::Reason::Io);
    assert!(txgs.hold(1).is_err());
    assert_eq!((log.counted("dmu_tx_suspended"), log.counted("dmu_tx_assigned")), (1, 4));
    log.suspension.clear();
}

/// Goal: the counter of waiting threads includes a delayed writer, until it gets in.
#[test]
fn who_is_slowed_down_waits() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let log = Arc::new(Log::default());
    let tunables = Tunables {
        dirty_max: 1_000_000,
        sync_percent: 100,
        delay_min_percent: 50,
        delay_scale_ns: 1_000_000_000,
        ..never()
    };
    let txgs = Txgs::start("t", Txg(0), tunables, log.clone());
    let waiting = || log.waiters.load(Ordering::Relaxed);
    let first = txgs.hold(600_000).unwrap();
    assert_eq!(waiting(), 0);
    let (since, seen) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A tenth of a second each time, until the other thread has checked meanwhile.
        scope.spawn(|| {
            while !seen.load(Ordering::Relaxed) && since.elapsed() < PATIENCE {
                drop(txgs.hold(1).unwrap());
            }
        });
        while waiting() == 0 && since.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        seen.store(since.elapsed() < PATIENCE, Ordering::Relaxed);
    });
    assert!(seen.load(Ordering::Relaxed), "nobody waited");
    assert_eq!((waiting(), log.counted("dmu_tx_dirty_over_max")), (0, 0));
    drop(first);
}

/// Goal: the history says why each txg closed, for whom if a job waits for it, and what its sync
/// waited for.
#[test]
fn why_groups_close() {
    let why = |txgs: &Txgs, txg: u64| {
        let groups = txgs.groups();
        groups.iter().find(|group| group.txg == Txg(txg)).and_then(|group| group.closed)
    };
    let log = Arc::new(Log::default());
    log.go_on.lock().push(2);
    let txgs = Txgs::start("t", Txg(0), never(), log.clone());
    drop(txgs.hold(1).unwrap());
    assert_eq!(why(&txgs, 1), None);
    txgs.wait_synced(Txg(1)).unwrap();
    drop(txgs.hold(1).unwrap());
    let job = Job::task(Task::Command, 7);
    {
        let _running = work::begin(job);
        txgs.wait_synced(Txg(2)).unwrap();
    }
    until(|| txgs.synced() == Txg(3));
    let seen = [1, 2, 3, 4].map(|txg| why(&txgs, txg));
    let requested = |by| Some(Closed::Requested(by));
    assert_eq!(seen, [requested(None), requested(Some(job)), Some(Closed::GoOn), None]);

    let tunables = Tunables { dirty_max: 1000, sync_percent: 50, delay_min_percent: 100, ..never() };
    let txgs = Txgs::start("t", Txg(0), tunables, Arc::new(Log::default()));
    drop(txgs.hold(1).unwrap());
    let hold = txgs.hold(600).unwrap();
    dmu::Hold::dirtied(&hold, 600);
    drop(hold);
    until(|| txgs.synced() == Txg(1));
    let tunables = Tunables { sync_percent: 100, ..tunables };
    txgs.set_tunables(tunables);
    let hold = txgs.hold(900).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(txgs.hold(500).unwrap()));
        until(|| txgs.open() == Txg(3));
        drop(hold);
    });
    let young = Tunables { timeout: Duration::ZERO, ..tunables };
    txgs.set_tunables(young);
    until(|| txgs.synced() == Txg(3));
    let seen = [1, 2, 3].map(|txg| why(&txgs, txg));
    assert_eq!(seen, [Closed::Dirty, Closed::Full, Closed::Age].map(Some));
    let names = seen.map(|why| why.map(Closed::name));
    assert_eq!(names, ["dirty", "full", "age"].map(Some));
    assert_eq!(txgs.totals().closed, [1, 1, 1, 0, 0, 0]);
}

/// Goal: the sums have each stage of each txg once, also of those that the history has forgotten,
/// and the time that a thread waited for space.
#[test]
fn sums_over_all_groups() {
    let mut history = History::default();
    let most = usize::try_from(HISTORY.get()).unwrap();
    let last = most as u64 + 50;
    for txg in (1..=last).map(Txg) {
        history.open(txg);
        history.closed(txg, if txg.0 % 2 == 0 { Closed::Age } else { Closed::Requested(None) });
        history.enter(txg, Stage::Waiting);
        history.enter(txg, Stage::Syncing);
        assert!(history.syncing().is_some());
        history.committed(txg, 0, Moved::default(), Default::default());
        assert_eq!(history.syncing(), None);
        // What the rows have is part of the sums.
        let rows = history.groups(usize::MAX);
        let totals = history.totals();
        for stage in 0..4 {
            let seen: Duration = rows.iter().map(|row| row.took[stage]).sum();
            let all_seen = rows.len() as u64 == txg.0;
            assert!(seen <= totals.took[stage], "{stage}: {rows:?} {totals:?}");
            // Rows read the same clock.
            assert!(!all_seen || seen == totals.took[stage], "{stage}: {rows:?} {totals:?}");
        }
    }
    assert_eq!(history.groups(usize::MAX).len(), most);
    let closed = history.totals().closed;
    assert_eq!(closed, [last / 2, 0, 0, last / 2, 0, 0]);

    let tunables = Tunables { dirty_max: 1000, sync_percent: 100, delay_min_percent: 100, ..never() };
    let txgs = Txgs::start("t", Txg(0), tunables, Arc::new(Log::default()));
    let hold = txgs.hold(900).unwrap();
    assert_eq!((txgs.totals().throttled, txgs.dirty_max()), (Duration::ZERO, 1000));
    assert_eq!(txgs.delays().count(), 0, "what is not delayed does not count");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(txgs.hold(500).unwrap()));
        until(|| txgs.open() == Txg(2));
        drop(hold);
    });
    assert!(txgs.totals().throttled > Duration::ZERO);
    assert_eq!(txgs.delays().count(), 1);
}

/// A sync that waits for a device.
struct Slow(Log);

impl SyncTxg for Slow {
    fn sync(&self, txg: Txg) -> Result<After, Arc<dyn std::error::Error + Send + Sync>> {
        let _waiting = work::wait(Wait::Flush, 5);
        std::thread::yield_now();
        self.0.sync(txg)
    }

    fn suspension(&self) -> Arc<Suspension> {
        self.0.suspension()
    }

    fn counts(&self) -> Arc<TxCounts> {
        self.0.counts()
    }

    fn waiters(&self) -> Arc<AtomicU64> {
        self.0.waiters()
    }
}

/// Goal: the history has what the sync of a txg waited for, within the time of that sync.
#[test]
fn where_a_sync_spends_its_time() {
    let txgs = Txgs::start("t", Txg(0), never(), Arc::new(Slow(Log::default())));
    drop(txgs.hold(1).unwrap());
    txgs.wait_synced(Txg(1)).unwrap();
    let group = txgs.groups()[0];
    let flush = group.spent.of(Wait::Flush);
    assert!(flush > 0 && u128::from(flush) <= group.took[3].as_nanos(), "{group:?}");
    assert_eq!(group.spent.longest.map(|longest| (longest.wait, longest.what)), Some((Wait::Flush, 5)));
}
