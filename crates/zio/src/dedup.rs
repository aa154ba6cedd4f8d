//! What writing and freeing ask of the tables of shared blocks.

use crate::ReadOptions;
use ondisk::{Blkptr, Dva, Txg};

/// What the dedup table knows of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The table takes no more entries (its quota): the block is written as if there were no table.
    Full,
    /// Nothing yet.
    New,
    /// It is there, in one to three copies.
    Have {
        /// Its places.
        dvas: [Option<Dva>; 3],
        /// The group that wrote it.
        phys_birth: Txg,
    },
}

/// The dedup table: `pool` implements it.
///
/// # Locks
/// Called on the thread that writes a batch or frees a block, with none of this room's locks held.
/// That is the sync of a group, but for [`Dedup::has`]: what the table reads must succeed.
pub trait Dedup: Send + Sync {
    /// Looks up a block that is about to be written, and changes nothing: `bp` has its checksum, sizes, compressor and encryption,
    /// and no place (`ddt_lookup`).
    fn find(&self, txg: Txg, bp: &Blkptr, copies: u8) -> Found;

    /// Adds a reference to the block, which now has these places; those that the entry doesn't have are added to it, and a new
    /// block gets an entry (`ddt_phys_extend`, `ddt_phys_addref`).
    fn enter(&self, txg: Txg, bp: &Blkptr);

    /// Takes back an [`enter`](Self::enter) of a batch that failed: its new places are given back to the allocator.
    fn revoke(&self, txg: Txg, bp: &Blkptr, new: &[Dva]);

    /// Whether the table knows a block that is there, so that it can take another reference. False
    /// if it was pruned, or that can't be found out. It stays known until the group has synced.
    fn has(&self, txg: Txg, bp: &Blkptr, options: &ReadOptions) -> bool;

    /// Drops a reference. True if the block is to be freed by the caller: the table doesn't know it
    /// (it was pruned). The table frees a block with its last reference itself, when it is synced (`zio_ddt_free`).
    fn release(&self, txg: Txg, bp: &Blkptr) -> bool;
}

/// The table of cloned blocks: `pool` implements it.
pub trait Clones: Send + Sync {
    /// Drops a reference. True if that was not the last: then the block stays (`brt_entry_decref`).
    fn release(&self, txg: Txg, bp: &Blkptr) -> bool;
}
