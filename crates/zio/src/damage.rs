//! Blocks that can't be read, or of which copies are wrong, until they are logged or healed.
//!
//! # Theory
//! A reader learns at once that no copy of a block is right. The pool remembers it for longer, in
//! its error log. All reads end in the pipeline, so it collects the failures, each block once: for
//! events ([`Loss`]), and for the log. With each txg the pool enters them in the log.
//!
//! A block is dropped here only after it is in the log. A query that looks here first, and into the
//! log then, misses none.
//!
//! These are no damage: a read that may find nothing (a log's chain ends where a crash left it),
//! and a missing key.
//!
//! # Locks
//! Mutexes, each held for a few instructions, and none within another. The listener is called
//! without them.
//!
//! # See
//! OpenZFS `spa_log_error`, `spa_errlist_last`.

use crate::{Bookmark, Error};
use observe::lock::Mutex;
use ondisk::{Blkptr, DmuType, Txg};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Most blocks that are remembered at a time. Further ones are reported to their readers alone.
const MOST: usize = 1 << 17;

/// Most losses that are kept until they are taken. Dropped older ones are counted.
const LOSSES: usize = 512;

/// Why no copy of a block was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// None could be read or decoded.
    Unread,
    /// None matched its checksum.
    Checksum,
    /// The checksum matched, and the MAC of the dataset's key did not.
    Mac,
}

/// A block of which no copy is right (`FM_EREPORT_ZFS_DATA`, `FM_EREPORT_ZFS_AUTHENTICATION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// When it was found.
    pub at: Instant,
    /// The block.
    pub bookmark: Bookmark,
    /// The reason.
    pub why: Why,
}

#[derive(Debug, Default)]
struct Losses {
    kept: VecDeque<Loss>,
    dropped: u64,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

/// Damaged blocks that are not in the log yet, or blocks that wait to be healed
/// (`spa_errlist_last`, `spa_errlist_scrub`).
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
    /// Sets a listener, called when a block is entered into the empty list.
    pub fn listen(&self, listener: impl Fn() + Send + Sync + 'static) {
        *self.listener.lock() = Some(Arc::new(listener));
    }

    /// Enters a block that was born in this txg (`spa_log_error`).
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

    /// Drops what is now in the log, or healed. Blocks found since then stay, and the listener is
    /// called for them.
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

    /// All blocks, with the txgs in which they were born.
    pub fn pending(&self) -> Vec<(Bookmark, Txg)> {
        self.list.lock().iter().map(|(bookmark, birth)| (*bookmark, *birth)).collect()
    }

    /// How many blocks there are.
    pub fn count(&self) -> u64 {
        self.list.lock().len() as u64
    }

    /// Takes the losses since the last call, in order, and how many were dropped meanwhile. Each
    /// block comes once for each txg in which it was found.
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

    /// Enters a block whose read failed with this error, if the error means damage.
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
        // Repeated reads add nothing new.
        if !self.list.lock().contains_key(bookmark) {
            self.lose(bookmark, why);
        }
        self.note(bookmark, bp.birth);
    }
}

#[cfg(test)]
mod tests;
