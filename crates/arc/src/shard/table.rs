//! A table of blocks by their keys, with lists through its entries.
//!
//! # Theory
//! Thousands of idle file systems have a dozen small blocks each in the cache, so what an entry takes matters as much as what is in it. Entries lie one
//! behind the other in one vector, each with its key once; what finds them is a table of numbers, and the lists that say which was used last are
//! numbers in the entries. A hit moves an entry from one list to the end of another without taking memory.

use super::Key;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::num::NonZeroU32;

/// Where an entry is, counted from one, so that none takes no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At(NonZeroU32);

impl At {
    /// The place behind so many.
    fn behind(count: usize) -> At {
        let number = u32::try_from(count + 1).ok().and_then(NonZeroU32::new);
        At(number.expect("four thousand million blocks are no cache"))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

struct Entry<T> {
    key: Key,
    /// None of one that is free.
    value: Option<T>,
    /// The next entry whose key has the same hash; of a free entry, the next free one.
    same: Option<At>,
    /// Neighbours in a list.
    before: Option<At>,
    after: Option<At>,
}

/// The hash of a hash is itself.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// See the module.
pub(super) struct Table<T> {
    seed: RandomState,
    /// The first entry of each hash.
    by_hash: HashMap<u64, At, BuildHasherDefault<Same>>,
    entries: Vec<Entry<T>>,
    free: Option<At>,
    /// The hash of all keys.
    #[cfg(test)]
    one_hash: Option<u64>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            seed: RandomState::new(),
            by_hash: HashMap::default(),
            entries: Vec::new(),
            free: None,
            #[cfg(test)]
            one_hash: None,
        }
    }
}

impl<T> Table<T> {
    fn hash(&self, key: &Key) -> u64 {
        #[cfg(test)]
        if let Some(hash) = self.one_hash {
            return hash;
        }
        self.seed.hash_one(key)
    }

    fn entry(&mut self, at: At) -> &mut Entry<T> {
        &mut self.entries[at.index()]
    }

    /// The entry of a key.
    pub(super) fn find(&self, key: &Key) -> Option<At> {
        let mut at = self.by_hash.get(&self.hash(key)).copied();
        while let Some(here) = at {
            let entry = &self.entries[here.index()];
            if entry.key == *key {
                break;
            }
            at = entry.same;
        }
        at
    }

    /// What an entry holds.
    pub(super) fn get_mut(&mut self, at: At) -> &mut T {
        self.entry(at).value.as_mut().expect("who knows an entry has not removed it")
    }

    /// Adds an entry, which is in no list. There must be none of this key.
    pub(super) fn add(&mut self, key: Key, value: T) -> At {
        let hash = self.hash(&key);
        let entry = Entry { key, value: Some(value), same: None, before: None, after: None };
        let at = match self.free {
            Some(at) => {
                let free = std::mem::replace(self.entry(at), entry);
                self.free = free.same;
                at
            }
            None => {
                let at = At::behind(self.entries.len());
                self.entries.push(entry);
                at
            }
        };
        let same = self.by_hash.insert(hash, at);
        self.entry(at).same = same;
        at
    }

    /// Removes an entry, which is in no list.
    pub(super) fn remove(&mut self, at: At) {
        let free = self.free;
        let gone = self.entry(at);
        gone.value = None;
        let same = std::mem::replace(&mut gone.same, free);
        let hash = self.hash(&self.entries[at.index()].key);
        self.free = Some(at);
        let first = self.by_hash.get(&hash).copied().expect("its hash leads to it");
        match (first == at, same) {
            (true, None) => {
                self.by_hash.remove(&hash);
            }
            (true, Some(same)) => {
                self.by_hash.insert(hash, same);
            }
            (false, _) => {
                let mut before = first;
                while self.entry(before).same != Some(at) {
                    before = self.entry(before).same.expect("its hash leads to it");
                }
                self.entry(before).same = same;
            }
        }
    }

    /// All entries.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (Key, T)> {
        self.entries.into_iter().filter_map(|entry| Some((entry.key, entry.value?)))
    }
}

/// A list through entries of a table.
#[derive(Debug, Default)]
pub(super) struct List {
    first: Option<At>,
    last: Option<At>,
}

impl List {
    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// What has been in it longest.
    pub(super) fn first(&self) -> Option<At> {
        self.first
    }

    /// Puts an entry, which is in no list, at the end.
    pub(super) fn push<T>(&mut self, table: &mut Table<T>, at: At) {
        let last = self.last.replace(at);
        table.entry(at).before = last;
        match last {
            Some(last) => table.entry(last).after = Some(at),
            None => self.first = Some(at),
        }
    }

    /// Takes an entry of this list out.
    pub(super) fn take_out<T>(&mut self, table: &mut Table<T>, at: At) {
        let entry = table.entry(at);
        let (before, after) = (entry.before.take(), entry.after.take());
        match before {
            Some(before) => table.entry(before).after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => table.entry(after).before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests;
