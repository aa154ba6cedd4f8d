//! The errors of objects and object sets.

use ondisk::{BlkId, Corrupt, Level, ObjNum};

/// An operation on an object failed.
///
/// # Reading
/// Every operation that reads an object may return these errors:
///
/// * [`Error::Read`]: a block can't be read, no copy of it verifies, or its key is not loaded.
/// * [`Error::Corrupt`]: the object's bytes contradict the format.
/// * [`Error::Misplaced`]: a pointer contradicts its place in the tree, or a block has another size
///   than the dnode says.
///
/// # Changing
/// Every operation that changes an object may return these, and those of [reading](Error#reading):
///
/// * [`Error::Fixed`]: the object set is not open for changes.
/// * [`Error::NoSuchObject`]: the object was freed.
///
/// # Changing a ZAP
/// Every operation that adds or changes entries of a ZAP may return these, and those of
/// [changing](Error#changing):
///
/// * [`Error::EntryName`]: the name or key is empty, too long, or not of the kind that the ZAP
///   holds.
/// * [`Error::EntryValue`]: the value is too large.
/// * [`Error::ZapFull`]: too many entries have hashes that begin alike.
/// * [`Error::BlockSize`]: a micro ZAP has more than one block, so that it can't grow.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A block could not be read or written.
    #[error(transparent)]
    Read(#[from] zio::Error),
    /// The object set has no such object (`ENOENT`).
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
    /// A pointer contradicts its place in the tree, or a block has another size than the dnode
    /// says.
    #[error(
        "object set {objset}, object {object}: the pointer to level {level} block {blkid} is out of place"
    )]
    Misplaced {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The level of the block.
        level: Level,
        /// The number of the block.
        blkid: BlkId,
    },
    /// The object set is open for reading only.
    #[error("object set {objset} is not open for changes")]
    Fixed {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
    },
    /// An object has this number already, or one of its slots (`EEXIST`).
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
    /// The size of the object's blocks can't change, because it has more than one (`ENOTSUP`).
    #[error("object set {objset}, object {object}: blocks cannot become {size} bytes large")]
    BlockSize {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The requested size.
        size: u64,
    },
    /// A txg that is not synced has changed a block that was to be cloned (`EAGAIN`).
    #[error("object set {objset}, object {object}: block {blkid} has not been synced yet")]
    Unsynced {
        /// Dataset object of the object set.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The block.
        blkid: BlkId,
    },
    /// The blocks can't be clones in this object: they differ from its own in size or kind
    /// (`EINVAL`).
    #[error("object set {objset}, object {object}: its blocks cannot be clones of those")]
    CloneShape {
        /// Dataset object of the object set.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// The object set has dnodes already, in a tree of another shape than is wanted (`EINVAL`).
    #[error("object set {objset}: its dnodes are in a tree of another shape")]
    DnodesShape {
        /// Dataset object of the object set.
        objset: u64,
    },
    /// A tree of dnodes can't have this shape: its indirect blocks have 4 KiB to 128 KiB, and it
    /// has at most 2^48 objects (`EINVAL`).
    #[error(
        "object set {objset}: no tree of dnodes has indirect blocks of 2^{indirect_shift} bytes for {objects} \
         objects; use 2^12 to 2^17 bytes and at most 2^48 objects"
    )]
    DnodesTree {
        /// Dataset object of the object set.
        objset: u64,
        /// log2 of the size of the indirect blocks.
        indirect_shift: u8,
        /// The objects that the tree should have levels for.
        objects: u64,
    },
    /// A compressed or encrypted block is empty or larger than a block of the object, or its
    /// compressor stores no blocks (`EINVAL`).
    #[error("object set {objset}, object {object}: a compressed block of {len} bytes does not fit")]
    PackedShape {
        /// Dataset object of the object set.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The size of the compressed block.
        len: u64,
    },
    /// The bonus does not fit into the dnode.
    #[error("object set {objset}, object {object}: a bonus of {len} bytes does not fit, {room} do")]
    BonusLength {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The length of the bonus.
        len: usize,
        /// The largest length that fits.
        room: usize,
    },
    /// The ZAP has an entry of this name already (`EEXIST`).
    #[error("object set {objset}, object {object}: the ZAP has this entry")]
    EntryExists {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// The ZAP has no entry of this name (`ENOENT`).
    #[error("object set {objset}, object {object}: the ZAP has no such entry")]
    NoEntry {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
    },
    /// A name or key is empty, too long, or of the wrong kind for the ZAP (`ENAMETOOLONG`).
    #[error("object set {objset}, object {object}: a name of {len} bytes cannot be in the ZAP")]
    EntryName {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The length of the name.
        len: usize,
    },
    /// A value is too large for the ZAP (`E2BIG`).
    #[error("object set {objset}, object {object}: a value of {len} bytes cannot be in the ZAP")]
    EntryValue {
        /// Dataset object of the object set; 0 is the MOS.
        objset: u64,
        /// The object.
        object: ObjNum,
        /// The length of the value.
        len: usize,
    },
    /// The ZAP can't hold more names with this hash (`ENOSPC`).
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
