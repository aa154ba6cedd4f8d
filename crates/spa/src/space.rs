//! The space of an imported pool: what its top-level vdevs provide, and its dedup tables save.

use crate::Spa;
use ondisk::{Dva, Psize, Txg, VdevId};
use pool::ddt::Ddt;
use pool::metaslab::TopVdev;
use pool::space::PoolSpace;

/// The block size for which a vdev's usable space is calculated (`vdev_set_deflate_ratio`).
const DEFLATE_BLOCK: Psize = Psize(1 << 17);

impl Spa {
    /// The top-level vdevs with allocatable space, including those for logs and special classes.
    ///
    /// # Errors
    /// * [`pool::Error`]: a vdev's ZAP cannot be read.
    pub fn top_vdevs(&self) -> pool::Result<Vec<TopVdev>> {
        let config = self.config();
        let root = config.root().children.iter();
        let tops = root.filter_map(|config| {
            // A raidz counts with its first width, even if it was expanded.
            let id = VdevId(u32::try_from(config.id).ok()?);
            let asize = self.tree().psize_to_asize(id, DEFLATE_BLOCK, Txg(0)).ok()?;
            TopVdev::from_config(&self.mos, config, asize.0).transpose()
        });
        tops.collect()
    }

    /// The dedup tables, with sizes deflated by these vdevs.
    ///
    /// # Errors
    /// * [`pool::Error`]: a dedup table cannot be read.
    pub fn ddts(&self, tops: &[TopVdev]) -> pool::Result<Vec<Ddt>> {
        self.mos.ddts(&|dva: &Dva| dsize(tops, dva))
    }

    /// The space of the pool.
    ///
    /// # Errors
    /// * [`pool::Error`]: the pool metadata cannot be read.
    pub fn space(&self) -> pool::Result<PoolSpace> {
        let tops = self.top_vdevs()?;
        PoolSpace::of(&self.mos, &tops, &self.ddts(&tops)?)
    }
}

/// Deflated bytes of a copy (`dva_get_dsize_sync`).
pub fn dsize(tops: &[TopVdev], dva: &Dva) -> u64 {
    let top = tops.iter().find(|t| t.id == dva.vdev);
    top.map_or(dva.asize.0, |t| t.deflate(dva.asize.0))
}
