//! Status queries of pools that may not answer.
//!
//! # Theory
//! A status query mostly reads what is cached. But it may have to read from a device that hangs, or
//! wait for an operation that waits for one. So each query runs on its own thread with a timeout.
//! While one is overdue, no second query starts for that pool.
//!
//! For a pool that does not answer, the reply is the last known status. The states of its devices,
//! and whether it is suspended, are current, since memory alone has them.
//!
//! # See
//! OpenZFS issues 5345 and 10223: `zpool list` hangs for all pools because of one.

pub(crate) mod known;

use crate::pools::imported::Imported;
use crate::view;
use api::{Error, Pool, PoolQuery, Reason};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The timeout for a pool whose last status is known.
const SOON: Duration = Duration::from_secs(2);
/// The timeout for a pool without one, while its devices make no progress.
const LATE: Duration = Duration::from_secs(60);
/// The timeout for a suspended pool: what is not in memory will not arrive.
const SUSPENDED: Duration = Duration::from_secs(2);
/// How often a waiting query checks whether the pool has been suspended.
const TURN: Duration = Duration::from_millis(500);

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Whether a pool is suspended.
pub(crate) fn is_suspended(imported: &Imported) -> bool {
    imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some())
}

/// The progress of a pool's devices: operations and bytes.
fn done(imported: &Imported) -> [u64; 4] {
    let stats = imported.pool.spa().tree().describe().stats;
    [stats.read_ops, stats.write_ops, stats.read_bytes, stats.write_bytes]
}

/// The error for a pool that does not answer.
pub(crate) fn silent(imported: &Imported) -> Error {
    let reason = if is_suspended(imported) { Reason::Suspended } else { Reason::Silent };
    Error::new(imported.pool.name(), reason)
}

/// How long a query may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Since the last progress of the pool's devices.
    quiet: Duration,
    /// In all. `None`: as long as there is progress.
    whole: Option<Duration>,
}

impl Patience {
    /// So long in all.
    fn whole(time: Duration) -> Self {
        Self { quiet: time, whole: Some(time) }
    }

    /// So long without progress.
    fn quiet(time: Duration) -> Self {
        Self { quiet: time, whole: None }
    }
}

/// A query that runs.
struct Look<T> {
    answer: std::sync::mpsc::Receiver<T>,
    stage: Arc<AtomicU8>,
    begun: Instant,
}

/// Starts a query. `None` if an earlier one is overdue, or if there is no thread.
fn begin<T: Send + 'static>(
    imported: &Arc<Imported>,
    look: impl FnOnce(&Arc<Imported>) -> T + Send + 'static,
) -> Option<Look<T>> {
    let late = Arc::clone(&imported.known.late);
    if late.load(Ordering::Relaxed) > 0 {
        return None;
    }
    let (tell, answer) = channel();
    let stage = Arc::new(AtomicU8::new(RUNNING));
    let (own, shared) = (Arc::clone(imported), Arc::clone(&stage));
    let work = move || {
        let told = look(&own);
        drop(own);
        if shared.swap(DONE, Ordering::SeqCst) == GIVEN_UP {
            late.fetch_sub(1, Ordering::Relaxed);
        }
        // The receiver may have given up.
        tell.send(told).unwrap_or_default();
    };
    let thread = std::thread::Builder::new().name(format!("look-{}", imported.pool.name()));
    thread.spawn(work).ok()?;
    Some(Look { answer, stage, begun: Instant::now() })
}

impl<T> Look<T> {
    /// The result of the query; `None` if it times out.
    fn end(self, imported: &Imported, patience: Patience) -> Option<T> {
        let (mut before, mut since) = (done(imported), self.begun);
        loop {
            match self.answer.recv_timeout(TURN) {
                Ok(told) => return Some(told),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let quiet = if is_suspended(imported) { patience.quiet.min(SUSPENDED) } else { patience.quiet };
            let now = done(imported);
            if now != before {
                (before, since) = (now, Instant::now());
            }
            if since.elapsed() < quiet && patience.whole.is_none_or(|whole| self.begun.elapsed() < whole) {
                continue;
            }
            imported.known.late.fetch_add(1, Ordering::Relaxed);
            if self.stage.compare_exchange(RUNNING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                // The query ended just now.
                imported.known.late.fetch_sub(1, Ordering::Relaxed);
                return self.answer.recv().ok();
            }
            tracing::warn!(
                pool = imported.pool.name(),
                "it does not answer: its devices, or an operation that waits for them"
            );
            return None;
        }
    }
}

/// Queries all of these pools at once; `None` for each that does not answer.
pub(crate) fn each<T: Send + 'static>(
    pools: &[Arc<Imported>],
    look: impl Fn(&Arc<Imported>) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    // With only one pool, no other pool waits for it.
    if let [only] = pools {
        return vec![Some(look(only))];
    }
    let look = Arc::new(look);
    let begun: Vec<_> = pools
        .iter()
        .map(|pool| {
            let look = Arc::clone(&look);
            begin(pool, move |pool| look(pool))
        })
        .collect();
    begun.into_iter().zip(pools).map(|(look, pool)| look?.end(pool, Patience::quiet(LATE))).collect()
}

