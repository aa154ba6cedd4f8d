//! How much each caller may ask of the daemon at once.
//!
//! # Theory
//! A request about a pool whose devices don't answer may never end, and each has a thread. So that they don't use up all threads, users that don't own the
//! daemon have few turns each and not many together, and those that do have more; a request that gets no turn for a while is refused. Nor may one user
//! hold all connections, nor more memory than its share (`budget`). What makes a pool go on, and
//! what ends the daemon, needs no turn (`http`).

use api::{Budget, Share, TIME_OF_OTHERS};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of one user that does not own the daemon.
const CONNECTIONS: usize = 64;
/// Connections of all such users.
const CONNECTIONS_OF_OTHERS: usize = 512;
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
    memory: Arc<Share>,
    each: Mutex<BTreeMap<u32, User>>,
}

/// What one user that does not own the daemon has taken.
struct User {
    connections: usize,
    turns: Arc<Semaphore>,
    memory: Arc<Share>,
}

/// A connection's place among those of its user.
pub(crate) struct Seat {
    callers: Arc<Callers>,
    /// Who it is, its turns, and its memory; `None` for owners.
    other: Option<(u32, Arc<Semaphore>, Arc<Share>)>,
}

/// Who has so many connections that one more is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// The user who asks for one more.
    User,
    /// All users together that do not own the daemon.
    AllUsers,
}

impl std::fmt::Display for Crowd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "this user has too many connections to the daemon",
            Self::AllUsers => "all users together have too many connections to the daemon",
        })
    }
}

/// The right to be answered, for as long as it lives.
pub(crate) struct Turn(#[allow(dead_code, reason = "counts by living")] [Option<OwnedSemaphorePermit>; 2]);

impl Default for Callers {
    fn default() -> Self {
        Self {
            owners: Arc::new(Semaphore::new(TURNS_OF_OWNERS)),
            others: Arc::new(Semaphore::new(TURNS_OF_OTHERS)),
            memory: Share::of_users(spa::discovery::host::memory()),
            each: Mutex::default(),
        }
    }
}

impl Callers {
    /// A place for a connection of this user, who owns the daemon or does not.
    ///
    /// # Errors
    /// Who has too many connections.
    pub(crate) fn seat(self: &Arc<Self>, uid: u32, owns: bool) -> Result<Seat, Crowd> {
        if owns {
            return Ok(Seat { callers: Arc::clone(self), other: None });
        }
        let mut each = self.each.lock();
        // Requests outlive their connections, and still count.
        each.retain(|_, user| {
            user.connections > 0 || Arc::strong_count(&user.turns) + Arc::strong_count(&user.memory) > 2
        });
        if each.values().map(|user| user.connections).sum::<usize>() >= CONNECTIONS_OF_OTHERS {
            return Err(Crowd::AllUsers);
        }
        let new = || User {
            connections: 0,
            turns: Arc::new(Semaphore::new(TURNS)),
            memory: Share::of_user(spa::discovery::host::memory()),
        };
        let user = each.entry(uid).or_insert_with(new);
        if user.connections == CONNECTIONS {
            return Err(Crowd::User);
        }
        user.connections += 1;
        let own = (uid, Arc::clone(&user.turns), Arc::clone(&user.memory));
        Ok(Seat { callers: Arc::clone(self), other: Some(own) })
    }
}

impl Seat {
    /// A turn, as soon as there is one; `None` if there is none for that long.
    pub(crate) async fn turn(&self, patience: Duration) -> Option<Turn> {
        let turns = async {
            match &self.other {
                None => Some([take(&self.callers.owners).await, None]),
                Some((_, own, _)) => Some([take(own).await, take(&self.callers.others).await]),
            }
        };
        tokio::time::timeout(patience, turns).await.ok().flatten().map(Turn)
    }

    /// What the answer to one request may take.
    pub(crate) fn budget(&self) -> Arc<Budget> {
        match &self.other {
            None => Budget::of_owner(),
            Some((_, _, own)) => {
                let shares = vec![Arc::clone(own), Arc::clone(&self.callers.memory)];
                Budget::new(shares, Instant::now().checked_add(TIME_OF_OTHERS))
            }
        }
    }
}

async fn take(turns: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Some(Arc::clone(turns).acquire_owned().await.expect("it is never closed"))
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some((uid, ..)) = &self.other
            && let Some(user) = self.callers.each.lock().get_mut(uid)
        {
            user.connections -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
