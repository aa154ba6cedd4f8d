//! Writing the changes of a txg to the space maps.
//!
//! # Theory
//! Space maps are objects of the MOS, and their own blocks are allocated. So writing them changes
//! them. A txg is therefore synced in passes, and each pass writes what the pass before allocated
//! for the maps.
//!
//! The passes end for two reasons. From the second pass on, blocks that were born in this txg are
//! rewritten in place if they still fit. And each pass appends less than the one before.
//!
//! A map that a later pass writes for the first time costs two more passes: its old block goes to
//! the list of blocks to free in the next txg, and then that list is written. So the first pass
//! also rewrites the maps that the last txg wrote late: the MOS stays in its metaslabs for long.

use super::Allocator;
use super::state::{Changes, MetaslabKey, State};
use crate::range::RangeSet;
use crate::spacemap::{METASLAB_BLOCK_SIZE, Pass, SpaceMap};
use crate::{Mos, Result};
use dmu::{NewObject, Tx};
use ondisk::spacemap::{MapType, SpaceMapPhys};
use ondisk::{DmuType, ObjNum, mos};

/// Most maps that a first pass rewrites because the last txg wrote them late.
const MOST_TOUCHED: usize = 16;

/// A metaslab's map, and how to write it.
struct Target {
    vdev_array: ObjNum,
    object: Option<ObjNum>,
    start: u64,
    size: u64,
    shift: u8,
}

impl Allocator {
    /// Writes the allocations and frees of the txg of `tx` since the last call to the space maps
    /// (`metaslab_sync`).
    ///
    /// `mos` is the live MOS. Returns true if something was written, so that the MOS is dirty. Only
    /// the sync thread calls this, once in each pass from 1 on.
    ///
    /// # Errors
    /// The errors of [counting features](crate::Error#counting-features). After an error, the txg
    /// can't be synced any more.
    pub fn sync(&self, tx: &Tx, mos: &Mos, pass: u32) -> Result<bool> {
        let writing = Pass::new(mos, tx, pass)?;
        let folded = pass == 1 && self.fold_logs(tx, mos)?;
        let (jobs, touched) = {
            let mut state = self.state.lock();
            let changes = state.take(tx.txg());
            let jobs: Vec<_> = changes.into_iter().map(|c| (state.target(c.place), c)).collect();
            let touched = state.note_late(&jobs, pass);
            (jobs, touched)
        };
        for target in touched {
            // It changes nothing. If the map can't be read, what appends to it reports that.
            let _ = target.touch(tx, mos);
        }
        let noted = self.sync_side(&writing, mos)?;
        let any = folded || noted || !jobs.is_empty();
        for (target, changes) in jobs {
            let anew = |map: &SpaceMap| {
                let mut state = self.state.lock();
                let ms = state.metaslab(changes.place);
                let segments = ms.most_segments_before(&changes).filter(|_| pass == 1)? as u64;
                // A walk through all free space, which only a rewritten map is worth.
                map.should_condense(segments, 1 << target.shift).then(|| ms.allocated_before(&changes))?
            };
            let (object, phys) = write(mos, &writing, &target, &changes, anew)?;
            let mut state = self.state.lock();
            let ms = state.metaslab(changes.place);
            (ms.object, ms.phys) = (Some(object), Some(phys));
        }
        Ok(any)
    }

    /// Creates the array of space maps of a new vdev, and adds the vdev with all its space free
    /// (`vdev_sync`).
    ///
    /// Returns the array's object, which belongs into the config of the vdev.
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    ///
    /// # Panics
    /// If the vdev was added before.
    pub fn create(&self, tx: &Tx, mos: &Mos, top: &crate::metaslab::TopVdev) -> Result<ObjNum> {
        let array = mos.objset().create_object(tx, &NewObject::new(DmuType::OBJECT_ARRAY))?.object();
        self.add_vdev(&crate::metaslab::TopVdev { ms_array: array, ..*top });
        Ok(array)
    }

