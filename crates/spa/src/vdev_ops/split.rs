//! Splitting one device of each mirror off into a new pool.
//!
//! # Theory
//! A device of a mirror holds everything that the pool held at its last txg. So the new pool is the
//! old one as of that txg, with another name, guid and config, over the devices that were split
//! off. Its first txg removes the metadata of the other devices, and the intent logs of file
//! systems in use. All this happens while the old pool's sync thread waits before anything else of
//! its own next txg. Changes of the old pool meanwhile go to later txgs.
//!
//! # Crash
//! The new pool's first txg is written to its devices alone: labels 0 and 2, the uberblock, labels
//! 1 and 3. These labels say that the pool comes from the old one (`split_guid`). Only then the old
//! pool's txg is written, without these devices.
//!
//! Until the uberblock is there the devices still belong to the old pool, whose last state they
//! hold untouched under their odd labels. From then on an import of the old pool leaves them out
//! (`VDEV_AUX_SPLIT_POOL`), even if its own txg was lost. Its first txg then does what the lost one
//! should have done.
//!
//! The first uberblock on any device completes the split for all of them. A search assigns the
//! devices without it to the new pool as well ([`crate::discovery`]). It finds all that it needs on
//! them, since everything but uberblock and odd labels was flushed before. While there is no such
//! uberblock, there is no new pool. OpenZFS decides for each device separately: after a crash at
//! this point, a device without uberblock goes to the pool that is imported first.
//!
//! # Locks
//! Intent log blocks are written at any time, also to places that the new pool is about to write.
//! So the old tree is replaced first, and then its remaining users are waited for.
//!
//! # See
//! OpenZFS `spa_vdev_split_mirror`, `vdev_split`, `vdev_validate`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc::Cache;
use dmu::{Objset, Tx};
use dsl::sync::Event;
use ondisk::{Blkptr, Guid, Nvlist, ObjNum, PoolConfig, Txg, Value, VdevConfig, VdevKind, mos};
use parking_lot::Mutex;
use pool::Mos;
use pool::metaslab::TopVdev;
use vdev::{Tree, VdevAux, VdevState};
use zio::{ReadOptions, Workers, Zio};

use crate::create::Claimed;
use crate::engine::{Aux, Engine, PoolTask, PoolWriter, ShapeError, SyncError, Synced, WriteRefusal};
use crate::import::Hands;
use crate::{Candidate, Host, Spa, SpaError};

/// Most time for users of the old tree to finish.
const PATIENCE: Duration = Duration::from_secs(20);
/// The block size for which a vdev's space is calculated; here only its metaslabs matter.
const ANY_BLOCK: u64 = 1 << 17;

