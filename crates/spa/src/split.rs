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

use arc::Cache;
use dmu::{Objset, Tx};
use dsl::sync::Event;
use observe::lock::Mutex;
use ondisk::{Blkptr, Guid, Nvlist, RootedConfig, Txg, Value, VdevConfig};
use pool::Mos;
use vdev::{Tree, VdevAux};
use zio::{ReadOptions, Workers, Zio};

use crate::checkpoint;
use crate::engine::PoolWriter;
use crate::engine::parts::Parts;
use crate::import::Resources;
use crate::import::open_for_writing::WriteRefusal;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::{ShapeError, SyncError};
use crate::pool_core::state::{AuxLists, PoolTask, Synced};
use crate::vdev_ops::split::{Plan, Unfit, join, part, release};
use crate::vdev_ops::vdev_objects::forget;
use crate::{Candidate, Host, Spa, SpaError};

/// Why a pool was not split; it is as it was.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// The pool can't be changed.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The pool or the devices don't allow it.
    #[error(transparent)]
    Unfit(#[from] Unfit),
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

/// The further work of the new pool's first txg: it removes everything of vdevs that the new pool
/// does not have.
fn cut_loose(others: Vec<VdevConfig>, from: String) -> PoolTask {
    Box::new(move |core, tx| {
        let metadata = |source| SyncError::Metadata { txg: tx.txg(), source };
        others.iter().try_for_each(|vdev| forget(&core.sync_mos, tx, vdev)).map_err(metadata)?;
        core.put_aux(tx, &AuxLists::default())?;
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
        crate::import::load::furnish(&cache, &tree, &self.plan.new, &mos)?;
        let mut split = Nvlist::new();
        split.set("split_guid", Value::Uint64(synced.config.pool_guid.unwrap_or_default().0));
        let mut config = RootedConfig::clone(&synced.config);
        (config.name, config.pool_guid) = (Some(self.name.clone()), Some(self.guid));
        config.split = Some(split);
        config.set_root(self.plan.new.clone());
        let candidate = Candidate {
            guid: self.guid,
            name: self.name.clone(),
            state: config.state,
            config: config.clone().into_config(),
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
    fn make(&self, core: &PoolCore, synced: &Synced, from: &Tree) -> Result<Spa, SplitError> {
        let spa = self.load(synced, from)?;
        let first = cut_loose(self.plan.others.clone(), core.dsl.pool_name().to_owned());
        let resources = Resources { workers: self.workers.clone(), world: core.world.clone() };
        Ok(spa.split_off(&self.host, self.altroot.clone(), resources, first)?)
    }
}

/// Runs the txg that parts with the devices.
fn split_now(
    core: &PoolCore,
    tx: &Tx,
    parting: &Parting,
) -> Result<(Result<Spa, SplitError>, Vec<Event>), SyncError> {
    let old = match part(core, &parting.plan) {
        Ok(old) => old,
        Err(e) => return Ok((Err(e.into()), Vec::new())),
    };
    let synced = core.synced.read().clone();
    // The new pool is opened with options of its own. So a device of it that fails is an error
    // of the split, and the sync does not wait for it.
    match parting.make(core, &synced, &old) {
        Ok(spa) => Ok((Ok(spa), release(core, tx, &parting.plan)?)),
        Err(e) => {
            join(core, old);
            Ok((Err(e), Vec::new()))
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
        let Parts { core, works, .. } = self.parts();
        let _alone = core.shape.lock();
        checkpoint::shape_is_free(&core.mos)?;
        // The works on a device continue in its pool after the split.
        works.stop_works();
        let done = self.split_quietly(terms);
        works.restart_works();
        done
    }

    fn split_quietly(&self, terms: &SplitTerms<'_>) -> Result<Spa, SplitError> {
        let core = &self.parts().core;
        let config = self.config();
        let root = config.root();
        let plan = Plan::of(root, terms.guid, terms.leaves, &core.tree())?;
        // Completes what an import left to the first txg, and syncs all changes before the call
        // into the new pool.
        let refresh: PoolTask = Box::new(|core, _| {
            core.edit_config(|_| {});
            Ok(Vec::new())
        });
        core.change_pool(refresh).map_err(ShapeError::from)?;
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
        core.change_early(Box::new(move |core, tx| {
            let (made, events) = split_now(core, tx, &parting)?;
            *slot.lock() = Some(made);
            Ok(events)
        }))
        .map_err(ShapeError::from)?;
        result.lock().take().expect("the group has done it")
    }
}
