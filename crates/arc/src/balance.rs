//! Which list to evict from: targets that follow what was evicted too early (`arc_adapt`).
//!
//! # Theory
//! What a cache of this size should hold is learned from its ghosts (Megiddo and Modha, ARC, 2003).
//! A read that finds the ghost of a block that was used once gives such blocks a larger share. The
//! ghost of a block that was used again does the opposite. The rarer such ghosts are among all, the
//! larger the step.
//!
//! The same holds for metadata and data, where a ghost of data counts less
//! (`zfs_arc_meta_balance`).
//!
//! Shares are fractions of 2^32, as OpenZFS reports them. `meta` is the share of metadata in all.
//! `pm` (of metadata) and `pd` (of data) are the shares of blocks that were used once.

use crate::tunables::ARC_META_BALANCE;
use std::sync::atomic::{AtomicU64, Ordering};

/// The whole, as a share.
pub(crate) const ONE: u64 = 1 << 32;
/// No share gets smaller than this, nor its complement.
const LEAST: u64 = ONE / 64;
/// A share moves at most this far at once.
const STEP: u64 = ONE / 16;

/// The shares of the lists; see the module.
pub(crate) struct Balance {
    meta: AtomicU64,
    pd: AtomicU64,
    pm: AtomicU64,
}

/// Bytes of the lists of one type, for the types data and metadata: used once, used again.
pub(crate) type Sizes = [[u64; 2]; 2];

fn moved(share: &AtomicU64, step: u64, up: bool) {
    let step = step.min(STEP);
    let now = share.load(Ordering::Relaxed);
    let next = if up { now.saturating_add(step) } else { now.saturating_sub(step) };
    // Two threads that move it at once may count as one.
    share.store(next.clamp(LEAST, ONE - LEAST), Ordering::Relaxed);
}

/// `bytes` of `all`, as a fraction.
fn fraction(bytes: u64, all: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(ONE) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

impl Balance {
    pub(crate) fn new() -> Self {
        Self { meta: AtomicU64::new(ONE / 4), pd: AtomicU64::new(ONE / 2), pm: AtomicU64::new(ONE / 2) }
    }

    /// `meta`, `pd`, `pm`.
    pub(crate) fn shares(&self) -> (u64, u64, u64) {
        let get = |share: &AtomicU64| share.load(Ordering::Relaxed);
        (get(&self.meta), get(&self.pd), get(&self.pm))
    }

    /// Records that a read found a ghost of so many bytes: of metadata or data, used again or once.
    ///
    /// `max` is what the cache may hold, `ghosts` the bytes of the ghosts of this type.
    pub(crate) fn ghost_hit(&self, bytes: u64, metadata: bool, again: bool, max: u64, ghosts: [u64; 2]) {
        let (mine, other) = if again { (ghosts[1], ghosts[0]) } else { (ghosts[0], ghosts[1]) };
        let weight = (other / mine.max(1)).clamp(1, 64);
        let step = fraction(bytes, max);
        let once = if metadata { &self.pm } else { &self.pd };
        moved(once, step.saturating_mul(weight), !again);
        let step = if metadata { step } else { step.saturating_mul(100) / ARC_META_BALANCE.get().max(1) };
        moved(&self.meta, step, metadata);
    }

    /// The list that is furthest above its target, of those that are not empty. Returns its type (1
    /// is metadata), and whether its blocks were used again.
    pub(crate) fn fattest(&self, sizes: Sizes, has: impl Fn(usize, usize) -> bool) -> Option<(usize, usize)> {
        let (meta, pd, pm) = self.shares();
        let all: u64 = sizes.iter().flatten().sum();
        let part = |of: u64, share: u64| (u128::from(of) * u128::from(share) / u128::from(ONE)) as u64;
        let of_type = [part(all, ONE - meta), part(all, meta)];
        let excess = |kind: usize, again: usize| {
            let once = if kind == 1 { pm } else { pd };
            let target = part(of_type[kind], if again == 1 { ONE - once } else { once });
            i128::from(sizes[kind][again]) - i128::from(target)
        };
        let lists = [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().filter(|(k, a)| has(*k, *a));
        lists.max_by_key(|(k, a)| excess(*k, *a))
    }
}

#[cfg(test)]
mod tests;
