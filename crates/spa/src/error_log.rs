//! The logs of damaged blocks, as txgs change them.
//!
//! # Theory
//! Damage that reads have found since the last txg ([`zio::Damage`]) is logged with the next one.
//! During a scan it goes to the log that the scan fills, otherwise to the other. When a complete
//! scan ends, its log replaces the other, so that only what is still damaged stays. An incomplete
//! scan keeps the earlier entries.
//!
//! # Absent
//! OpenZFS also forgets the earlier entries when a scan is stopped, and when one ends that verified
//! only new blocks (`zpool scrub -C`). Here these entries stay.
//!
//! # See
//! OpenZFS `spa_errlog_sync`, `spa_errlog_rotate`, `spa_upgrade_errlog`.

use dmu::Tx;
use observe::lock::Mutex;
use ondisk::scan::ErrBookmark;
use pool::errlog::ErrLog;

use crate::damaged::{HEAD_ERRLOG, Search};
use pool::Mos;

/// What to do with a scan's log at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It replaces the other log.
    Replace,
    /// It is added to the other log.
    Add,
}

/// What the next txg does to the logs, beside adding new damage.
#[derive(Debug, Default)]
pub(crate) struct ErrorLogs {
    /// A scan has ended.
    turn: Mutex<Option<Turn>>,
    /// Blocks that no dataset holds any more (`spa_errlist_healed`).
    gone: Mutex<Vec<ErrBookmark>>,
}

impl ErrorLogs {
    /// A scan has ended. If several have, all entries are kept.
    pub(crate) fn over(&self, turn: Turn) {
        let mut now = self.turn.lock();
        *now = Some(if *now == Some(Turn::Add) { Turn::Add } else { turn });
    }
}

impl ErrorLogs {
    /// With the next txg, removes blocks that no dataset holds any more from the logs
    /// (`spa_remove_error`).
    pub(crate) fn forget(&self, gone: Vec<ErrBookmark>) {
        self.gone.lock().extend(gone);
    }

    /// Writes the damage found since the last txg. `scanning`: a scan was running when the txg
    /// began.
    pub(crate) fn sync(&self, tx: &Tx, damage: &zio::Damage, mos: &Mos, scanning: bool) {
        let met = damage.pending();
        let turn = self.turn.lock().take();
        let gone = std::mem::take(&mut *self.gone.lock());
        if met.is_empty() && turn.is_none() && gone.is_empty() {
            return;
        }
        // A damaged log is no reason to wait: the entries stay in memory, and readers of the log
        // get the error.
        let write = || -> pool::Result<()> {
            let by_head = mos.feature_enabled(HEAD_ERRLOG)?;
            for log in [ErrLog::Last, ErrLog::Scrub] {
                mos.errlog_remove(tx, log, &gone)?;
            }
            let search = Search::on_disk(mos);
            let entries: Vec<ErrBookmark> =
                met.iter().map(|(met, birth)| search.entry(met, *birth, by_head)).collect();
            let log = if scanning || turn.is_some() { ErrLog::Scrub } else { ErrLog::Last };
            mos.errlog_add(tx, log, &entries)?;
            match turn {
                Some(Turn::Replace) => mos.errlog_rotate(tx, by_head),
                Some(Turn::Add) => mos.errlog_merge(tx, by_head),
                None => Ok(()),
            }
        };
        let written = write();
        if written.is_ok() {
            damage.seen_to(&met);
        } else {
            self.gone.lock().extend(gone);
            let mut now = self.turn.lock();
            *now = now.or(turn);
        }
    }
}

/// Converts the logs for `head_errlog`, which has just been enabled (`spa_upgrade_errlog`).
/// Leaves out blocks that are gone, and entries that can't be read.
pub(crate) fn upgrade(tx: &Tx, check: &Mos, sync: &Mos) -> pool::Result<()> {
    let search = Search::on_disk(check);
    for log in [ErrLog::Last, ErrLog::Scrub] {
        let old = check.errlog(log, false).unwrap_or_default();
        let new: Vec<ErrBookmark> = old.iter().filter_map(|e| search.with_birth(e)).collect();
        sync.errlog_upgrade(tx, log, &new)?;
    }
    Ok(())
}
