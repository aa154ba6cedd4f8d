//! Directories and datasets that one pass of a txg touches.
//!
//! # Theory
//! Each block that is born or freed changes its dataset and every directory above it. Thousands of
//! operations of one txg share their ancestors. So each bonus is decoded once, changed here, and
//! written once. Readers of the MOS see the changes after [`BonusCache::flush`].

use crate::{Error, Result};
use dmu::Tx;
use ondisk::dsl::{DslDatasetPhys, DslDirPhys};
use ondisk::{Corrupt, DmuType, ObjNum};
use pool::Mos;
use std::collections::BTreeMap;

/// A bonus and whether it must be written.
#[derive(Debug)]
pub(crate) struct CachedBonus<P> {
    /// The present state.
    pub(crate) phys: P,
    /// The state differs from the MOS.
    pub(crate) dirty: bool,
}

/// All touched directories and datasets, by object.
#[derive(Debug, Default)]
pub(crate) struct BonusCache {
    dirs: BTreeMap<u64, CachedBonus<DslDirPhys>>,
    datasets: BTreeMap<u64, CachedBonus<DslDatasetPhys>>,
}

fn bonus(mos: &Mos, object: u64, kind: DmuType, what: &'static str) -> Result<Vec<u8>> {
    let dn = mos.objset().dnode(ObjNum(object))?;
    if dn.bonus_kind() != kind {
        let source = Corrupt::Shape { what, why: "its bonus is of another type" };
        return Err(Error::Corrupt { object: ObjNum(object), source });
    }
    Ok(dn.bonus().to_vec())
}

impl BonusCache {
    /// A directory, read on first use.
    pub(crate) fn dir(&mut self, mos: &Mos, object: u64) -> Result<&mut CachedBonus<DslDirPhys>> {
        use std::collections::btree_map::Entry;
        match self.dirs.entry(object) {
            Entry::Occupied(e) => Ok(e.into_mut()),
            Entry::Vacant(e) => {
                let raw = bonus(mos, object, DmuType::DSL_DIR, "DSL directory")?;
                let phys = DslDirPhys::decode(&raw).map_err(Error::corrupt(ObjNum(object)))?;
                Ok(e.insert(CachedBonus { phys, dirty: false }))
            }
        }
    }

    /// A dataset, read on first use.
    pub(crate) fn dataset(&mut self, mos: &Mos, object: u64) -> Result<&mut CachedBonus<DslDatasetPhys>> {
        use std::collections::btree_map::Entry;
        match self.datasets.entry(object) {
            Entry::Occupied(e) => Ok(e.into_mut()),
            Entry::Vacant(e) => {
                let raw = bonus(mos, object, DmuType::DSL_DATASET, "DSL dataset")?;
                let phys = DslDatasetPhys::decode(&raw).map_err(Error::corrupt(ObjNum(object)))?;
                Ok(e.insert(CachedBonus { phys, dirty: false }))
            }
        }
    }

    /// Enters a new directory.
    pub(crate) fn add_dir(&mut self, object: u64, phys: DslDirPhys) {
        self.dirs.insert(object, CachedBonus { phys, dirty: true });
    }

    /// Enters a new dataset.
    pub(crate) fn add_dataset(&mut self, object: u64, phys: DslDatasetPhys) {
        self.datasets.insert(object, CachedBonus { phys, dirty: true });
    }

    /// Drops a directory that was destroyed.
    pub(crate) fn forget_dir(&mut self, object: u64) {
        self.dirs.remove(&object);
    }

    /// Drops a dataset that was destroyed.
    pub(crate) fn forget_dataset(&mut self, object: u64) {
        self.datasets.remove(&object);
    }

    /// Writes what changed.
    pub(crate) fn flush(&mut self, mos: &Mos, tx: &Tx) -> Result<()> {
        for (object, book) in self.dirs.iter_mut().filter(|(_, b)| b.dirty) {
            let dn = mos.objset().dnode(ObjNum(*object))?;
            dn.set_bonus(tx, DmuType::DSL_DIR, &book.phys.encode())?;
            book.dirty = false;
        }
        for (object, book) in self.datasets.iter_mut().filter(|(_, b)| b.dirty) {
            let dn = mos.objset().dnode(ObjNum(*object))?;
            dn.set_bonus(tx, DmuType::DSL_DATASET, &book.phys.encode())?;
            book.dirty = false;
        }
        Ok(())
    }
}
