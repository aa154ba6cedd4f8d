//! One dataset's blocks in order, from a position on.
//!
//! # Theory
//! Positions are pairs of object and block at level 0, in rising order. Blocks of the meta dnode
//! have the position of their first object, and spill blocks that of the end of their object. A
//! block that ends before the position has been found, and is skipped. One that begins before it
//! and ends after it is read only to find those below. So between slices only a pair of numbers is
//! kept.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use device::Block;
use ondisk::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE};
use ondisk::dnode::{DNODE_MIN_SIZE, DnodePhys};
use ondisk::objset::ObjsetPhys;
use ondisk::{BlkId, Blkptr, DmuType, Level, ObjNum};
use zio::Bookmark;

use crate::scan::order::{Visit, Visited};
use crate::scan::queue::SCAN_CHECKPOINT_INTVAL;
use crate::scan::slice::Slice;
use crate::scan::windows::Row;
use dsl::traverse::leads_on;

/// First block that was not found yet: object, and block at level 0.
pub(crate) type Position = (u64, u64);

/// The position and plan of a scan.
#[derive(Debug, Default, Clone)]
pub(crate) struct Walk {
    /// The record on disk has been loaded.
    pub(crate) loaded: bool,
    /// The dataset; 0 is the MOS, `None` means that the next must be chosen.
    pub(crate) at: Option<u64>,
    /// Creation txg of the dataset.
    pub(crate) created: u64,
    pub(crate) position: Position,
    /// Txg from which its blocks are visited, when it was last planned.
    pub(crate) min: u64,
    pub(crate) visited: Visited,
    /// The datasets that are left, including the current one.
    pub(crate) left: VecDeque<Visit>,
    /// Failures in succession to read what the walk needs.
    pub(crate) failures: u32,
    /// Unreadable datasets have been counted.
    pub(crate) cut_short: bool,
    /// An import resumed it, and nothing has been verified since.
    pub(crate) young: bool,
    /// The queue is being drained, and nothing is added until it is empty.
    pub(crate) draining: bool,
    /// The walk when the queue was last empty; `None` if it is empty now.
    pub(crate) recorded: Option<Box<Recorded>>,
}

/// A walk whose blocks have all been verified: an import resumes there.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) walk: Walk,
    pub(crate) counted: Counted,
    since: Instant,
}

/// Sums of a scan's record that go with a position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) examined: u64,
    pub(crate) skipped: u64,
    pub(crate) processed: u64,
    pub(crate) errors: u64,
}

/// A walk of everything.
impl Walk {
    pub(crate) fn from_the_beginning() -> Walk {
        Walk { loaded: true, at: Some(0), ..Walk::default() }
    }

    /// Records the walk before the first block is queued.
    pub(crate) fn record(&mut self, counted: Counted) {
        self.recorded = None;
        let walk = self.clone();
        self.recorded = Some(Box::new(Recorded { walk, counted, since: Instant::now() }));
    }

    /// Whether the queue must be drained because of its age, so that progress can be recorded
    /// (`zfs_scan_checkpoint_intval`).
    pub(crate) fn is_due(&self) -> bool {
        let longest = Duration::from_secs(SCAN_CHECKPOINT_INTVAL.get());
        self.recorded.as_ref().is_some_and(|r| r.since.elapsed() >= longest)
    }

    /// All queued blocks have been verified, or are gone.
    pub(crate) fn drained(&mut self) {
        self.recorded = None;
        (self.young, self.draining) = (self.young && !self.draining, false);
    }

    /// Continues with the datasets as they are now.
    pub(crate) fn plan(&mut self, all: &[Visit]) {
        self.left = self.visited.left(all).into();
        let Some(at) = self.at.filter(|at| *at != 0) else { return };
        let here = all.iter().find(|v| v.objset == at && v.created == self.created);
        // If a snapshot of the current dataset has been taken, the walk continues in that. If it
        // has more blocks than when its visit began, the visit restarts.
        let mut here = here;
        for _ in 0..all.len() {
            let Some(prev) = here.filter(|v| v.min > self.min).map(|v| v.prev) else { break };
            here = all.iter().find(|v| v.objset == prev);
        }
        match here {
            Some(v) if v.min == self.min => (self.at, self.created) = (Some(v.objset), v.created),
            Some(_) | None => self.choose(),
        }
    }

