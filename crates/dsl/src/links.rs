//! Walks along the links between directories and datasets.
//!
//! # Theory
//! Directories name their parent, their children and the clones of their snapshots. Datasets name
//! the snapshot before them and their origin. These links are a graph, and it comes from disk. Two
//! things make cycles:
//!
//! * A promotion is legal, and can make a file system a clone of a snapshot of its own child. So a
//!   walk along children *and* clones finds the same directory again in a sound pool, and must stop
//!   there.
//! * A damaged pool can say anything. A walk along one kind of link visits nothing twice in a sound
//!   pool, so a second visit is [`Corrupt`].
//!
//! Snapshots go back in time: a walk along them that checks that needs no memory.
//!
//! # See
//! [`ParentWalk`] for parents, [`SeenObjects`] for the rest.

use std::collections::BTreeSet;

use crate::sync::Syncing;
use crate::{Error, Result, ZFS_MAX_DATASET_NAME_LEN};
use ondisk::{Corrupt, ObjNum};

/// The objects that a walk has visited.
#[derive(Debug, Default)]
pub(crate) struct SeenObjects(BTreeSet<u64>);

impl SeenObjects {
    /// Notes a visit; false if it is not the first.
    pub(crate) fn first(&mut self, object: u64) -> bool {
        self.0.insert(object)
    }

    /// Notes a visit of a walk that visits nothing twice in a sound pool.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: it is not the first visit.
    pub(crate) fn once(&mut self, object: u64, what: &'static str) -> Result<()> {
        if self.first(object) {
            return Ok(());
        }
        Err(corrupt(object, what, "a walk meets it twice"))
    }
}

/// The path from a directory up to the root. No directory is deeper than a name can be long.
#[derive(Debug)]
pub(crate) struct ParentWalk {
    from: u64,
    left: usize,
}

impl ParentWalk {
    pub(crate) fn from(dir: u64) -> ParentWalk {
        ParentWalk { from: dir, left: ZFS_MAX_DATASET_NAME_LEN }
    }

    /// The parent of a directory on the path; 0 above the root.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: the path is longer than any name.
    /// * [Reading](Error#reading): the directory can't be read.
    pub(crate) fn parent(&mut self, s: &mut Syncing<'_>, dir: u64) -> Result<u64> {
        let endless = || corrupt(self.from, "DSL directory", "no way leads to the root");
        self.left = self.left.checked_sub(1).ok_or_else(endless)?;
        Ok(s.dir(dir)?.parent_obj)
    }
}

impl Syncing<'_> {
    /// Names and objects of the children of a directory, in the order of their map.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: a child names another parent.
    /// * [Reading](Error#reading): the child map or a child can't be read.
    pub(crate) fn children(&mut self, dir: u64) -> Result<Vec<(String, u64)>> {
        let map = self.dir(dir)?.child_dir_zapobj;
        let mut out = Vec::new();
        if map == 0 {
            return Ok(out);
        }
        for e in self.mos().entries(ObjNum(map))? {
            let e = e?;
            let child = e.value.first().unwrap_or(0);
            self.check_parent(child, dir)?;
            out.push((e.name_lossy(), child));
        }
        Ok(out)
    }

    /// Checks that a directory names as its parent the directory that lists it.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: it names another parent.
    /// * [Reading](Error#reading): the directory can't be read.
    pub(crate) fn check_parent(&mut self, child: u64, parent: u64) -> Result<()> {
        if self.dir(child)?.parent_obj == parent {
            return Ok(());
        }
        Err(corrupt(child, "DSL directory", "it belongs to another parent"))
    }

    /// Heads that were cloned from snapshots of a directory.
    ///
    /// Empty where the pool's version does not record clones.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map of clones can't be read.
    pub(crate) fn clone_heads(&mut self, dir: u64) -> Result<Vec<u64>> {
        match self.dir(dir)?.clones {
            0 => Ok(Vec::new()),
            map => self.numbers(map),
        }
    }

    /// The numbers of a ZAP that is a set of numbers.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the ZAP can't be read.
    pub(crate) fn numbers(&self, map: u64) -> Result<Vec<u64>> {
        self.mos().entries(ObjNum(map))?.map(|e| Ok(e?.value.first().unwrap_or(0))).collect()
    }
}

fn corrupt(object: u64, what: &'static str, why: &'static str) -> Error {
    Error::Corrupt { object: ObjNum(object), source: Corrupt::Shape { what, why } }
}
