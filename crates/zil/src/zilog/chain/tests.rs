use super::*;
use crate::tunables::STEERING;

/// How long a write to the devices of these tests takes.
const WRITE: Duration = Duration::from_micros(1000);

/// A chain with a clock that only the test moves.
struct Clocked {
    _steering: observe::lock::MutexGuard<'static, ()>,
    chain: Chain,
    now: Instant,
    takes: u64,
}

impl Clocked {
    fn new() -> Clocked {
        Clocked { _steering: STEERING.lock(), chain: Chain::default(), now: Instant::now(), takes: 0 }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn off(&mut self) -> u64 {
        self.takes += 1;
        self.chain.take_off(self.takes, Txg(5), self.now)
    }

    fn land(&mut self, id: u64, well: bool) {
        self.chain.land(id, Txg(5), 0..=0, well, self.now);
    }

    /// One write alone, which takes so long.
    fn alone(&mut self, time: Duration) {
        let id = self.off();
        self.pass(time);
        self.land(id, true);
    }

    fn due(&self) -> Result<(), Option<Duration>> {
        self.chain.due(self.now)
    }

    /// Devices that write one after another: the last two writes took `WRITE` at best, and twice
    /// that recently.
    fn in_line() -> Clocked {
        let mut c = Clocked::new();
        c.alone(WRITE);
        for _ in 0..200 {
            let ids = [c.off(), c.off()];
            c.pass(WRITE);
            c.land(ids[0], true);
            c.pass(WRITE);
            c.land(ids[1], true);
        }
        c
    }
}

/// Goal: with nothing in flight a write begins at once, however long earlier writes took.
#[test]
fn the_first_begins_at_once() {
    let mut c = Clocked::new();
    assert_eq!(c.due(), Ok(()));
    c.alone(WRITE);
    assert_eq!(c.due(), Ok(()));
    c.alone(WRITE * 50);
    assert_eq!(c.due(), Ok(()));
    // A take that had nothing to write is not in flight.
    c.chain.pass(9, c.now);
    assert_eq!(c.due(), Ok(()));
}

/// Goal: on devices without a queue, each write begins a tenth of a write after the one before, so
/// that ten are in flight.
#[test]
fn ten_fly_at_a_time() {
    let mut c = Clocked::new();
    for _ in 0..200 {
        c.alone(WRITE);
    }
    c.off();
    for _ in 1..10 {
        assert_eq!(c.due(), Err(Some(WRITE / 10)));
        c.pass(WRITE / 10 - Duration::from_nanos(1));
        assert_eq!(c.due(), Err(Some(Duration::from_nanos(1))));
        c.pass(Duration::from_nanos(1));
        assert_eq!(c.due(), Ok(()));
        c.off();
    }
    // The first lands as the eleventh is due.
    c.pass(WRITE / 10);
    assert_eq!(c.due(), Ok(()));
}

/// Goal: on devices that write one after another, the time that a write spent behind others is
/// waited for too. So one write is in progress and one is queued.
#[test]
fn two_fly_where_they_stand_in_line() {
    let mut c = Clocked::in_line();
    let first = c.off();
    // A write alone has waited for no other. Its successor waits at most the best write time and a
    // tenth of it.
    let Err(Some(left)) = c.due() else { panic!("it is not due at once") };
    assert!(left > WRITE / 10 && left <= c.chain.best + c.chain.best / 10, "{left:?}");
    c.pass(left);
    assert_eq!(c.due(), Ok(()));
    c.off();
    // By recent write times, the third is not due before the first has landed.
    let Err(Some(left)) = c.due() else { panic!("it is not due at once") };
    assert_eq!(left, c.chain.latency - c.chain.best + c.chain.best / 10);
    assert!(left > WRITE / 3, "{left:?}");
    c.land(first, true);
    assert!(c.due().is_err());
}

/// Goal: a device that is busy with other work does not keep the next write from queuing behind a
/// single one. That write waits at most for the best write time.
#[test]
fn a_busy_device_is_stood_in_line_for() {
    let mut c = Clocked::new();
    c.alone(WRITE);
    for _ in 0..20 {
        c.alone(WRITE * 40);
    }
    c.off();
    let Err(Some(left)) = c.due() else { panic!("it is not due at once") };
    assert!(c.chain.latency > WRITE * 30, "{:?}", c.chain.latency);
    assert_eq!(left, c.chain.best + c.chain.best / 10);
}

/// Goal: the best time is forgotten slowly, so that a slower device is recognized in the end, and
/// one quick write counts at once.
#[test]
fn the_best_time_is_forgotten_slowly() {
    let mut c = Clocked::new();
    c.alone(WRITE);
    c.alone(WRITE * 4);
    assert!(c.chain.best < WRITE * 11 / 10, "{:?}", c.chain.best);
    for _ in 0..1000 {
        c.alone(WRITE * 4);
    }
    assert!(c.chain.best > WRITE * 39 / 10, "{:?}", c.chain.best);
    c.alone(WRITE);
    assert_eq!(c.chain.best, WRITE);
    // A failed write has not written, so its time means nothing.
    let id = c.off();
    c.land(id, false);
    assert_eq!(c.chain.best, WRITE);
}

/// Goal: with the maximum in flight no write begins before one has landed, however long ago the
/// last began.
#[test]
fn no_more_fly_than_may() {
    let mut c = Clocked::new();
    let ids: Vec<u64> = (0..MAX_FLIGHTS).map(|_| c.off()).collect();
    c.pass(Duration::from_secs(10));
    assert_eq!(c.due(), Err(None));
    c.land(ids[3], true);
    assert_eq!(c.due(), Ok(()));
}

/// Goal: the wait for other commits follows `zfs_commit_timeout_pct` at once.
#[test]
fn the_while_is_set() {
    let mut c = Clocked::new();
    for _ in 0..200 {
        c.alone(WRITE);
    }
    c.off();
    for (pct, waits) in [(10, WRITE / 10), (50, WRITE / 2), (200, WRITE * 2), (u64::MAX, Duration::MAX)] {
        COMMIT_TIMEOUT_PCT.set(pct);
        let due = c.due();
        COMMIT_TIMEOUT_PCT.set(COMMIT_TIMEOUT_PCT.default());
        match waits {
            Duration::MAX => assert!(due.is_err_and(|left| left > Some(WRITE * 1000))),
            waits => assert_eq!(due, Err(Some(waits))),
        }
    }
    COMMIT_TIMEOUT_PCT.set(0);
    let due = c.due();
    COMMIT_TIMEOUT_PCT.set(COMMIT_TIMEOUT_PCT.default());
    assert_eq!(due, Ok(()));
}

/// Goal: blocks are as large as their contents, and no larger than `zil_maxblocksize`. A record
/// that can't be split gets the size that it needs.
#[test]
fn blocks_are_as_large_as_set() {
    let _steering = STEERING.lock();
    assert_eq!([0, 4096, 4097, 1 << 30].map(block_size), [4096, 4096, 8192, MAX_BLOCK]);
    MAXBLOCKSIZE.set(10_000);
    let sizes = [0, 4097, 100_000].map(block_size);
    MAXBLOCKSIZE.set(MAXBLOCKSIZE.default());
    assert_eq!(sizes, [4096, 8192, 8192]);
    assert_eq!([100, 100_000, 1 << 30].map(block_size_of), [4096, 102_400, MAX_BLOCK]);
}
