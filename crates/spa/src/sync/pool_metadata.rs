//! The pool metadata that the engine maintains: config, vdevs, history.

use std::sync::Arc;

use dmu::Tx;
use dsl::sync::{Env, Event, Syncing};
use ondisk::config::AllocBias;
use ondisk::feature::{FEATURES, Feature};
use ondisk::version::SPA_VERSION_ZPOOL_HISTORY;
use ondisk::{Blkptr, Nvlist, ObjNum, PoolConfig, Psize, VdevConfig, VdevId, VdevKind, mos};
use parking_lot::{Mutex, RwLock};
use pool::Mos;
use pool::alloc::{Allocator, ClassKind};
use pool::metaslab::TopVdev;
use vdev::Tree;
use zio::{IoFlags, ReadOptions};

use crate::create::Beginning;
use crate::engine::{Engine, Parts, RECORDED, Recorded, SyncError, Synced};

/// `com.klarasystems:vdev_zaps_v2`: the root vdev has a ZAP too.
const AVZ_V2: &str = "com.klarasystems:vdev_zaps_v2";
/// `org.zfsonlinux:allocation_classes`: there are vdevs for special and dedup blocks.
const ALLOCATION_CLASSES: &str = "org.zfsonlinux:allocation_classes";
/// The config entry that says that every vdev has its ZAP.
const PER_VDEV_ZAPS: &str = "com.delphix:has_per_vdev_zaps";
/// `org.openzfs:draid`.
const DRAID: &str = "org.openzfs:draid";

/// Creates the MOS objects of new top-level vdevs and opens these to the allocator
/// (`vdev_construct_zaps`, `vdev_metaslab_init`).
///
/// The object numbers go into the config. Returns the bytes that the vdevs add, as file systems see
/// them.
///
/// # Errors
/// * [`pool::Error`]: the MOS cannot be read or changed.
pub(crate) fn add_vdevs(
    mos: &Mos,
    tx: &Tx,
    tree: &Tree,
    allocator: &Allocator,
    root: &mut VdevConfig,
) -> pool::Result<u64> {
    let feature = |guid| Feature::by_guid(guid).expect("it is in the table");
    if root.root_zap.is_none() && mos.feature_enabled(AVZ_V2)? {
        root.root_zap = Some(mos.create_vdev_zap(tx)?);
        mos.feature_incr(tx, feature(AVZ_V2))?;
    }
    let mut room = 0;
    for top in root.children.iter_mut().filter(|t| t.metaslab_array.is_none()) {
        if matches!(top.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing) {
            continue;
        }
        let zap = mos.create_vdev_zap(tx)?;
        top.top_zap = Some(zap);
        if let Some(bias) = top.alloc_bias {
            let name = match bias {
                AllocBias::Log => "log",
                AllocBias::Special => "special",
                AllocBias::Dedup => "dedup",
            };
            mos.set_string(tx, zap, mos::VDEV_TOP_ALLOCATION_BIAS, name)?;
            if bias != AllocBias::Log {
                mos.feature_incr(tx, feature(ALLOCATION_CLASSES))?;
            }
        }
        if top.kind == VdevKind::Draid {
            mos.feature_incr(tx, feature(DRAID))?;
        }
        give_leaf_zaps(mos, tx, top)?;
        // The array's object number is known only after the vdev is described.
        top.metaslab_array = Some(ObjNum(0));
        let block = tree
            .psize_to_asize(VdevId(top.id as u32), Psize(1 << 17), tx.txg())
            .expect("a new vdev can hold a block");
        let described = TopVdev::from_config(mos, top, block.0)?.expect("a new vdev has metaslabs");
        top.metaslab_array = Some(allocator.create(tx, mos, &described)?);
        if described.class == pool::metaslab::Class::Normal {
            room += described.deflate(described.space());
        }
    }
    Ok(room)
}

