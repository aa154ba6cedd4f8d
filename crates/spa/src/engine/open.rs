//! Opening an imported pool for writing.
//!
//! # Theory
//! A pool that was loaded as for reading becomes one that is written: the same devices, which were opened for writing, the same cache,
//! the MOS opened live, the allocator from its space maps. Whatever this engine does not keep up is refused by name before anything
//! is written, since a pool that is written by half is lost.
//!
//! A pool may be opened without devices that it can do without: what they miss is remembered. And it may be opened at an older state, as far as
//! [`crate::import`] finds one: then its first group gets a number beyond those of all uberblocks
//! on its devices, so that
//! nobody finds the states again that were given up.
//!
//! The first group is on disk before the pool is handed out, with the configuration in all labels:
//! whoever reads these finds a pool that is in use, and by whom.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc::Cache;
use dmu::Objset;
use dsl::Dsl;
use ondisk::config::PoolState;
use ondisk::feature::Feature;
use ondisk::{Blkptr, Corrupt, ObjNum, PoolConfig, Txg, mos};
use pool::Mos;
use pool::alloc::Allocator;
use zio::{Entropy, ReadOptions, Workers};

use crate::aux_devices::Asides;
use crate::engine::claim::{GiveUp, Logs};
use crate::engine::{Aux, Engine, Parts, PoolTask, PoolWriter, Synced, World};
use crate::import::{Hands, Options};
use crate::scan::Scan;
use crate::txg::Stopped;
use crate::{Host, Spa};

/// Latest group that a pool is opened at: there is room for more groups after it than anybody will see.
const LAST_TXG: u64 = 1 << 62;

