//! What is kept and read ahead of an object set.

use observe::lock::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which blocks of an object set, by type (`zfs_cache_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheType {
    /// None of them.
    None,
    /// Metadata: indirect blocks, and blocks of the objects that make up the file system.
    Metadata,
    /// All.
    #[default]
    All,
}

impl CacheType {
    /// From a property's number, as in OpenZFS (`ZFS_CACHE_ALL`, `ZFS_PREFETCH_ALL`).
    pub fn of_number(number: u64) -> CacheType {
        match number {
            0 => CacheType::None,
            1 => CacheType::Metadata,
            _ => CacheType::All,
        }
    }

    /// Whether a block is among them.
    pub(crate) fn has(self, metadata: bool) -> bool {
        match self {
            CacheType::None => false,
            CacheType::Metadata => metadata,
            CacheType::All => true,
        }
    }
}

/// What a dataset's properties say about its blocks in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Blocks that are kept (`primarycache`).
    pub keep: CacheType,
    /// Blocks that are read ahead (`prefetch`).
    pub ahead: CacheType,
}

/// The policies of object sets, where they differ from the default.
#[derive(Default)]
pub(crate) struct Policies {
    any: AtomicBool,
    of: RwLock<HashMap<u64, Policy>>,
}

impl Policies {
    pub(crate) fn set(&self, objset: u64, policy: Policy) {
        let mut of = self.of.write();
        if policy == Policy::default() {
            of.remove(&objset);
        } else {
            of.insert(objset, policy);
        }
        self.any.store(!of.is_empty(), Ordering::Release);
    }

    fn get(&self, objset: u64) -> Policy {
        if !self.any.load(Ordering::Acquire) {
            return Policy::default();
        }
        self.of.read().get(&objset).copied().unwrap_or_default()
    }

    /// Whether a block is kept.
    pub(crate) fn keeps(&self, objset: u64, metadata: bool) -> bool {
        self.get(objset).keep.has(metadata)
    }

    /// Whether data is read ahead, or only metadata; `None` if neither is. Blocks that are not kept
    /// are not read ahead.
    pub(crate) fn reads_ahead(&self, objset: u64) -> Option<bool> {
        let policy = self.get(objset);
        let both = |metadata| policy.keep.has(metadata) && policy.ahead.has(metadata);
        both(true).then(|| both(false))
    }
}
