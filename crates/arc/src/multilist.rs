//! A list cut into sublists, one lock each (`multilist.c`).
//!
//! # Theory
//! One list in the order of use has one lock that every insertion takes. Here an item goes to the
//! sublist that its hash chooses. A search for old items starts at a random sublist. That is
//! precise enough, since all are filled evenly ([`Multilist::evenness`]).
//!
//! Nothing is taken out of the middle. An item that has left the list is *stale*. Its owner knows
//! that, and the list learns only the number. A stale reference is dropped when it is reached.
//! Where nothing takes old items, stale ones could pile up. So once they are half of a list, each
//! report of stale items sweeps a chunk of it now and then. That is a bounded step, and keeps the
//! list below about twice its live items.
//!
//! # Locks
//! A sublist's lock is the innermost. While it is held, the only call is to check whether an item
//! is stale.

use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::collections::VecDeque;

/// Items that are swept at a time.
const CHUNK: usize = 64;
/// Stale items for each chunk that is swept. Fewer than a chunk, so that sweeping is faster.
const PACE: usize = 16;
/// Most sublists of a list, however many are used.
pub(crate) const SUBLISTS_MAX: usize = 64;

struct Sublist<T> {
    /// The oldest are first. No chunk is empty.
    chunks: VecDeque<VecDeque<T>>,
    /// Number of items, with stale ones.
    len: usize,
    stale: usize,
    /// The chunk that is swept next.
    swept: usize,
}

/// A list of several sublists; see the module.
pub(crate) struct Multilist<T> {
    sublists: Box<[Mutex<Sublist<T>>]>,
    used: AtomicUsize,
    /// Sublists that were ever used; others are empty.
    touched: AtomicUsize,
}

/// How evenly the sublists of a list are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SublistSpread {
    /// Sublists that are filled.
    pub sublists: u64,
    /// References in the fullest.
    pub most: u64,
    /// References in the emptiest.
    pub least: u64,
    /// References in all.
    pub all: u64,
}

impl SublistSpread {
    /// The mean of the sublists as a percentage of the fullest: 100 if all hold the same number.
    pub fn percent(&self) -> u64 {
        if self.most == 0 { 100 } else { self.all * 100 / (self.most * self.sublists.max(1)) }
    }
}

impl<T> Multilist<T> {
    /// A list of so many sublists.
    pub(crate) fn new(sublists: usize) -> Self {
        let empty = || Sublist { chunks: VecDeque::new(), len: 0, stale: 0, swept: 0 };
        let used = sublists.clamp(1, SUBLISTS_MAX);
        Self {
            sublists: (0..SUBLISTS_MAX).map(|_| Mutex::new(empty())).collect(),
            used: AtomicUsize::new(used),
            touched: AtomicUsize::new(used),
        }
    }

    /// Sets how many sublists new items go to. Items in others stay until they are taken.
    pub(crate) fn set_sublists(&self, sublists: usize) {
        let sublists = sublists.clamp(1, SUBLISTS_MAX);
        self.touched.fetch_max(sublists, Ordering::Relaxed);
        self.used.store(sublists, Ordering::Relaxed);
    }

    /// Number of sublists to search.
    pub(crate) fn sublists(&self) -> usize {
        self.touched.load(Ordering::Relaxed)
    }

    /// The sublist for an item with this hash.
    pub(crate) fn index(&self, hash: u64) -> usize {
        // Other bits than those that choose a bucket. Otherwise a bucket's blocks would be in one
        // sublist.
        (hash >> 24) as u16 as usize % self.used.load(Ordering::Relaxed)
    }

    /// Adds the newest item of a sublist.
    pub(crate) fn push(&self, index: usize, item: T) {
        let mut s = self.sublists[index].lock();
        match s.chunks.back_mut().filter(|chunk| chunk.len() < CHUNK) {
            Some(chunk) => chunk.push_back(item),
            None => s.chunks.push_back(VecDeque::from([item])),
        }
        s.len += 1;
    }

    /// Takes up to `most` of the oldest items of a sublist, also stale ones. The caller reports
    /// these with [`Multilist::met_stale`].
    pub(crate) fn take(&self, index: usize, most: usize, out: &mut Vec<T>) {
        let mut s = self.sublists[index].lock();
        for _ in 0..most {
            let Some(item) = s.chunks.front_mut().and_then(VecDeque::pop_front) else { return };
            out.push(item);
            s.len -= 1;
            if s.chunks.front().is_some_and(VecDeque::is_empty) {
                s.chunks.pop_front();
                s.swept = s.swept.saturating_sub(1);
            }
        }
    }

    /// Calls `each` for the items of some chunks of a sublist under its lock, also for stale ones,
    /// and takes none.
    ///
    /// Skips `skip` chunks from the old end, or with `young` from the young end. Returns whether
    /// there may be more chunks behind them.
    pub(crate) fn look(
        &self,
        index: usize,
        skip: usize,
        chunks: usize,
        young: bool,
        mut each: impl FnMut(&T),
    ) -> bool {
        let s = self.sublists[index].lock();
        if young {
            let chosen = s.chunks.iter().rev().skip(skip).take(chunks);
            chosen.for_each(|chunk| chunk.iter().rev().for_each(&mut each));
        } else {
            s.chunks.iter().skip(skip).take(chunks).for_each(|chunk| chunk.iter().for_each(&mut each));
        }
        skip + chunks < s.chunks.len()
    }

    /// Reports how many of the taken items were stale.
    pub(crate) fn met_stale(&self, index: usize, count: usize) {
        let mut s = self.sublists[index].lock();
        s.stale = s.stale.saturating_sub(count);
    }

    /// Reports that an item of a sublist has become stale.
    pub(crate) fn note_stale(&self, index: usize, is_stale: impl Fn(&T) -> bool) {
        let mut dropped = VecDeque::new();
        let mut s = self.sublists[index].lock();
        s.stale += 1;
        if s.stale * 2 >= s.len && s.stale.is_multiple_of(PACE) {
            s.sweep(is_stale, &mut dropped);
        }
        // Dropped items are released without the lock.
        drop(s);
    }

    /// How evenly the sublists are filled.
    pub(crate) fn evenness(&self) -> SublistSpread {
        let lens = self.sublists[..self.sublists()].iter().map(|s| s.lock().len as u64);
        let none = SublistSpread { sublists: 0, most: 0, least: u64::MAX, all: 0 };
        let all = lens.fold(none, |e, len| SublistSpread {
            sublists: e.sublists + 1,
            most: e.most.max(len),
            least: e.least.min(len),
            all: e.all + len,
        });
        SublistSpread { least: all.least.min(all.most), ..all }
    }
}

impl<T> Sublist<T> {
    /// Drops the stale items of the next chunk.
    fn sweep(&mut self, is_stale: impl Fn(&T) -> bool, dropped: &mut VecDeque<T>) {
        if self.swept >= self.chunks.len() {
            self.swept = 0;
        }
        let at = self.swept;
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let before = chunk.len();
        for _ in 0..before {
            let Some(item) = chunk.pop_front() else { break };
            let to = if is_stale(&item) { &mut *dropped } else { &mut *chunk };
            to.push_back(item);
        }
        let (left, gone) = (chunk.len(), before - chunk.len());
        chunk.shrink_to(left.max(4));
        if left == 0 {
            self.chunks.remove(at);
        } else {
            self.swept += 1;
        }
        self.len -= gone;
        self.stale = self.stale.saturating_sub(gone);
    }
}
