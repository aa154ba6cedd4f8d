//! Opening an imported pool for writing.
//!
//! # Theory
//! A pool that was loaded as for reading becomes one that is written: the same devices, which were opened for writing, the same cache,
//! the MOS opened live, the allocator from its space maps. Whatever this engine does not keep up is refused by name before anything
//! is written, since a pool that is written by half is lost.
//!
//! # Absent
//! Replaying intent logs, keeping dirty time logs, multihost writes, checkpoints, removed devices: such pools open for reading only.

use std::sync::Arc;

use arc::Cache;
use dmu::Objset;
use dsl::Dsl;
use ondisk::config::PoolState;
use ondisk::feature::Feature;
use ondisk::{Blkptr, Corrupt, ObjNum, PoolConfig, mos};
use pool::Mos;
use pool::alloc::Allocator;
use vdev::VdevState;
use zio::{Entropy, Workers};

use super::{Aux, Engine, Live, Parts, Synced, World};
use crate::{Host, Spa};

/// Why a pool that can be read can't be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteRefusal {
    /// It is of a version before feature flags.
    #[error("pools of version {version} are not written")]
    Version {
        /// Its version.
        version: u64,
    },
    /// A device is missing or bad: what it misses would have to be remembered.
    #[error("a device is missing or bad, and pools are only written when all are there")]
    Unhealthy,
    /// A feature is active that is not written.
    #[error("the feature {guid} is active, and is not written")]
    Feature {
        /// Which.
        guid: &'static str,
    },
    /// `multihost=on` wants its owner to write all the time.
    #[error("the pool has the multihost property on, which is not kept up")]
    Multihost,
    /// The pool was opened at an older state.
    #[error("a pool that was rewound is not written")]
    Rewound,
    /// A dataset's intent log holds what was never replayed.
    #[error("the intent log of '{dataset}' has not been replayed")]
    Log {
        /// Which.
        dataset: String,
    },
    /// It holds what can't be kept up, or its books can't be read.
    #[error("the pool's books")]
    Books(#[from] pool::Error),
    /// Its datasets can't be read.
    #[error("the pool's datasets")]
    Datasets(#[from] dsl::Error),
    /// Its MOS can't be read.
    #[error("the meta object set")]
    Mos(#[from] dmu::Error),
    /// The root pointer means nothing.
    #[error("the uberblock")]
    Uberblock(#[from] Corrupt),
    /// A log's header means nothing.
    #[error("an intent log")]
    BadLog(#[from] zil::Error),
}

/// Random bytes for salts and initialisation vectors.
struct Dice(Arc<dyn World>);

impl Entropy for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.random().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Gives a pipeline what only writing needs.
pub(crate) fn equip(
    cache: &Cache,
    allocator: &Arc<Allocator>,
    workers: Arc<Workers>,
    world: &Arc<dyn World>,
) {
    let zio = cache.zio();
    zio.set_workers(workers);
    zio.set_space(allocator.clone());
    zio.set_entropy(Arc::new(Dice(world.clone())));
}

impl Spa {
    /// Opens it for writing. Its devices were opened for that: [`crate::import::import_for_writing`].
    ///
    /// # Errors
    /// [`WriteRefusal`]; nothing has been written then.
    pub(crate) fn into_live(
        self,
        host: &Host,
        altroot: Option<String>,
        workers: Arc<Workers>,
        world: Arc<dyn World>,
    ) -> Result<Spa, WriteRefusal> {
        self.check_writable()?;
        let tops = self.top_vdevs()?;
        let space = self.space()?;
        let allocator = Arc::new(Allocator::open(&self.mos, self.cache.zio().trees().clone(), &tops)?);
        let reader = Dsl::open(self.mos.clone(), dsl::Options::default())?;
        self.check_logs(&reader)?;
        equip(&self.cache, &allocator, workers, &world);
        let Synced { uberblock, config, features } = self.loaded;
        let root = Blkptr::decode(&uberblock.rootbp)?;
        let mos = Mos::open(Objset::open_live(self.cache.clone(), 0, &root)?)?;
        let missing = pool::Error::Missing { name: mos::SYNC_BPOBJ };
        let deferred: ObjNum = mos.dir(mos::SYNC_BPOBJ)?.ok_or(missing)?;
        let options = dsl::Options { pool_name: self.name.clone(), space, altroot };
        let dsl = Dsl::open(mos.clone(), options)?;
        self.cache.zio().set_keys(dsl.keys().clone());
        let config = PoolConfig {
            name: Some(self.name.clone()),
            state: PoolState::Active,
            hostid: Some(host.hostid.into()).filter(|h| *h != 0),
            hostname: Some(host.hostname.clone()),
            ..PoolConfig::clone(&config)
        };
        let parts = Parts {
            tree: self.cache.zio().tree(),
            cache: self.cache.clone(),
            allocator,
            world,
            salt: [0; 32],
        };
        let last = uberblock.txg;
        let loaded = Synced { uberblock, config: Arc::new(config), features };
        let engine = Engine::new(parts, mos.clone(), dsl, deferred, loaded.clone())?;
        *engine.aux.write() = Aux { spares: self.spares.clone(), l2cache: self.l2cache.clone() };
        let writer = Live::start(&self.name, last, Arc::new(engine));
        writer.attend(&self.name);
        let writer = Some(writer);
        Ok(Spa { loaded, mos, writer, ..self })
    }

    fn check_writable(&self) -> Result<(), WriteRefusal> {
        let version = self.version();
        if version != super::SPA_VERSION {
            return Err(WriteRefusal::Version { version });
        }
        if self.log_dropped {
            return Err(WriteRefusal::Rewound);
        }
        if self.tree().state().0 != VdevState::Healthy {
            return Err(WriteRefusal::Unhealthy);
        }
        let features = self.features();
        for guid in features.for_read.iter().chain(&features.for_write) {
            match Feature::by_guid(guid.0) {
                Some(f) if *guid.1 > 0 && !f.can_write() => {
                    return Err(WriteRefusal::Feature { guid: f.guid });
                }
                _ => {}
            }
        }
        let multihost = match self.mos.dir(mos::PROPS)? {
            Some(props) => self.mos.u64(props, "multihost")?.unwrap_or(0) != 0,
            None => false,
        };
        if multihost { Err(WriteRefusal::Multihost) } else { Ok(()) }
    }

    /// Refuses a pool with logs that hold anything: what was fsynced would be lost.
    fn check_logs(&self, dsl: &Dsl) -> Result<(), WriteRefusal> {
        let synced = self.last_synced_txg().0;

        let heads = dsl.list_sorted(None, &dsl::ListOptions::default())?.whole()?;
        for head in heads {
            let Some(os) = head.objset()? else { continue };
            let Some(log) = zil::Log::open(&os, synced, 0)? else { continue };
            // A log that another import claimed waits for its replay too, though its blocks are as old as the pool's state.
            let waits = log.header().claim_txg != 0 || log.is_live(&log.header().log);
            if waits && log.blocks().next().is_some() {
                return Err(WriteRefusal::Log { dataset: head.name() });
            }
        }
        Ok(())
    }
}
