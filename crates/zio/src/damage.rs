//! Blocks that could not be read right, or of which copies are wrong, until somebody sees to them.
//!
//! # Theory
//! Whoever reads a block learns at once that no copy of it is right; the pool remembers it beyond that, in a log of its own. The pipeline is where all reads
//! end, so it collects what failed, each block once, for events ([`Loss`]) and for the log, and whoever keeps the log enters it with each group. A block is dropped here after it is in the log, so that who
//! looks here first and into the log then misses none. Reads that may well find nothing (log blocks, whose chain
//! ends where a crash left it) are no damage, and neither is the want of a key.
//!
//! # Locks
//! Mutexes, each held for a few instructions, and none within another. The listener is called without it.
//!
//! # See
//! OpenZFS `spa_log_error`, `spa_errlist_last`.

use crate::{Bookmark, Error};
use ondisk::{Blkptr, DmuType, Txg};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Most blocks that are remembered at a time; more than these are told to their readers alone.
const MOST: usize = 1 << 17;

/// Losses that are kept until somebody takes them; older ones are counted.
const LOSSES: usize = 512;

/// Why no copy of a block was any good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// None could be read, or what was read could not be made out.
    Unread,
    /// None matched its checksum.
    Checksum,
    /// What matched its checksum was not what its dataset's key had sealed.
    Mac,
}

/// A block that no copy could give, for whoever wants to know (`FM_EREPORT_ZFS_DATA`, `FM_EREPORT_ZFS_AUTHENTICATION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// When it was found out.
    pub at: Instant,
    /// Which block.
    pub bookmark: Bookmark,
    /// Why.
    pub why: Why,
}

#[derive(Debug, Default)]
struct Losses {
    kept: VecDeque<Loss>,
    dropped: u64,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

/// Damaged blocks that are in no log yet (`spa_errlist_last`, `spa_errlist_scrub`), or blocks that wait to be healed.
#[derive(Default)]
pub struct Damage {
    list: Mutex<BTreeMap<Bookmark, Txg>>,
    listener: Mutex<Option<Listener>>,
    losses: Mutex<Losses>,
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

    /// Takes what was lost since the last call, each block once for each group in which it was met, in order; and how many losses were dropped, since nobody came for them.
    pub fn take_losses(&self) -> (Vec<Loss>, u64) {
        let losses = std::mem::take(&mut *self.losses.lock());
        (losses.kept.into(), losses.dropped)
    }

    fn lose(&self, bookmark: &Bookmark, why: Why) {
        let losses = &mut *self.losses.lock();
        if losses.kept.len() == LOSSES {
            losses.kept.pop_front();
            losses.dropped += 1;
        }
        losses.kept.push_back(Loss { at: Instant::now(), bookmark: *bookmark, why });
    }

    /// Enters a block whose read failed with this, if that says that it is damaged.
    pub(crate) fn judge(&self, bp: &Blkptr, bookmark: &Bookmark, error: &Error) {
        if bp.kind == DmuType::INTENT_LOG {
            return;
        }
        let why = match error {
            Error::Checksum { .. } => Why::Checksum,
            Error::Decode { source: codec::Error::Mac { .. }, .. } => Why::Mac,
            Error::Place { .. } | Error::Io { .. } | Error::Decode { .. } | Error::Corrupt { .. } => {
                Why::Unread
            }
            Error::Key { .. }
            | Error::Encode { .. }
            | Error::NoSpace { .. }
            | Error::Write { .. }
            | Error::Suspended { .. }
            | Error::Redacted { .. } => return,
        };
        // Whoever reads it again and again tells nothing new.
        if !self.list.lock().contains_key(bookmark) {
            self.lose(bookmark, why);
        }
        self.note(bookmark, bp.birth);
    }
}

#[cfg(test)]
mod tests;
