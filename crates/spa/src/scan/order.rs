//! The datasets that a scan has still to visit.
//!
//! # Theory
//! Of a dataset a scan visits what was born after the snapshot before it. Snapshots come in the
//! order of their creation, heads after them. So if a snapshot is destroyed before its visit, the
//! next one, which inherits its blocks, has not been visited either. The creation txg shows whether
//! an object number was reused for another dataset. A snapshot of a head that had been visited
//! holds only visited blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use ondisk::dsl::DslDatasetPhys;
use ondisk::{Blkptr, DmuType, ObjNum, Txg};
use pool::Mos;

/// A dataset to visit.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    pub(crate) objset: u64,
    pub(crate) bp: Blkptr,
    /// Blocks born up to this txg belong to an older snapshot.
    pub(crate) min: u64,
    pub(crate) prev: u64,
    next: u64,
    pub(crate) created: u64,
}

impl Visit {
    fn of(dnode: &dmu::Dnode) -> dmu::Result<Option<Visit>> {
        if dnode.bonus_kind() != DmuType::DSL_DATASET {
            return Ok(None);
        }
        let ds = DslDatasetPhys::decode(dnode.bonus()).map_err(|source| dnode.corrupt(source))?;
        Ok(Some(Visit {
            objset: dnode.object().0,
            bp: ds.bp,
            min: ds.prev_snap_txg,
            prev: ds.prev_snap_obj,
            next: ds.next_snap_obj,
            created: ds.creation_txg.0,
        }))
    }

    /// The dataset of this object number, if there is one.
    ///
    /// # Errors
    /// * [`dmu::Error`]: it cannot be read, so its existence is unknown.
    pub(crate) fn load(mos: &Mos, objset: u64) -> dmu::Result<Option<Visit>> {
        match mos.objset().dnode(ObjNum(objset)) {
            Ok(dnode) => Visit::of(&dnode),
            Err(dmu::Error::NoSuchObject { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn is_head(&self) -> bool {
        self.next == 0
    }

    /// Its place in the order of visits.
    fn turn(&self) -> (u64, u64) {
        let head = self.next == 0;
        (if head { u64::MAX } else { self.created }, self.objset)
    }

    /// The txg after which it has no more births, for the record on disk.
    pub(crate) fn max(&self) -> u64 {
        if self.next == 0 { u64::MAX } else { self.created }
    }
}

/// Datasets, in the order of visits.
#[derive(Debug)]
pub(crate) struct Datasets {
    pub(crate) all: Vec<Visit>,
    /// Some could not be read: there are more.
    pub(crate) cut_short: bool,
}

/// All datasets that can be read.
pub(crate) fn datasets(mos: &Mos) -> Datasets {
    let mut list = Datasets { all: Vec::new(), cut_short: false };
    for dnode in mos.objset().objects(ObjNum(1)) {
        match dnode.and_then(|dnode| Visit::of(&dnode)) {
            Ok(visit) => list.all.extend(visit),
            Err(_) => list.cut_short = true,
        }
    }
    list.all.sort_by_key(Visit::turn);
    list
}

/// The visited datasets, and the txg of the visit.
#[derive(Debug, Default, Clone)]
pub(crate) struct Visited(BTreeMap<u64, u64>);

impl Visited {
    pub(crate) fn enter(&mut self, objset: u64, as_of: Txg) {
        self.0.insert(objset, as_of.0);
    }

    fn has(&self, visit: &Visit) -> bool {
        let done = |objset| self.0.get(objset).is_some_and(|txg| visit.created <= *txg);
        // The snapshot's blocks were visited with its head, before it was taken.
        let inherited = self.0.get(&visit.next).is_some_and(|txg| *txg < visit.created);
        done(&visit.objset) || inherited
    }

    /// The datasets not yet visited.
    pub(crate) fn left(&self, all: &[Visit]) -> Vec<Visit> {
        all.iter().filter(|visit| !self.has(visit)).cloned().collect()
    }

    /// The visited datasets of a scan whose queue held these, each from a txg on. That is all but
    /// those, their predecessors from that txg on, and their successors.
    pub(crate) fn from_queue(all: &[Visit], queue: &[(u64, u64)], as_of: Txg) -> Visited {
        let by_number: HashMap<u64, &Visit> = all.iter().map(|visit| (visit.objset, visit)).collect();
        let mut left = BTreeSet::new();
        for (objset, min) in queue {
            let mut next = by_number.get(objset);
            // Bounded by the length of the list, in case it loops.
            for _ in 0..all.len() {
                let Some(visit) = next else { break };
                left.insert(visit.objset);
                if visit.min <= *min {
                    break;
                }
                next = by_number.get(&visit.prev);
            }
        }
        let mut done = Visited::default();
        for visit in all {
            if left.contains(&visit.objset) || visit.prev != 0 && left.contains(&visit.prev) {
                left.insert(visit.objset);
            } else {
                done.enter(visit.objset, as_of);
            }
        }
        done
    }
}

/// The part of `left` that the queue on disk must name: a successor is entered when its predecessor
/// has been visited.
pub(crate) fn queue(left: &VecDeque<Visit>, current: u64) -> Vec<(u64, u64)> {
    let waiting: BTreeSet<u64> = left.iter().map(|visit| visit.objset).collect();
    let first =
        left.iter().filter(|v| v.objset != current && v.prev != current && !waiting.contains(&v.prev));
    first.map(|v| (v.objset, v.min)).collect()
}
