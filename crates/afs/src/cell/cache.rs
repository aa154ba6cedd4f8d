//! Answers of a database that are kept for a while.
//!
//! # Theory
//! An answer is fresh for some time. After that, one thread asks again, and other threads use the
//! old answer meanwhile. If no database server answers, the old answer stays in use. If there is no
//! old answer, the other threads wait for the thread that asks.
//!
//! A cache has a bounded number of entries. A hand goes round and drops the first entry that was
//! not used since its last turn.
//!
//! # See
//! The clock algorithm.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex};

/// How an attempt to get an answer ended.
pub(super) enum Answer<V> {
    /// An answer that is fresh for this time.
    Known(V, Duration),
    /// The server refuses, by this code. That is an answer, too, and fresh for this time.
    Refused(i32, Duration),
    /// No server answers.
    Away(i32),
}

#[derive(Clone)]
struct Entry<V> {
    result: Result<V, i32>,
    fresh_until: Instant,
    used: bool,
}

/// A thread that asks, and the threads that wait for it.
struct Flight<V> {
    done: Mutex<Option<Result<V, i32>>>,
    changed: Condvar,
}

struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    flights: HashMap<K, Arc<Flight<V>>>,
    /// All keys of entries, in the order of the hand. Some may be gone.
    ring: Vec<K>,
    hand: usize,
    /// Counts the removals, so that answers from before are not kept.
    removals: u64,
}

/// A cache of answers.
pub(super) struct Cache<K, V> {
    state: Mutex<State<K, V>>,
    most: usize,
    /// The pause after a server was away, for an entry that is not fresh.
    retry: Duration,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// A cache with so many entries at most.
    pub(super) fn new(most: usize, retry: Duration) -> Self {
        let state = State {
            entries: HashMap::new(),
            flights: HashMap::new(),
            ring: Vec::new(),
            hand: 0,
            removals: 0,
        };
        Self { state: Mutex::new(state), most: most.max(1), retry }
    }

    /// The answer for a key. `ask` gets it from a server, if it is not here or not fresh.
    pub(super) fn get(&self, key: &K, now: Instant, ask: impl FnOnce() -> Answer<V>) -> Result<V, i32> {
        let mut state = self.state.lock();
        let mut old = None;
        if let Some(entry) = state.entries.get_mut(key) {
            entry.used = true;
            if now < entry.fresh_until {
                return entry.result.clone();
            }
            old = entry.result.clone().ok();
        }
        if let Some(flight) = state.flights.get(key).cloned() {
            drop(state);
            return old.map_or_else(|| flight.wait(), Ok);
        }
        let flight = Arc::new(Flight { done: Mutex::new(None), changed: Condvar::new() });
        state.flights.insert(key.clone(), Arc::clone(&flight));
        let removals = state.removals;
        drop(state);
        let landing = Landing { cache: self, key, flight: &flight };
        let answer = ask();
        let (result, fresh) = match (answer, old) {
            (Answer::Known(value, time), _) => (Ok(value), Some(time)),
            (Answer::Refused(code, time), _) => (Err(code), Some(time)),
            (Answer::Away(_), Some(old)) => (Ok(old), Some(self.retry)),
            (Answer::Away(code), None) => (Err(code), None),
        };
        if let Some(fresh) = fresh {
            let mut state = self.state.lock();
            if state.removals == removals {
                let entry = Entry { result: result.clone(), fresh_until: now + fresh, used: false };
                state.insert(key, entry, self.most);
            }
        }
        *flight.done.lock() = Some(result.clone());
        drop(landing);
        result
    }

    /// Removes the entries that are chosen. Answers that are under way are not kept, and
    /// the next thread asks anew.
    pub(super) fn remove(&self, is_chosen: impl Fn(&K, Option<&V>) -> bool) {
        let mut state = self.state.lock();
        state.removals += 1;
        state.flights.clear();
        state.entries.retain(|key, entry| !is_chosen(key, entry.result.as_ref().ok()));
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state.lock().entries.len()
    }
}

impl<K: Hash + Eq + Clone, V> State<K, V> {
    fn insert(&mut self, key: &K, entry: Entry<V>, most: usize) {
        if self.entries.insert(key.clone(), entry).is_some() {
            return;
        }
        while self.entries.len() > most {
            self.hand %= self.ring.len();
            match self.entries.get_mut(&self.ring[self.hand]) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.hand += 1;
                }
                _ => {
                    let gone = self.ring.swap_remove(self.hand);
                    self.entries.remove(&gone);
                }
            }
        }
        if self.ring.len() > 2 * most {
            // Removed entries leave their keys behind.
            self.ring = self.entries.keys().filter(|known| *known != key).cloned().collect();
        }
        self.ring.push(key.clone());
    }
}

impl<V: Clone> Flight<V> {
    fn wait(&self) -> Result<V, i32> {
        let mut done = self.done.lock();
        loop {
            if let Some(result) = &*done {
                return result.clone();
            }
            self.changed.wait(&mut done);
        }
    }
}

/// Ends a flight, even if the thread that asks panics.
struct Landing<'a, K: Hash + Eq, V> {
    cache: &'a Cache<K, V>,
    key: &'a K,
    flight: &'a Arc<Flight<V>>,
}

impl<K: Hash + Eq, V> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        // After a removal, another thread may ask for the key.
        if state.flights.get(self.key).is_some_and(|known| Arc::ptr_eq(known, self.flight)) {
            state.flights.remove(self.key);
        }
        drop(state);
        self.flight.done.lock().get_or_insert(Err(super::protection::AWAY));
        self.flight.changed.notify_all();
    }
}
