//! Pruning entries of blocks that were not shared for a long time.
//!
//! # Theory
//! An entry with one reference costs space and lookups, and has saved nothing yet. Without the
//! entry, the block is an ordinary one. The table does not know it any more, so its only reference
//! frees it. The same contents, written again, are a new block. Only fast tables record the age of
//! an entry.
//!
//! # See
//! OpenZFS `module/zfs/ddt.c` (`ddt_prune_unique_entries`, `prune_candidates_sync`).

use super::table::{DedupTables, UNIQUE, share};
use crate::{Mos, Result};
use ondisk::ChecksumKind;
use ondisk::ddt::{DdtKey, DdtPhysSlot};
use zio::{IoFlags, ReadOptions};

/// An entry that may be pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unshared {
    /// The table.
    pub checksum: ChecksumKind,
    /// The block.
    pub key: DdtKey,
    /// When it came to its class, in seconds since 1970.
    pub since: u64,
}

impl Mos {
    /// Calls `each` with the entries of fast tables that have one reference.
    ///
    /// # Errors
    /// * The errors of [reading](crate::Error#reading).
    /// * [`crate::Error::Unpack`]: an entry does not decompress.
    /// * The errors of `each`.
    pub fn unshared(&self, mut each: impl FnMut(Unshared) -> Result<()>) -> Result<()> {
        for ddt in self.ddts(&|_| 0)?.iter().filter(|ddt| ddt.is_flat()) {
            for class in ddt.classes.iter().filter(|class| class.class == UNIQUE) {
                for entry in self.ddt_entries(ddt, class)? {
                    let entry = entry?;
                    let since = entry.phys.slots().first().map_or(0, |slot| slot.class_start);
                    each(Unshared { checksum: ddt.checksum, key: entry.key, since })?;
                }
            }
        }
        Ok(())
    }
}

impl DedupTables {
    /// Removes those of `entries` that still have one reference and are older than `cutoff`
    /// (`ddt_prune_unique_entries`). Returns their number.
    ///
    /// Their blocks stay. The sync thread calls this before the txg writes its entries.
    ///
    /// # Errors
    /// * The errors of [reading](crate::Error#reading), when an entry is subtracted from the sums.
    /// * [`crate::Error::Closed`]: the pool was closed.
    pub fn prune(&self, entries: &[Unshared], cutoff: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let mut pruned = 0;
        for entry in entries {
            if state.wanted.contains_key(&(entry.checksum, entry.key)) {
                continue;
            }
            // An entry that can't be read stays. Pruning is optional, so the txg must neither fail
            // nor wait for it.
            let options = ReadOptions::sync().with(IoFlags::CAN_FAIL);
            let Ok(live) = state.load(entry.checksum, &entry.key, &options) else { continue };
            // An entry that the txg has changed is in use.
            let idle = !live.out && live.phys.slots().iter().all(|s| s.refcnt <= 1 && s.class_start < cutoff);
            if !idle || live.phys.slots().iter().all(|s| s.phys_birth.0 == 0) {
                continue;
            }
            let phys = live.phys.clone();
            if share(&state.vdevs, None, &entry.key, &phys).is_err() {
                continue;
            }
            let now = state.now;
            let live = state.take(entry.checksum, &entry.key)?;
            for slot in live.phys.slots_mut() {
                *slot = DdtPhysSlot::default();
                slot.class_start = now;
            }
            pruned += 1;
        }
        Ok(pruned)
    }
}
