//! Why the tree refused an operation.

use ondisk::{Guid, VdevId};

/// Why a vdev operation was refused before any device was accessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VdevError {
    /// The pool has no top-level vdev of this number.
    #[error("there is no top-level vdev {vdev}")]
    NoSuchVdev {
        /// The requested number.
        vdev: VdevId,
    },
    /// The pool has no vdev of this guid, or the vdev is not of the kind that the operation needs.
    #[error("there is no such vdev with guid {guid}")]
    NoSuchGuid {
        /// The requested guid.
        guid: Guid,
    },
    /// The vdev is a hole, is missing or was removed: it can't hold the block.
    #[error("vdev {vdev} is not there")]
    Absent {
        /// The vdev.
        vdev: VdevId,
    },
    /// The range is not within the vdev.
    #[error("vdev {vdev}: range {offset:#x}+{size:#x} is outside its {asize:#x} bytes")]
    Range {
        /// The vdev.
        vdev: VdevId,
        /// First byte.
        offset: u64,
        /// Requested bytes.
        size: u64,
        /// Allocatable bytes of the vdev.
        asize: u64,
    },
    /// The offset is not a multiple of the vdev's sector.
    #[error("vdev {vdev}: offset {offset:#x} is not a multiple of its sector")]
    Misaligned {
        /// The vdev.
        vdev: VdevId,
        /// The offset.
        offset: u64,
    },
    /// A block can't be of this size.
    #[error("vdev {vdev}: a block can't have {size:#x} bytes")]
    Size {
        /// The vdev.
        vdev: VdevId,
        /// The size.
        size: u64,
    },
    /// A mirror of raidz can be read, but not written.
    #[error("vdev {vdev} is a mirror of raidz, which is not written to")]
    RaidzSides {
        /// Number of the vdev.
        vdev: VdevId,
    },
    /// A raidz that is being expanded can't be written here: its blocks are moving.
    #[error("vdev {vdev} is being expanded")]
    Expanding {
        /// The vdev.
        vdev: VdevId,
    },
    /// A removed vdev has no mapping loaded, or none for this range.
    #[error("vdev {vdev}: removed, and nothing says where {offset:#x}+{size:#x} went")]
    Unmapped {
        /// The removed vdev.
        vdev: VdevId,
        /// First byte that is not mapped.
        offset: u64,
        /// Bytes from there on.
        size: u64,
    },
    /// The entries of a removed vdev's mapping overlap, are out of order, or are empty.
    #[error("vdev {vdev}: the mapping of where it went is out of order at {offset:#x}")]
    Mapping {
        /// The removed vdev.
        vdev: VdevId,
        /// Source offset of the entry that doesn't fit.
        offset: u64,
    },
    /// A field of the configuration has an invalid value.
    #[error("configuration of vdev {guid}: {field} is {value}, which can't be")]
    Config {
        /// The vdev.
        guid: Guid,
        /// The field, by its name in the configuration.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The configuration nests kinds of vdevs in an invalid way.
    #[error("configuration of vdev {guid}: {why}")]
    Shape {
        /// The vdev.
        guid: Guid,
        /// The contradiction.
        why: &'static str,
    },
}
