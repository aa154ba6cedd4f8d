//! Which datasets a scan has still to visit.
//!
//! # Theory
//! Of a dataset a scan visits what was born after the snapshot before it. Snapshots come in the order in which they were taken, heads after them. So when a snapshot is destroyed
//! that was not visited yet, the one after it, which inherits its blocks, was not visited either; and an object number that was given to another dataset is told by
//! when that was made. A snapshot of a head that had been visited holds only what was visited.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::dsl::DslDatasetPhys;
use ondisk::{Blkptr, DmuType, ObjNum};
use pool::Mos;

/// One dataset, as far as a scan is concerned.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    pub(super) objset: u64,
    pub(super) bp: Blkptr,
    /// Blocks born up to this group are another's.
    pub(super) min: u64,
    pub(super) prev: u64,
    next: u64,
    created: u64,
}

impl Visit {
    fn of(dnode: &dmu::Dnode) -> Option<Visit> {
        if dnode.bonus_kind() != DmuType::DSL_DATASET {
            return None;
        }
        let ds = DslDatasetPhys::decode(dnode.bonus()).ok()?;
        Some(Visit {
            objset: dnode.object().0,
            bp: ds.bp,
            min: ds.prev_snap_txg,
            prev: ds.prev_snap_obj,
            next: ds.next_snap_obj,
            created: ds.creation_txg.0,
        })
    }

    /// The dataset of that number, if there is one.
    pub(super) fn load(mos: &Mos, objset: u64) -> Option<Visit> {
        Visit::of(&mos.objset().dnode(ObjNum(objset)).ok()?)
    }

    /// Where it stands in the order of visits.
    fn turn(&self) -> (u64, u64) {
        let head = self.next == 0;
        (if head { u64::MAX } else { self.created }, self.objset)
    }

    /// The group after which it has no more births, for the record on disk.
    pub(super) fn max(&self) -> u64 {
        if self.next == 0 { u64::MAX } else { self.created }
    }
}

/// All datasets, in the order of visits. What can't be read is met as a failure by the walk of the MOS.
pub(super) fn datasets(mos: &Mos) -> Vec<Visit> {
    let mut all: Vec<Visit> =
        mos.objset().objects(ObjNum(1)).flatten().filter_map(|dnode| Visit::of(&dnode)).collect();
    all.sort_by_key(Visit::turn);
    all
}

/// What was visited, and in which group that ended.
#[derive(Debug, Default, Clone)]
pub(super) struct Visited(BTreeMap<u64, u64>);

impl Visited {
    pub(super) fn enter(&mut self, objset: u64, txg: u64) {
        self.0.insert(objset, txg);
    }

    fn has(&self, visit: &Visit) -> bool {
        let done = |objset| self.0.get(objset).is_some_and(|txg| visit.created <= *txg);
        // What a snapshot took over from a head that had been visited before it was taken.
        let inherited = self.0.get(&visit.next).is_some_and(|txg| *txg < visit.created);
        done(&visit.objset) || inherited
    }

    /// What is left.
    pub(super) fn left(&self, all: &[Visit]) -> Vec<Visit> {
        all.iter().filter(|visit| !self.has(visit)).cloned().collect()
    }

    /// What had been visited when a scan was at one dataset, with a queue of others: all but these and what follows on them.
    pub(super) fn from_queue(all: &[Visit], current: Option<u64>, queue: &[u64], txg: u64) -> Visited {
        let mut left: BTreeSet<u64> = queue.iter().copied().chain(current).collect();
        let mut done = Visited::default();
        for visit in all {
            if left.contains(&visit.objset) || visit.prev != 0 && left.contains(&visit.prev) {
                left.insert(visit.objset);
            } else {
                done.enter(visit.objset, txg);
            }
        }
        done
    }
}

/// Of what is left, what the queue on disk must name: a successor is entered when its predecessor has been visited.
pub(super) fn queue(left: &[Visit], current: u64) -> Vec<(u64, u64)> {
    let waiting: BTreeSet<u64> = left.iter().map(|visit| visit.objset).collect();
    let first =
        left.iter().filter(|v| v.objset != current && v.prev != current && !waiting.contains(&v.prev));
    first.map(|v| (v.objset, v.min)).collect()
}
