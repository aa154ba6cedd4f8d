//! Access times.
//!
//! # Theory
//! With `relatime`, reading a file updates its access time in two cases only. Either the file was
//! changed after it was last read, or it was not read for a day. So a file that is read often costs
//! one change a day. While the pool is suspended or writers are throttled, reading updates nothing.

use super::Writer;
use super::data::ATTR_BYTES;
use crate::{Attr, FileSystem, Result, Time};
use dsl::Need;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;

/// Seconds after which an access time is old.
const DAY: i64 = 24 * 60 * 60;

/// When reading updates the access time: the properties `atime` and `relatime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Never,
    /// If the file was changed since it was last read, or was not read for a day.
    Relative,
    /// Always.
    Always,
}

/// True if a read at `now` is worth an update (`zfs_relatime_need_update`).
fn worth(a: &Attr, now: Time) -> bool {
    a.mtime >= a.atime || a.ctime >= a.atime || now.secs.saturating_sub(a.atime.secs) >= DAY
}

impl FileSystem {
    /// Updates the access time after a read, a listing or a followed link, if the properties say so
    /// (`ZFS_ACCESSTIME_STAMP`).
    ///
    /// # Errors
    /// * [`Error::Quota`](crate::Error::Quota), [`Error::NoSpace`](crate::Error::NoSpace),
    ///   [`Error::Stopped`](crate::Error::Stopped): the pool gives no transaction.
    /// * The errors of [opening](crate::Error#opening).
    pub fn accessed(&self, object: ObjNum) -> Result<()> {
        let Some(w) = self.writer_if_any() else { return Ok(()) };
        let rule = w.policy().atime;
        if rule == Atime::Never {
            return Ok(());
        }
        let node = self.node(object)?;
        if !wanted(w, rule, node.attr()) {
            return Ok(());
        }
        // No commit covers an access time, and no read waits for a transaction.
        let Some(tx) = w.txs.try_tx(Need::growing(ATTR_BYTES))? else { return Ok(()) };
        w.changes(&tx);
        self.update(w, object, &tx, |node, c| {
            // Another reader may have updated it meanwhile. A removed file needs no times.
            if node.attr().nlink > 0 && wanted(w, rule, node.attr()) {
                c.time(Sa::Atime, w.now());
            }
            Ok(())
        })
    }
}

fn wanted(w: &Writer, rule: Atime, a: &Attr) -> bool {
    rule == Atime::Always || worth(a, w.now())
}
