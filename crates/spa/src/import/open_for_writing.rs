//! Opening an imported pool for writing.
//!
//! # Theory
//! A pool loaded for reading becomes a writable one. It keeps the devices, which were opened for
//! writing, and the cache. The MOS is opened live, and the allocator is made from its space maps. A
//! partly maintained pool would be lost, so the open refuses by name whatever this engine does not
//! maintain, before it writes anything.
//!
//! A pool may be opened without devices that it can do without; their DTLs record what they miss.
//! It may also be opened at an older state that [`crate::import`] finds. Then its first txg gets a
//! number beyond those of all uberblocks on its devices, so that no import finds the abandoned
//! states again.
//!
//! The first txg is on disk before the caller gets the pool, with the configuration in all labels.
//! From then on the labels say that the pool is in use, and by which host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dmu::Objset;
use dsl::Dsl;
use ondisk::config::PoolState;
use ondisk::feature::Feature;
use ondisk::{Blkptr, Corrupt, ObjNum, RootedConfig, Txg, mos};
use pool::Mos;
use pool::alloc::Allocator;
use zio::ReadOptions;

use crate::aux_devices::Asides;
use crate::checkpoint;
use crate::engine::PoolWriter;
use crate::engine::parts::{Parts, Pipeline};
use crate::import::claim_logs::{GiveUp, Logs};
use crate::import::{Options, Resources};
use crate::pool_core::errors::SyncError;
use crate::pool_core::state::{AuxLists, PoolTask, Synced};
use crate::txg::Stopped;
use crate::{Host, Spa};

/// Latest txg at which a pool is opened; the txgs after it suffice for any lifetime.
const LAST_TXG: u64 = 1 << 62;

