//! The parts of a pool that is open for writing, and what they are made of.

use std::sync::Arc;

use arc::Cache;
use dsl::Dsl;
use ondisk::ObjNum;
use pool::Mos;
use pool::alloc::Allocator;
use vdev::Tree;
use zio::{Entropy, Workers};

use crate::checkpoint::Checkpoints;
use crate::device_monitor::DeviceMonitor;
use crate::device_monitor::deadman::Deadman;
use crate::initialize_trim::InitializeTrim;
use crate::intent_logs::IntentLogs;
use crate::pool_core::PoolCore;
use crate::pool_core::state::Synced;
use crate::pool_core::world::World;
use crate::scan::{Scan, Scans};
use crate::sync::PoolSync;
use crate::vdev_ops::Vdevs;

/// A cache and an allocator, with a pipeline that can write.
pub(crate) struct Pipeline {
    pub(crate) tree: Arc<Tree>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) world: Arc<dyn World>,
    /// Salt of the salted checksums.
    pub(crate) salt: [u8; 32],
    scan: Scan,
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

impl Pipeline {
    /// Gives a cache's pipeline what writing needs. Every free goes through the pipeline, so the
    /// scan learns of each from the first on.
    pub(crate) fn new(
        cache: Arc<Cache>,
        allocator: Arc<Allocator>,
        workers: Arc<Workers>,
        world: Arc<dyn World>,
        salt: [u8; 32],
    ) -> Pipeline {
        let (zio, scan) = (cache.zio(), Scan::default());
        zio.set_workers(workers);
        zio.set_space(Arc::new(scan.watched(allocator.clone())));
        zio.hold_writes();
        zio.set_entropy(Arc::new(Dice(world.clone())));
        let tree = zio.tree();
        Pipeline { tree, cache, allocator, world, salt, scan }
    }
}

/// The parts of a pool that is open for writing. Each has its own state, and [`PoolCore`] has what
/// they share.
pub(crate) struct Parts {
    pub(crate) core: Arc<PoolCore>,
    pub(crate) scans: Arc<Scans>,
    pub(crate) works: Arc<InitializeTrim>,
    pub(crate) logs: Arc<IntentLogs>,
    pub(crate) vdevs: Arc<Vdevs>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) monitor: Arc<DeviceMonitor>,
    pub(crate) deadman: Arc<Deadman>,
    pub(crate) sync: Arc<PoolSync>,
}

impl Parts {
    /// The parts of a pool with this MOS. `deferred` is its list of blocks to free in the next txg.
    ///
    /// # Errors
    /// * [`pool::Error`]: the tables of shared blocks, or the checkpoint, cannot be read.
    pub(crate) fn new(
        pipeline: Pipeline,
        mos: Mos,
        dsl: Dsl,
        deferred: ObjNum,
        loaded: Synced,
    ) -> pool::Result<Parts> {
        let Pipeline { cache, allocator, world, scan, .. } = pipeline;
        let core = Arc::new(PoolCore::new(cache, allocator, world, mos, dsl, loaded));
        let scans = Arc::new(Scans::new(core.clone(), scan));
        let works = Arc::new(InitializeTrim::new(core.clone()));
        let logs = Arc::new(IntentLogs::new(core.clone()));
        let vdevs = Arc::new(Vdevs::new(core.clone(), scans.clone(), works.clone(), logs.clone()));
        let checkpoints = Arc::new(Checkpoints::open(core.clone())?);
        let monitor = Arc::new(DeviceMonitor::new(core.clone(), vdevs.clone(), works.clone()));
        let deadman = Arc::new(Deadman::new(core.clone()));
        let sync = PoolSync::new(
            core.clone(),
            scans.clone(),
            works.clone(),
            vdevs.clone(),
            checkpoints.clone(),
            logs.clone(),
            deadman.clone(),
            deferred,
        )?;
        Ok(Parts { core, scans, works, logs, vdevs, checkpoints, monitor, deadman, sync: Arc::new(sync) })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.core.forget_tasks();
    }
}
