//! Pruning the dedup tables (`zpool ddtprune`).
//!
//! # See
//! OpenZFS `ddt_prune_unique_entries`.

use parking_lot::Mutex;
use pool::ddt::Unshared;
use std::sync::Arc;

use crate::engine::{Engine, PoolWriter, ShapeError, SyncError};

/// Entries that one group prunes at most (`zfs_ddt_prunes_per_txg`).
const PRUNES_PER_TXG: usize = 50_000;
/// Classes of age: that of number `n` is of `2^n` hours and more, below twice that; the last has no end (`HIST_BINS`).
const AGES: usize = 16;
const HOUR: u64 = 3600;
/// `fast_dedup`.
const FEATURE: &str = "com.klarasystems:fast_dedup";

/// What is pruned of the entries that have one reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// Those that are so many seconds old (`ZPOOL_DDT_PRUNE_AGE`).
    Older(u64),
    /// About so many in a hundred, the oldest (`ZPOOL_DDT_PRUNE_PERCENTAGE`).
    Percent(u64),
}

/// How old entries are.
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

    /// From which age on entries are pruned to get about so many in a hundred: whole classes of age, the oldest first, until there are enough. Of the youngest class
    /// those are left that are less than an hour old, unless all are wanted. (OpenZFS prunes all where a class is just enough, or where so many in a hundred are none.)
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

impl Engine {
    fn unshared(&self, each: &mut dyn FnMut(Unshared) -> Result<(), ShapeError>) -> Result<(), ShapeError> {
        let mut stopped = None;
        let walked = self.mos.unshared(|entry| {
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
}

impl PoolWriter {
    /// Forgets entries of the dedup tables that have one reference; how many. Their blocks stay where they are.
    ///
    /// # Errors
    /// [`ShapeError::Unsupported`] without `fast_dedup`; [`ShapeError::Books`], [`ShapeError::Stopped`].
    pub fn prune_ddt(&self, what: Prune) -> Result<u64, ShapeError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        if !engine.mos.feature_enabled(FEATURE)? {
            return Err(ShapeError::Unsupported { what: "pruning tables without fast_dedup" });
        }
        let now = engine.world.now();
        let age = match what {
            Prune::Older(seconds) => seconds,
            Prune::Percent(percent) => {
                let mut ages = Ages::default();
                engine.unshared(&mut |entry| {
                    ages.count(now.saturating_sub(entry.since));
                    Ok(())
                })?;
                ages.oldest(percent)
            }
        };
        let cutoff = now.saturating_sub(age);
        let (mut batch, mut pruned) = (Vec::new(), 0);
        engine.unshared(&mut |entry| {
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
        // Before anything is written or freed that the group's own changes of entries would meet.
        self.change_early(Box::new(move |engine, tx| {
            let pruned = engine.shared.dedup.prune(&batch, cutoff);
            *told.lock() = pruned.map_err(|source| SyncError::Books { txg: tx.txg(), source })?;
            Ok(Vec::new())
        }))?;
        Ok(*count.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the oldest go first, whole classes of age, and of a class that is more than is wanted only what is older.
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
