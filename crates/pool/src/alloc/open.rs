//! The allocator of an existing pool.

use super::Allocator;
use super::state::State;
use crate::metaslab::{LogChanges, TopVdev};
use crate::spacemap::SpaceMap;
use crate::{Error, Mos, Result};
use ondisk::{ObjNum, Txg, mos};
use vdev::TreeCell;

impl Allocator {
    /// Opens the allocator of an existing pool (`spa_ld_load_vdev_metadata`).
    ///
    /// `mos` is the immutable MOS that was synced last, and `vdevs` are the top-level vdevs that
    /// have space. Of the space maps, only headers and logs are read.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading).
    /// * [`Error::Unsupported`]: a device is being removed, or a mapping is being condensed, so
    ///   that freed space must not simply be reused.
    pub fn open(mos: &Mos, tree: impl Into<TreeCell>, vdevs: &[TopVdev]) -> Result<Allocator> {
        let tree = tree.into();
        refuse(mos)?;
        let logs = LogChanges::read(mos, vdevs)?;
        let mut state = State::new();
        for top in vdevs {
            state.add_vdev(top);
            state.read_sums(mos, top, &logs)?;
            state.lend_log_metaslab(top.id);
        }
        if mos.dir(mos::LOG_SPACEMAP_ZAP)?.is_some() {
            state.logged = Some(vdevs.to_vec());
        }
        state.look_at(mos);
        let out = Allocator::with(tree, state);
        out.open_side(mos)?;
        Ok(out)
    }
}

/// Refuses pools whose state the frees of this allocator do not handle.
fn refuse(mos: &Mos) -> Result<()> {
    /// The blocks of the vdev are being copied (`DSS_SCANNING`).
    const SCANNING: u64 = 1;
    match mos.removing()?.is_some_and(|r| r.state == SCANNING) {
        true => Err(Error::Unsupported { what: "devices that are being removed" }),
        false => Ok(()),
    }
}

impl State {
    /// Reads the headers of a vdev's maps, and its changes in logs.
    fn read_sums(&mut self, mos: &Mos, top: &TopVdev, logs: &LogChanges) -> Result<()> {
        // The first txg that is written folds the logs in. It is not known yet, but is no older
        // than any log.
        let fold = mos.unflushed_txgs(top)?;
        for (id, object) in mos.metaslab_objects(top)?.into_iter().enumerate() {
            let id = id as u32;
            let first = fold.get(id as usize).copied().unwrap_or(0);
            let unflushed = logs.net(top, id.into(), Txg(first))?;
            let vdev = self.vdevs.get_mut(&top.id).expect("it has been added");
            let ms = &mut vdev.metaslabs[id as usize];
            let group = &mut self.groups[ms.group.0];
            group.remove(id, ms);
            if object != 0 {
                let object = ObjNum(object);
                let map = SpaceMap::open(mos, object, ms.start, ms.size, ms.shift)?;
                ms.allocated = u64::try_from(map.phys().alloc).unwrap_or(0).min(ms.size);
                (ms.object, ms.phys) = (Some(object), Some(map.phys().clone()));
            }
            let (added, removed) = (unflushed.0.space(), unflushed.1.space());
            ms.allocated = ms.allocated.saturating_add(added).saturating_sub(removed).min(ms.size);
            ms.folded = unflushed.0.is_empty() && unflushed.1.is_empty();
            ms.unflushed = unflushed;
            ms.weight = ms.reckon_weight();
            group.add(id, ms);
            if !ms.folded {
                self.to_fold.insert((top.id, id));
            }
        }
        Ok(())
    }
}
