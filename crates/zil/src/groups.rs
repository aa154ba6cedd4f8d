//! What writing a log needs of the rooms around it.

use crate::Result;
use device::Block;
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

/// What became of data that is to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It is here.
    Here,
    /// Nobody needs it any more: the file is gone, or was cut off before it.
    Gone,
    /// It can't be read.
    Unreadable,
}

/// Whoever logs, and is asked for the data of writes when they are committed (`zil_get_data_t`).
pub trait Source {
    /// Fills `buf` with the bytes of an object from `offset` on as they are now, with zeros behind its end. Nothing may be changing them meanwhile.
    /// Called without locks, so that the object's may be taken.
    fn data(&self, object: ObjNum, offset: u64, buf: &mut [u8]) -> Found;

    /// The block with the byte at `offset` of an object as it is now, and where it begins: where a write is most of a block, that is shared rather than
    /// copied. `None` has the data asked for. As [`Source::data`].
    fn block(&self, object: ObjNum, offset: u64) -> Option<(Block, u64)> {
        let _ = (object, offset);
        None
    }

    /// The block with the byte at `offset` of an object, as the open group `txg` has changed it, for a log that names the block instead of holding
    /// its data. `None` has the data asked for. Called without locks.
    fn dirty(&self, object: ObjNum, offset: u64, txg: Txg) -> Option<DirtyBlock> {
        let _ = (object, offset, txg);
        None
    }
}
