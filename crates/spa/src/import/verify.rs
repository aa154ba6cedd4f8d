//! Checking a state before a rewind chooses it: reading the blocks of the last txgs.
//!
//! See OpenZFS `spa_load_verify`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use observe::{Tunable, Unit};
use ondisk::dnode::DnodePhys;
use ondisk::{Blkptr, Txg};
use zio::{Bookmark, ReadOptions, Zio};

use crate::import::load::in_mos;
use crate::{Spa, SpaError};
use dsl::traverse::{Visitor, leads_on, pool_roots, traverse};

/// Number of last txgs whose blocks are read (`TXG_DEFER_SIZE` and one).
const LAST_GROUPS: u64 = 3;
/// Threads that read.
const THREADS: usize = 4;

/// Blocks that can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Damage {
    /// Of metadata (`ZPOOL_CONFIG_LOAD_META_ERRORS`).
    pub(super) metadata: u64,
    /// Of files and volumes (`ZPOOL_CONFIG_LOAD_DATA_ERRORS`).
    pub(super) data: u64,
}

/// 0: a rewind accepts a state without reading any block (`spa_load_verify_metadata`).
pub static VERIFY_METADATA: Tunable = Tunable::new(
    "spa_load_verify_metadata",
    1,
    0..=1,
    Unit::Flag,
    "1: a rewind reads metadata blocks to verify a state",
);
/// 0: a rewind reads only metadata (`spa_load_verify_data`).
pub static VERIFY_DATA: Tunable = Tunable::new(
    "spa_load_verify_data",
    1,
    0..=1,
    Unit::Flag,
    "1: a rewind reads data blocks to verify a state",
);

struct Reader<'a> {
    zio: &'a Zio,
    metadata: AtomicU64,
    data: AtomicU64,
}

impl Visitor for Reader<'_> {
    fn block(&self, bp: &Blkptr, bookmark: &Bookmark, dnode: Option<&DnodePhys>) {
        // The traversal itself reads the blocks that lead to others; their failures arrive through
        // `failed`.
        let asked = bp.is_metadata() || VERIFY_DATA.get() != 0;
        if !asked
            || leads_on(bookmark, dnode)
            || bp.stored().is_none()
            || self.zio.read_raw(bp, bookmark, &ReadOptions::demand()).is_ok()
        {
            return;
        }
        let count = if bp.is_metadata() { &self.metadata } else { &self.data };
        count.fetch_add(1, Relaxed);
    }

    fn failed(&self, _: &Bookmark, _: &dmu::Error) {
        self.metadata.fetch_add(1, Relaxed);
    }
}

/// Reads every block of the last txgs, or all of the pool, and counts the failures.
pub(super) fn damage(spa: &Spa, whole: bool) -> Result<Damage, SpaError> {
    let os = spa.mos().objset();
    let mut failed = None;
    let mut roots = pool_roots(os, |e| {
        failed.get_or_insert(e);
    });
    // If not all datasets can be found the state is not whole, and reading on is useless.
    if let Some(e) = failed {
        return Err(in_mos("the datasets")(e.into()));
    }
    if VERIFY_METADATA.get() == 0 {
        return Ok(Damage::default());
    }
    if !whole {
        let min = Txg(spa.uberblock().txg.0.saturating_sub(LAST_GROUPS));
        roots.iter_mut().for_each(|r| r.min_txg = r.min_txg.max(min));
    }
    let zio = spa.cache().zio();
    let reader = Reader { zio, metadata: AtomicU64::new(0), data: AtomicU64::new(0) };
    traverse(zio, roots, THREADS, &reader);
    Ok(Damage { metadata: reader.metadata.into_inner(), data: reader.data.into_inner() })
}
