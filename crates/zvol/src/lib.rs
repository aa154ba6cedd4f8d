//! The block volume on an object set.
//!
//! # Theory
//! A volume is one object: object 1 holds the bytes in blocks of `volblocksize`, object 2 a ZAP whose `size` is the
//! volume's length. A block that was never written is a hole and reads as zeros.
//!
//! # Absent
//! Who serves it to whom: the doors know that. Writing comes with the write path.
//!
//! # See
//! OpenZFS `module/zfs/zvol.c`.

use dmu::zap::Zap;
use dmu::{Dnode, Extent, Objset};
use ondisk::objset::ObjsetKind;
use ondisk::{Corrupt, DmuType, ObjNum};

/// Object of the data (`ZVOL_OBJ`).
const ZVOL_OBJ: ObjNum = ObjNum(1);
/// Object of the volume's own properties (`ZVOL_ZAP_OBJ`).
const ZVOL_ZAP_OBJ: ObjNum = ObjNum(2);

/// Failure of an operation on a volume.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read (`EIO`).
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// The object set holds no volume (`EINVAL`).
    #[error("the object set holds no volume")]
    NotVolume,
    /// The volume's records are not what the format says (`EIO`).
    #[error("volume: {0}")]
    Corrupt(#[from] Corrupt),
    /// The range passes the end (`EINVAL`).
    #[error("{len} bytes at {offset} pass the end of a volume of {size} bytes")]
    PastEnd {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The volume's size.
        size: u64,
    },
}

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// An open volume; clones share it (`zvol_state_t`).
#[derive(Debug, Clone)]
pub struct Volume {
    data: Dnode,
    size: u64,
}

impl Volume {
    /// Opens the volume that `os` holds.
    ///
    /// # Errors
    /// [`Error::NotVolume`], [`Error::Corrupt`] if its size is missing, or as reading fails.
    pub fn open(os: &Objset) -> Result<Volume> {
        if os.kind() != ObjsetKind::Zvol {
            return Err(Error::NotVolume);
        }
        let data = os.dnode(ZVOL_OBJ)?;
        if data.kind() != DmuType::ZVOL {
            return Err(Error::NotVolume);
        }
        let props = Zap::open(&os.dnode(ZVOL_ZAP_OBJ)?)?;
        let size = props.lookup_u64(b"size")?;
        let size = size.ok_or(Corrupt::Shape { what: "volume", why: "it has no size" })?;
        Ok(Volume { data, size })
    }

    /// Bytes in it (`volsize`).
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a block (`volblocksize`).
    pub fn block_size(&self) -> u64 {
        self.data.block_size()
    }

    /// The object that holds the data.
    pub fn dnode(&self) -> &Dnode {
        &self.data
    }

    /// Fills `buf` from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::PastEnd`] when not all of it lies in the volume, or as reading fails.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(Error::PastEnd { offset, len, size: self.size });
        }
        Ok(self.data.read_at(offset, buf)?)
    }

    /// The first byte from `offset` on that lies in `want`; the end of the volume if there is none.
    ///
    /// # Errors
    /// As reading fails.
    pub fn next(&self, offset: u64, want: Extent) -> Result<u64> {
        let at = self.data.next_offset(offset.min(self.size), want)?;
        Ok(at.map_or(self.size, |at| at.min(self.size)))
    }
}