/// Queries all of these pools at once; `None` for each that does not answer soon, even if it is the
/// only one. `is_long`: it may take longer while the pool's devices make progress.
pub(crate) fn each_soon<T: Send + 'static>(
    pools: &[Arc<Imported>],
    is_long: bool,
    look: impl Fn(&Arc<Imported>) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    let look = Arc::new(look);
    let one = |pool: &Arc<Imported>| {
        let look = Arc::clone(&look);
        begin(pool, move |pool| look(pool))
    };
    let begun: Vec<_> = pools.iter().map(one).collect();
    // Progress may be that of others, so it has a limit too.
    let patience = Patience { quiet: SOON, whole: Some(if is_long { LATE } else { SOON }) };
    begun.into_iter().zip(pools).map(|(look, pool)| look?.end(pool, patience)).collect()
}

/// The status of a pool (`spa_get_stats`).
///
/// # Errors
/// * [`Reason::Silent`], [`Reason::Suspended`]: the pool does not answer, and no status is known.
/// * [`Reason::Io`], [`Reason::Corrupt`]: its metadata can't be read.
pub(crate) fn pool(imported: &Arc<Imported>, query: PoolQuery) -> Result<Pool, Error> {
    let known = imported.known.told.lock().is_some();
    look_at(imported, query, if known { Patience::whole(SOON) } else { Patience::quiet(LATE) })
}

/// Queries a pool that has just been imported. So a status is known, whatever its devices do later.
pub(crate) fn first(imported: &Arc<Imported>) {
    if let Err(error) = look_at(imported, PoolQuery::default(), Patience::quiet(LATE)) {
        tracing::debug!(pool = imported.pool.name(), ?error, "nothing can be told of it yet");
    }
}

fn look_at(imported: &Arc<Imported>, query: PoolQuery, patience: Patience) -> Result<Pool, Error> {
    let asked = PoolQuery { props: true, ..query };
    let look = begin(imported, move |imported| {
        let spa = imported.pool.spa();
        let facts = imported.facts.read().clone();
        let mountpoints = match asked.errors {
            true => imported.mounts.list().iter().map(|live| live.describe()).collect(),
            false => Vec::new(),
        };
        let mountpoints = mountpoints.into_iter().map(|m| (m.dataset, m.mountpoint)).collect();
        spa.read(|| view::pool(spa, imported.pool.dsl(), &facts, &asked, &mountpoints))
    });
    let looked = look.and_then(|look| look.end(imported, patience));
    let mut pool = match looked {
        Some(Ok(pool)) => {
            // The list of damaged files may be long.
            let told = Pool { errors: Vec::new(), ..pool.clone() };
            *imported.known.told.lock() = Some(told);
            pool
        }
        Some(Err(error)) if !is_suspended(imported) => return Err(error),
        failed => {
            let Some(mut pool) = imported.known.told.lock().clone() else {
                return Err(failed.and_then(Result::err).unwrap_or_else(|| silent(imported)));
            };
            view::refresh(imported.pool.spa(), &mut pool);
            pool.stale = true;
            pool
        }
    };
    if !query.props {
        pool.props.clear();
    }
    Ok(pool)
}

/// Marks those of a pool's hot spares that other pools use (`spa_spare_exists`).
pub(crate) fn shared_spares(told: &mut Pool, others: &[Arc<Imported>]) {
    let own: Vec<u64> = guids(&told.root);
    for spare in told.spares.iter_mut().filter(|spare| !own.contains(&spare.guid)) {
        // The tree in memory, which also that pool's own status shows.
        let uses = |other: &&Arc<Imported>| {
            other.pool.spa().tree().config().find(ondisk::Guid(spare.guid)).is_some()
        };
        if let Some(other) = others.iter().find(uses) {
            spare.spared_by = Some(other.pool.name().to_owned());
            (spare.stat.state, spare.stat.aux) = (api::VdevState::CantOpen, api::VdevAux::Spared);
        }
    }
}

// The recursion is as deep as the tree, which is limited when it is built.
fn guids(vdev: &api::Vdev) -> Vec<u64> {
    vdev.children.iter().flat_map(guids).chain([vdev.guid]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::Pools;
    use crate::view::PoolFacts;

    /// Goal: a pool that does not answer is left after a moment, even if it is the only one. While
    /// its query runs, the next one does not wait at all.
    #[test]
    fn a_silent_pool_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("d0");
        std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let pool = poolhouse::Pool::create("silent", &[&[&image]]).unwrap();
        let pools = Arc::new(Pools::default());
        let guid = pool.spa().guid();
        pools.import("silent", guid, || Ok((pool, PoolFacts::default(), ()))).unwrap();
        let all = [pools.table().pool("silent").unwrap()];
        assert_eq!(each_soon(&all, false, |_| 1), [Some(1)]);
        let (release, held) = channel::<()>();
        let held = observe::lock::Mutex::new(held);
        assert_eq!(each_soon(&all, false, move |_| held.lock().recv().is_ok()), [None]);
        assert_eq!(each_soon(&all, false, |_| 2), [None]);
        release.send(()).unwrap();
        while all[0].known.late.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(each_soon(&all, false, |_| 3), [Some(3)]);
        drop(all);
        assert!(pools.close(LATE, |_, _| {}).is_empty());
    }
}
