//! Pools that another host may be writing to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fuzzing::labels::protect;

use crate::import::tests::*;

/// A clock that only sleeping advances; `then` runs after each sleep.
struct Hand<F: Fn(u64) + Sync> {
    secs: AtomicU64,
    then: F,
}

impl<F: Fn(u64) + Sync> Hand<F> {
    fn new(then: F) -> Self {
        Hand { secs: AtomicU64::new(0), then }
    }
}

impl<F: Fn(u64) + Sync> Clock for Hand<F> {
    fn now(&self) -> Duration {
        Duration::from_secs(self.secs.load(Relaxed))
    }

    fn sleep(&self, time: Duration) -> bool {
        (self.then)(self.secs.fetch_add(time.as_secs(), Relaxed) + 1);
        true
    }

    fn random(&self, _: u32) -> u32 {
        0
    }
}

/// Interval 1 s, limit 5 intervals: the import watches for 10 s.
const ON: u64 = 5 << 48 | 1 << 32 | 1000 << 8 | 7;

/// Goal: a protected pool in the state of a crash is watched as long as its owner's limits require,
/// and then imports. The result of that watch spares the next one.
#[test]
fn quiet_pool() {
    let copy = testkit::fixture_copy("zil-freeze");
    protect(&copy.images()[0], 1, ON);
    let pool = candidate(copy.images());
    let options = Options { force: true, ..sharing() };
    let clock = Hand::new(|_| {});
    let report = examine(&pool, &options, &our_host(), &clock);
    assert_eq!((clock.secs.load(Relaxed), report.status), (10, PoolStatus::HostidMismatch));
    assert!(import(&pool, &Options { seen: report.seen, ..options.clone() }, &our_host(), &NoWait).is_ok());
    let same_host = import(&pool, &options, &their_host(), &NoWait);
    assert!(same_host.is_ok(), "the host that had it last need not wait");
    let skipped = import(&pool, &Options { skip_mmp: true, ..options }, &our_host(), &NoWait);
    assert!(skipped.is_ok());
}

/// Goal: a pool whose uberblocks change during the watch is another host's, whose name is in the
/// error.
#[test]
fn busy_pool() {
    let copy = testkit::fixture_copy("zil-freeze");
    let image = copy.images()[0].clone();
    protect(&image, 1, ON);
    let pool = candidate(copy.images());
    let clock = Hand::new(|secs| {
        if secs == 3 {
            protect(&image, 1, ON + (1 << 32));
        }
    });
    let report = examine(&pool, &sharing(), &our_host(), &clock);
    assert_eq!(report.status, PoolStatus::HostidActive);
    let Some(SpaError::Active { hostname, hostid }) = report.error else { panic!("{:?}", report.error) };
    assert_eq!((hostname.as_deref(), hostid), (Some("zfsvm"), Some(1_102_198_131)));
    assert_eq!(clock.secs.load(Relaxed), 3);
}

/// Goal: a host without a hostid cannot import a protected pool.
#[test]
fn no_hostid() {
    let copy = testkit::fixture_copy("zil-freeze");
    protect(&copy.images()[0], 1, ON);
    let nobody = Host { hostid: 0, hostname: String::new() };
    let options = Options { force: true, ..sharing() };
    let failure = import(&candidate(copy.images()), &options, &nobody, &NoWait).unwrap_err();
    assert!(matches!(failure.error, SpaError::NoHostid), "{failure:?}");
}
