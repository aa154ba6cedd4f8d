//! Pools whose partitions are still to come.
//!
//! # Theory
//! A daemon that starts finds its pools in the cache file, and each is imported by itself. Clients
//! call as soon as the first partition is served. Until the other pools were tried, the server must
//! not say that it has no volume of theirs: clients would turn to the database, which knows no
//! other place.
//!
//! A pool was tried when it is imported and its partitions are served, or when its import has
//! failed as often as `zpool import -c` attempts it. A pool of which no device is found is never
//! tried, so the wait has a limit.
//!
//! # Absent
//! Pools that no default cache file lists.

use observe::lock::Mutex;
use ondisk::Guid;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long after the daemon's start pools are waited for.
const LIMIT: Duration = Duration::from_secs(300);
/// How often `zpool import -c` attempts an import: the second time under other device names.
const ATTEMPTS: u32 = 2;

/// Pools that were not tried yet.
#[derive(Debug, Default)]
pub(super) struct Expected {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often the import of each pool has failed.
    pools: BTreeMap<Guid, u32>,
    until: Option<Instant>,
}

impl Expected {
    /// Waits for these pools from now on.
    pub(super) fn begin(&self, pools: Vec<Guid>, now: Instant) {
        let mut state = self.state.lock();
        state.pools = pools.into_iter().map(|guid| (guid, 0)).collect();
        state.until = Some(now + LIMIT);
    }

    /// Until when pools are waited for. `None`: there is none left.
    pub(super) fn until(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.until.filter(|_| !state.pools.is_empty())
    }

    /// Notes the result of an import. Returns whether it was the last that was waited for.
    pub(super) fn tried(&self, pool: Guid, is_imported: bool) -> bool {
        let mut state = self.state.lock();
        let Some(failures) = state.pools.get_mut(&pool) else { return false };
        *failures += 1;
        if !is_imported && *failures < ATTEMPTS {
            return false;
        }
        state.pools.remove(&pool);
        state.pools.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the wait ends when each pool is imported or has failed twice, whatever else is
    /// imported meanwhile, and no later than its limit.
    #[test]
    fn pools_are_waited_for() {
        let (expected, now) = (Expected::default(), Instant::now());
        assert_eq!(expected.until(), None);
        expected.begin(Vec::new(), now);
        assert_eq!(expected.until(), None);
        expected.begin(vec![Guid(1), Guid(2), Guid(3)], now);
        assert_eq!(expected.until(), Some(now + LIMIT));
        for (guid, is_imported, is_last) in
            [(1, true, false), (1, true, false), (9, true, false), (2, false, false), (3, false, false)]
        {
            assert_eq!(expected.tried(Guid(guid), is_imported), is_last, "{guid}");
            assert!(expected.until().is_some());
        }
        assert!(!expected.tried(Guid(2), false));
        assert!(expected.tried(Guid(3), true));
        assert_eq!(expected.until(), None);
        assert!(!expected.tried(Guid(3), true));
    }
}
