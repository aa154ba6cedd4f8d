//! Which block a read was for.

use ondisk::{BlkId, Level, ObjNum};

/// The logical place of a block (`zbookmark_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bookmark {
    /// Dataset object of the object set; 0 is the MOS (`zb_objset`).
    pub objset: u64,
    /// Object (`zb_object`).
    pub object: ObjNum,
    /// Level in its tree (`zb_level`).
    pub level: Level,
    /// Number of the block (`zb_blkid`).
    pub blkid: BlkId,
}

impl std::fmt::Display for Bookmark {
    /// Formats as OpenZFS does: `<objset, object, level, block>`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<{}, {}, {}, {}>", self.objset, self.object, self.level, self.blkid)
    }
}
