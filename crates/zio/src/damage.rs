//! Blocks that could not be read right, or of which copies are wrong, until somebody sees to them.
//!
//! # Theory
//! Whoever reads a block learns at once that no copy of it is right; the pool remembers it beyond that, in a log of its own. The pipeline is where all reads
//! end, so it collects what failed, each block once, and whoever keeps the log enters it with each group. A block is dropped here after it is in the log, so that who
//! looks here first and into the log then misses none. Reads that may well find nothing (log blocks, whose chain
//! ends where a crash left it) are no damage, and neither is the want of a key.
//!
//! # Locks
//! One mutex, held for a few instructions. The listener is called without it.
//!
//! # See
//! OpenZFS `spa_log_error`, `spa_errlist_last`.

use crate::{Bookmark, Error};
use ondisk::{Blkptr, DmuType, Txg};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most blocks that are remembered at a time; more than these are told to their readers alone.
const MOST: usize = 1 << 17;

type Listener = Arc<dyn Fn() + Send + Sync>;

/// Damaged blocks that are in no log yet (`spa_errlist_last`, `spa_errlist_scrub`), or blocks that wait to be healed.
#[derive(Default)]
pub struct Damage {
    list: Mutex<BTreeMap<Bookmark, Txg>>,
    listener: Mutex<Option<Listener>>,
}

impl std::fmt::Debug for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Damage({})", self.list.lock().len())
    }
}

impl Damage {
    /// `listener` is called when a block is entered into the empty list.
    pub fn listen(&self, listener: impl Fn() + Send + Sync + 'static) {
        *self.listener.lock() = Some(Arc::new(listener));
    }

    /// Enters a block that was born in this group (`spa_log_error`).
    pub fn note(&self, bookmark: &Bookmark, birth: Txg) {
        let first = {
            let mut list = self.list.lock();
            let first = list.is_empty();
            if list.len() < MOST || list.contains_key(bookmark) {
                list.entry(*bookmark).or_insert(birth);
            }
            first
        };
        if first {
            self.call();
        }
    }

    fn call(&self) {
        let listener = self.listener.lock().clone();
        if let Some(listener) = listener {
            listener();
        }
    }

    /// Drops what is in the log now, or has been put right. What was met since then stays, and the listener is called for it.
    pub fn seen_to(&self, entries: &[(Bookmark, Txg)]) {
        let rest = {
            let mut list = self.list.lock();
            for (bookmark, birth) in entries {
                if list.get(bookmark) == Some(birth) {
                    list.remove(bookmark);
                }
            }
            !list.is_empty()
        };
        if rest {
            self.call();
        }
    }

    /// All, with the groups in which they were born.
    pub fn pending(&self) -> Vec<(Bookmark, Txg)> {
        self.list.lock().iter().map(|(bookmark, birth)| (*bookmark, *birth)).collect()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.list.lock().len() as u64
    }

    /// Enters a block whose read failed with this, if that says that it is damaged.
    pub(crate) fn judge(&self, bp: &Blkptr, bookmark: &Bookmark, error: &Error) {
        if bp.kind == DmuType::INTENT_LOG {
            return;
        }
        match error {
            Error::Place { .. }
            | Error::Io { .. }
            | Error::Checksum { .. }
            | Error::Decode { .. }
            | Error::Corrupt { .. } => self.note(bookmark, bp.birth),
            Error::Key { .. }
            | Error::Encode { .. }
            | Error::NoSpace { .. }
            | Error::Write { .. }
            | Error::Suspended { .. }
            | Error::Redacted { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
