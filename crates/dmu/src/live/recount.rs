//! Counting the space of users anew.
//!
//! # Theory
//! The space of users is not counted while a raw stream is received, because the owners of its
//! files are encrypted. Nor was it counted before pool version 15. It is then counted while the
//! object set is in use ([`Objset::begin_recount`]):
//!
//! 1. The first txg empties the tables.
//! 2. Each object that a txg changes is counted, as always. Whether it was counted before is known
//!    in memory only, because the flags in its dnode may be from before.
//! 3. The caller marks all objects as changed ([`Dnode::recount`]).
//! 4. The last txg says that the tables are complete ([`Objset::end_recount`]).
//!
//! As in each sync, owners whose entries collide are not counted (`crate::sync::accounting`).
//!
//! # Crash
//! The object set has no [`ObjsetFlags::USERACCOUNTING_COMPLETE`] until the end. An open that finds
//! the flag missing begins again.
//!
//! # See
//! OpenZFS `dmu_objset_userspace_upgrade`, `dmu_objset_id_quota_upgrade`. There the flags in the
//! dnodes decide. So it completes a first count that was interrupted, but counts wrongly what a raw
//! increment changes.

use crate::live::LiveObjset;
use crate::{Dnode, Objset, Result, Tx};
use ondisk::objset::ObjsetFlags;
use ondisk::{ObjNum, Txg};
use std::collections::BTreeMap;

/// The state of a recount.
pub(crate) struct Recount {
    from: Txg,
    /// The txg after which everything is counted.
    until: Option<Txg>,
    /// What is counted.
    pub(crate) flags: ObjsetFlags,
    /// True if the tables have been emptied.
    pub(crate) is_begun: bool,
    /// The objects that the tables hold, 64 in a word.
    counted: BTreeMap<u64, u64>,
}

impl Recount {
    /// Notes whether the tables hold an object, and returns whether they did before.
    pub(crate) fn note(&mut self, object: ObjNum, counted: bool) -> bool {
        let (word, bit) = (object.0 / 64, 1 << (object.0 % 64));
        let bits = self.counted.entry(word).or_default();
        let before = *bits & bit != 0;
        *bits = if counted { *bits | bit } else { *bits & !bit };
        if *bits == 0 {
            self.counted.remove(&word);
        }
        before
    }

    fn ends_by(&self, txg: Txg) -> bool {
        self.until.is_some_and(|until| until <= txg)
    }

    /// True if it takes part in the sync of a txg.
    pub(crate) fn covers(&self, txg: Txg) -> bool {
        self.from <= txg
    }
}

impl LiveObjset {
    /// The flags that the object set gets with the sync of `txg`: some if a count is complete.
    pub(crate) fn counted_by(&self, txg: Txg) -> ObjsetFlags {
        let recount = self.recount.lock();
        recount.as_ref().filter(|r| r.ends_by(txg)).map_or(ObjsetFlags::default(), |r| r.flags)
    }

    /// Ends a count that is complete. Returns the flags that the object set gets by that.
    pub(crate) fn recounted(&self, txg: Txg) -> ObjsetFlags {
        let done = self.recount.lock().take_if(|r| r.ends_by(txg));
        done.map_or(ObjsetFlags::default(), |r| r.flags)
    }
}

impl Objset {
    /// Begins to count the space of users anew.
    ///
    /// `flags` says what the pool can count. A count of the same that has begun already goes on.
    ///
    /// # Errors
    /// * [`crate::Error::Fixed`]: the object set is not open for changes.
    pub fn begin_recount(&self, tx: &Tx, flags: ObjsetFlags) -> Result<()> {
        let live = self.live()?;
        let mut recount = live.recount.lock();
        match &mut *recount {
            Some(r) if r.flags == flags => r.until = None,
            _ => {
                let (from, counted) = (tx.txg(), BTreeMap::new());
                *recount = Some(Recount { from, until: None, flags, is_begun: false, counted });
            }
        }
        drop(recount);
        let complete = ObjsetFlags::USERACCOUNTING_COMPLETE;
        // The others say only what a file has to keep. OpenZFS leaves them in a raw increment.
        live.change_root(tx, |phys| phys.flags.0 = (phys.flags.0 | flags.0) & !complete);
        Ok(())
    }

    /// Ends the count: all objects were marked.
    ///
    /// # Errors
    /// * [`crate::Error::Fixed`]: the object set is not open for changes.
    pub fn end_recount(&self, tx: &Tx) -> Result<()> {
        let live = self.live()?;
        if let Some(recount) = live.recount.lock().as_mut() {
            recount.until = Some(tx.txg());
        }
        live.change_root(tx, |_| {});
        Ok(())
    }
}

impl Dnode {
    /// Marks the object as changed, so that the sync of the txg counts its space.
    ///
    /// # Errors
    /// * [`crate::Error::Fixed`]: the object set is not open for changes.
    /// * [`crate::Error::NoSuchObject`]: the object was freed.
    pub fn recount(&self, tx: &Tx) -> Result<()> {
        self.to_change()?.change_header(tx, |_| {})
    }

    /// Checks that the owners of the object can be read, so that a sync can count it.
    ///
    /// # Errors
    /// * The errors of [reading](crate::Error#reading). [`crate::Error::Corrupt`] also if the
    ///   owners are not where they should be.
    pub fn check_owner(&self) -> Result<()> {
        let spilled = self.bonus_kind() == ondisk::DmuType::SA && self.bonus().is_empty();
        let spill = if spilled { self.spill()? } else { None };
        let attributes = spill.as_deref().unwrap_or(self.bonus());
        crate::check_owner(self.bonus_kind(), attributes).map_err(|e| self.corrupt(e))
    }
}
