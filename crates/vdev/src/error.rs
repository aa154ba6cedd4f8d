//! Why the tree refused.

use ondisk::{Guid, VdevId};

/// Why a vdev operation was refused before any device was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VdevError {
    /// The pool has no top-level vdev of this number.
    #[error("there is no top-level vdev {vdev}")]
    NoSuchVdev {
        /// The number asked for.
        vdev: VdevId,
    },
    /// The pool has no vdev of this guid, or it is not of the kind that the operation needs.
    #[error("there is no such vdev with guid {guid}")]
    NoSuchGuid {
        /// The guid asked for.
        guid: Guid,
    },
    /// The vdev is a hole or is missing, and holds nothing.
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
        /// Bytes asked for.
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
    /// A mirror of raidz is read, but nothing is written to it.
    #[error("vdev {vdev} is a mirror of raidz, which is not written to")]
    RaidzSides {
        /// Number of the vdev.
        vdev: VdevId,
    },
    /// A raidz that is being expanded is not written: its blocks are moving.
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
    /// The mapping of a removed vdev is out of order.
    #[error("vdev {vdev}: the mapping of where it went is out of order at {offset:#x}")]
    Mapping {
        /// The removed vdev.
        vdev: VdevId,
        /// Source offset of the entry that doesn't fit.
        offset: u64,
    },
    /// A field of the configuration has a value that it can't have.
    #[error("configuration of vdev {guid}: {field} is {value}, which can't be")]
    Config {
        /// The vdev.
        guid: Guid,
        /// The field, by its name in the configuration.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The configuration nests kinds of vdevs in a way that means nothing.
    #[error("configuration of vdev {guid}: {why}")]
    Shape {
        /// The vdev.
        guid: Guid,
        /// The contradiction.
        why: &'static str,
    },
}
