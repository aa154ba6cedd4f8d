//! The objects that changed between two states of an object set.
//!
//! # Theory
//! A block that was born in a txg, or before it, is in every later state. So nothing below it has
//! changed since that txg. A walk of the meta dnode skips such blocks. It finds the blocks of
//! dnodes that were written since, and the holes that were made since. Its cost is that of the
//! changes, not of the object set.
//!
//! The result may contain more than what changed:
//!
//! * objects that share a block of dnodes with a changed object;
//! * numbers that were free before as well, because holes of unknown age count as new.
//!
//! # See
//! OpenZFS `dmu_diff`.

use super::Objset;
use crate::visited::Visited;
use crate::{DN_MAX_OBJECT, Dnode, Result};
use device::Sparse;
use ondisk::dnode::DNODE_SHIFT;
use ondisk::{BlkId, Level, ObjNum, Txg};

/// A run of object numbers that may have changed (`dmu_diff_record_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// No object has these numbers now, from the first to the last (`DDR_FREE`).
    Free(ObjNum, ObjNum),
    /// There is an object, which may have changed (`DDR_INUSE`).
    Used(ObjNum),
}

/// The iterator of [`Objset::changes_since`].
#[derive(Debug)]
pub struct Changes {
    os: Objset,
    meta: Dnode,
    since: Txg,
    /// Blocks still to visit.
    todo: Vec<Todo>,
    visited: Visited,
    /// Changes that were found and not yet returned, the last first.
    found: Vec<Change>,
    /// A run of free numbers that may continue.
    free: Option<(u64, u64)>,
    /// All numbers below this one are done.
    next: u64,
}

/// Blocks of a level, from the next one up to an end.
#[derive(Debug)]
struct Todo {
    level: Level,
    at: u64,
    end: u64,
    /// The block with their pointers. `None`: the dnode has them.
    parent: Option<Sparse>,
}

impl Objset {
    /// The objects from `first` on that may have changed since the txg `since`, in order
    /// (`dmu_diff`).
    ///
    /// After an error, the iterator continues after the block that failed.
    pub fn changes_since(&self, since: Txg, first: ObjNum) -> Changes {
        let meta = self.meta_dnode();
        let top = Level(meta.nlevels().saturating_sub(1));
        let todo = vec![Todo { level: top, at: 0, end: meta.phys().blkptrs.len() as u64, parent: None }];
        let (os, next) = (self.clone(), first.0.max(1));
        Changes { os, meta, since, todo, visited: Visited::default(), found: Vec::new(), free: None, next }
    }
}

impl Changes {
    /// The number of objects below a block of a level.
    fn span(&self, level: Level) -> u64 {
        let per = self.meta.block_size() >> DNODE_SHIFT;
        let shift = u32::from(level.0) * self.meta.phys().epbs();
        if shift >= 48 { DN_MAX_OBJECT } else { per.saturating_mul(1 << shift).min(DN_MAX_OBJECT) }
    }

    /// Adds a change that was found. Numbers that are done are skipped.
    fn enter(&mut self, change: Change) {
        match change {
            Change::Free(first, last) => {
                let (first, last) = (first.0.max(self.next), last.0);
                if first > last {
                    return;
                }
                self.next = last + 1;
                match &mut self.free {
                    Some((_, end)) if *end + 1 == first => *end = last,
                    _ => {
                        self.tell_free();
                        self.free = Some((first, last));
                    }
                }
            }
            Change::Used(object) if object.0 >= self.next => {
                self.next = object.0 + 1;
                self.tell_free();
                self.found.insert(0, change);
            }
            Change::Used(_) => {}
        }
    }

    fn tell_free(&mut self) {
        if let Some((first, last)) = self.free.take() {
            self.found.insert(0, Change::Free(ObjNum(first), ObjNum(last)));
        }
    }

    /// Visits one block. False when none is left.
    fn step(&mut self) -> Result<bool> {
        let Some(todo) = self.todo.last_mut() else { return Ok(false) };
        let (level, blkid) = (todo.level, BlkId(todo.at));
        if todo.at >= todo.end {
            self.todo.pop();
            return Ok(true);
        }
        todo.at += 1;
        let pointer = match &todo.parent {
            Some(parent) => self.meta.entry(parent, level, blkid),
            None => self.meta.bp(level, blkid),
        };
        let span = self.span(level);
        let Some(first) = blkid.0.checked_mul(span).filter(|first| *first < DN_MAX_OBJECT) else {
            self.todo.pop();
            return Ok(true);
        };
        let last = (first + span - 1).min(DN_MAX_OBJECT - 1);
        if last < self.next {
            return Ok(true);
        }
        let bp = pointer?;
        if bp.birth.0 != 0 && bp.birth <= self.since {
            return Ok(true);
        }
        if bp.is_hole() {
            self.enter(Change::Free(ObjNum(first), ObjNum(last)));
            return Ok(true);
        }
        self.visited.note(&bp, level, blkid).map_err(|e| self.meta.corrupt(e))?;
        if level.0 > 0 {
            let fan = 1u64 << self.meta.phys().epbs();
            let child = blkid.0.saturating_mul(fan);
            let parent = Some(self.meta.read_indirect(&bp, level, blkid)?);
            let (level, end) = (Level(level.0 - 1), child.saturating_add(fan));
            self.todo.push(Todo { level, at: child, end, parent });
            return Ok(true);
        }
        let mut free = first;
        for (object, slots) in super::slots_of_block(&self.os.meta(), blkid, self.os.options())? {
            if object.0 > free {
                self.enter(Change::Free(ObjNum(free), ObjNum(object.0 - 1)));
            }
            self.enter(Change::Used(object));
            free = object.0 + u64::from(slots);
            if free > object.0 + 1 {
                // The other slots of a large dnode may have belonged to other objects before.
                self.enter(Change::Free(ObjNum(object.0 + 1), ObjNum(free - 1)));
            }
        }
        if free <= last {
            self.enter(Change::Free(ObjNum(free), ObjNum(last)));
        }
        Ok(true)
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(change) = self.found.pop() {
                return Some(Ok(change));
            }
            match self.step() {
                Ok(true) => {}
                Ok(false) => {
                    self.tell_free();
                    return self.found.pop().map(Ok);
                }
                Err(e) => return Some(Err(e)),
            }
        }
    }
}
