//! Statuses of files that were used lately, and access lists of their directories.
//!
//! # Theory
//! Most calls ask for statuses that did not change. With what is known here, such a call needs no
//! object of the file system and no other thread. All volumes share one limit.
//!
//! What is known is right as long as it is here: a change of a file, under the exclusive lock of
//! its vnode, replaces or forgets it, and only a thread with that lock, or a shared one, adds it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use observe::lock::Mutex;

use super::access::About;
use super::instance::Instance;
use crate::acl::Acl;
use crate::types::{FetchStatus, Unique, Vnode, VnodeType};

/// Parts of the table, each with a lock.
const SHARDS: usize = 16;
/// The default limit of files. Each takes about 300 bytes.
const LIMIT: usize = 200_000;

type Key = (Instance, Vnode);

/// What is known of a file.
#[derive(Debug)]
pub struct Known {
    /// The use of its number.
    pub unique: Unique,
    /// The directory whose access list governs it.
    pub governor: Vnode,
    /// Its status, without rights and locks.
    pub status: FetchStatus,
    /// The access list of a directory.
    pub acl: Option<Acl>,
}

impl Known {
    /// What decides about rights.
    pub fn about(&self) -> About {
        About {
            kind: self.status.kind.unwrap_or(VnodeType::File),
            owner: self.status.owner,
            group: self.status.group,
            mode: self.status.mode,
        }
    }
}

/// All that is known.
#[derive(Debug)]
pub struct Knowledge {
    shards: [Mutex<Shard>; SHARDS],
    /// Most files of a shard.
    limit: usize,
}

#[derive(Debug, Default)]
struct Shard {
    files: HashMap<Key, Arc<Known>>,
    /// The keys in the order in which they came. Those of forgotten files are here too.
    order: VecDeque<Key>,
}

impl Default for Knowledge {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Knowledge {
    /// A table of so many files.
    pub fn new(limit: usize) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), limit: (limit / SHARDS).max(1) }
    }

    fn shard(&self, (volume, vnode): Key) -> &Mutex<Shard> {
        &self.shards[volume.mix(vnode) % SHARDS]
    }

    /// What is known of a file.
    pub fn get(&self, key: Key) -> Option<Arc<Known>> {
        self.shard(key).lock().files.get(&key).cloned()
    }

    /// Replaces what is known of a file.
    pub fn put(&self, key: Key, known: Arc<Known>) {
        let shard = &mut *self.shard(key).lock();
        if shard.files.insert(key, known).is_none() {
            shard.order.push_back(key);
        }
        while (shard.files.len() > self.limit || shard.order.len() > 2 * self.limit)
            && let Some(oldest) = shard.order.pop_front()
        {
            shard.files.remove(&oldest);
        }
    }

    /// Forgets a file.
    pub fn forget(&self, key: Key) {
        self.shard(key).lock().files.remove(&key);
    }

    /// Forgets the files of a volume.
    pub fn forget_volume(&self, volume: Instance) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            shard.files.retain(|(of, _), _| *of != volume);
            shard.order.retain(|(of, _)| *of != volume);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(unique: u32) -> Arc<Known> {
        let status = FetchStatus::default();
        Arc::new(Known { unique: Unique(unique), governor: Vnode(1), status, acl: None })
    }

    /// Goal: the newest files stay, whatever is forgotten, and the table keeps its limit.
    #[test]
    fn limits() {
        let table = Knowledge::new(SHARDS * 4);
        let key = |number| (Instance(5), Vnode(number));
        for number in 0..1000 {
            table.put(key(number), known(number));
            if number % 3 == 0 {
                table.forget(key(number));
            }
        }
        let left = (0..1000).filter(|number| table.get(key(*number)).is_some()).count();
        assert!((1..=SHARDS * 4).contains(&left), "{left}");
        assert_eq!(table.get(key(998)).map(|known| known.unique), Some(Unique(998)));
        assert!(table.shards.iter().all(|shard| shard.lock().order.len() <= 8));
        table.forget_volume(Instance(5));
        assert!((0..1000).all(|number| table.get(key(number)).is_none()));
    }
}