/// Why a pool that can be read can't be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteRefusal {
    /// An active feature is not supported for writing.
    #[error("the feature {guid} is active, and is not written")]
    Feature {
        /// The feature's guid.
        guid: &'static str,
    },
    /// A raidz is growing, which moves its blocks.
    #[error("a raidz vdev is being expanded")]
    Expanding,
    /// The import did not claim the devices.
    #[error("a pool is written by who owns its devices")]
    Unclaimed,
    /// The uberblock of the checkpoint could not be made the newest. Which one is the newest is
    /// unknown.
    #[error("the uberblock of the checkpoint")]
    GoBack(#[source] Box<SyncError>),
    /// The first transaction group could not be written.
    #[error("the first transaction group")]
    Stopped(#[from] Stopped),
    /// A device failed within a dataset's intent log: fsynced data would be lost
    /// (`VDEV_AUX_BAD_LOG`).
    #[error("the intent log of '{dataset}' cannot be read to its end")]
    Log {
        /// The dataset's name.
        dataset: String,
    },
    /// The pool cannot be split while a log waits for its replay (`EBUSY`).
    #[error("the intent log of '{dataset}' has not been replayed")]
    Unreplayed {
        /// The dataset's name.
        dataset: String,
    },
    /// The pool metadata can't be read, or contain what this software does not maintain.
    #[error("the pool's metadata")]
    Metadata(#[from] pool::Error),
    /// Its datasets can't be read.
    #[error("the pool's datasets")]
    Datasets(#[from] dsl::Error),
    /// Its MOS can't be read.
    #[error("the meta object set")]
    Mos(#[from] dmu::Error),
    /// The root block pointer is invalid.
    #[error("the uberblock")]
    Uberblock(#[from] Corrupt),
    /// A log's header is invalid.
    #[error("an intent log")]
    BadLog(#[from] zil::Error),
}

impl Spa {
    /// Opens the pool for writing. [`crate::import::import_for_writing`] has opened its devices for
    /// that.
    ///
    /// # Errors
    /// See [`WriteRefusal`]: its variants name the causes. Nothing has been written, except perhaps
    /// with `GoBack` and `Stopped`.
    pub(crate) fn into_live(
        self,
        host: &Host,
        altroot: Option<String>,
        resources: Resources,
        options: &Options,
    ) -> Result<Spa, WriteRefusal> {
        self.opened(host, altroot, resources, options, None)
    }

    /// Opens a pool that was just split off from another one. `first` runs in its first txg, which
    /// is written at once.
    ///
    /// # Errors
    /// See [`WriteRefusal`]: its variants name the causes.
    pub(crate) fn split_off(
        self,
        host: &Host,
        altroot: Option<String>,
        resources: Resources,
        first: PoolTask,
    ) -> Result<Spa, WriteRefusal> {
        self.opened(host, altroot, resources, &Options::default(), Some(first))
    }

    fn opened(
        self,
        host: &Host,
        altroot: Option<String>,
        resources: Resources,
        options: &Options,
        begin: Option<PoolTask>,
    ) -> Result<Spa, WriteRefusal> {
        let Resources { workers, world } = resources;
        self.check_writable()?;
        let tops = self.top_vdevs()?;
        let space = self.space()?;
        let allocator = Arc::new(Allocator::open(&self.mos, self.cache.zio().trees().clone(), &tops)?);
        let names = dsl::Options { pool_name: self.name.clone(), ..dsl::Options::default() };
        let reader = Dsl::open(self.mos.clone(), names)?;
        // Writes from now on must be newer than every existing uberblock, also after a rewind.
        let state = self.last_synced_txg();
        let (of, give_up) = self.logs_to_drop(begin.is_some());
        let logs = Logs::survey(&reader, of, give_up, &options.pass)?;
        let mut last = self.newest.max(state).max(logs.latest());
        let pipeline = Pipeline::new(self.cache.clone(), allocator, workers, world, [0; 32]);
        let Synced { uberblock, config, features } = self.loaded;
        let root = Blkptr::decode(&uberblock.rootbp)?;
        let mos = Mos::open(Objset::open_live(self.cache.clone(), 0, &root, ReadOptions::demand())?)?;
        let missing = pool::Error::Missing { name: mos::SYNC_BPOBJ };
        let deferred: ObjNum = mos.dir(mos::SYNC_BPOBJ)?.ok_or(missing)?;
        let of_dsl = dsl::Options { pool_name: self.name.clone(), space, altroot };
        let dsl = Dsl::open(mos.clone(), of_dsl)?;
        self.cache.zio().set_keys(dsl.keys().clone());
        let config = in_use(&config, &self.kept_name, host);
        let now = pipeline.world.now();
        if last.0 > LAST_TXG {
            return Err(Corrupt::Range { what: "uberblock", field: "txg", value: last.0 }.into());
        }
        // The uberblock is from the MOS, not from a label: the pool rewinds to its checkpoint.
        let mut uberblock = uberblock;
        let goes_back = (uberblock.checkpoint_txg.0 != 0 && last > state).then_some(uberblock.checkpoint_txg);
        if goes_back.is_some() {
            last = Txg(last.0 + 1);
            (uberblock.txg, uberblock.timestamp) = (last, now);
        }
        let loaded = Synced { uberblock, config: Arc::new(config), features };
        let parts = Parts::new(pipeline, mos.clone(), dsl, deferred, loaded.clone())?;
        let core = &parts.core;
        logs.note_unsettled(&core.dsl, &parts.sync.unsettled);
        core.announce_versions("import", &host.hostname);
        let root = loaded.config.root();
        let begin = begin.or_else(|| crate::vdev_ops::split::finish(root, &self.cache.zio().tree()));
        if let Some(begin) = begin {
            core.enter_first(Txg(last.0 + 1), begin);
        }
        if goes_back.is_some() {
            checkpoint::go_back(core, &loaded.uberblock).map_err(|e| WriteRefusal::GoBack(Box::new(e)))?;
        }
        *parts.vdevs.aside.lock() = self.aside;
        *core.aux.write() = AuxLists { spares: self.spares.clone(), l2cache: self.l2cache.clone() };
        // The first txg writes it to all labels.
        core.edit_config(|_| {});
        parts.scans.scan.held.store(options.hold_scans, Ordering::Relaxed);
        let writer = PoolWriter::start(&self.name, last, parts);
        sync_first(&writer, Txg(last.0 + 1), &logs, goes_back)?;
        writer.attend(&self.name);
        logs.destroy_incomplete(&writer)?;
        writer.vdevs().use_cache_devices();
        writer.vdevs().relabel_spares();
        let writer = Some(writer);
        Ok(Spa { loaded, mos, writer, aside: Asides::new(), ..self })
    }

    /// The txg as of which intent logs are read, and which of them to drop.
    fn logs_to_drop(&self, splits_off: bool) -> (Txg, GiveUp) {
        let state = self.last_synced_txg();
        match (self.uberblock().checkpoint_txg, self.log_dropped) {
            (Txg(0), false) => (state, GiveUp::None),
            (Txg(0), true) if splits_off => (state, GiveUp::Written),
            (Txg(0), true) => (state, GiveUp::All),
            // An interrupted rewind has given it its new txg already.
            (checkpoint, _) => (checkpoint, GiveUp::Unclaimed),
        }
    }

    /// Refuses what this engine does not maintain.
    fn check_writable(&self) -> Result<(), WriteRefusal> {
        let config = self.config();
        if config.root().walk().any(|v| v.raidz_expanding) {
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

/// The config of a pool that this host uses from now on.
fn in_use(config: &RootedConfig, name: &str, host: &Host) -> RootedConfig {
    let mut config = config.clone();
    config.name = Some(name.to_owned());
    config.state = PoolState::Active;
    config.hostid = Some(host.hostid.into()).filter(|h| *h != 0);
    config.hostname = Some(host.hostname.clone());
    config
}

/// Writes the first txg. It claims the intent logs before anything else allocates.
fn sync_first(
    writer: &PoolWriter,
    txg: Txg,
    logs: &Logs,
    goes_back: Option<Txg>,
) -> Result<(), WriteRefusal> {
    {
        // No other thread has the pool yet, so nothing else allocates before this txg is released.
        let first = writer.tx(0)?;
        assert_eq!(first.txg(), txg, "the code that opens the pool is the first to hold a group");
        logs.settle(writer, &first)?;
    }
    // Until the first txg, the labels say that the pool is exported or another host's, and so
    // another host may take it. Until there is a newer uberblock, the next import would find the
    // abandoned states (`spa_load_impl` syncs too).
    match goes_back {
        Some(checkpoint) => writer.checkpoints().note_rewind(checkpoint)?,
        None => writer.sync_first(txg)?,
    }
    Ok(())
}
