//! Names by object: the maps of children and snapshots, turned round.
//!
//! # Theory
//! A directory or snapshot that is known by its object has its name in its parent's map only, which is searched by name. To
//! look through the map for each of ten thousand clones or snapshots takes ten thousand times ten thousand steps. So a map
//! that was looked through is kept turned round, as long as its dnode is what it was: a map that changes is written to
//! another place, and its dnode says so. In a pool that is open for writing, where a change shows there only when it is
//! synced, nothing is kept.
//!
//! # Locks
//! One lock around the kept maps, never held while a block is read.

use crate::Result;
use ondisk::ObjNum;
use ondisk::dnode::DnodePhys;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How many maps are kept.
const MAPS: usize = 8;
/// Most names that are kept of all maps together; larger maps are not kept.
const NAMES: usize = 1 << 20;

type Names = Arc<HashMap<u64, String>>;

/// The maps that were looked through last, the last one at the end.
#[derive(Debug, Default)]
pub(crate) struct Reversed(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    map: ObjNum,
    dnode: DnodePhys,
    names: Names,
}

impl Reversed {
    /// The name of `object` in the map whose dnode is given; `read` looks through the map if it isn't kept.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn name(
        &self,
        (map, dnode): (ObjNum, &DnodePhys),
        object: ObjNum,
        read: impl FnOnce() -> Result<Vec<(String, ObjNum)>>,
    ) -> Result<Option<String>> {
        if let Some(names) = self.find(map, dnode) {
            return Ok(names.get(&object.0).cloned());
        }
        let mut names = HashMap::new();
        for (name, object) in read()? {
            // Of two names for one object the first counts, as in a search.
            names.entry(object.0).or_insert(name);
        }
        let found = names.get(&object.0).cloned();
        self.keep(Kept { map, dnode: dnode.clone(), names: Arc::new(names) });
        Ok(found)
    }

    fn find(&self, map: ObjNum, dnode: &DnodePhys) -> Option<Names> {
        let mut all = self.0.lock();
        let at = all.iter().position(|kept| kept.map == map)?;
        let kept = all.remove(at);
        if kept.dnode != *dnode {
            return None;
        }
        let names = kept.names.clone();
        all.push(kept);
        Some(names)
    }

    fn keep(&self, kept: Kept) {
        if kept.names.len() > NAMES {
            return;
        }
        let mut all = self.0.lock();
        all.retain(|other| other.map != kept.map);
        all.push(kept);
        while all.len() > MAPS || all.iter().map(|k| k.names.len()).sum::<usize>() > NAMES {
            all.remove(0);
        }
    }
}

#[cfg(test)]
mod tests;
