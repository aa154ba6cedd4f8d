//! The traits through which a log reaches the layers around it.

use crate::{Bytes, Result};
use dmu::{DirtyBlock, Tx};
use ondisk::{ObjNum, Txg};

/// The transaction groups of the pool, as the log uses them.
pub trait Groups: Send + Sync {
    /// Joins the open transaction group, for space that the log allocates. Waits as every change
    /// does (`txg_hold_open`).
    ///
    /// # Errors
    /// * [`crate::Error::Stopped`]: the pool accepts no writes.
    fn hold(&self) -> Result<Tx>;

    /// The open txg.
    fn open(&self) -> Txg;

    /// The last txg on disk (`spa_last_synced_txg`).
    fn synced(&self) -> Txg;

    /// Waits until a txg is on disk (`txg_wait_synced`).
    ///
    /// # Errors
    /// * [`crate::Error::Stopped`]: the pool stopped before the txg was on disk.
    fn wait(&self, txg: Txg) -> Result<()>;

    /// Notes that the log of an object set has something to do in the syncs that follow, until
    /// [`crate::Zilog::clean`] finds that it has not. It must not wait, since locks are held.
    fn note_work(&self, objset: u64) {
        let _ = objset;
    }
}

/// Why the data of a write is not available to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The data is not needed any more: the file was removed, or truncated before it (`ENOENT`).
    Gone,
    /// The data can't be read (`EIO`).
    Unreadable,
}

/// Gives a commit the data of the writes that it logs (`zil_get_data_t`).
pub trait Source {
    /// The current bytes of an object from `offset` on, with zeros beyond its end: see
    /// [`Bytes::of`].
    ///
    /// No other thread may be changing the bytes meanwhile. The log holds no locks in this call, so
    /// an implementation may take the object's.
    ///
    /// # Errors
    /// * [`Missing::Gone`]: the data is not needed any more.
    /// * [`Missing::Unreadable`]: the data can't be read.
    fn data(&self, object: ObjNum, offset: u64, len: usize) -> std::result::Result<Bytes, Missing>;

    /// The block with the byte at `offset` of an object, as the open txg (`txg`) has changed it.
    ///
    /// The log then names this block instead of copying its data. With `None` the log calls
    /// [`Source::data`]. The log holds no locks in this call.
    fn dirty(&self, object: ObjNum, offset: u64, txg: Txg) -> Option<DirtyBlock> {
        let _ = (object, offset, txg);
        None
    }
}
