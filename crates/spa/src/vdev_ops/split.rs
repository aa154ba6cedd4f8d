//! The vdev trees before and after a split.
//!
//! # See
//! OpenZFS `spa_vdev_split_mirror`, `vdev_split`, `spa_try_repair`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dmu::Tx;
use dsl::sync::Event;
use ondisk::{Guid, VdevConfig, VdevKind};
use vdev::{Tree, VdevAux, VdevState};

use crate::new_vdevs::Claimed;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::SyncError;
use crate::pool_core::state::PoolTask;
use crate::vdev_ops::replicas::hole;
use crate::vdev_ops::vdev_objects::forget;

/// Most time for users of the old tree to finish.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a pool can't be split in this way.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It has other vdevs than mirrors (`EINVAL`).
    #[error("the vdev {} is no mirror", guid.0)]
    NotMirror {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The devices are not one healthy device of each mirror (`EINVAL`).
    #[error("the devices are not one of each mirror")]
    Devices,
    /// A mirror would be left without a complete device, or log blocks are still being written
    /// (`EBUSY`).
    #[error("the mirror {} can't spare the device", guid.0)]
    Busy {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The rest of the tree is invalid.
    #[error("the tree of vdevs")]
    Tree(#[from] vdev::VdevError),
}

/// Both trees after the split, and what changes between them.
pub(crate) struct Plan {
    /// The new pool's.
    pub(crate) new: VdevConfig,
    /// The old pool's.
    pub(crate) rest: VdevConfig,
    /// What is split off, as in the old pool.
    gone: Vec<VdevConfig>,
    /// Devices that take their mirror's place: their old guid, and the new.
    promoted: Vec<(Guid, Guid)>,
    /// Vdevs that the new pool does not have: other children of the mirrors, and log devices.
    pub(crate) others: Vec<VdevConfig>,
}

/// A device in the place of its mirror, under this guid.
fn as_top(leaf: &VdevConfig, top: &VdevConfig, guid: Guid) -> VdevConfig {
    VdevConfig {
        guid,
        id: top.id,
        ashift: top.ashift,
        asize: top.asize,
        metaslab_array: top.metaslab_array,
        metaslab_shift: top.metaslab_shift,
        alloc_bias: top.alloc_bias,
        non_allocating: top.non_allocating,
        removing: top.removing,
        top_zap: top.top_zap,
        create_txg: top.create_txg,
        // If this txg gets no further than its first labels, they still say which device of the
        // mirror it was.
        orig_guid: if guid == leaf.guid { leaf.orig_guid } else { Some(leaf.guid) },
        ..leaf.clone()
    }
}

impl Plan {
    /// The plan of a split that gives these devices to a new pool.
    ///
    /// # Errors
    /// * [`Unfit`]: the pool or the devices don't allow it.
    pub(crate) fn of(root: &VdevConfig, guid: Guid, leaves: &[Guid], tree: &Tree) -> Result<Plan, Unfit> {
        let bare = VdevConfig { children: Vec::new(), ..root.clone() };
        let mut plan = Plan {
            new: VdevConfig { guid, ..bare.clone() },
            rest: bare,
            gone: Vec::new(),
            promoted: Vec::new(),
            others: Vec::new(),
        };
        for top in &root.children {
            match top.kind {
                _ if top.is_log => {
                    plan.new.children.push(hole(top.id));
                    plan.rest.children.push(top.clone());
                    plan.others.push(top.clone());
                }
                VdevKind::Hole => {
                    plan.new.children.push(hole(top.id));
                    plan.rest.children.push(top.clone());
                }
                VdevKind::Indirect => {
                    plan.new.children.push(top.clone());
                    plan.rest.children.push(top.clone());
                }
                VdevKind::Mirror => plan.mirror(top, leaves, tree)?,
                _ => return Err(Unfit::NotMirror { guid: top.guid }),
            }
        }
        while plan.new.children.pop_if(|top| top.kind == VdevKind::Hole).is_some() {}
        if plan.gone.len() != leaves.len() || plan.gone.is_empty() {
            return Err(Unfit::Devices);
        }
        Ok(plan)
    }

    /// Splits a mirror.
    fn mirror(&mut self, top: &VdevConfig, leaves: &[Guid], tree: &Tree) -> Result<(), Unfit> {
        let (out, kept): (Vec<_>, Vec<_>) =
            top.children.iter().cloned().partition(|side| leaves.contains(&side.guid));
        let [leaf] = &out[..] else { return Err(Unfit::Devices) };
        if !is_whole(leaf, tree) {
            return Err(Unfit::Devices);
        }
        if !kept.iter().any(|side| is_whole(side, tree)) {
            return Err(Unfit::Busy { guid: top.guid });
        }
        self.others.extend(kept.iter().cloned());
        self.new.children.push(as_top(leaf, top, leaf.guid));
        self.leave(top, out, kept);
        Ok(())
    }

    /// The rest of a mirror.
    fn leave(&mut self, top: &VdevConfig, gone: Vec<VdevConfig>, mut kept: Vec<VdevConfig>) {
        self.gone.extend(gone);
        if let [last] = &kept[..] {
            // It keeps the mirror's guid, by which all devices know the top-level vdev
            // (`vdev_remove_parent`).
            self.promoted.push((last.guid, top.guid));
            self.rest.children.push(as_top(last, top, top.guid));
        } else {
            (0..).zip(&mut kept).for_each(|(id, side)| side.id = id);
            self.rest.children.push(VdevConfig { children: kept, ..top.clone() });
        }
    }

    /// The devices that take their mirror's place, under their new guids.
    fn promoted_devices(&self, tree: &Tree) -> Claimed {
        let device = |guid: Guid| tree.devices().find(|(g, _)| *g == guid).map(|(_, device)| device.clone());
        self.promoted.iter().filter_map(|(was, is)| Some((*is, device(*was)?))).collect()
    }

    /// The tree of a pool without the devices that have left with a split; `None` if there are
    /// none.
    fn without_gone(root: &VdevConfig, tree: &Tree) -> Option<Plan> {
        let gone =
            |leaf: &VdevConfig| tree.state_of(leaf.guid).is_ok_and(|(_, aux)| aux == VdevAux::SplitPool);
        let bare = VdevConfig { children: Vec::new(), ..root.clone() };
        let mut plan = Plan {
            new: bare.clone(),
            rest: bare,
            gone: Vec::new(),
            promoted: Vec::new(),
            others: Vec::new(),
        };
        for top in &root.children {
            let (out, kept): (Vec<_>, Vec<_>) = top.children.iter().cloned().partition(gone);
            let go_on = top.kind == VdevKind::Mirror && kept.iter().any(|side| is_whole(side, tree));
            match out.is_empty() || !go_on {
                true => plan.rest.children.push(top.clone()),
                false => plan.leave(top, out, kept),
            }
        }
        (!plan.gone.is_empty()).then_some(plan)
    }
}

/// Whether a child of a mirror is a device that has everything.
fn is_whole(side: &VdevConfig, tree: &Tree) -> bool {
    // A child that is being replaced is no device.
    side.kind.is_leaf()
        && tree.state_of(side.guid).is_ok_and(|(state, _)| state == VdevState::Healthy)
        && tree.is_writable(side.guid)
        && tree.dtl(side.guid).is_ok_and(|missed| missed.is_empty())
}

/// The work of an import's first txg if devices have left with a split, and the old pool's own txg
/// was lost (`spa_try_repair`).
pub(crate) fn finish(root: &VdevConfig, tree: &Tree) -> Option<PoolTask> {
    let plan = Plan::without_gone(root, tree)?;
    Some(Box::new(move |core, tx| {
        let shape = |source| SyncError::Shape { txg: tx.txg(), source };
        let tree = core.reshape(&plan.rest, &plan.promoted_devices(&core.tree())).map_err(shape)?;
        for (_, guid) in &plan.promoted {
            // It has the state of the mirror, which lacked a device.
            tree.set_state(*guid, VdevState::Healthy, VdevAux::None).map_err(shape)?;
        }
        release(core, tx, &plan)
    }))
}

/// Replaces the old tree by its rest, and gives the old one when its last user has finished.
pub(crate) fn part(core: &PoolCore, plan: &Plan) -> Result<Arc<Tree>, Unfit> {
    let old = core.tree();
    core.reshape(&plan.rest, &plan.promoted_devices(&old))?;
    let began = Instant::now();
    while Arc::strong_count(&old) > 1 {
        if began.elapsed() > PATIENCE {
            join(core, old);
            return Err(Unfit::Busy { guid: plan.rest.guid });
        }
        // A user is in the middle of one read or write, whose end is not signalled.
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(old)
}

/// Puts the old tree back after a failure. The labels of all its devices are rewritten.
pub(crate) fn join(core: &PoolCore, old: Arc<Tree>) {
    let _one = core.placing.lock();
    core.cache.zio().trees().set(old);
    core.edit_config(|_| {});
}

/// Removes the devices that have left.
pub(crate) fn release(core: &PoolCore, tx: &Tx, plan: &Plan) -> Result<Vec<Event>, SyncError> {
    let txg = tx.txg();
    let gone = plan.gone.iter().try_for_each(|leaf| {
        core.dtls.lock().remove(&leaf.guid);
        forget(&core.sync_mos, tx, leaf)
    });
    gone.map_err(|source| SyncError::Metadata { txg, source })?;
    core.edit_config(|config| config.set_root(plan.rest.clone()));
    let event = |leaf: &VdevConfig| {
        let path = String::from_utf8_lossy(leaf.path.as_deref().unwrap_or(b"-")).into_owned();
        Event { what: "detach", dataset: String::new(), object: 0, text: format!("vdev={path}") }
    };
    Ok(plan.gone.iter().map(event).collect())
}