fn give_leaf_zaps(mos: &Mos, tx: &Tx, vdev: &mut VdevConfig) -> pool::Result<()> {
    if vdev.kind.is_leaf() {
        if vdev.leaf_zap.is_none() {
            vdev.leaf_zap = Some(mos.create_vdev_zap(tx)?);
        }
        return Ok(());
    }
    vdev.children.iter_mut().try_for_each(|c| give_leaf_zaps(mos, tx, c))
}

impl Engine {
    /// An engine over the pool metadata.
    ///
    /// # Errors
    /// * [`pool::Error`]: the tables of shared blocks cannot be read.
    pub(crate) fn new(
        parts: Parts,
        mos: Mos,
        dsl: dsl::Dsl,
        deferred: ObjNum,
        loaded: Synced,
    ) -> pool::Result<Engine> {
        let config = loaded.config.clone();
        let heart = crate::engine::mmp::Heart::new(loaded.uberblock.clone());
        let dtls = crate::sync::dtl::loaded(&config, &parts.cache.zio().tree());
        let sync = ReadOptions::sync();
        let check = sync.with(IoFlags::CAN_FAIL);
        Ok(Engine {
            shared: crate::sync::dedup_and_clones::Shared::open(&mos, &parts)?,
            checkpoint: crate::engine::checkpoint::Checkpoint::of(&mos)?,
            cache: parts.cache,
            allocator: parts.allocator,
            sync_mos: mos.with_options(&sync),
            sync_dsl: dsl.with_options(&sync),
            check_dsl: dsl.with_options(&check),
            mos,
            dsl,
            synced: RwLock::new(loaded),
            config: RwLock::new(()),
            // The first txg after an open brings all labels up to date.
            changed_config: Mutex::new(crate::engine::ChangedConfig { next: Some(config), committing: None }),
            dtls: Mutex::new(dtls),
            tasks: Default::default(),
            ratios: Mutex::default(),
            claimed: Mutex::default(),
            log_frees: Default::default(),
            commands: Mutex::default(),
            announced: Mutex::default(),
            recorded: Mutex::default(),
            aux: RwLock::default(),
            aside: Mutex::default(),
            seconds_as_of: Default::default(),
            logs: Default::default(),
            pool_tasks: Default::default(),
            early_tasks: Default::default(),
            shape: Mutex::default(),
            works: Default::default(),
            scan: parts.scan,
            rebuilds: Default::default(),
            placing: Mutex::default(),
            reopening: Mutex::default(),
            offline_for_now: Mutex::default(),
            errands: Default::default(),
            deadman: Default::default(),
            retries: Default::default(),
            batches: Default::default(),
            errors: Default::default(),
            to_free: Default::default(),
            deferred,
            clock: parts.world.clock(),
            world: parts.world,
            heart,
            began: std::time::Instant::now(),
        })
    }

    /// Creates the datasets of a new pool.
    ///
    /// # Errors
    /// * [`dsl::Error`]: a dataset cannot be created.
    pub(crate) fn begin(&self, tx: &Tx, begin: &Beginning<'_>) -> dsl::Result<()> {
        let mut random = || self.world.random();
        let dsize = |bp: &Blkptr| self.dsize(bp);
        let env = Env { now: self.world.now(), random: &mut random, dsize: &dsize };
        let mut s = Syncing::new(&self.dsl, tx, env);
        s.create_pool_datasets(begin.contents, begin.props, begin.crypt)?;
        s.finish().map(drop)
    }

    /// Bytes of the pool's space that a block takes, deflated (`bp_get_dsize_sync`).
    pub(crate) fn dsize(&self, bp: &Blkptr) -> u64 {
        let Some(s) = bp.stored() else { return 0 };
        s.copies().map(|d| (d.asize.0 >> 9).saturating_mul(self.deflate_ratio(d.vdev))).sum()
    }