    /// Goes to the next dataset that is left.
    pub(crate) fn choose(&mut self) {
        self.position = (0, 0);
        let next = self.left.front();
        self.at = next.map(|v| v.objset);
        (self.min, self.created) = next.map_or((0, 0), |v| (v.min, v.created));
    }
}

/// What the blocks of one object have in common.
struct Object<'a> {
    objset: u64,
    object: ObjNum,
    dnode: &'a DnodePhys,
}

impl Object<'_> {
    /// The positions at which the blocks below one begin, and end.
    fn span(&self, level: Level, blkid: BlkId) -> (Position, Position) {
        if blkid == dmu::SPILL_BLKID {
            return ((self.object.0, u64::MAX - 1), (self.object.0, u64::MAX));
        }
        let shift = u32::from(level.0) * self.dnode.epbs();
        let first = (u128::from(blkid.0) << shift.min(64)).min(u128::from(u64::MAX - 2)) as u64;
        let end = ((u128::from(blkid.0) + 1) << shift.min(64)).min(u128::from(u64::MAX - 1)) as u64;
        if self.dnode.kind == DmuType::DNODE && self.object.0 == 0 {
            let per = (u64::from(self.dnode.datablksz) / DNODE_MIN_SIZE as u64).max(1);
            return ((first.saturating_mul(per), 0), (end.saturating_mul(per), 0));
        }
        ((self.object.0, first), (self.object.0, end))
    }
}

