//! What writing needs from the allocator.

use crate::IoFlags;
use ondisk::{DmuType, Dva, Level, Psize, Txg};

/// A request for space: one block, in one to three copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Bytes of one copy as stored. Its space on a vdev may be larger
    /// ([`vdev::Tree::psize_to_asize`]).
    pub psize: Psize,
    /// Number of copies, on different top-level vdevs as far as possible.
    pub copies: u8,
    /// The txg that writes it.
    pub txg: Txg,
    /// Type of its object, on which the class of vdevs depends (`spa_preferred_class`).
    pub kind: DmuType,
    /// Its level; 0 is data.
    pub level: Level,
    /// What the class depends on besides type and level.
    pub class: ClassHint,
    /// Whether it is a gang header: any vdev with space will do, however full it is.
    pub gang_header: bool,
    /// How the allocator reads space maps for it, if needed.
    pub flags: IoFlags,
}

/// What a block says about its class of vdevs (`metaslab_class_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassHint {
    /// Type, level and size decide. File blocks of at most so many bytes count as small
    /// (`special_small_blocks`; 0 for none).
    Normal {
        /// Largest stored size that goes to the special class.
        special_small_blocks: u64,
    },
    /// A dedup table (`DMU_OT_DDT_ZAP`).
    Dedup,
    /// A block of an intent log.
    Log {
        /// Whether to use log devices first, if there are any (not with `logbias=throughput`).
        devices: bool,
    },
}

impl Default for ClassHint {
    fn default() -> Self {
        ClassHint::Normal { special_small_blocks: 0 }
    }
}

/// There is no contiguous space for a block of this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no vdev has room for the block")]
pub struct NoSpace;

/// Allocates and frees the space of a pool (`metaslab_alloc`); `pool::Allocator` implements it.
///
/// # Locks
/// Called with none of this crate's locks held. Allocations of one batch come one after another, in
/// the order of its requests.
pub trait Space: Send + Sync {
    /// Allocates space (`metaslab_alloc`). The places have their `asize`, and never the gang bit.
    ///
    /// # Errors
    /// * [`NoSpace`]: there is no contiguous space for a block of this size. The caller may try
    ///   smaller ones.
    fn allocate(&self, want: &Want) -> Result<[Option<Dva>; 3], NoSpace>;

    /// Frees in the txg `txg` what the txg `born` wrote (`metaslab_free`). It may be allocated
    /// again `TXG_DEFER_SIZE` txgs later, unless a checkpoint refers to it.
    fn free(&self, dva: &Dva, born: Txg, txg: Txg);

    /// Gives back what was allocated in the open txg and never referenced (`metaslab_unalloc_dva`).
    fn unallocate(&self, dva: &Dva, txg: Txg);

    /// Whether so little space is left that txgs need it for themselves. The intent log is then not
    /// used, since a caller can wait for the txg instead.
    fn is_scarce(&self) -> bool {
        false
    }
}
