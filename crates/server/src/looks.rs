//! Looks at pools that may not answer.
//!
//! # Theory
//! To look at a pool is to read what is cached, mostly; but it may be to read a device that hangs, or to wait for an operation that waits for one. Who asks about all
//! pools is not to wait for that: each look is done by a thread of its own, and waited for only so long. A look that comes too late is let be, and as long as there
//! is one, nobody begins another.
//!
//! Of a pool that can't be looked at, what was told last is told again, with what memory alone knows now: its devices' states, and whether it is suspended.
//!
//! # See
//! OpenZFS issues 5345 and 10223: `zpool list` that hangs for all pools because of one.

use crate::pools::Imported;
use crate::view;
use api::{Error, Pool, PoolQuery, Reason};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a pool may take of which something can be told all the same.
const SOON: Duration = Duration::from_secs(2);
/// How long one may take otherwise while no device does anything for it.
const LATE: Duration = Duration::from_secs(60);
/// How long one may take that is suspended: what it has not in memory it does not have.
const SUSPENDED: Duration = Duration::from_secs(2);
/// How often it is seen whether it has been suspended meanwhile.
const TURN: Duration = Duration::from_millis(500);

/// What is remembered of looks at a pool.
#[derive(Default)]
pub(crate) struct Looks {
    /// Looks that nobody waits for any more.
    late: Arc<AtomicUsize>,
    /// What was told last.
    told: Mutex<Option<Pool>>,
}

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const GIVEN_UP: u8 = 2;

fn is_suspended(imported: &Imported) -> bool {
    imported.pool.spa().writer().is_some_and(|live| live.suspended().is_some())
}

/// What a pool's devices have done: operations and bytes.
fn done(imported: &Imported) -> [u64; 4] {
    let stats = imported.pool.spa().tree().describe().stats;
    [stats.read_ops, stats.write_ops, stats.read_bytes, stats.write_bytes]
}

/// The error of a pool that does not answer.
pub(crate) fn silent(imported: &Imported) -> Error {
    let reason = if is_suspended(imported) { Reason::Suspended } else { Reason::Silent };
    Error::new(imported.pool.name(), reason)
}

/// A look under way.
struct Look<T> {
    answer: std::sync::mpsc::Receiver<T>,
    stage: Arc<AtomicU8>,
    begun: Instant,
}

/// Begins a look; `None` if one that was begun before has not ended, or nobody can do it.
fn begin<T: Send + 'static>(
    imported: &Arc<Imported>,
    look: impl FnOnce(&Arc<Imported>) -> T + Send + 'static,
) -> Option<Look<T>> {
    let late = Arc::clone(&imported.looks.late);
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
        // Nobody may wait any more.
        tell.send(told).unwrap_or_default();
    };
    let thread = std::thread::Builder::new().name(format!("look-{}", imported.pool.name()));
    thread.spawn(work).ok()?;
    Some(Look { answer, stage, begun: Instant::now() })
}

impl<T> Look<T> {
    /// What came of it; `None` if nothing does in time: `patience` after it began, or after its devices last did something where they are `waited` for.
    fn end(self, imported: &Imported, patience: Duration, waited: bool) -> Option<T> {
        let (mut before, mut since) = (done(imported), self.begun);
        loop {
            match self.answer.recv_timeout(TURN) {
                Ok(told) => return Some(told),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let patience = if is_suspended(imported) { patience.min(SUSPENDED) } else { patience };
            let now = done(imported);
            if waited && now != before {
                (before, since) = (now, Instant::now());
            }
            if since.elapsed() < patience {
                continue;
            }
            imported.looks.late.fetch_add(1, Ordering::Relaxed);
            if self.stage.compare_exchange(RUNNING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                // It came to its end just now.
                imported.looks.late.fetch_sub(1, Ordering::Relaxed);
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

/// Looks at all of these pools at once; `None` for each that does not answer.
pub(crate) fn each<T: Send + 'static>(
    pools: &[Arc<Imported>],
    look: impl Fn(&Arc<Imported>) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    // Where there is but one, nobody else waits for it.
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
    begun.into_iter().zip(pools).map(|(look, pool)| look?.end(pool, LATE, true)).collect()
}

/// What is known of a pool.
///
/// # Errors
/// As reading it fails; [`Reason::Silent`].
pub(crate) fn pool(imported: &Arc<Imported>, query: PoolQuery) -> Result<Pool, Error> {
    let known = imported.looks.told.lock().is_some();
    let patience = if known { SOON } else { LATE };
    look_at(imported, query, patience, !known)
}

/// Looks at a pool that has just been imported, so that there is something to tell of it whatever its devices do from now on.
pub(crate) fn first(imported: &Arc<Imported>) {
    if let Err(error) = look_at(imported, PoolQuery::default(), LATE, true) {
        tracing::debug!(pool = imported.pool.name(), ?error, "nothing can be told of it yet");
    }
}

fn look_at(
    imported: &Arc<Imported>,
    query: PoolQuery,
    patience: Duration,
    waited: bool,
) -> Result<Pool, Error> {
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
    let looked = look.and_then(|look| look.end(imported, patience, waited));
    let mut pool = match looked {
        Some(Ok(pool)) => {
            // What is damaged may be much.
            let told = Pool { errors: Vec::new(), ..pool.clone() };
            *imported.looks.told.lock() = Some(told);
            pool
        }
        Some(Err(error)) if !is_suspended(imported) => return Err(error),
        failed => {
            let Some(mut pool) = imported.looks.told.lock().clone() else {
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

/// Says of a pool's hot spares which of them other pools use (`spa_spare_exists`).
pub(crate) fn shared_spares(told: &mut Pool, others: &[Arc<Imported>]) {
    let own: Vec<u64> = guids(&told.root);
    for spare in told.spares.iter_mut().filter(|spare| !own.contains(&spare.guid)) {
        // As it is in memory, which is what that pool tells of it itself.
        let uses = |other: &&Arc<Imported>| {
            other.pool.spa().tree().config().find(ondisk::Guid(spare.guid)).is_some()
        };
        if let Some(other) = others.iter().find(uses) {
            spare.spared_by = Some(other.pool.name().to_owned());
            (spare.stat.state, spare.stat.aux) = (api::VdevState::CantOpen, api::VdevAux::Spared);
        }
    }
}

// As deep as the tree, which is bounded when it is built.
fn guids(vdev: &api::Vdev) -> Vec<u64> {
    vdev.children.iter().flat_map(guids).chain([vdev.guid]).collect()
}
