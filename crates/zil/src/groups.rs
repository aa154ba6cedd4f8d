//! What writing a log needs of the rooms around it.

use crate::{Bytes, Result};
use dmu::{DirtyBlock, Tx};
use ondisk::{ObjNum, Txg};

/// The transaction groups of the pool.
pub trait Groups: Send + Sync {
    /// Joins the open group, for space that the log takes; waits as every change does.
    ///
    /// # Errors
    /// [`crate::Error::Stopped`].
    fn hold(&self) -> Result<Tx>;

    /// The open group.
    fn open(&self) -> Txg;

    /// The last group on disk.
    fn synced(&self) -> Txg;

    /// Waits until a group is on disk.
    ///
    /// # Errors
    /// [`crate::Error::Stopped`].
    fn wait(&self, txg: Txg) -> Result<()>;
}

/// Why data that is to be logged is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Nobody needs it any more: the file is gone, or was cut off before it.
    Gone,
    /// It can't be read.
    Unreadable,
}

/// Whoever logs, and is asked for the data of writes when they are committed (`zil_get_data_t`).
pub trait Source {
    /// The bytes of an object from `offset` on as they are now, with zeros behind its end: see [`Bytes::of`]. Nothing may be changing them meanwhile. Called
    /// without locks, so that the object's may be taken.
    ///
    /// # Errors
    /// [`Missing`].
    fn data(&self, object: ObjNum, offset: u64, len: usize) -> std::result::Result<Bytes, Missing>;

    /// The block with the byte at `offset` of an object, as the open group `txg` has changed it, for a log that names the block instead of holding
    /// its data. `None` has the data asked for. Called without locks.
    fn dirty(&self, object: ObjNum, offset: u64, txg: Txg) -> Option<DirtyBlock> {
        let _ = (object, offset, txg);
        None
    }
}
