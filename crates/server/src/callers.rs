//! How much each caller may ask of the daemon at once.
//!
//! # Theory
//! A request about a pool whose devices don't answer may never end, and each has a thread. So that they don't use up all threads, users that don't own the
//! daemon have few turns each and not many together, and those that do have more; a request that gets no turn for a while is refused. Nor may one user
//! hold all connections. What makes a pool go on, and what ends the daemon, needs no turn (`http`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of one user that does not own the daemon.
const CONNECTIONS: usize = 64;
/// Requests of one such user that are answered at once.
const TURNS: usize = 32;
/// Those of all such users.
const TURNS_OF_OTHERS: usize = 128;
/// Those of who owns the daemon.
const TURNS_OF_OWNERS: usize = 256;
/// Threads that answer requests; never fewer than there are turns.
pub(crate) const THREADS: usize = TURNS_OF_OTHERS + TURNS_OF_OWNERS;

/// Who calls.
pub(crate) struct Callers {
    owners: Arc<Semaphore>,
    others: Arc<Semaphore>,
    each: Mutex<BTreeMap<u32, Caller>>,
}

struct Caller {
    connections: usize,
    turns: Arc<Semaphore>,
}

/// A connection's place among those of its user.
pub(crate) struct Seat {
    callers: Arc<Callers>,
    /// Who it is, and its turns; `None` for owners.
    other: Option<(u32, Arc<Semaphore>)>,
}

/// The right to be answered, for as long as it lives.
pub(crate) struct Turn(#[allow(dead_code, reason = "counts by living")] [Option<OwnedSemaphorePermit>; 2]);

impl Default for Callers {
    fn default() -> Self {
        Self {
            owners: Arc::new(Semaphore::new(TURNS_OF_OWNERS)),
            others: Arc::new(Semaphore::new(TURNS_OF_OTHERS)),
            each: Mutex::default(),
        }
    }
}

impl Callers {
    /// A place for a connection of this user, who owns the daemon or does not; `None` if he has too many.
    pub(crate) fn seat(self: &Arc<Self>, uid: u32, owns: bool) -> Option<Seat> {
        if owns {
            return Some(Seat { callers: Arc::clone(self), other: None });
        }
        let mut each = self.each.lock();
        // Requests outlive their connections, and still count.
        each.retain(|_, caller| caller.connections > 0 || Arc::strong_count(&caller.turns) > 1);
        let new = || Caller { connections: 0, turns: Arc::new(Semaphore::new(TURNS)) };
        let caller = each.entry(uid).or_insert_with(new);
        if caller.connections == CONNECTIONS {
            return None;
        }
        caller.connections += 1;
        Some(Seat { callers: Arc::clone(self), other: Some((uid, Arc::clone(&caller.turns))) })
    }
}

impl Seat {
    /// A turn, as soon as there is one; `None` if there is none for that long.
    pub(crate) async fn turn(&self, patience: Duration) -> Option<Turn> {
        let turns = async {
            match &self.other {
                None => Some([take(&self.callers.owners).await, None]),
                Some((_, own)) => Some([take(own).await, take(&self.callers.others).await]),
            }
        };
        tokio::time::timeout(patience, turns).await.ok().flatten().map(Turn)
    }
}

async fn take(turns: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Some(Arc::clone(turns).acquire_owned().await.expect("it is never closed"))
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some((uid, _)) = &self.other
            && let Some(caller) = self.callers.each.lock().get_mut(uid)
        {
            caller.connections -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
