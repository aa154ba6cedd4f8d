//! The limits of each caller's concurrent requests.
//!
//! # Theory
//! Each request has a thread, and a request about a pool whose devices don't answer may never end.
//! Turns keep such requests from using up all threads:
//!
//! * A user that does not own the daemon has few turns, and all such users together have not many.
//! * The owners have more.
//! * A request that gets no turn for a while is refused.
//!
//! One user can't hold all connections either, nor more memory than its share (`budget`). Requests
//! that make a pool continue, or end the daemon, need no turn (`http`).

use api::{Budget, Share, TIME_OF_OTHERS};
use observe::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most connections of one user that does not own the daemon.
const CONNECTIONS: usize = 64;
/// Most connections of all such users.
const CONNECTIONS_OF_OTHERS: usize = 512;
/// Most concurrent requests of one such user.
const TURNS: usize = 32;
/// Most concurrent requests of all such users.
const TURNS_OF_OTHERS: usize = 128;
/// Most concurrent requests of the daemon's owners.
const TURNS_OF_OWNERS: usize = 256;
/// The number of threads that answer requests. It is never less than the number of turns.
pub(crate) const THREADS: usize = TURNS_OF_OTHERS + TURNS_OF_OWNERS;

/// The turns, connections and memory of all callers.
pub(crate) struct Callers {
    owners: Arc<Semaphore>,
    others: Arc<Semaphore>,
    memory: Arc<Share>,
    each: Mutex<BTreeMap<u32, User>>,
}

/// What one user holds that does not own the daemon.
struct User {
    connections: usize,
    turns: Arc<Semaphore>,
    memory: Arc<Share>,
}

/// One connection in the count of its user.
pub(crate) struct Seat {
    callers: Arc<Callers>,
    /// The uid, the turns and the memory of its user; `None` for owners.
    other: Option<(u32, Arc<Semaphore>, Arc<Share>)>,
}

/// The limit of connections that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// The limit of the user that connects.
    User,
    /// The limit of all users that do not own the daemon.
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

/// The right to run a request. Dropping it ends that.
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
    /// Counts a connection of a user. `owns` says whether the user owns the daemon.
    ///
    /// # Errors
    /// * [`Crowd::User`]: the user has 64 connections.
    /// * [`Crowd::AllUsers`]: all users that do not own the daemon have 512 connections together.
    pub(crate) fn seat(self: &Arc<Self>, uid: u32, owns: bool) -> Result<Seat, Crowd> {
        if owns {
            return Ok(Seat { callers: Arc::clone(self), other: None });
        }
        let mut each = self.each.lock();
        // Requests outlive their connections, and count as long as they run.
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
    /// Waits for a turn. `None` if there is none within `patience`.
    pub(crate) async fn turn(&self, patience: Duration) -> Option<Turn> {
        let turns = async {
            match &self.other {
                None => Some([take(&self.callers.owners).await, None]),
                Some((_, own, _)) => Some([take(own).await, take(&self.callers.others).await]),
            }
        };
        tokio::time::timeout(patience, turns).await.ok().flatten().map(Turn)
    }

    /// The budget of a send or receive. It may take any time.
    pub(crate) fn budget_of_stream(&self) -> Arc<Budget> {
        match &self.other {
            None => Budget::of_owner(),
            Some((_, _, own)) => Budget::new(vec![Arc::clone(own), Arc::clone(&self.callers.memory)], None),
        }
    }

    /// The budget of the answer to one request.
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
