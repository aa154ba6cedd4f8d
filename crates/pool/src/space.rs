//! The space of a pool, as its datasets see it.
//!
//! # Theory
//! Space is counted deflated: as 128 KiB blocks on the vdev would use it. The pool has the space of
//! the vdevs of the normal class. Savings of dedup and cloning are added. Space that a checkpoint
//! holds is subtracted, and so are frees that the space maps do not show yet. The slop is kept
//! back, so that a full pool can still delete.

use crate::ddt::Ddt;
use crate::metaslab::{Class, TopVdev};
use crate::{Mos, Result, brt};
use ondisk::mos;

/// A vdev with more metaslabs than this lends one to the intent log (`zfs_embedded_slog_min_ms`).
pub(crate) const EMBEDDED_SLOG_MIN_MS: u64 = 64;
/// The slop is one part in `2^5` of the space (`spa_slop_shift`).
pub(crate) const SLOP_SHIFT: u32 = 5;
/// Least slop (`spa_min_slop`).
pub(crate) const MIN_SLOP: u64 = 128 << 20;
/// Most slop (`spa_max_slop`).
pub(crate) const MAX_SLOP: u64 = 128 << 30;

/// The space of a pool, in deflated bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSpace {
    /// The space of the vdevs of the normal class (`spa_rdspace`).
    pub rdspace: u64,
    /// The same with the savings of dedup and cloning (`spa_dspace`).
    pub dspace: u64,
    /// The space that is lent to the intent log.
    pub embedded_log: u64,
    /// The space that a checkpoint holds.
    pub checkpoint: u64,
    /// Frees that the space maps do not show yet.
    pub deferred: u64,
    /// Space that was freed lately, and is usable only after two more txgs
    /// (`metaslab_class_get_deferred`).
    pub waiting: u64,
}

/// How much of the slop an operation may not use (`zfs_space_check_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceCheck {
    /// All of it. For operations that take space for good (`ZFS_SPACE_CHECK_NORMAL`).
    Normal,
    /// Half of it. For operations that may free space or are small, such as removing files and
    /// setting properties (`ZFS_SPACE_CHECK_RESERVED`).
    Reserved,
    /// A quarter of it. For operations that free space or prepare that, such as destroying
    /// (`ZFS_SPACE_CHECK_EXTRA_RESERVED`).
    ExtraReserved,
}

impl PoolSpace {
    /// Computes the space of a pool from its vdevs and tables.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading).
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

    /// The space that is kept back (`spa_get_slop_space`).
    pub fn slop(&self) -> u64 {
        let slop = (self.rdspace >> SLOP_SHIFT).min(MAX_SLOP);
        let slop = slop - self.embedded_log.min(slop / 2);
        slop.max((self.rdspace / 2).min(MIN_SLOP))
    }

    /// The size to which the root dataset may grow (`dsl_pool_adjustedsize`).
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

    /// The size to which the root dataset may grow now, without freed space that can't be used yet
    /// (`dsl_pool_unreserved_space`).
    pub fn unreserved(&self, check: SpaceCheck) -> u64 {
        self.adjusted_for(check).saturating_sub(self.waiting)
    }
}
