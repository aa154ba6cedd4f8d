//! Creating a pool.
//!
//! # Theory
//! A new pool is an empty one whose first transaction group (`TXG_INITIAL`, 4) does everything:
//!
//! 1. Its devices are claimed, and get labels of devices that are being added (txg 0). After a
//!    crash here the devices belong to no pool.
//! 2. The MOS is made in memory, with the pool's metadata and its datasets.
//! 3. The ordinary sync writes it, labels and uberblock last.
//!
//! # Crash
//! Until the first uberblock is written there is no pool, and the devices' labels say so.
//!
//! # See
//! OpenZFS `spa_create`, `vdev_create`, `vdev_label_init`, `dsl_pool_create`.

pub use crate::new_vdevs::{
    Claimer, CreateError, NewLeaf, NewPool, NewVdev, TXG_INITIAL, VdevShape, claim_file,
};

use std::sync::Arc;

use arc::Cache;
use dmu::{Objset, Tx};
use dsl::ops::key::NewCrypt;
use dsl::sync::{Env, Syncing};
use dsl::{Contents, Dsl, PropList};
use ondisk::feature::Feature;
use ondisk::version::{SPA_VERSION_FEATURES, SPA_VERSION_RAIDZ_DEFLATE, SPA_VERSION_ZPOOL_HISTORY};
use ondisk::{Blkptr, ByteOrder, Guid, PoolConfig, RootedConfig, Txg, Uberblock, VdevConfig, VdevKind, mos};
use pool::Mos;
use pool::alloc::Allocator;
use vdev::Tree;
use zio::{ReadOptions, Workers, Zio};

use crate::aux_devices::Asides;
use crate::engine::parts::{Parts, Pipeline};
use crate::engine::{PoolWriter, World};
use crate::new_vdevs::{Claimed, LABEL_RESERVE, Terms, begin_labels, claim};
use crate::pool_core::PoolCore;
use crate::pool_core::state::Synced;
use crate::sync::labels::SPA_VERSION;
use crate::vdev_ops::vdev_objects::add_vdevs;
use crate::{Candidate, Host, Spa};

/// The environment in which a pool is created.
pub struct Setting<'a> {
    /// This host.
    pub host: &'a Host,
    /// Clock and random numbers.
    pub world: Arc<dyn World>,
    /// How devices are opened.
    pub claimer: &'a Claimer<'a>,
    /// Threads that compress, checksum and write.
    pub workers: Arc<Workers>,
    /// The memory limits of its block cache (`zfs_arc_max`).
    pub cache: arc::CacheMemory,
    /// Alternate root, put before its mountpoints.
    pub altroot: Option<String>,
}

/// The initial state of a new pool, beside its devices.
pub struct Beginning<'a> {
    /// Features to enable; the features that they depend on are enabled with them.
    pub features: &'a [&'static Feature],
    /// The version, 1 to 28 without features, or 5000 (`version`).
    pub version: u64,
    /// What the root file system holds.
    pub contents: &'a dyn Contents,
    /// Properties of the root file system.
    pub props: &'a PropList,
    /// How the root file system is encrypted, if it is.
    pub crypt: Option<&'a NewCrypt>,
    /// The name that the pool uses until it is exported, if it is not its own (`-t`).
    pub temporary_name: Option<&'a str>,
}

/// Creates a pool and opens it for writing; its first txg is on the devices (`spa_create`).
///
/// # Errors
/// See [`CreateError`]: its variants name the causes. After an error there is no pool.
pub fn create(new: &NewPool, begin: &Beginning<'_>, setting: &Setting<'_>) -> Result<Spa, CreateError> {
    let mut random = || setting.world.random();
    let (ashift, force, version) = (new.ashift, new.force, begin.version);
    let terms = Terms { first: 0, ashift, force, txg: TXG_INITIAL, claimer: setting.claimer, version };
    if !new.vdevs.iter().any(|v| v.bias.is_none()) {
        return Err(CreateError::NoData);
    }
    let (tops, claimed) = claim(&new.vdevs, &terms, &mut random)?;
    let mut root = VdevConfig::new(VdevKind::Root, Guid(random().max(1)));
    root.create_txg = Some(TXG_INITIAL);
    root.children = tops;
    let config = PoolConfig {
        txg: TXG_INITIAL,
        pool_guid: Some(root.guid),
        hostid: Some(setting.host.hostid.into()).filter(|h| *h != 0),
        hostname: Some(setting.host.hostname.clone()),
        vdev_tree: Some(root),
        ..PoolConfig::new(&new.name, begin.version)
    };
    let failed = |e: Box<dyn std::error::Error + Send + Sync>| CreateError::Write(e.into());
    begin_labels(&config, &claimed, TXG_INITIAL, LABEL_RESERVE).map_err(|e| failed(e.into()))?;
    let pipeline = pipeline(&config, &claimed, setting).map_err(failed)?;
    let parts = fill(pipeline, config, begin, setting.altroot.clone()).map_err(failed)?;
    parts.core.announce_versions("create", &setting.host.hostname);
    let name = begin.temporary_name.unwrap_or(&new.name);
    let live = PoolWriter::start(name, Txg(TXG_INITIAL.0 - 1), parts);
    live.sync_first(TXG_INITIAL).map_err(|e| CreateError::Write(Arc::new(e)))?;
    live.attend(name);
    let config = live.config();
    let candidate = Candidate {
        guid: config.pool_guid.unwrap_or_default(),
        name: new.name.clone(),
        state: config.state,
        config: PoolConfig::clone(&config),
        members: Vec::new(),
        auxiliary: Arc::default(),
        superseded_by: None,
    };
    Ok(Spa {
        name: name.to_owned(),
        kept_name: new.name.clone(),
        candidate,
        loaded: live.synced(),
        _ahead: Some(live.parts().core.cache.begin_prefetch()),
        cache: live.parts().core.cache.clone(),
        mos: live.parts().core.mos.clone(),
        spares: Vec::new(),
        l2cache: Vec::new(),
        aside: Asides::new(),
        checkpoint: None,
        errata: None,
        newest: Txg(0),
        log_dropped: false,
        writer: Some(live),
    })
}

