//! Cache devices of a pool's cache; see [`crate::l2`].

use crate::Cache;
use crate::header::Key;
use crate::l2::index::Name;
use crate::l2::{CacheDevice, CacheDeviceStats};
use crate::policy::CacheType;
use crate::tunables::L2ARC_NORW;
use observe::lock::RwLock;
use ondisk::{Blkptr, Guid};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::Priority;
use zio::Bookmark;

/// The settings of object sets that are not everything. Most pools have none, and then no lock is
/// taken.
#[derive(Default)]
pub(crate) struct SecondaryCaches {
    any: AtomicBool,
    of: RwLock<HashMap<u64, CacheType>>,
}

impl SecondaryCaches {
    fn set(&self, objset: u64, second: CacheType) {
        let mut of = self.of.write();
        match second {
            CacheType::All => of.remove(&objset),
            CacheType::None | CacheType::Metadata => of.insert(objset, second),
        };
        self.any.store(!of.is_empty(), Ordering::Release);
    }

    /// Whether a block of an object set may be written to cache devices.
    pub(crate) fn wants(&self, objset: u64, key: &Key) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return true;
        }
        self.of.read().get(&objset).is_none_or(|second| second.has(key.kind() == 1))
    }
}

impl Cache {
    /// Sets what of an object set may be written to cache devices (`secondarycache`), from now on.
    /// Blocks in memory keep their setting.
    pub fn set_secondary_cache(&self, objset: u64, second: CacheType) {
        self.second.set(objset, second);
    }

    /// Begins to use a cache device (`l2arc_add_vdev`); returns false if it is too small. Its
    /// contents for this pool are restored in the background.
    pub fn add_device(&self, device: CacheDevice) -> bool {
        let (remaker, trees) = (self.zio().remaker(), self.zio().trees().clone());
        self.store.add_disk(self.pool, device, remaker, trees)
    }

    /// Whether any pool that shares the memory has cache devices.
    pub fn has_devices(&self) -> bool {
        self.store.l2().any()
    }

    /// Stops using a cache device, and waits for writes under way (`l2arc_remove_vdev`). Returns
    /// false if there is none of this guid.
    pub fn remove_device(&self, guid: Guid) -> bool {
        self.store.remove_disks(|disk| disk.pool == self.pool && disk.guid == guid) > 0
    }

    /// Sets a new guid of the pool (`zpool reguid`). Without it, its cache devices would not be
    /// recognised as its own.
    pub fn set_pool_guid(&self, pool: Guid) {
        let ours = self.store.l2().disks().into_iter().filter(|disk| disk.pool == self.pool);
        ours.for_each(|disk| disk.renamed(pool));
    }

    /// What a cache device holds and has done.
    pub fn device_stats(&self, guid: Guid) -> Option<CacheDeviceStats> {
        self.store.l2().disk(self.pool, guid).map(|disk| disk.stats())
    }

    /// Waits until the contents of a cache device have been restored.
    pub fn await_rebuilt(&self, guid: Guid) {
        if let Some(disk) = self.store.l2().disk(self.pool, guid) {
            disk.await_rebuilt();
        }
    }

    /// Reads a block from the cache device that has it, if any, for a reader of this class. A
    /// failure there is counted, and is no failure of the read.
    pub(crate) fn l2_read(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        key: &Key,
        class: Priority,
    ) -> Option<zio::Result<zio::Opened>> {
        let l2 = self.store.l2();
        // Not for blocks whose bytes can't be verified: the device may hold those of another block.
        if !l2.any() || !key.is_verified() {
            return None;
        }
        let name = Name::of(key);
        let Some(place) = l2.find(&name) else {
            l2.counters.misses.inc();
            return None;
        };
        let busy = place.disk.busy.load(Ordering::Relaxed);
        if place.psize != key.psize() || busy && L2ARC_NORW.get() != 0 {
            l2.counters.rw_clash.add(u64::from(busy));
            l2.counters.misses.inc();
            return None;
        }
        let Ok(raw) = place.disk.read(place.daddr, place.psize, class) else {
            l2.counters.io_error.inc();
            self.store.forget_place(&name, &place);
            return None;
        };
        let got = self.zio().open_stored(bp, raw, bookmark);
        match &got {
            Ok(_) => {
                l2.counters.hits.inc();
                l2.counters.read_bytes.add(place.psize);
            }
            // A key that is not loaded is missing for the pool's own bytes too.
            Err(zio::Error::Key { .. }) => {}
            Err(_) if self.store.forget_place(&name, &place) => {
                l2.counters.cksum_bad.inc();
                place.disk.checksum_errors.inc();
            }
            // Its place was given up during the read.
            Err(_) => l2.counters.evict_reading.inc(),
        }
        Some(got).filter(|got| got.is_ok())
    }

    /// Forgets the place of a block that is freed.
    pub(crate) fn forget_l2(&self, bp: &Blkptr) {
        if self.store.l2().any()
            && let Some(key) = self.store.key(bp, 0, self.pool)
        {
            self.store.forget_name(&Name::of(&key));
        }
    }
}
