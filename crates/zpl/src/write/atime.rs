//! Times of access.
//!
//! # Theory
//! With `relatime`, reading a file changes its time of access only where that says more than before: the file was changed after it was last
//! read, or it was not read for a day. So a file that is read often costs one change a day. While the pool is suspended, or writers are
//! held up, reading leaves no trace.

use super::data::ATTR_BYTES;
use super::{Purpose, Writer};
use crate::{Attr, FileSystem, Result, Time};
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;
use std::sync::atomic::Ordering;

/// Seconds after which a time of access is old.
const DAY: i64 = 24 * 60 * 60;

/// When reading changes the time of access (`atime`, `relatime`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Never,
    /// When it says more than before.
    Relative,
    /// Always.
    Always,
}

/// True if reading at `now` is worth noting (`zfs_relatime_need_update`).
fn worth(a: &Attr, now: Time) -> bool {
    a.mtime >= a.atime || a.ctime >= a.atime || now.secs.saturating_sub(a.atime.secs) >= DAY
}

impl FileSystem {
    /// Notes that a file was read, a directory listed, or a link followed, if the properties want it noted.
    ///
    /// # Errors
    /// As reading and writing fail.
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
        // No commit is for the time of a read, and no read waits for it.
        let Some(tx) = w.txs.try_tx(ATTR_BYTES, Purpose::Grow)? else { return Ok(()) };
        w.newest.fetch_max(tx.txg().0, Ordering::Relaxed);
        self.update(w, object, &tx, |node, c| {
            // Another reader may have been here meanwhile; a removed file needs no times.
            if node.attr().nlink > 0 && wanted(w, rule, node.attr()) {
                c.time(Sa::Atime, w.txs.now());
            }
            Ok(())
        })
    }
}

fn wanted(w: &Writer, rule: Atime, a: &Attr) -> bool {
    rule == Atime::Always || worth(a, w.txs.now())
}
