//! How much room a pool has, as its datasets see it.
//!
//! # Theory
//! Space is counted deflated: as a 128 KiB block on the vdev would take it. The pool's room is that of the vdevs of
//! the normal class, plus what dedup and cloning save, less what a checkpoint pins and what frees have not yet reached
//! the space maps. A part, the slop, is kept back so that a full pool can still delete.

use crate::ddt::Ddt;
use crate::metaslab::{Class, TopVdev};
use crate::{Mos, Result, brt};
use ondisk::mos;

/// Vdevs with more metaslabs than this lend one to the intent log (`zfs_embedded_slog_min_ms`).
pub(crate) const EMBEDDED_SLOG_MIN_MS: u64 = 64;
/// The slop is one part in `2^5` (`spa_slop_shift`).
pub(crate) const SLOP_SHIFT: u32 = 5;
/// Least slop (`spa_min_slop`).
pub(crate) const MIN_SLOP: u64 = 128 << 20;
/// Most slop (`spa_max_slop`).
pub(crate) const MAX_SLOP: u64 = 128 << 30;

/// The room of a pool, in deflated bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSpace {
    /// What the vdevs of the normal class provide (`spa_rdspace`).
    pub rdspace: u64,
    /// With what dedup and cloning save (`spa_dspace`).
    pub dspace: u64,
    /// Lent to the intent log.
    pub embedded_log: u64,
    /// Pinned by a checkpoint.
    pub checkpoint: u64,
    /// Frees that the space maps do not show yet.
    pub deferred: u64,
    /// Freed of late, and not to be used again before two more groups (`metaslab_class_get_deferred`).
    pub waiting: u64,
}

/// How much of the slop is kept from somebody who asks for room (`zfs_space_check_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceCheck {
    /// All of it: what takes space for good.
    Normal,
    /// Half of it: what may free space, or is small, such as removing files and setting properties.
    Reserved,
    /// A quarter of it: what frees space and administration that makes it possible, such as destroying.
    ExtraReserved,
}

impl PoolSpace {
    /// Works out the room of a pool from its vdevs and tables.
    ///
    /// # Errors
    /// As reading the tables fails.
    pub fn of(mos: &Mos, vdevs: &[TopVdev], ddts: &[Ddt]) -> Result<Self> {
        let mut out = Self::default();
        let mut held_back = 0u64;
        for vd in vdevs {
            out.checkpoint = out.checkpoint.saturating_add(mos.checkpoint_space(vd)?);
            if vd.class != Class::Normal {
                continue;
            }
            let room = vd.deflate(vd.space());
            if vd.non_allocating {
                held_back = held_back.saturating_add(room);
            } else if vd.ms_count() > EMBEDDED_SLOG_MIN_MS {
                out.embedded_log = out.embedded_log.saturating_add(vd.deflate(vd.metaslab(0).1));
            }
            out.rdspace = out.rdspace.saturating_add(room);
        }
        out.rdspace = out.rdspace.saturating_sub(held_back).saturating_sub(out.embedded_log);
        let top = vdevs.iter().map(|v| v.id.0 + 1).max().unwrap_or(0);
        let cloned = brt::saved(&mos.brt(top)?);
        let deduped = ddts
            .iter()
            .map(|d| d.total())
            .fold(0u64, |n, t| n.saturating_add(t.ref_dsize.saturating_sub(t.dsize)));
        out.dspace = out.rdspace.saturating_add(cloned).saturating_add(deduped);
        if let Some(obj) = mos.dir(mos::SYNC_BPOBJ)? {
            out.deferred = mos.bpobj(obj)?.bytes;
        }
        Ok(out)
    }

    /// What is kept back (`spa_get_slop_space`).
    pub fn slop(&self) -> u64 {
        let slop = (self.rdspace >> SLOP_SHIFT).min(MAX_SLOP);
        let slop = slop - self.embedded_log.min(slop / 2);
        slop.max((self.rdspace / 2).min(MIN_SLOP))
    }

    /// What the root dataset may grow to (`dsl_pool_adjustedsize`).
    pub fn adjusted(&self) -> u64 {
        self.adjusted_for(SpaceCheck::Normal)
    }

    fn adjusted_for(&self, check: SpaceCheck) -> u64 {
        let kept = match check {
            SpaceCheck::Normal => self.slop(),
            SpaceCheck::Reserved => self.slop() >> 1,
            SpaceCheck::ExtraReserved => self.slop() >> 2,
        };
        self.dspace.saturating_sub(self.checkpoint).saturating_sub(self.deferred).saturating_sub(kept)
    }

    /// What the root dataset may grow to now: without what is freed but waits (`dsl_pool_unreserved_space`).
    pub fn unreserved(&self, check: SpaceCheck) -> u64 {
        self.adjusted_for(check).saturating_sub(self.waiting)
    }
}
