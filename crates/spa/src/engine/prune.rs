//! Pruning the dedup tables (`zpool ddtprune`).
//!
//! # See
//! OpenZFS `ddt_prune_unique_entries`.

use observe::lock::Mutex;
use pool::ddt::Unshared;
use std::sync::Arc;

use crate::engine::PoolWriter;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::{ShapeError, SyncError};

/// Most entries that one txg prunes (`zfs_ddt_prunes_per_txg`).
const PRUNES_PER_TXG: usize = 50_000;
/// Age classes (`HIST_BINS`): class `n` has ages from `2^n` hours to below twice that; the last has
/// no upper limit.
const AGES: usize = 16;
const HOUR: u64 = 3600;
/// `fast_dedup`.
const FEATURE: &str = "com.klarasystems:fast_dedup";

/// Which of the entries with one reference to prune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// Those at least so many seconds old (`ZPOOL_DDT_PRUNE_AGE`).
    Older(u64),
    /// About so many percent, the oldest first (`ZPOOL_DDT_PRUNE_PERCENTAGE`).
    Percent(u64),
}

/// The ages of entries.
#[derive(Debug, Default)]
struct Ages {
    all: u64,
    classes: [u64; AGES],
}

impl Ages {
    fn count(&mut self, age: u64) {
        let class = (age / HOUR).max(1).ilog2() as usize;
        self.all += 1;
        self.classes[class.min(AGES - 1)] += 1;
    }

    /// The age from which entries are pruned to get about `percent` of them.
    ///
    /// Whole age classes are pruned, oldest first, until there are enough. In the youngest class,
    /// entries of less than an hour stay, unless all are wanted. (OpenZFS prunes all if a class has
    /// exactly enough, or if that percentage is no entry.)
    fn oldest(&self, percent: u64) -> u64 {
        let mut target = self.all.saturating_mul(percent) / 100;
        if target == 0 {
            return u64::MAX;
        }
        for (class, count) in self.classes.iter().enumerate().rev() {
            if target <= *count {
                return if class == 0 && target == *count { 0 } else { HOUR << class };
            }
            target -= count;
        }
        0
    }
}

fn unshared(
    core: &PoolCore,
    each: &mut dyn FnMut(Unshared) -> Result<(), ShapeError>,
) -> Result<(), ShapeError> {
    let mut stopped = None;
    let walked = core.mos.unshared(|entry| {
        each(entry).map_err(|e| {
            stopped = Some(e);
            pool::Error::Closed
        })
    });
    match stopped {
        Some(e) => Err(e),
        None => Ok(walked?),
    }
}

impl PoolWriter {
    /// Removes entries with one reference from the dedup tables, and gives their number
    /// (`ddt_prune_unique_entries`). Their blocks stay.
    ///
    /// # Errors
    /// * [`ShapeError::Unsupported`]: the feature `fast_dedup` is not enabled.
    /// * [`ShapeError::Metadata`]: the pool metadata cannot be read.
    /// * [`ShapeError::Stopped`]: the pool has stopped.
    pub fn prune_ddt(&self, what: Prune) -> Result<u64, ShapeError> {
        let core = &self.parts().core;
        let _alone = core.shape.lock();
        if !core.mos.feature_enabled(FEATURE)? {
            return Err(ShapeError::Unsupported { what: "pruning tables without fast_dedup" });
        }
        let now = core.world.now();
        let age = match what {
            Prune::Older(seconds) => seconds,
            Prune::Percent(percent) => {
                let mut ages = Ages::default();
                unshared(core, &mut |entry| {
                    ages.count(now.saturating_sub(entry.since));
                    Ok(())
                })?;
                ages.oldest(percent)
            }
        };
        let cutoff = now.saturating_sub(age);
        let (mut batch, mut pruned) = (Vec::new(), 0);
        unshared(core, &mut |entry| {
            if entry.since < cutoff {
                batch.push(entry);
            }
            if batch.len() == PRUNES_PER_TXG {
                pruned += self.prune_now(std::mem::take(&mut batch), cutoff)?;
            }
            Ok(())
        })?;
        if !batch.is_empty() {
            pruned += self.prune_now(batch, cutoff)?;
        }
        Ok(pruned)
    }

    fn prune_now(&self, batch: Vec<Unshared>, cutoff: u64) -> Result<u64, ShapeError> {
        let count = Arc::new(Mutex::new(0));
        let told = Arc::clone(&count);
        // It runs before the txg's own writes and frees, which change entries too.
        let dedup = Arc::clone(&self.parts().sync.shared.dedup);
        self.parts().core.change_early(Box::new(move |_, tx| {
            let pruned = dedup.prune(&batch, cutoff);
            *told.lock() = pruned.map_err(|source| SyncError::Metadata { txg: tx.txg(), source })?;
            Ok(Vec::new())
        }))?;
        Ok(*count.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the oldest are pruned first, in whole age classes; of a class with more than is
    /// wanted, only the older entries.
    #[test]
    fn the_oldest_go_first() {
        let mut ages = Ages::default();
        for _ in 0..60 {
            ages.count(10);
        }
        for _ in 0..40 {
            ages.count(5 * HOUR);
        }
        assert_eq!((ages.classes[0], ages.classes[2]), (60, 40));
        assert_eq!((ages.oldest(100), ages.oldest(50)), (0, HOUR));
        assert_eq!((ages.oldest(40), ages.oldest(39)), (4 * HOUR, 4 * HOUR));
        assert_eq!(Ages::default().oldest(50), u64::MAX);
    }
}
