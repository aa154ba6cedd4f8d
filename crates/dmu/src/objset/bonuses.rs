//! The bonuses of all objects, read in place.
//!
//! # Theory
//! A walk that needs a few bytes of each object costs little more than the reads of the blocks of
//! dnodes, if it opens no object. So each block is read once, and its bonuses are not copied.
//!
//! Not each object can be read so. One of a live object set may have changes that are not synced.
//! Another has its bonus encrypted, or a spill block. Of these, the walk returns the number alone.
//!
//! # Life
//! Of a live object set, each block is as it was synced last. Before a block is returned, the walk
//! looks for changed objects, and then checks that no txg was synced since. Otherwise it reads the
//! block again: a change that was not seen would be in it.

use super::block::DnodeBlock;
use super::{Objset, State, dnodes_per_block};
use crate::live::LiveObjset;
use crate::tree::BlockTree;
use crate::visited::{Visited, VisitedSince};
use crate::{DN_MAX_OBJECT, Extent, Result};
use ondisk::{BlkId, Blkptr, Corrupt, DmuType, Level, ObjNum};
use std::ops::Range;
use std::sync::Arc;
use zio::ReadOptions;

/// The type and bytes of a bonus.
pub type Bonus<'a> = (DmuType, &'a [u8]);

/// The type of a bonus, and where it is in its block.
type Place = (DmuType, Range<usize>);

/// The objects of one block of dnodes, in order.
pub struct Bonuses {
    block: Option<DnodeBlock>,
    objects: Vec<(ObjNum, Option<Place>)>,
}

impl Bonuses {
    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// An object, and the type and bytes of its bonus. Without these, the object must be opened
    /// ([`Objset::dnode`]). It may be free then.
    pub fn get(&self, index: usize) -> Option<(ObjNum, Option<Bonus<'_>>)> {
        let (object, found) = self.objects.get(index)?;
        let held = self.block.as_ref().map_or(&[][..], DnodeBlock::held);
        let bonus = found.as_ref().and_then(|(kind, at)| Some((*kind, held.get(at.clone())?)));
        Some((*object, bonus))
    }
}

/// The iterator of [`Objset::bonuses`].
pub struct BonusBlocks {
    os: Objset,
    next: u64,
    visited: Visited,
    /// The same, of a live object set.
    visited_since: VisitedSince,
}

impl Objset {
    /// The bonuses of all objects from `first` on, in blocks of one object or more.
    ///
    /// After an error, the iterator ends.
    pub fn bonuses(&self, first: ObjNum) -> BonusBlocks {
        let (visited, visited_since) = Default::default();
        BonusBlocks { os: self.clone(), next: first.0.max(1), visited, visited_since }
    }
}

/// A block of dnodes, its pointer, and the first number of its slots.
type Read = (u64, Blkptr, DnodeBlock);

/// The first block of dnodes that has objects from `first` on.
fn read_block(
    meta: &BlockTree,
    first: u64,
    visited: &mut Visited,
    options: &ReadOptions,
) -> Result<Option<Read>> {
    let per = dnodes_per_block(meta);
    let mut from = BlkId(first / per);
    loop {
        let next = meta.next_block(from, Extent::Data, visited, options);
        let Some(blkid) = next.map_err(|blocked| blocked.error)? else { return Ok(None) };
        if blkid.0 >= DN_MAX_OBJECT / per {
            let value = blkid.0;
            return Err(meta.corrupt(Corrupt::Range { what: "object set", field: "block", value }));
        }
        let bp = meta.bp(Level(0), blkid, options)?;
        super::check_dnode_block(&bp).map_err(|error| meta.corrupt(error))?;
        visited.note(&bp, Level(0), blkid).map_err(|error| meta.corrupt(error))?;
        if let Some(block) = DnodeBlock::read(meta, blkid, options)? {
            return Ok(Some((blkid.0 * per, bp, block)));
        }
        from = BlkId(blkid.0 + 1);
    }
}

