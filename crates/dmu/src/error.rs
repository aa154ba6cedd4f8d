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
    /// The object set was opened to be read only.
    #[error("object set {objset} is not open for changes")]
    Fixed {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
    },
    /// The number belongs to an object already, or lies inside one (`EEXIST`).
    #[error("object set {objset}: object {object} exists")]
    ObjectExists {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// All object numbers are taken (`ENOSPC`).
    #[error("object set {objset}: no object number is left")]
    NoObjects {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
    },
    /// The size of its blocks cannot change: it has more than one (`ENOTSUP`).
    #[error("object set {objset}, object {object}: blocks cannot become {size} bytes large")]
    BlockSize {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The size asked for.
        size: u64,
    },
    /// A block to be cloned was changed in a group that is not synced (`EAGAIN`).
    #[error("object set {objset}, object {object}: block {blkid} has not been synced yet")]
    Unsynced {
        /// Dataset object of the object set.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The block.
        blkid: BlkId,
    },
    /// Blocks can't be cloned into an object: theirs and its differ in size or kind (`EINVAL`).
    #[error("object set {objset}, object {object}: its blocks cannot be clones of those")]
    CloneShape {
        /// Dataset object of the object set.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// The bonus does not fit into the dnode.
    #[error("object set {objset}, object {object}: a bonus of {len} bytes does not fit, {room} do")]
    BonusLength {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// Its length.
        len: usize,
        /// The most that fits.
        room: usize,
    },
    /// A ZAP has an entry of this name (`EEXIST`).
    #[error("object set {objset}, object {object}: the ZAP has this entry")]
    EntryExists {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// A ZAP has no entry of this name (`ENOENT`).
    #[error("object set {objset}, object {object}: the ZAP has no such entry")]
    NoEntry {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// A name or key is empty, too long, or of the wrong sort for the ZAP (`ENAMETOOLONG`).
    #[error("object set {objset}, object {object}: a name of {len} bytes cannot be in the ZAP")]
    EntryName {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// Its length.
        len: usize,
    },
    /// A value is too large for a ZAP (`E2BIG`).
    #[error("object set {objset}, object {object}: a value of {len} bytes cannot be in the ZAP")]
    EntryValue {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// Its length.
        len: usize,
    },
    /// A ZAP cannot hold more names with this hash (`ENOSPC`).
    #[error("object set {objset}, object {object}: the ZAP is full")]
    ZapFull {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// The attributes of an object are too large, or of too many layouts (`EFBIG`, `ENOSPC`).
    #[error("object set {objset}, object {object}: its attributes have no room")]
    Attributes {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
}