type Anything = Box<dyn std::error::Error + Send + Sync>;

fn pipeline(config: &PoolConfig, claimed: &Claimed, setting: &Setting<'_>) -> Result<Pipeline, Anything> {
    let root = config.vdev_tree.as_ref().expect("it was just made");
    let mut open = |leaf: &VdevConfig| Ok(claimed[&leaf.guid].clone());
    let tree = Arc::new(Tree::open(root, &mut open)?);
    let zio = Zio::new(tree);
    zio.set_pool_version(config.version);
    let allocator = Arc::new(Allocator::new(zio.trees().clone()));
    let mut salt = [0; 32];
    salt.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&setting.world.random().to_le_bytes()));
    zio.set_salt(&salt);
    let cache = Arc::new(Cache::new(zio, setting.cache.clone()));
    Ok(Pipeline::new(cache, allocator, setting.workers.clone(), setting.world.clone(), salt))
}

/// Makes the MOS of a new pool.
fn fill(
    pipeline: Pipeline,
    mut config: PoolConfig,
    begin: &Beginning<'_>,
    altroot: Option<String>,
) -> Result<Parts, Anything> {
    let tx = Tx::new(TXG_INITIAL, None);
    let os = Objset::create_live(
        pipeline.cache.clone(),
        0,
        ondisk::objset::ObjsetKind::Meta,
        ondisk::objset::ObjsetFlags(0),
        &tx,
        ReadOptions::demand(),
    );
    let mos = Mos::create(os, &tx)?;
    Dsl::create_root_dir(&mos, &tx, pipeline.world.now())?;
    if config.version >= SPA_VERSION_FEATURES {
        mos.create_features(&tx)?;
        for feature in begin.features {
            mos.feature_enable(&tx, feature)?;
        }
    }
    mos.set_dir_words(&tx, mos::CREATION_VERSION, &[config.version])?;
    if config.version >= SPA_VERSION_RAIDZ_DEFLATE {
        mos.set_dir_words(&tx, mos::DEFLATE, &[1])?;
    }
    mos.set_dir_bytes(&tx, mos::CHECKSUM_SALT, &pipeline.salt)?;
    let deferred = mos.create_bpobj(&tx)?;
    mos.link(&tx, mos::SYNC_BPOBJ, deferred)?;
    let root = config.vdev_tree.as_mut().expect("it was just made");
    let room = add_vdevs(&mos, &tx, &pipeline.tree, &pipeline.allocator, root)?;
    if config.version >= SPA_VERSION_ZPOOL_HISTORY {
        mos.create_history(&tx, room)?;
    }
    let own = config.name.clone().expect("a new pool has a name");
    let name = begin.temporary_name.map_or(own, str::to_owned);
    let options = dsl::Options { pool_name: name, altroot, ..dsl::Options::default() };
    let dsl = Dsl::open(mos.clone(), options)?;
    pipeline.cache.zio().set_keys(dsl.keys().clone());
    let features = Arc::new(mos.features()?);
    let uberblock = nothing(config.version);
    let config = Arc::new(RootedConfig::try_from(config)?);
    let loaded = Synced { uberblock, config, features };
    let parts = Parts::new(pipeline, mos, dsl, deferred, loaded)?;
    create_datasets(&parts.core, &tx, begin)?;
    let made = parts.core.synced.read().config.clone();
    parts.core.list_distributed(&tx, &made.root().children)?;
    Ok(parts)
}

/// Creates the datasets of a new pool.
fn create_datasets(core: &PoolCore, tx: &Tx, begin: &Beginning<'_>) -> dsl::Result<()> {
    let mut random = || core.world.random();
    let dsize = |bp: &Blkptr| core.dsize(bp);
    let env = Env { now: core.world.now(), random: &mut random, dsize: &dsize };
    let mut s = Syncing::new(&core.dsl, tx, env);
    s.create_pool_datasets(begin.contents, begin.props, begin.crypt)?;
    s.finish().map(drop)
}

/// The uberblock of a pool before its first txg.
fn nothing(version: u64) -> Uberblock {
    Uberblock {
        order: ByteOrder::Little,
        version,
        txg: Txg(TXG_INITIAL.0 - 1),
        guid_sum: 0,
        timestamp: 0,
        rootbp: Blkptr::HOLE.encode(),
        software_version: SPA_VERSION,
        mmp: None,
        checkpoint_txg: Txg(0),
        raidz_reflow: ondisk::uberblock::RaidzReflow::default(),
    }
}
