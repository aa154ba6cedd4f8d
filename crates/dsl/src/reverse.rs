//! Names by object: the maps of children and snapshots, inverted.
//!
//! # Theory
//! Only the parent's map has the name of a directory or snapshot, and the map is searched by name.
//! Searching it for each of ten thousand clones takes ten thousand times ten thousand steps.
//!
//! So a map that was read is kept inverted, as long as its dnode stays the same. A changed map is
//! written to another place, and its dnode shows that. In a pool that is open for writing, the
//! dnode shows a change only after a sync. So nothing is kept there.
//!
//! # Locks
//! One lock around the kept maps, never held while a block is read.

use crate::Result;
use observe::lock::Mutex;
use ondisk::ObjNum;
use ondisk::dnode::DnodePhys;
use std::collections::HashMap;
use std::sync::Arc;

/// The number of maps kept.
const MAPS: usize = 8;
/// The most names of all maps kept together; larger maps are not kept.
const NAMES: usize = 1 << 20;

type Names = Arc<HashMap<u64, String>>;

/// The inverted maps, the last used one at the end.
#[derive(Debug, Default)]
pub(crate) struct Reversed(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    map: ObjNum,
    dnode: DnodePhys,
    names: Names,
}

impl Reversed {
    /// The name of `object` in the map with this dnode; `read` reads a map that is not kept.
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
