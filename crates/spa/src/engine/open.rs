//! Opening an imported pool for writing.
//!
//! # Theory
//! A pool that was loaded as for reading becomes one that is written: the same devices, which were opened for writing, the same cache,
//! the MOS opened live, the allocator from its space maps. Whatever this engine does not keep up is refused by name before anything
//! is written, since a pool that is written by half is lost.
//!
//! A pool may be opened without devices that it can do without: what they miss is remembered. And it may be opened at an older state, as far as
//! [`crate::import`] finds one: then its first group gets a number beyond those of all uberblocks on its devices, and is written at once, so that
//! nobody finds the states again that were given up.
//!
//! # Absent
//! Replaying intent logs: such pools open for reading only.

use std::sync::Arc;

use arc::Cache;
use dmu::Objset;
use dsl::Dsl;
use ondisk::config::PoolState;
use ondisk::feature::Feature;
use ondisk::objset::ZIL_HEADER;
use ondisk::{Blkptr, Corrupt, ObjNum, PoolConfig, Txg, mos};
use pool::Mos;
use pool::alloc::Allocator;
use zio::{Entropy, Workers};

use super::{Aux, Engine, Live, Parts, Synced, World};
use crate::txg::Stopped;
use crate::{Host, Spa};

/// Latest group that a pool is opened at: there is room for more groups after it than anybody will see.
const LAST_TXG: u64 = 1 << 62;

/// Why a pool that can be read can't be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteRefusal {
    /// It is of a version before feature flags.
    #[error("pools of version {version} are not written")]
    Version {
        /// Its version.
        version: u64,
    },
    /// A feature is active that is not written.
    #[error("the feature {guid} is active, and is not written")]
    Feature {
        /// Which.
        guid: &'static str,
    },
    /// A raidz is growing, which moves its blocks.
    #[error("a raidz vdev is being expanded")]
    Expanding,
    /// It was asked for without a claim of its devices.
    #[error("a pool is written by who owns its devices")]
    Unclaimed,
    /// The uberblock of the checkpoint could not be made the newest: which one is, nobody knows.
    #[error("the uberblock of the checkpoint")]
    GoBack(#[source] Box<super::SyncError>),
    /// The first group could not be written.
    #[error("the first transaction group")]
    Stopped(#[from] Stopped),
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
        let dropped = self.check_logs(&reader)?;
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
            name: Some(self.kept_name.clone()),
            state: PoolState::Active,
            hostid: Some(host.hostid.into()).filter(|h| *h != 0),
            hostname: Some(host.hostname.clone()),
            ..PoolConfig::clone(&config)
        };
        let now = world.now();
        let parts = Parts {
            tree: self.cache.zio().tree(),
            cache: self.cache.clone(),
            allocator,
            world,
            salt: [0; 32],
        };
        // What is written from now on is newer than every uberblock that there is, also where the pool was rewound.
        let (mut state, mut last) = (uberblock.txg, self.newest.max(uberblock.txg));
        if last.0 > LAST_TXG {
            return Err(Corrupt::Range { what: "uberblock", field: "txg", value: last.0 }.into());
        }
        // An uberblock of the MOS, not of a label: the pool goes back to its checkpoint.
        let mut uberblock = uberblock;
        let goes_back = (uberblock.checkpoint_txg.0 != 0 && last > state).then_some(uberblock.checkpoint_txg);
        if goes_back.is_some() {
            last = Txg(last.0 + 1);
            state = last;
            (uberblock.txg, uberblock.timestamp) = (last, now);
        }
        let loaded = Synced { uberblock, config: Arc::new(config), features };
        let engine = Engine::new(parts, mos.clone(), dsl, deferred, loaded.clone())?;
        if goes_back.is_some() {
            engine.go_back(&loaded.uberblock).map_err(|e| WriteRefusal::GoBack(Box::new(e)))?;
        }
        *engine.aux.write() = Aux { spares: self.spares.clone(), l2cache: self.l2cache.clone() };
        let writer = Live::start(&self.name, last, Arc::new(engine));
        dropped.iter().try_for_each(|name| drop_log(&writer, name))?;
        // With `multihost` other hosts are to see at once whose the pool is.
        if let Some(checkpoint) = goes_back {
            writer.went_back(checkpoint)?;
        } else if last > state || writer.engine().multihost() || writer.is_discarding() {
            // Until a newer uberblock is there, the next import would find the states that were given up (`spa_load_impl` syncs too).
            writer.sync_first(Txg(last.0 + 1))?;
        }
        writer.attend(&self.name);
        let writer = Some(writer);
        Ok(Spa { loaded, mos, writer, ..self })
    }

    /// Refuses what is not kept up.
    fn check_writable(&self) -> Result<(), WriteRefusal> {
        let config = self.config();
        if config.vdev_tree.iter().flat_map(ondisk::VdevConfig::walk).any(|v| v.raidz_expanding) {
            return Err(WriteRefusal::Expanding);
        }
        let version = self.version();
        if version != super::SPA_VERSION {
            return Err(WriteRefusal::Version { version });
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
        Ok(())
    }

    /// Refuses a pool with logs that hold anything: what was fsynced would be lost. Where that was asked for, or belongs to groups that
    /// were given up, it yields the datasets whose logs are to be forgotten.
    fn check_logs(&self, dsl: &Dsl) -> Result<Vec<String>, WriteRefusal> {
        let synced = self.last_synced_txg().0;
        let mut dropped = Vec::new();
        let heads = dsl.list_sorted(None, &dsl::ListOptions::default())?.whole()?;
        for head in heads {
            let Some(os) = head.objset()? else { continue };
            let Some(log) = zil::Log::open(&os, synced, 0)? else { continue };
            // A log that another import claimed waits for its replay, whatever it holds.
            let claimed = log.header().claim_txg != 0 && log.blocks().next().is_some();
            if claimed || log.is_needed() || !self.log_dropped && log.is_cut_short() {
                // Blocks that are as old as the pool's state are allocated, and would have to be freed.
                let allocated = claimed || !log.is_live(&log.header().log);
                if !self.log_dropped || allocated {
                    return Err(WriteRefusal::Log { dataset: head.name() });
                }
                dropped.push(head.name());
            }
        }
        Ok(dropped)
    }
}

/// Forgets the log of a dataset (`zil_claim` with `SPA_LOG_CLEAR`). None of its blocks is allocated.
fn drop_log(live: &Live, dataset: &str) -> Result<(), WriteRefusal> {
    let owned = live.dsl().heads().own(&live.dsl().dataset(dataset)?)?;
    let tx = live.tx(0)?;
    Ok(owned.objset().set_zil_header(&tx, [0; ZIL_HEADER.end - ZIL_HEADER.start])?)
}