/// Why a pool was not split; it is as it was.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// The pool can't be changed.
    #[error(transparent)]
    Shape(#[from] ShapeError),
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
    /// The state on the devices can't be read.
    #[error("the pool on the devices that are split off")]
    Load(#[from] SpaError),
    /// The new pool can't be written.
    #[error("the new pool")]
    Open(#[from] WriteRefusal),
}

/// The options of a split.
pub struct SplitTerms<'a> {
    /// Name of the new pool.
    pub name: &'a str,
    /// Its guid, which no other pool has.
    pub guid: Guid,
    /// The devices that it gets: one of each mirror.
    pub leaves: &'a [Guid],
    /// Its alternate root.
    pub altroot: Option<String>,
    /// This host.
    pub host: &'a Host,
    /// Threads that compress, checksum and write.
    pub workers: Arc<Workers>,
    /// The memory of its block cache.
    pub cache: arc::CacheMemory,
}

/// Both trees after the split, and what changes between them.
struct Plan {
    /// The new pool's.
    new: VdevConfig,
    /// The old pool's.
    rest: VdevConfig,
    /// What is split off, as in the old pool.
    gone: Vec<VdevConfig>,
    /// Devices that take their mirror's place: their old guid, and the new.
    promoted: Vec<(Guid, Guid)>,
    /// Vdevs that the new pool does not have: other children of the mirrors, and log devices.
    others: Vec<VdevConfig>,
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

/// The hole that keeps the ids of the top-level vdevs behind it.
pub(crate) fn hole(id: u64) -> VdevConfig {
    VdevConfig { id, is_hole: true, ..VdevConfig::new(VdevKind::Hole, Guid(0)) }
}

impl Plan {
    fn of(root: &VdevConfig, terms: &SplitTerms<'_>, tree: &Tree) -> Result<Plan, SplitError> {
        let bare = VdevConfig { children: Vec::new(), ..root.clone() };
        let mut plan = Plan {
            new: VdevConfig { guid: terms.guid, ..bare.clone() },
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
                VdevKind::Mirror => plan.mirror(top, terms.leaves, tree)?,
                _ => return Err(SplitError::NotMirror { guid: top.guid }),
            }
        }
        while plan.new.children.pop_if(|top| top.kind == VdevKind::Hole).is_some() {}
        if plan.gone.len() != terms.leaves.len() || plan.gone.is_empty() {
            return Err(SplitError::Devices);
        }
        Ok(plan)
    }

    /// Splits a mirror.
    fn mirror(&mut self, top: &VdevConfig, leaves: &[Guid], tree: &Tree) -> Result<(), SplitError> {
        let (out, kept): (Vec<_>, Vec<_>) =
            top.children.iter().cloned().partition(|side| leaves.contains(&side.guid));
        let [leaf] = &out[..] else { return Err(SplitError::Devices) };
        if !is_whole(leaf, tree) {
            return Err(SplitError::Devices);
        }
        if !kept.iter().any(|side| is_whole(side, tree)) {
            return Err(SplitError::Busy { guid: top.guid });
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
    Some(Box::new(move |engine, tx| {
        let shape = |source| SyncError::Shape { txg: tx.txg(), source };
        let tree = engine.reshape(&plan.rest, &plan.promoted_devices(&engine.tree())).map_err(shape)?;
        for (_, guid) in &plan.promoted {
            // It has the state of the mirror, which lacked a device.
            tree.set_state(*guid, VdevState::Healthy, VdevAux::None).map_err(shape)?;
        }
        engine.let_split(tx, &plan)
    }))
}

/// Destroys what the MOS keeps of a vdev, and of all below it.
// Recursion as deep as the tree, whose depth was checked when it was built.
pub(crate) fn forget(mos: &Mos, tx: &Tx, vdev: &VdevConfig) -> pool::Result<()> {
    if let Some(zap) = vdev.leaf_zap {
        mos.destroy_vdev_zap(tx, zap)?;
    }
    if let Some(dtl) = vdev.dtl {
        mos.destroy_space_map(tx, dtl)?;
    }
    vdev.children.iter().try_for_each(|child| forget(mos, tx, child))?;
    if let Some(top) = TopVdev::from_config(mos, vdev, ANY_BLOCK)? {
        for object in mos.metaslab_objects(&top)?.into_iter().filter(|o| *o != 0) {
            mos.destroy_space_map(tx, ObjNum(object))?;
        }
        mos.objset().free_object(tx, top.ms_array)?;
    }
    if let Some(zap) = vdev.top_zap {
        if let Some(flushed) = mos.u64(zap, mos::VDEV_TOP_MS_UNFLUSHED_PHYS_TXGS)? {
            mos.objset().free_object(tx, ObjNum(flushed))?;
        }
        mos.destroy_vdev_zap(tx, zap)?;
    }
    Ok(())
}

/// The further work of the new pool's first txg: it removes everything of vdevs that the new pool
/// does not have.
fn cut_loose(others: Vec<VdevConfig>, from: String) -> PoolTask {
    Box::new(move |engine, tx| {
        let books = |source| SyncError::Books { txg: tx.txg(), source };
        others.iter().try_for_each(|vdev| forget(&engine.sync_mos, tx, vdev)).map_err(books)?;
        engine.put_aux(tx, &Aux::default())?;
        let text = format!("from pool {from}");
        Ok(vec![Event { what: "split", dataset: String::new(), object: 0, text }])
    })
}

/// The inputs for the old pool's txg that parts with the devices.
struct Parting {
    plan: Plan,
    name: String,
    guid: Guid,
    altroot: Option<String>,
    host: Host,
    workers: Arc<Workers>,
    cache: arc::CacheMemory,
}

impl Parting {
    /// The new pool as a reader: the old one as of its last txg, on the devices that are split off.
    fn load(&self, synced: &Synced, from: &Tree) -> Result<Spa, SplitError> {
        let device = |guid: Guid| from.devices().find(|(g, _)| *g == guid).map(|(_, device)| device.clone());
        let mut open = |leaf: &VdevConfig| device(leaf.guid).ok_or(VdevAux::OpenFailed);
        let tree = Arc::new(Tree::open(&self.plan.new, &mut open).map_err(ShapeError::from)?);
        let what = "the pool that is split off";
        let failed = |source: pool::Error| SpaError::Mos { what, source };
        let bp =
            Blkptr::decode(&synced.uberblock.rootbp).map_err(|source| SpaError::Corrupt { what, source })?;
        let cache = Arc::new(Cache::new(Zio::new(tree.clone()), self.cache.clone()));
        let os = Objset::open(cache.clone(), 0, &bp, ReadOptions::demand()).map_err(|e| failed(e.into()))?;
        let mos = Mos::open(os).map_err(failed)?;
        crate::import::furnish(&cache, &tree, &self.plan.new, &mos)?;
        let mut split = Nvlist::new();
        split.set("split_guid", Value::Uint64(synced.config.pool_guid.unwrap_or_default().0));
        let config = PoolConfig {
            name: Some(self.name.clone()),
            pool_guid: Some(self.guid),
            vdev_tree: Some(self.plan.new.clone()),
            split: Some(split),
            ..PoolConfig::clone(&synced.config)
        };
        let candidate = Candidate {
            guid: self.guid,
            name: self.name.clone(),
            state: config.state,
            config: config.clone(),
            members: Vec::new(),
            auxiliary: Arc::default(),
            superseded_by: None,
        };
        Ok(Spa {
            name: self.name.clone(),
            kept_name: self.name.clone(),
            candidate,
            loaded: Synced { config: Arc::new(config), ..synced.clone() },
            // There are no readers before it is imported.
            _ahead: None,
            cache,
            mos,
            spares: Vec::new(),
            l2cache: Vec::new(),
            aside: crate::aux_devices::Asides::new(),
            checkpoint: None,
            errata: None,
            newest: Txg(0),
            log_dropped: true,
            writer: None,
        })
    }

    /// Creates the new pool; its first txg is on its devices.
    fn make(&self, engine: &Engine, synced: &Synced, from: &Tree) -> Result<Spa, SplitError> {
        let spa = self.load(synced, from)?;
        let first = cut_loose(self.plan.others.clone(), engine.dsl.pool_name().to_owned());
        let hands = Hands { workers: self.workers.clone(), world: engine.world.clone() };
        Ok(spa.split_off(&self.host, self.altroot.clone(), hands, first)?)
    }
}

impl Engine {
    /// Replaces the old tree by its rest, and gives the old one when its last user has finished.
    fn part(&self, plan: &Plan) -> Result<Arc<Tree>, SplitError> {
        let old = self.tree();
        self.reshape(&plan.rest, &plan.promoted_devices(&old)).map_err(ShapeError::from)?;
        let began = Instant::now();
        while Arc::strong_count(&old) > 1 {
            if began.elapsed() > PATIENCE {
                self.join(old);
                return Err(SplitError::Busy { guid: plan.rest.guid });
            }
            // A user is in the middle of one read or write, whose end is not signalled.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(old)
    }

    /// Puts the old tree back after a failure. The labels of all its devices are rewritten.
    fn join(&self, old: Arc<Tree>) {
        let _one = self.placing.lock();
        self.cache.zio().trees().set(old);
        self.edit_config(|_| {});
    }

    /// Removes the devices that have left.
    fn let_split(&self, tx: &Tx, plan: &Plan) -> Result<Vec<Event>, SyncError> {
        let txg = tx.txg();
        let gone = plan.gone.iter().try_for_each(|leaf| {
            self.dtls.lock().remove(&leaf.guid);
            forget(&self.sync_mos, tx, leaf)
        });
        gone.map_err(|source| SyncError::Books { txg, source })?;
        self.edit_config(|config| config.vdev_tree = Some(plan.rest.clone()));
        let event = |leaf: &VdevConfig| {
            let path = String::from_utf8_lossy(leaf.path.as_deref().unwrap_or(b"-")).into_owned();
            Event { what: "detach", dataset: String::new(), object: 0, text: format!("vdev={path}") }
        };
        Ok(plan.gone.iter().map(event).collect())
    }

    /// Runs the txg that parts with the devices.
    fn split_now(
        &self,
        tx: &Tx,
        parting: &Parting,
    ) -> Result<(Result<Spa, SplitError>, Vec<Event>), SyncError> {
        let old = match self.part(&parting.plan) {
            Ok(old) => old,
            Err(e) => return Ok((Err(e), Vec::new())),
        };
        let synced = self.synced.read().clone();
        // The new pool is opened with options of its own. So a device of it that fails is an error
        // of the split, and the sync does not wait for it.
        match parting.make(self, &synced, &old) {
            Ok(spa) => Ok((Ok(spa), self.let_split(tx, &parting.plan)?)),
            Err(e) => {
                self.join(old);
                Ok((Err(e), Vec::new()))
            }
        }
    }
}

impl PoolWriter {
    /// Splits a device of each mirror off into a new pool, which is returned open for writing
    /// (`spa_vdev_split_mirror`).
    ///
    /// # Errors
    /// See [`SplitError`]: its variants name the causes. The pool is then as it was.
    pub fn split(&self, terms: &SplitTerms<'_>) -> Result<Spa, SplitError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        engine.shape_is_free()?;
        // The works on a device continue in its pool after the split.
        engine.stop_works();
        let done = self.split_quietly(terms);
        self.resume_works();
        done
    }

    fn split_quietly(&self, terms: &SplitTerms<'_>) -> Result<Spa, SplitError> {
        let engine = self.engine();
        let config = self.config();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        let plan = Plan::of(root, terms, &engine.tree())?;
        // Completes what an import left to the first txg, and syncs all changes before the call
        // into the new pool.
        let refresh: PoolTask = Box::new(|engine, _| {
            engine.edit_config(|_| {});
            Ok(Vec::new())
        });
        self.change_pool(refresh).map_err(ShapeError::from)?;
        let parting = Parting {
            plan,
            name: terms.name.to_owned(),
            guid: terms.guid,
            altroot: terms.altroot.clone(),
            host: terms.host.clone(),
            workers: terms.workers.clone(),
            cache: terms.cache.clone(),
        };
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        self.change_early(Box::new(move |engine, tx| {
            let (made, events) = engine.split_now(tx, &parting)?;
            *slot.lock() = Some(made);
            Ok(events)
        }))
        .map_err(ShapeError::from)?;
        result.lock().take().expect("the group has done it")
    }
}
