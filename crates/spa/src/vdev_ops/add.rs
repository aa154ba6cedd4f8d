//! Adding top-level vdevs.
//!
//! # Crash
//! New devices have labels of txg 0, of devices that are being added, before anything references
//! them. The txg that adds them writes the even labels of all devices, the uberblock, and the odd
//! labels. Any txg with a changed config does so ([`crate::sync::labels`]). Blocks may lie on a new
//! vdev in that very txg: without its uberblock nothing references them. (OpenZFS takes two txgs
//! for it, since it allocates outside of the sync too.)
//!
//! # See
//! OpenZFS `spa_vdev_add`.

use dmu::Tx;
use ondisk::{Ashift, RootedConfig, Txg, VdevConfig};

use crate::new_vdevs::{Claimed, Claimer, LABEL_RESERVE, NewVdev, Terms, begin_labels, claim};
use crate::pool_core::PoolCore;
use crate::pool_core::errors::{ShapeError, SyncError};
use crate::vdev_ops::Vdevs;
use crate::vdev_ops::vdev_objects::add_vdevs;

/// The options of adding vdevs.
pub struct AddTerms<'a> {
    /// Sector size as a shift, if the caller prescribes one.
    pub ashift: Option<Ashift>,
    /// Refuse a sector size other than the common one of the pool's vdevs, if they have one.
    pub check_ashift: bool,
    /// Take devices whose labels name a pool that is not in use.
    pub force: bool,
    /// How devices are opened.
    pub claimer: &'a Claimer<'a>,
}

/// Adds vdevs, in the syncing txg.
fn take_in(core: &PoolCore, tx: &Tx, tops: Vec<VdevConfig>, claimed: &Claimed) -> Result<(), SyncError> {
    let (txg, added) = (tx.txg(), tops.len());
    let mut root = None;
    core.edit_config(|config| {
        let tree = config.root_mut();
        tree.children.extend(tops);
        root = Some(tree.clone());
    });
    let mut root = root.expect("it was just set");
    let tree = core.reshape(&root, claimed).map_err(|source| SyncError::Shape { txg, source })?;
    add_vdevs(&core.sync_mos, tx, &tree, &core.allocator, &mut root)
        .map_err(|source| SyncError::Metadata { txg, source })?;
    let first = root.children.len() - added;
    core.list_distributed(tx, &root.children[first..])?;
    core.edit_config(|config| config.set_root(root));
    Ok(())
}

/// Records the txg in which a vdev and all below it were added (`vdev_crtxg`).
fn born(vdev: &mut VdevConfig, txg: Txg) {
    vdev.create_txg = Some(txg);
    vdev.children.iter_mut().for_each(|c| born(c, txg));
}

/// The common sector size of all vdevs for normal data, if there is one (`spa_min_ashift`,
/// `spa_max_ashift`).
fn common_ashift(root: &VdevConfig) -> Option<Ashift> {
    let ordinary = root.children.iter().filter(|t| !t.is_log && t.alloc_bias.is_none());
    let mut shifts = ordinary.filter(|t| t.metaslab_array.is_some()).filter_map(|t| t.ashift);
    let first = shifts.next()?;
    shifts.all(|s| s == first).then_some(first)
}

impl Vdevs {
    /// Adds top-level vdevs; when it returns, the pool allocates from them (`spa_vdev_add`).
    ///
    /// # Errors
    /// See [`ShapeError`]: its variants name the causes. The pool is then as it was, though a new
    /// device may have lost its old label.
    pub fn add(&self, vdevs: &[NewVdev], terms: &AddTerms<'_>) -> Result<(), ShapeError> {
        let _alone = self.core.shape.lock();
        let mut config = RootedConfig::clone(&self.core.synced.read().config);
        let root = config.root_mut();
        let txg = self.core.txgs().open();
        let common = Terms {
            first: root.children.len() as u64,
            ashift: terms.ashift,
            force: terms.force,
            txg,
            claimer: terms.claimer,
            version: self.core.mos.version(),
        };
        let (tops, claimed) = claim(vdevs, &common, &mut || self.core.world.random())?;
        if let Some(old) = common_ashift(root).filter(|_| terms.check_ashift)
            && let Some(new) = tops.iter().filter_map(|t| t.ashift).find(|a| *a != old)
        {
            return Err(ShapeError::AshiftMismatch { new, old });
        }
        root.children.extend(tops.iter().cloned());
        self.core.reshaped(root, &claimed)?;
        begin_labels(&config, &claimed, txg, LABEL_RESERVE)?;
        let mut tops = tops;
        self.core.change_pool(Box::new(move |core, tx| {
            tops.iter_mut().for_each(|top| born(top, tx.txg()));
            take_in(core, tx, tops, &claimed).map(|()| Vec::new())
        }))?;
        Ok(())
    }
}
