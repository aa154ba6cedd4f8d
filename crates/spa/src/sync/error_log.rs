//! The logs of damaged blocks, as groups change them.
//!
//! # Theory
//! What reads have met since the last group ([`zio::Damage`]) is entered with the next one: while a scan goes on, in the log that this fills, otherwise in the
//! other. A scan that looked at everything ends with its log taking the other's place, so that only what is still damaged is in it; one that did not leaves what was
//! known before.
//!
//! # Absent
//! OpenZFS forgets what was known before also when a scan is stopped, and when one ends that looked at new blocks only (`zpool scrub -C`): here these errors stay.
//!
//! # See
//! OpenZFS `spa_errlog_sync`, `spa_errlog_rotate`, `spa_upgrade_errlog`.

use dmu::Tx;
use ondisk::scan::ErrBookmark;
use parking_lot::Mutex;
use pool::errlog::ErrLog;

use crate::damaged::{HEAD_ERRLOG, Search};
use crate::engine::{Engine, PoolWriter};

/// What becomes of what a scan has found when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is all there is.
    Replace,
    /// It comes to what was known.
    Add,
}

/// What the next group does to the logs beside entering what was met.
#[derive(Debug, Default)]
pub(crate) struct ErrorLogs {
    /// A scan has ended.
    turn: Mutex<Option<Turn>>,
    /// Blocks that no dataset has any more (`spa_errlist_healed`).
    gone: Mutex<Vec<ErrBookmark>>,
}

impl ErrorLogs {
    /// A scan has ended. If several have, all that is known counts.
    pub(crate) fn over(&self, turn: Turn) {
        let mut now = self.turn.lock();
        *now = Some(if *now == Some(Turn::Add) { Turn::Add } else { turn });
    }
}

impl PoolWriter {
    /// Takes blocks that no dataset has any more out of the logs, with the next group (`spa_remove_error`).
    pub(crate) fn forget_errors(&self, gone: Vec<ErrBookmark>) {
        self.engine().errors.gone.lock().extend(gone);
        self.txgs().handle().touch();
    }

    /// From now on a damaged block makes a group, so that the log soon tells of it, and so does one of which a copy is wrong, so that it is soon right.
    pub(crate) fn keep_error_logs(&self) {
        let zio = self.engine().cache.zio();
        for list in [zio.damage(), zio.unhealed()] {
            let handle = self.txgs().handle();
            list.listen(move || handle.touch());
        }
    }
}

impl Engine {
    /// Writes what was met since the last group. `scanning`: a scan went on when the group began.
    pub(crate) fn sync_errors(&self, tx: &Tx, scanning: bool) {
        let met = self.cache.zio().damage().pending();
        let turn = self.errors.turn.lock().take();
        let gone = std::mem::take(&mut *self.errors.gone.lock());
        if met.is_empty() && turn.is_none() && gone.is_empty() {
            return;
        }
        // A log that is damaged itself is no reason to wait: what was met stays in memory, and
        // whoever asks for the log is told.
        let mos = self.check_dsl.mos();
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
            self.cache.zio().damage().seen_to(&met);
        } else {
            self.errors.gone.lock().extend(gone);
            let mut now = self.errors.turn.lock();
            *now = now.or(turn);
        }
    }

    /// Gives the logs the form that they have with `head_errlog`, which has just been enabled (`spa_upgrade_errlog`). What is no block any more is left out, and so
    /// is what can't be read.
    pub(crate) fn upgrade_error_logs(&self, tx: &Tx) -> pool::Result<()> {
        let (mos, search) = (self.check_dsl.mos(), Search::on_disk(self.check_dsl.mos()));
        for log in [ErrLog::Last, ErrLog::Scrub] {
            let old = mos.errlog(log, false).unwrap_or_default();
            let new: Vec<ErrBookmark> = old.iter().filter_map(|e| search.with_birth(e)).collect();
            self.sync_mos.errlog_upgrade(tx, log, &new)?;
        }
        Ok(())
    }
}
