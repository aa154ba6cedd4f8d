//! What writing asks of the allocator.

use crate::IoFlags;
use ondisk::{DmuType, Dva, Level, Psize, Txg};

/// A wish for space: one block, in one to three copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Bytes of one copy as stored; its space on a vdev may be more ([`vdev::Tree::psize_to_asize`]).
    pub psize: Psize,
    /// How many copies, on different top-level vdevs as far as there are several.
    pub copies: u8,
    /// The group that writes it.
    pub txg: Txg,
    /// What it is: the class of vdevs depends on it (`spa_preferred_class`).
    pub kind: DmuType,
    /// Its level; 0 is data.
    pub level: Level,
    /// What the class depends on beyond kind and level.
    pub class: ClassHint,
    /// It is a gang header: any vdev with room will do, as near to full as it may be.
    pub gang_header: bool,
    /// How space maps are read for it, if that is needed.
    pub flags: IoFlags,
}

/// What a block says about the class of vdevs that it wants (`metaslab_class_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassHint {
    /// Its kind, level and size decide. File blocks of at most so many bytes count as small
    /// (`special_small_blocks`; 0 for none).
    Normal {
        /// Largest stored size that goes to the special class.
        special_small_blocks: u64,
    },
    /// A dedup table (`DMU_OT_DDT_ZAP`).
    Dedup,
    /// A block of an intent log.
    Log {
        /// Log devices come first, if there are any; else it is as if there were none (`logbias=throughput`).
        devices: bool,
    },
}

impl Default for ClassHint {
    fn default() -> Self {
        ClassHint::Normal { special_small_blocks: 0 }
    }
}

/// There is no room for a block of this size in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no vdev has room for the block")]
pub struct NoSpace;

/// Gives out and takes back the space of a pool; `pool::Allocator` implements it.
///
/// # Locks
/// Called with none of this room's locks held. Allocations of one batch come one after another, in the order of
/// its requests.
pub trait Space: Send + Sync {
    /// Takes space. The places have their `asize`, and never the gang bit.
    ///
    /// # Errors
    /// [`NoSpace`] when a block of this size finds no room in one piece: the caller may try smaller ones.
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace>;

    /// Gives up what the group `txg` frees and the group `born` wrote; it may be allocated again `TXG_DEFER_SIZE` groups later, unless a
    /// checkpoint refers to it.
    fn free(&self, dva: &Dva, born: Txg, txg: Txg);

    /// Gives back what was allocated in the open group and never referenced.
    fn unallocate(&self, dva: &Dva, txg: Txg);

    /// Whether so little is left that groups need it for themselves: the intent log, for which they are a substitute, is to do without.
    fn is_scarce(&self) -> bool {
        false
    }
}