    /// Usable part of a vdev's space in 1/512: the data part of a 128 KiB block's space
    /// (`vdev_deflate_ratio`).
    fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        if let Some(ratio) = self.ratios.lock().get(&vdev) {
            return *ratio;
        }
        let taken = self.tree().psize_to_asize(vdev, Psize(1 << 17), ondisk::Txg(0)).map_or(1 << 17, |a| a.0);
        // The directory was readable when the pool was opened.
        let deflates = self.sync_mos.deflates().unwrap_or(true);
        let ratio = if deflates { pool::metaslab::deflate_ratio(taken) } else { 512 };
        self.ratios.lock().insert(vdev, ratio);
        ratio
    }

    /// Writes the config to the MOS if it has changed, or if the labels must name other features
    /// (`spa_sync_config_object`).
    pub(crate) fn write_config(&self, tx: &Tx) -> Result<(), SyncError> {
        let txg = tx.txg();
        self.put_config(tx).map_err(|source| SyncError::Books { txg, source })
    }

    fn put_config(&self, tx: &Tx) -> pool::Result<()> {
        let features = self.label_features()?;
        let mut changed = self.changed_config.lock();
        let now = self.newest_config(&changed);
        if changed.next.is_none() && now.features_for_read == features {
            return Ok(());
        }
        let config =
            Arc::new(PoolConfig { features_for_read: features, txg: tx.txg(), ..PoolConfig::clone(&now) });
        let mut nv = config.to_mos(tx.txg());
        if self.sync_mos.dir(mos::VDEV_ZAP_MAP)?.is_none() {
            // An imported pool's devices may have none yet; OpenZFS then creates them.
            nv.remove(PER_VDEV_ZAPS);
        }
        self.sync_mos.write_config(tx, &nv)?;
        changed.next = Some(config);
        Ok(())
    }

    /// The active features that are needed to read the MOS (`spa_label_features`).
    fn label_features(&self) -> pool::Result<Vec<String>> {
        let mut out = Vec::new();
        for feature in FEATURES.iter().filter(|f| f.mos()) {
            if self.sync_mos.feature_refcount(feature)?.is_some_and(|n| n > 0) {
                out.push(feature.guid.to_owned());
            }
        }
        Ok(out)
    }

    /// Adds operations to the pool's history (`spa_history_log_internal`).
    pub(crate) fn log_events(&self, tx: &Tx, events: &[Event]) -> Result<(), SyncError> {
        let txg = tx.txg();
        let hostname = self.synced.read().config.hostname.clone().unwrap_or_default();
        let now = self.world.now();
        let commands = std::mem::take(&mut *self.commands.lock());
        let announced = std::mem::take(&mut *self.announced.lock());
        let nothing = events.len() + commands.len() + announced.len() == 0;
        if self.sync_mos.version() < SPA_VERSION_ZPOOL_HISTORY || nothing {
            return Ok(());
        }
        let books = |source| SyncError::Books { txg, source };
        if self.sync_mos.dir(mos::HISTORY).map_err(books)?.is_none() {
            // The pool was made before there were histories.
            let room = self.allocator.totals().of(ClassKind::Normal).dspace;
            self.sync_mos.create_history(tx, room).map_err(books)?;
        }
        let events: Vec<Nvlist> =
            announced.iter().chain(events).map(|e| crate::events::internal(e, txg, now, &hostname)).collect();
        self.record(&events);
        let commands = commands.iter().map(|c| crate::events::command(&c.line, c.uid, now, &hostname));
        events
            .into_iter()
            .chain(commands)
            .try_for_each(|record| self.sync_mos.log_history(tx, &record).map_err(books))
    }

    /// Records the software versions in the history with the next txg, when the pool is created or
    /// imported (`spa_history_log_version`).
    pub(crate) fn announce_versions(&self, what: &'static str, hostname: &str) {
        let text = crate::discovery::host::versions(self.synced.read().uberblock.version, hostname);
        self.announced.lock().push(Event { what, dataset: String::new(), object: 0, text });
    }

    /// Keeps the history records of operations for
    /// [`PoolWriter::take_recorded`](crate::engine::PoolWriter::take_recorded)
    /// (`spa_history_log_notify`).
    fn record(&self, records: &[Nvlist]) {
        let at = self.world.wall();
        let mut recorded = self.recorded.lock();
        for record in records {
            if recorded.len() == RECORDED {
                recorded.pop_front();
            }
            recorded.push_back(Recorded { at, record: record.clone() });
        }
    }
}
