use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::import::mmp::*;

/// A clock that only sleeping advances.
#[derive(Default)]
struct Hand {
    ms: AtomicU64,
    interrupted: bool,
}

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.ms.load(Relaxed))
    }

    fn sleep(&self, time: Duration) -> bool {
        self.ms.fetch_add(time.as_millis() as u64, Relaxed);
        !self.interrupted
    }

    fn random(&self, _below: u32) -> u32 {
        0
    }
}

fn uberblock(delay_ns: u64, config: u64) -> Uberblock {
    let mut slot = vec![0; 1024];
    for (at, word) in
        [(0, 0xbab10c), (8, 5000), (16, 100), (32, 7), (176, 0xa11cea11), (184, delay_ns), (192, config)]
    {
        slot[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
    }
    Uberblock::decode(&slot).unwrap()
}

fn label(hostid: u64) -> PoolConfig {
    let mut nv = ondisk::Nvlist::new();
    for (k, v) in [("version", 5000), ("state", 0), ("pool_guid", 1), ("hostid", hostid)] {
        nv.set(k, ondisk::Value::Uint64(v));
    }
    nv.set("name", ondisk::Value::String(b"p".to_vec()));
    nv.set("hostname", ondisk::Value::String(b"other".to_vec()));
    PoolConfig::from_nvlist(&nv).unwrap()
}

const ON: u64 = 10 << 48 | 1 << 32 | 500 << 8 | 7;

/// Goal: a pool is watched only when it has protection, was not exported, and another host used it
/// last.
#[test]
fn when_to_watch() {
    let host = Host { hostid: 5, hostname: "me".into() };
    let (on, off) = (uberblock(1, ON), uberblock(0, 0));
    let ask = |ub, hostid, state, before| required(ub, Some(&label(hostid)), state, &host, before);
    assert!(ask(&on, 9, PoolState::Active, None));
    assert!(!ask(&on, 5, PoolState::Active, None));
    assert!(!ask(&on, 9, PoolState::Exported, None));
    assert!(!ask(&off, 9, PoolState::Active, None));
    assert!(!ask(&on, 9, PoolState::Active, Some(Seen::of(&on))), "watched already");
    let old = Uberblock { mmp: None, ..on.clone() };
    assert!(ask(&old, 9, PoolState::Active, None), "the writer knew no protection");
}

/// Goal: the wait follows the owner's own interval and limit, and is bounded whatever the fields
/// say.
#[test]
fn how_long_to_watch() {
    let secs = |delay, config| duration(&uberblock(delay, config)).as_secs_f64();
    assert_eq!(secs(1, ON), 10.0, "10 intervals of 0.5 s, twice");
    assert_eq!(
        secs(500_000_000, 1000 << 8 | 5),
        30.0,
        "the owner never gives up: 20 times interval and delay"
    );
    assert_eq!(secs(2_000_000_000, 0), 60.0, "an old owner: 20 times the usual interval and its delay");
    assert_eq!(secs(u64::MAX, u64::MAX), 86400.0);
    assert_eq!(duration(&Uberblock { mmp: None, ..uberblock(1, 0) }).as_secs(), 20);
}

/// Goal: an uberblock that changes shows an active host; one that stays shows none.
#[test]
fn watching() {
    let ub = uberblock(1, ON);
    let clock = Hand::default();
    assert!(watch(&ub, &clock, || Some((ub.clone(), None))).is_ok());
    assert_eq!(clock.ms.load(Relaxed), 10_000);
    let clock = Hand::default();
    let newer = uberblock(1, ON + (1 << 32));
    let found = watch(&ub, &clock, || {
        let now = if clock.ms.load(Relaxed) < 3000 { &ub } else { &newer };
        Some((now.clone(), Some(label(9))))
    });
    let Err(SpaError::Active { hostname, hostid }) = found else { panic!("{found:?}") };
    assert_eq!((hostname.as_deref(), hostid), (Some("other"), Some(9)));
    let impatient = Hand { interrupted: true, ..Hand::default() };
    assert!(matches!(watch(&ub, &impatient, || Some((ub.clone(), None))), Err(SpaError::Interrupted)));
}
