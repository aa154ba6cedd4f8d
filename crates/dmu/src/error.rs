//! What can go wrong with an object.

use ondisk::{BlkId, Corrupt, Level, ObjNum};

/// Failure of an operation on an object.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A block could not be read.
    #[error(transparent)]
    Read(#[from] zio::Error),
    /// The object set has no such object.
    #[error("object set {objset}: no object {object}")]
    NoSuchObject {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// The bytes of an object are not what the format says.
    #[error("object set {objset}, object {object}: {source}")]
    Corrupt {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// What is wrong.
        source: Corrupt,
    },
    /// A pointer contradicts its place in the tree.
    #[error(
        "object set {objset}, object {object}: the pointer to level {level} block {blkid} is out of place"
    )]
    Misplaced {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// Level of the block.
        level: Level,
        /// Number of the block.
        blkid: BlkId,
    },
}
