//! The objects of the MOS that were used last.
//!
//! An object without users is read and decoded anew at its next use. Operations on datasets use the
//! directories of their parents, and the maps of features, again and again.

use dmu::Dnode;
use observe::lock::Mutex;

/// The number of slots. The last bits of an object's number choose its slot.
const SLOTS: usize = 128;

/// Handles of the objects that were used last.
pub(super) struct Recent([Mutex<Option<Dnode>>; SLOTS]);

impl Default for Recent {
    fn default() -> Self {
        Self([const { Mutex::new(None) }; SLOTS])
    }
}

impl std::fmt::Debug for Recent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recent")
    }
}

impl Recent {
    /// Keeps an object in use, in place of another one.
    pub(super) fn keep(&self, dnode: &Dnode) {
        let slot = &self.0[dnode.object().0 as usize % SLOTS];
        // Not worth a wait.
        let Some(mut slot) = slot.try_lock() else { return };
        if slot.as_ref().is_none_or(|kept| kept.object() != dnode.object()) {
            let old = slot.replace(dnode.clone());
            drop(slot);
            drop(old);
        }
    }
}
