//! Putting what a group changed on the space maps.
//!
//! # Theory
//! Space maps are objects of the MOS, whose own blocks are allocated: writing them changes them. So a group is synced in passes, each of which
//! puts on the maps what the one before allocated for writing them. It ends since from the second pass on blocks that are
//! born in this group are rewritten where they are, if they still fit, and what appending adds is less and less.

use super::Allocator;
use super::state::{Changes, MetaslabKey, State};
use crate::range::RangeSet;
use crate::spacemap::{METASLAB_BLOCK_SIZE, Pass, SpaceMap};
use crate::{Mos, Result};
use dmu::{NewObject, Tx};
use ondisk::spacemap::{MapType, SpaceMapPhys};
use ondisk::{DmuType, ObjNum, mos};

/// Where a metaslab's map is, and how it is to be written.
struct Target {
    vdev_array: ObjNum,
    object: Option<ObjNum>,
    start: u64,
    size: u64,
    shift: u8,
    /// What the map should say before this group, if it may be written anew.
    allocated: Option<RangeSet>,
}

impl Allocator {
    /// Puts what the group of `tx` has allocated and freed since the last call on the space maps (`metaslab_sync`); `mos` is
    /// the live one. Returns whether there was anything: then the MOS is dirty. Called by the sync thread alone, once in each
    /// pass, from 1.
    ///
    /// # Errors
    /// As changing the MOS fails. Then the group can't be synced any more.
    pub fn sync(&self, tx: &Tx, mos: &Mos, pass: u32) -> Result<bool> {
        let writing = Pass::new(mos, tx, pass)?;
        let folded = pass == 1 && self.fold_logs(tx, mos)?;
        let jobs = {
            let mut state = self.state.lock();
            let changes = state.take(tx.txg());
            changes.into_iter().map(|c| (state.target(c.place, &c, pass), c)).collect::<Vec<_>>()
        };
        let noted = self.sync_side(&writing, mos)?;
        let any = folded || noted || !jobs.is_empty();
        for (target, changes) in jobs {
            let (object, phys) = write(mos, &writing, &target, &changes)?;
            let mut state = self.state.lock();
            let ms = state.metaslab(changes.place);
            (ms.object, ms.phys) = (Some(object), Some(phys));
        }
        Ok(any)
    }

    /// Makes the array of a new vdev's space maps and adds the vdev; all of its space is free (`vdev_sync`). Its config is to say
    /// the array's number.
    ///
    /// # Errors
    /// As changing the MOS fails.
    ///
    /// # Panics
    /// When the vdev is there already.
    pub fn create(&self, tx: &Tx, mos: &Mos, top: &crate::metaslab::TopVdev) -> Result<ObjNum> {
        let array = mos.objset().create_object(tx, &NewObject::new(DmuType::OBJECT_ARRAY))?.object();
        self.add_vdev(&crate::metaslab::TopVdev { ms_array: array, ..*top });
        Ok(array)
    }

    /// Destroys the logs of an imported pool, since what they say goes to the metaslabs' own maps in this group.
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

impl State {
    fn target(&self, (vdev, id): MetaslabKey, changes: &Changes, pass: u32) -> Target {
        let v = &self.vdevs[&vdev];
        let ms = &v.metaslabs[id as usize];
        Target {
            vdev_array: v.top.ms_array,
            object: ms.object,
            start: ms.start,
            size: ms.size,
            shift: ms.shift,
            allocated: (pass == 1).then(|| ms.allocated_before(changes)).flatten(),
        }
    }
}

/// Writes a metaslab's map, which is made if there is none; returns its object and header.
fn write(mos: &Mos, pass: &Pass<'_>, target: &Target, changes: &Changes) -> Result<(ObjNum, SpaceMapPhys)> {
    let object = match target.object {
        Some(object) => object,
        None => {
            let object = mos.create_space_map(pass.tx, METASLAB_BLOCK_SIZE)?;
            mos.write_words(pass.tx, target.vdev_array, changes.place.1.into(), &[object.0])?;
            object
        }
    };
    let mut map = SpaceMap::open(mos, object, target.start, target.size, target.shift)?;
    let anew = target.allocated.as_ref().filter(|a| map.should_condense(a.len() as u64, 1 << target.shift));
    match anew {
        Some(allocated) => {
            map.truncate(pass.tx)?;
            map.append(pass, MapType::Alloc, allocated)?;
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