    /// Destroys the logs of an imported pool, because this txg writes their changes to the
    /// metaslabs' own maps.
    fn fold_logs(&self, tx: &Tx, mos: &Mos) -> Result<bool> {
        let Some(tops) = self.state.lock().logged.take() else { return Ok(false) };
        for top in tops {
            let Some(zap) = top.top_zap else { continue };
            let name = mos::VDEV_TOP_MS_UNFLUSHED_PHYS_TXGS;
            if let Some(object) = mos.u64(zap, name)? {
                mos.unset(tx, zap, name)?;
                mos.objset().free_object(tx, ObjNum(object))?;
            }
        }
        if let Some(zap) = mos.dir(mos::LOG_SPACEMAP_ZAP)? {
            for (_, object) in mos.log_spacemaps()? {
                mos.destroy_space_map(tx, object)?;
            }
            mos.unlink(tx, mos::LOG_SPACEMAP_ZAP)?;
            mos.objset().free_object(tx, zap)?;
            mos.feature_decr(tx, crate::feature::known("com.delphix:log_spacemap"))?;
        }
        Ok(true)
    }
}

impl Target {
    /// Has the pass write the end of its map, unchanged.
    fn touch(&self, tx: &Tx, mos: &Mos) -> Result<()> {
        let Some(object) = self.object else { return Ok(()) };
        SpaceMap::open(mos, object, self.start, self.size, self.shift)?.touch(tx)
    }
}

impl State {
    /// Notes the metaslabs that this pass allocated from, if it is a later one. Returns what the
    /// first pass is to rewrite for those that the last txg wrote late.
    ///
    /// Frees are of no use here: the next txg frees elsewhere.
    fn note_late(&mut self, jobs: &[(Target, Changes)], pass: u32) -> Vec<Target> {
        if pass > 1 {
            let allocated = jobs.iter().filter(|(_, changes)| !changes.allocs.is_empty());
            self.late.extend(allocated.map(|(_, changes)| changes.place));
            return Vec::new();
        }
        let written = jobs.iter().map(|(_, changes)| changes.place);
        let mut late = std::mem::take(&mut self.late);
        written.for_each(|place| _ = late.remove(&place));
        late.into_iter().take(MOST_TOUCHED).map(|place| self.target(place)).collect()
    }

    fn target(&self, (vdev, id): MetaslabKey) -> Target {
        let v = &self.vdevs[&vdev];
        let ms = &v.metaslabs[id as usize];
        Target {
            vdev_array: v.top.ms_array,
            object: ms.object,
            start: ms.start,
            size: ms.size,
            shift: ms.shift,
        }
    }
}

/// Writes a metaslab's map, which is created if there is none. Returns its object and header.
///
/// `anew` says what a map lists before this txg if it is to be rewritten.
fn write(
    mos: &Mos,
    pass: &Pass<'_>,
    target: &Target,
    changes: &Changes,
    anew: impl FnOnce(&SpaceMap) -> Option<RangeSet>,
) -> Result<(ObjNum, SpaceMapPhys)> {
    let object = match target.object {
        Some(object) => object,
        None => {
            let object = mos.create_space_map(pass.tx, METASLAB_BLOCK_SIZE)?;
            mos.write_words(pass.tx, target.vdev_array, changes.place.1.into(), &[object.0])?;
            object
        }
    };
    let mut map = SpaceMap::open(mos, object, target.start, target.size, target.shift)?;
    match anew(&map) {
        Some(allocated) => {
            map.truncate(pass.tx)?;
            map.append(pass, MapType::Alloc, &allocated)?;
        }
        None => {
            map.append(pass, MapType::Alloc, &changes.unflushed.0)?;
            map.append(pass, MapType::Free, &changes.unflushed.1)?;
        }
    }
    map.append(pass, MapType::Alloc, &changes.allocs)?;
    map.append(pass, MapType::Free, &changes.frees)?;
    map.set_histogram(&changes.histogram);
    map.store(pass.tx)?;
    Ok((object, map.phys().clone()))
}
