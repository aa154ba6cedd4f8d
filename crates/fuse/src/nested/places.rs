//! A table of numbered places that readers use without a common lock.
//!
//! # Theory
//! The table is a row of chunks, each twice as large as the one before. A chunk is allocated when
//! its first place is taken, and never moves. So a reader finds a place by arithmetic, and takes
//! only the lock of that place.
//!
//! A released place is reused as late as possible. So an old number, such as one in an NFS file
//! handle, rarely means something else.

use observe::lock::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::OnceLock;

/// Bits of a number.
pub(super) const BITS: u32 = 23;
/// Number of places in the first chunk, as a power of two.
const FIRST_BITS: u32 = 6;
const CHUNKS: usize = (BITS - FIRST_BITS) as usize;
/// Number of places in the table.
const MOST: u32 = (1 << BITS) - (1 << FIRST_BITS);
/// Number of released places before one of them is reused.
const REST: usize = 4096;

type Chunk<T> = Box<[RwLock<Option<T>>]>;

/// The table.
pub(super) struct Places<T> {
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// The lowest number that was never taken.
    next: u32,
    back: VecDeque<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::default() }
    }
}

/// The chunk of a number, and the index in it.
fn chunk_of(number: u32) -> (usize, usize) {
    let shifted = number + (1 << FIRST_BITS);
    let chunk = shifted.ilog2() - FIRST_BITS;
    (chunk as usize, (shifted - (1 << FIRST_BITS << chunk)) as usize)
}

impl<T: Clone> Places<T> {
    fn at(&self, number: u32) -> Option<&RwLock<Option<T>>> {
        if number >= MOST {
            return None;
        }
        let (chunk, at) = chunk_of(number);
        self.chunks[chunk].get()?.get(at)
    }

    /// The value at a place.
    pub(super) fn get(&self, number: u32) -> Option<T> {
        self.at(number)?.read().clone()
    }

    /// Takes a place for `value`. `None` if all are taken.
    pub(super) fn take(&self, value: T) -> Option<u32> {
        let number = {
            let mut free = self.free.lock();
            if free.next < MOST && free.back.len() < REST {
                free.next += 1;
                free.next - 1
            } else {
                free.back.pop_front()?
            }
        };
        let (chunk, at) = chunk_of(number);
        let len = 1_usize << FIRST_BITS << chunk;
        let places = self.chunks[chunk].get_or_init(|| (0..len).map(|_| RwLock::new(None)).collect());
        *places[at].write() = Some(value);
        Some(number)
    }

    /// Releases a place.
    pub(super) fn give_back(&self, number: u32) {
        let Some(place) = self.at(number) else { return };
        if place.write().take().is_some() {
            self.free.lock().back.push_back(number);
        }
    }

    /// Number of places taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        let free = self.free.lock();
        free.next as usize - free.back.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each number has a place of its own, also at the ends of chunks and of the table.
    #[test]
    fn numbers_have_places() {
        let mut before = None;
        for number in (0..5000).chain(MOST - 5000..MOST) {
            let at = chunk_of(number);
            assert!(at.0 < CHUNKS && at.1 < 1 << FIRST_BITS << at.0, "{number}: {at:?}");
            assert_ne!(before.replace(at), Some(at));
        }
        assert_eq!(chunk_of(MOST - 1), (CHUNKS - 1, (1 << (BITS - 1)) - 1));
        let places = Places::<u32>::default();
        let taken: Vec<u32> = (0..1000).map(|value| places.take(value).expect("there is room")).collect();
        assert!(taken.iter().enumerate().all(|(value, number)| places.get(*number) == Some(value as u32)));
        assert!(places.get(1000).is_none() && places.get(MOST).is_none() && places.get(u32::MAX).is_none());
    }

    /// Goal: a released place is empty, and is reused only after many others.
    #[test]
    fn places_rest() {
        let places = Places::<u8>::default();
        let first = places.take(1).expect("there is room");
        places.give_back(first);
        places.give_back(first);
        assert!(places.get(first).is_none());
        for _ in 1..REST {
            let number = places.take(2).expect("there is room");
            assert_ne!(number, first);
            places.give_back(number);
        }
        assert_eq!(places.taken(), 0);
        assert_eq!(places.take(3), Some(first));
    }
}