impl Slice<'_> {
    /// Verifies the claimed log of a head that has not been replayed (`dsl_scan_zil`). The blocks
    /// of a log in use are soon freed.
    pub(crate) fn log(&mut self, os: &dmu::Objset) {
        match zil::Log::open(os, 0, 0) {
            Ok(None) => {}
            Ok(Some(log)) if log.header().claim_txg == 0 => {}
            Ok(Some(log)) => {
                let (blocks, whole) = log.references_known();
                for bp in blocks {
                    let bm =
                        Bookmark { objset: os.id(), object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
                    self.gather(&bp, &bm);
                }
                if !whole {
                    self.unknown(u64::MAX);
                }
            }
            Err(_) => self.unknown(u64::MAX),
        }
    }

    /// Visits a dataset from the slice's position on.
    pub(crate) fn dataset(&mut self, objset: u64, bp: &Blkptr) -> ControlFlow<()> {
        if bp.is_hole() || bp.birth.0 <= self.min {
            return ControlFlow::Continue(());
        }
        let bm = Bookmark { objset, object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
        let Some(block) = self.lead(bp, &bm, self.from == (0, 0))? else {
            return ControlFlow::Continue(());
        };
        let Ok(os) = ObjsetPhys::decode(&block) else {
            self.unknown(bp.birth.0);
            return ControlFlow::Continue(());
        };
        self.object(&Object { objset, object: ObjNum(0), dnode: &os.meta_dnode })?;
        let special = [
            (dmu::DMU_PROJECTUSED_OBJECT, &os.projectused),
            (dmu::DMU_GROUPUSED_OBJECT, &os.groupused),
            (dmu::DMU_USERUSED_OBJECT, &os.userused),
        ];
        for (object, dnode) in special {
            if let Some(dnode) = dnode {
                self.object(&Object { objset, object, dnode })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn object(&mut self, o: &Object<'_>) -> ControlFlow<()> {
        let top = Level(o.dnode.nlevels.saturating_sub(1));
        for (i, bp) in o.dnode.blkptrs.iter().enumerate() {
            self.child(o, bp, top, BlkId(i as u64))?;
        }
        match &o.dnode.spill {
            Some(bp) => self.child(o, bp, Level(0), dmu::SPILL_BLKID),
            None => ControlFlow::Continue(()),
        }
    }

    // Recursion as deep as the levels of two objects: a block below has a lower level, and only the
    // meta dnode leads to objects.
    fn child(&mut self, o: &Object<'_>, bp: &Blkptr, level: Level, blkid: BlkId) -> ControlFlow<()> {
        if bp.is_hole() || bp.birth.0 <= self.min {
            return ControlFlow::Continue(());
        }
        let (start, end) = o.span(level, blkid);
        if end <= self.from {
            return ControlFlow::Continue(());
        }
        let fresh = start >= self.from;
        if bp.level != level {
            self.unknown(u64::MAX);
            return ControlFlow::Continue(());
        }
        if fresh {
            self.rest(start)?;
        }
        let bm = Bookmark { objset: o.objset, object: o.object, level, blkid };
        if !leads_on(&bm, Some(o.dnode)) || o.dnode.kind == DmuType::DNODE && o.object.0 != 0 {
            if fresh {
                self.gather(bp, &bm);
            }
            return ControlFlow::Continue(());
        }
        let Some(block) = self.lead(bp, &bm, fresh)? else { return ControlFlow::Continue(()) };
        if level.0 > 0 {
            self.indirect(o, &block, level, blkid)
        } else {
            self.dnodes(o.objset, &block, blkid)
        }
    }

    fn indirect(&mut self, o: &Object<'_>, block: &Block, level: Level, blkid: BlkId) -> ControlFlow<()> {
        let (min, from, level) = (self.min, self.from, Level(level.0 - 1));
        let pointers = block.len() >> BLKPTR_SHIFT;
        let pointer = |i: usize| Blkptr::decode(&block[i << BLKPTR_SHIFT..][..BLKPTR_SIZE]);
        let below = |i: usize| BlkId(blkid.0.wrapping_shl(o.dnode.epbs()).wrapping_add(i as u64));
        let needed = |i: &usize| o.span(level, below(*i)).1 > from;
        let row = if level.0 > 0 { Row::Pointers } else { Row::Dnodes };
        // The first pointer not read ahead yet; data is never read ahead.
        let mut next = if level.0 == 0 && o.object.0 != 0 { pointers } else { 0 };
        for i in 0..pointers {
            if i == next {
                let blocks = (i..pointers).filter(needed).filter_map(|i| Some((i, pointer(i).ok()?)));
                let blocks = blocks.filter(|(_, bp)| bp.birth.0 > min && bp.level == level);
                next = self.look_ahead(row, blocks).unwrap_or(pointers);
            }
            match pointer(i) {
                Ok(bp) => self.child(o, &bp, level, below(i))?,
                Err(_) if needed(&i) => self.unknown(u64::MAX),
                Err(_) => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn dnodes(&mut self, objset: u64, block: &Block, blkid: BlkId) -> ControlFlow<()> {
        let per = block.len() / DNODE_MIN_SIZE;
        let (mut slot, mut found) = (0, Vec::new());
        while slot < per {
            let object = ObjNum(blkid.0.wrapping_mul(per as u64).wrapping_add(slot as u64));
            let dnode = DnodePhys::decode(&block[slot * DNODE_MIN_SIZE..]);
            slot += if let Ok(Some(dnode)) = &dnode { dnode.num_slots().max(1) } else { 1 };
            if object.0 >= self.from.0
                && let Some(dnode) = dnode.transpose()
            {
                found.push((object, dnode));
            }
        }
        let min = self.min;
        let tops = found.iter().filter_map(|(_, dnode)| dnode.as_ref().ok()).flat_map(|d| &d.blkptrs);
        let tops = tops.filter(|bp| bp.level.0 > 0 && bp.birth.0 > min);
        // What is not read ahead is read when it is found.
        let _ = self.look_ahead(Row::Objects, tops.cloned().enumerate());
        for (object, dnode) in found {
            match dnode {
                Ok(dnode) => self.object(&Object { objset, object, dnode: &dnode })?,
                Err(_) => self.unknown(u64::MAX),
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests;
