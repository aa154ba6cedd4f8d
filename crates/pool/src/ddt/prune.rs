//! Forgetting blocks that nobody has shared for long.
//!
//! # Theory
//! An entry with one reference costs room and look-ups and has saved nothing yet. Without it the block is an ordinary one: it is freed by its only reference, as the table does not know
//! it any more, and the same contents, written again, are a new block. Only fast tables know when an entry came.
//!
//! # See
//! OpenZFS `module/zfs/ddt.c` (`ddt_prune_unique_entries`, `prune_candidates_sync`).

use super::table::{DedupTables, UNIQUE, share};
use crate::{Mos, Result};
use ondisk::ChecksumKind;
use ondisk::ddt::{DdtKey, DdtPhysSlot};
use zio::{IoFlags, ReadOptions};

/// An entry that may be pruned: its table, its key, and when it came to its class, seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unshared {
    /// The table.
    pub checksum: ChecksumKind,
    /// The block.
    pub key: DdtKey,
    /// When it came.
    pub since: u64,
}

impl Mos {
    /// Hands `each` the entries of fast tables that have one reference.
    ///
    /// # Errors
    /// As reading or `each` fails.
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
    /// Forgets those of these entries that have one reference still and came before `cutoff`; how many that are. Their blocks stay. Called by the sync thread, before
    /// the group writes its entries.
    ///
    /// # Errors
    /// As taking one out of the sums fails.
    pub fn prune(&self, entries: &[Unshared], cutoff: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let mut pruned = 0;
        for entry in entries {
            if state.wanted.contains_key(&(entry.checksum, entry.key)) {
                continue;
            }
            // What can't be read stays: the group must neither fail nor wait for what it could do without.
            let options = ReadOptions::sync().with(IoFlags::CAN_FAIL);
            let Ok(live) = state.load(entry.checksum, &entry.key, &options) else { continue };
            // One that the group has changed is in use.
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
