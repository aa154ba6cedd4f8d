//! What writing and freeing need from the tables of shared blocks.

use crate::ReadOptions;
use ondisk::{Blkptr, Dva, Txg};

/// What the dedup table knows of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The table takes no more entries (its quota). The block is written as if there were no table.
    Full,
    /// The table does not have it.
    New,
    /// The table has it, in one to three copies.
    Have {
        /// The places of its copies.
        dvas: [Option<Dva>; 3],
        /// The txg that wrote it.
        phys_birth: Txg,
    },
}

/// The dedup table (`ddt_t`); `pool` implements it.
///
/// # Locks
/// Called by the thread that writes a batch or frees a block, with none of this crate's locks held.
/// Except for [`Dedup::has`], that is the sync of a txg, so the table's reads must succeed.
pub trait Dedup: Send + Sync {
    /// Looks up a block that is about to be written (`ddt_lookup`). Changes nothing.
    ///
    /// `bp` has the block's checksum, sizes, compressor and encryption, and no place.
    fn find(&self, txg: Txg, bp: &Blkptr, copies: u8) -> Found;

    /// Adds a reference to the block, which now has these places (`ddt_phys_extend`,
    /// `ddt_phys_addref`).
    ///
    /// Places that the entry doesn't have are added to it. A new block gets an entry.
    fn enter(&self, txg: Txg, bp: &Blkptr);

    /// Undoes an [`enter`](Self::enter) of a batch that failed. Its new places go back to the
    /// allocator.
    fn revoke(&self, txg: Txg, bp: &Blkptr, new: &[Dva]);

    /// Whether the table has a block, so that the block can take another reference.
    ///
    /// False if the entry was pruned, or that is not known. The entry stays until the txg has
    /// synced.
    fn has(&self, txg: Txg, bp: &Blkptr, options: &ReadOptions) -> bool;

    /// Drops a reference (`zio_ddt_free`). Returns true if the caller must free the block, since
    /// the table doesn't have it (it was pruned).
    ///
    /// The table itself frees a block with its last reference, when it is synced.
    fn release(&self, txg: Txg, bp: &Blkptr) -> bool;
}

/// The table of cloned blocks (`brt_vdev_t`); `pool` implements it.
pub trait Clones: Send + Sync {
    /// Drops a reference (`brt_entry_decref`). Returns true if there are others: the block then
    /// stays.
    fn release(&self, txg: Txg, bp: &Blkptr) -> bool;
}