/// Why a pool that can be read can't be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteRefusal {
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
    GoBack(#[source] Box<crate::engine::SyncError>),
    /// The first group could not be written.
    #[error("the first transaction group")]
    Stopped(#[from] Stopped),
    /// A device failed where a dataset's intent log goes on: what was fsynced would be lost (`VDEV_AUX_BAD_LOG`).
    #[error("the intent log of '{dataset}' cannot be read to its end")]
    Log {
        /// Which.
        dataset: String,
    },
    /// The pool was to be split while a log waits for its replay (`EBUSY`).
    #[error("the intent log of '{dataset}' has not been replayed")]
    Unreplayed {
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

impl Parts {
    /// What an engine is made of, whose pipeline gets what only writing needs. Who frees a block asks the pipeline for it: so the scan learns of each, of the first on.
    pub(crate) fn new(
        cache: Arc<Cache>,
        allocator: Arc<Allocator>,
        workers: Arc<Workers>,
        world: Arc<dyn World>,
        salt: [u8; 32],
    ) -> Parts {
        let (zio, scan) = (cache.zio(), Scan::default());
        zio.set_workers(workers);
        zio.set_space(Arc::new(scan.watched(allocator.clone())));
        zio.hold_writes();
        zio.set_entropy(Arc::new(Dice(world.clone())));
        let tree = zio.tree();
        Parts { tree, cache, allocator, world, salt, scan }
    }
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
        hands: Hands,
        options: &Options,
    ) -> Result<Spa, WriteRefusal> {
        self.opened(host, altroot, hands, options, None)
    }

    /// Opens a pool that was just split off from another, and does this in its first group, which is written at once.
    ///
    /// # Errors
    /// [`WriteRefusal`].
    pub(crate) fn split_off(
        self,
        host: &Host,
        altroot: Option<String>,
        hands: Hands,
        first: PoolTask,
    ) -> Result<Spa, WriteRefusal> {
        self.opened(host, altroot, hands, &Options::default(), Some(first))
    }

    fn opened(
        self,
        host: &Host,
        altroot: Option<String>,
        hands: Hands,
        options: &Options,
        begin: Option<PoolTask>,
    ) -> Result<Spa, WriteRefusal> {
        let Hands { workers, world } = hands;
        self.check_writable()?;
        let tops = self.top_vdevs()?;
        let space = self.space()?;
        let allocator = Arc::new(Allocator::open(&self.mos, self.cache.zio().trees().clone(), &tops)?);
        let names = dsl::Options { pool_name: self.name.clone(), ..dsl::Options::default() };
        let reader = Dsl::open(self.mos.clone(), names)?;
        // What is written from now on is newer than every uberblock that there is, also where the pool was rewound.
        let state = self.last_synced_txg();
        let (of, give_up) = match (self.uberblock().checkpoint_txg, self.log_dropped) {
            (Txg(0), false) => (state, GiveUp::None),
            (Txg(0), true) if begin.is_some() => (state, GiveUp::Written),
            (Txg(0), true) => (state, GiveUp::All),
            // It has a new number already, if this was begun before.
            (checkpoint, _) => (checkpoint, GiveUp::Unclaimed),
        };
        let logs = Logs::survey(&reader, of, give_up, &options.pass)?;
        let mut last = self.newest.max(state).max(logs.latest());
        let parts = Parts::new(self.cache.clone(), allocator, workers, world, [0; 32]);
        let Synced { uberblock, config, features } = self.loaded;
        let root = Blkptr::decode(&uberblock.rootbp)?;
        let mos = Mos::open(Objset::open_live(self.cache.clone(), 0, &root, ReadOptions::demand())?)?;
        let missing = pool::Error::Missing { name: mos::SYNC_BPOBJ };
        let deferred: ObjNum = mos.dir(mos::SYNC_BPOBJ)?.ok_or(missing)?;
        let of_dsl = dsl::Options { pool_name: self.name.clone(), space, altroot };
        let dsl = Dsl::open(mos.clone(), of_dsl)?;
        self.cache.zio().set_keys(dsl.keys().clone());
        let config = PoolConfig {
            name: Some(self.kept_name.clone()),
            state: PoolState::Active,
            hostid: Some(host.hostid.into()).filter(|h| *h != 0),
            hostname: Some(host.hostname.clone()),
            ..PoolConfig::clone(&config)
        };
        let now = parts.world.now();
        if last.0 > LAST_TXG {
            return Err(Corrupt::Range { what: "uberblock", field: "txg", value: last.0 }.into());
        }
        // An uberblock of the MOS, not of a label: the pool goes back to its checkpoint.
        let mut uberblock = uberblock;
        let goes_back = (uberblock.checkpoint_txg.0 != 0 && last > state).then_some(uberblock.checkpoint_txg);
        if goes_back.is_some() {
            last = Txg(last.0 + 1);
            (uberblock.txg, uberblock.timestamp) = (last, now);
        }
        let loaded = Synced { uberblock, config: Arc::new(config), features };
        let engine = Engine::new(parts, mos.clone(), dsl, deferred, loaded.clone())?;
        engine.announce_versions("import", &host.hostname);
        let root = loaded.config.vdev_tree.as_ref().expect("a pool that was loaded has a tree");
        let begin = begin.or_else(|| crate::vdev_ops::split::finish(root, &self.cache.zio().tree()));
        if let Some(begin) = begin {
            engine.enter_first(Txg(last.0 + 1), begin);
        }
        if goes_back.is_some() {
            engine.go_back(&loaded.uberblock).map_err(|e| WriteRefusal::GoBack(Box::new(e)))?;
        }
        *engine.aside.lock() = self.aside;
        *engine.aux.write() = Aux { spares: self.spares.clone(), l2cache: self.l2cache.clone() };
        // The first group writes it to all labels.
        engine.edit_config(|_| {});
        engine.scan.held.store(options.hold_scans, Ordering::Relaxed);
        let writer = PoolWriter::start(&self.name, last, Arc::new(engine));
        {
            // Nobody allocates anything before the first group is let go, since nobody else knows of it.
            let first = writer.tx(0)?;
            assert_eq!(first.txg(), Txg(last.0 + 1), "whoever opens the pool is the first to hold a group");
            logs.settle(&writer, &first)?;
        }
        // Labels that say until the first group that the pool is exported, or another host's,
        // invite others to take it. And until a newer uberblock is there, the next import would
        // find the states that were given up (`spa_load_impl` syncs too).
        match goes_back {
            Some(checkpoint) => writer.went_back(checkpoint)?,
            None => writer.sync_first(Txg(last.0 + 1))?,
        }
        writer.attend(&self.name);
        writer.engine().use_cache_devices();
        writer.engine().relabel_spares();
        let writer = Some(writer);
        Ok(Spa { loaded, mos, writer, aside: Asides::new(), ..self })
    }

    /// Refuses what is not kept up.
    fn check_writable(&self) -> Result<(), WriteRefusal> {
        let config = self.config();
        if config.vdev_tree.iter().flat_map(ondisk::VdevConfig::walk).any(|v| v.raidz_expanding) {
            return Err(WriteRefusal::Expanding);
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
}
