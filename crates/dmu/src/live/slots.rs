//! The search for free object numbers.
//!
//! # Theory
//! New objects come one after another from a place with free slots, so that they share blocks of
//! dnodes. The fill counts in the level-1 pointers of the meta dnode show the place, without a read
//! of blocks of dnodes.
//!
//! After objects were freed, the search starts again when the span of a level-1 pointer is used up.
//! Objects that were allocated or freed since the last sync override what the blocks say.
//!
//! # Locks
//! The slots of the object set stay locked while a block of dnodes is read. Two threads that
//! searched at once would read the same block, and one of them would have to search again.

use crate::live::LiveObjset;
use crate::objset::slots_of_block;
use crate::{DN_MAX_OBJECT, Error, Result};
use ondisk::blkptr::Body;
use ondisk::dnode::DNODE_SHIFT;
use ondisk::{BlkId, Level, ObjNum, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;
use zio::ReadOptions;

/// An object that was allocated or freed since the last sync.
#[derive(Debug, Clone, Copy)]
struct Change {
    /// Slots that the object takes. `None` if it is free.
    slots: Option<u8>,
    txg: Txg,
}

/// Where the next object goes (`os_obj_next_chunk`).
#[derive(Debug, Default)]
pub(crate) struct Slots {
    next: u64,
    started: bool,
    /// True if an object was freed since the last search for a place.
    freed: bool,
    changes: BTreeMap<ObjNum, Change>,
    /// The slots of one block of dnodes. True means taken.
    block: Option<(u64, Vec<bool>)>,
}

impl Slots {
    /// Notes that an object now takes `slots` slots, or is free.
    pub(crate) fn note(&mut self, object: ObjNum, slots: Option<u8>, txg: Txg) {
        self.freed |= slots.is_none();
        let before = self.changes.insert(object, Change { slots, txg });
        // Files that are made and removed at once keep the block that is known.
        let known = self.block.as_mut().and_then(|(blkid, taken)| {
            let at = object.0.checked_sub(*blkid * taken.len() as u64)? as usize;
            let gone = slots.is_none().then_some(before?.slots?)?;
            taken.get_mut(at..at + usize::from(gone))
        });
        match known {
            Some(slots) => slots.fill(false),
            None => self.block = None,
        }
    }

    /// Whether the slot of this number is free.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading), for blocks of dnodes.
    pub(crate) fn is_free(&mut self, os: &LiveObjset, object: ObjNum, options: &ReadOptions) -> Result<bool> {
        let per = u64::from(os.root().meta.phys.datablksz) >> DNODE_SHIFT;
        let taken = self.taken(os, object.0 / per, per, options)?;
        Ok(taken.get((object.0 % per) as usize).is_some_and(|taken| !taken))
    }

    /// Forgets the changes of these objects up to `txg`, because the blocks of dnodes now show
    /// them.
    pub(crate) fn synced(&mut self, objects: impl Iterator<Item = ObjNum>, txg: Txg) {
        for object in objects {
            if self.changes.get(&object).is_some_and(|c| c.txg <= txg) {
                self.changes.remove(&object);
            }
        }
        self.block = None;
    }

    /// Each object from `first` on that was allocated (true) or freed (false) since the last sync.
    pub(crate) fn changed_from(&self, first: ObjNum) -> impl Iterator<Item = (ObjNum, bool)> + '_ {
        self.changes.range(first..).map(|(o, c)| (*o, c.slots.is_some()))
    }

    /// The slots of a block. True means taken.
    fn taken(
        &mut self,
        os: &LiveObjset,
        blkid: u64,
        per: u64,
        options: &ReadOptions,
    ) -> Result<&mut Vec<bool>> {
        if self.block.as_ref().is_none_or(|(b, _)| *b != blkid) {
            let mut taken = vec![false; per as usize];
            let meta = os.root().meta;
            let base = blkid * per;
            let mark = |taken: &mut Vec<bool>, object: u64, slots: u8, to: bool| {
                let at = (object - base) as usize;
                let end = (at + usize::from(slots)).min(taken.len());
                taken[at..end].fill(to);
            };
            if blkid <= meta.phys.maxblkid.0 {
                for (object, slots) in slots_of_block(&meta, BlkId(blkid), options)? {
                    if !self.changes.contains_key(&object) {
                        mark(&mut taken, object.0, slots, true);
                    }
                }
            }
            for (object, c) in self.changes.range(ObjNum(base)..ObjNum(base + per)) {
                if let Some(slots) = c.slots {
                    mark(&mut taken, object.0, slots, true);
                }
            }
            if blkid == 0 {
                taken[0] = true;
            }
            self.block = Some((blkid, taken));
        }
        Ok(&mut self.block.as_mut().expect("it was just made").1)
    }

    /// Takes a number for an object of `slots` slots.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading), for blocks of dnodes.
    /// * [`Error::NoObjects`]: no number is left.
    pub(crate) fn take(
        &mut self,
        os: &Arc<LiveObjset>,
        slots: u8,
        txg: Txg,
        options: &ReadOptions,
    ) -> Result<ObjNum> {
        let meta = os.root().meta;
        let per = u64::from(meta.phys.datablksz) >> DNODE_SHIFT;
        if !self.started {
            self.started = true;
            // A new object set keeps its first block for objects of fixed numbers, as in OpenZFS.
            // So the root of a file system is object 34.
            let new = meta.bp(Level(0), BlkId(0), options)?.is_hole();
            self.next = if new { per } else { self.roomy_span(os, per, options)? };
        }
        loop {
            let blkid = self.next / per;
            if self.next >= DN_MAX_OBJECT - per {
                return Err(Error::NoObjects { objset: os.home.id });
            }
            let span = per << meta.phys.epbs();
            if self.next.is_multiple_of(span) && self.freed && self.next != 0 {
                self.freed = false;
                self.next = self.roomy_span(os, per, options)?;
                continue;
            }
            let from = (self.next % per) as usize;
            // A block that is full by its pointer need not be read.
            let full = from == 0 && !self.freed && {
                let known = blkid <= meta.phys.maxblkid.0;
                known && fill(&meta.bp(Level(0), BlkId(blkid), options)?) >= per
            };
            let want = usize::from(slots);
            let found = if full {
                None
            } else {
                let taken = self.taken(os, blkid, per, options)?;
                let found = (from..taken.len().saturating_sub(want - 1))
                    .find(|&at| taken[at..at + want].iter().all(|t| !t));
                if let Some(at) = found {
                    taken[at..at + want].fill(true);
                }
                found
            };
            if let Some(at) = found {
                let object = ObjNum(blkid * per + at as u64);
                self.next = object.0 + u64::from(slots);
                self.changes.insert(object, Change { slots: Some(slots), txg });
                return Ok(object);
            }
            self.next = (blkid + 1) * per;
        }
    }

    /// Takes the slots of an object with a given number. False if one of them is taken, or if they
    /// cross a block.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading), for blocks of dnodes.
    pub(crate) fn claim(
        &mut self,
        os: &LiveObjset,
        object: ObjNum,
        slots: u8,
        txg: Txg,
        options: &ReadOptions,
    ) -> Result<bool> {
        let per = u64::from(os.root().meta.phys.datablksz) >> DNODE_SHIFT;
        let taken = self.taken(os, object.0 / per, per, options)?;
        let at = (object.0 % per) as usize;
        let Some(wanted) = taken.get_mut(at..at + usize::from(slots)) else { return Ok(false) };
        if wanted.iter().any(|t| *t) {
            return Ok(false);
        }
        wanted.fill(true);
        self.changes.insert(object, Change { slots: Some(slots), txg });
        Ok(true)
    }

    /// The first object of the first level-1 span that is at most three quarters full.
    fn roomy_span(&self, os: &LiveObjset, per: u64, options: &ReadOptions) -> Result<u64> {
        let meta = os.root().meta;
        let epbs = meta.phys.epbs();
        let span = per << epbs;
        let last = meta.phys.maxblkid.0 >> epbs;
        for i in 0..=last {
            let used =
                if meta.phys.nlevels == 1 { 0 } else { fill(&meta.bp(Level(1), BlkId(i), options)?) };
            if used <= span / 4 * 3 {
                return Ok(i * span);
            }
        }
        Ok((last + 1) * span)
    }
}

/// The number of objects below a pointer of the meta dnode.
fn fill(bp: &ondisk::Blkptr) -> u64 {
    match &bp.body {
        Body::Stored(s) => s.fill,
        Body::Embedded(_) => 1,
        Body::Hole | Body::Redacted => 0,
    }
}