impl BonusBlocks {
    /// The objects of a block from [`BonusBlocks::next`] on. `is_newer` tells of an object that has
    /// changes.
    fn list(
        &self,
        meta: &BlockTree,
        (base, block): (u64, DnodeBlock),
        is_newer: impl Fn(ObjNum) -> bool,
    ) -> Result<Bonuses> {
        let (per, mut slot) = (dnodes_per_block(meta), 0);
        let mut objects = Vec::new();
        while slot < per {
            let (object, at) = (ObjNum(base + slot), slot as usize);
            slot += block.taken(at).map_err(|error| meta.corrupt(error))? as u64;
            if object.0 >= self.next && block.is_used(at) {
                let bonus = if is_newer(object) { None } else { block.find_bonus(at) };
                objects.push((object, bonus));
            }
        }
        Ok(Bonuses { block: Some(block), objects })
    }

    fn step(&mut self) -> Result<Option<Bonuses>> {
        while self.next < DN_MAX_OBJECT {
            let live = match &self.os.inner.state {
                State::Fixed { .. } => None,
                State::LiveObjset(live) => Some(live.clone()),
            };
            let (end, found) = match live {
                None => self.step_fixed()?,
                Some(live) => match self.step_live(&live)? {
                    None => continue,
                    Some(found) => found,
                },
            };
            self.next = end;
            if let Some(found) = found.filter(|found| !found.is_empty()) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The next block, and the number after all of its objects.
    fn step_fixed(&mut self) -> Result<(u64, Option<Bonuses>)> {
        let meta = self.os.meta();
        let read = read_block(&meta, self.next, &mut self.visited, &self.os.options)?;
        let Some((base, _, block)) = read else { return Ok((DN_MAX_OBJECT, None)) };
        let found = self.list(&meta, (base, block), |_| false)?;
        Ok((base + dnodes_per_block(&meta), Some(found)))
    }

    /// The next block with the objects that were made since, and the number after all of these.
    /// `None` if a txg was synced meanwhile.
    fn step_live(&mut self, live: &Arc<LiveObjset>) -> Result<Option<(u64, Option<Bonuses>)>> {
        let root = live.root();
        let is_old = || !live.is_current(&root);
        // A block that was visited before may have been freed and used again.
        let read =
            |options: &ReadOptions| read_block(&root.meta, self.next, &mut Visited::default(), options);
        let Some(read) = live.steadily(read, is_old, &self.os.options)? else { return Ok(None) };
        let (per, at) = (dnodes_per_block(&root.meta), read.as_ref().map(|(base, bp, _)| (*base, *bp)));
        let end = at.map_or(DN_MAX_OBJECT, |(base, _)| base + per).min(DN_MAX_OBJECT);
        let new: Vec<ObjNum> = {
            let slots = live.slots.lock();
            let changed = slots.changed_from(ObjNum(self.next));
            let changed = changed.take_while(|(object, _)| object.0 < end);
            changed.filter(|(_, is_there)| *is_there).map(|(object, _)| object).collect()
        };
        let mut found = match read {
            None => Bonuses { block: None, objects: Vec::new() },
            Some((base, _, block)) => self.list(&root.meta, (base, block), |object| live.is_held(object))?,
        };
        if is_old() {
            return Ok(None);
        }
        if let Some((base, bp)) = at {
            // Blocks that lead to each other would make a walk without an end.
            let noted = self.visited_since.note(&bp, Level(0), BlkId(base / per));
            noted.map_err(|error| root.meta.corrupt(error))?;
        }
        for object in new {
            if let Err(at) = found.objects.binary_search_by_key(&object, |(object, _)| *object) {
                found.objects.insert(at, (object, None));
            }
        }
        Ok(Some((end, Some(found))))
    }
}

impl Iterator for BonusBlocks {
    type Item = Result<Bonuses>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.step();
        if found.is_err() {
            self.next = DN_MAX_OBJECT;
        }
        found.transpose()
    }
}
