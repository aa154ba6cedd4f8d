//! The block volume on an object set.
//!
//! # Theory
//! A volume is one object. Object 1 holds the bytes, in blocks of `volblocksize`. Object 2 is a ZAP
//! whose entry `size` is the volume's length. A block that was never written is a hole, and reads
//! as zeros. A writable volume ([`Volume::open_live`]) lies on a live object set, and gets its
//! transactions from a [`zil::TxSource`].
//!
//! # Absent
//! Which clients may use the volume: the front ends decide that.
//!
//! # See
//! OpenZFS `module/zfs/zvol.c`.

mod error;
mod replay;
mod write;

pub use error::Error;
pub use replay::replay;

use dmu::zap::Zap;
use dmu::{Dnode, Extent, Objset};
use ondisk::objset::ObjsetKind;
use ondisk::{Corrupt, DmuType, ObjNum};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use write::Writer;
use zil::TxSource;

/// Object of the data (`ZVOL_OBJ`).
const ZVOL_OBJ: ObjNum = ObjNum(1);
/// Object of the volume's own properties (`ZVOL_ZAP_OBJ`).
const ZVOL_ZAP_OBJ: ObjNum = ObjNum(2);
/// Name of the length among these properties.
const SIZE: &[u8] = b"size";

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An open volume; clones share it (`zvol_state_t`).
#[derive(Debug, Clone)]
pub struct Volume(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    data: Dnode,
    props: Zap,
    size: AtomicU64,
    writer: Option<Writer>,
}

impl Volume {
    /// Opens the volume that `os` holds, for reading (`zvol_first_open`).
    ///
    /// # Errors
    /// * [`Error::NotVolume`]: the object set is of another kind, or its object 1 holds no volume.
    /// * [`Error::Corrupt`]: the volume has no size.
    /// * [`Error::Dmu`]: an object is missing or can't be read.
    pub fn open(os: &Objset) -> Result<Volume> {
        Self::open_with(os, None)
    }

    /// Opens the volume of a live object set, for reading and writing.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_live(os: &Objset, txs: Arc<dyn TxSource>) -> Result<Volume> {
        Self::open_with(os, Some(Writer::new(txs)))
    }

    fn open_with(os: &Objset, writer: Option<Writer>) -> Result<Volume> {
        if os.kind() != ObjsetKind::Zvol {
            return Err(Error::NotVolume);
        }
        let data = os.dnode(ZVOL_OBJ)?;
        if data.kind() != DmuType::ZVOL {
            return Err(Error::NotVolume);
        }
        let props = Zap::open(&os.dnode(ZVOL_ZAP_OBJ)?)?;
        let size = props.lookup_u64(SIZE)?;
        let size = size.ok_or(Corrupt::Shape { what: "volume", why: "it has no size" })?;
        Ok(Volume(Arc::new(Inner { data, props, size: AtomicU64::new(size), writer })))
    }

    /// Length in bytes (`volsize`).
    pub fn size(&self) -> u64 {
        self.0.size.load(Ordering::Acquire)
    }

    /// Bytes of a block (`volblocksize`).
    pub fn block_size(&self) -> u64 {
        self.0.data.block_size()
    }

    /// The object that holds the data (`zv_dn`).
    pub fn dnode(&self) -> &Dnode {
        &self.0.data
    }

    /// Fills `buf` from byte `offset` on, and sees each write entirely or not at all (`zvol_read`).
    ///
    /// # Errors
    /// `buf` then has undefined contents.
    ///
    /// * [`Error::PastEnd`]: a part of the range lies past the end of the volume.
    /// * [`Error::Dmu`]: a block can't be read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = self.check(offset, buf.len() as u64)?;
        let _range = self.0.writer.as_ref().map(|w| w.ranges.lock(offset, end, false));
        // The volume may have become smaller meanwhile.
        self.check(offset, buf.len() as u64)?;
        Ok(self.0.data.read_at(offset, buf)?)
    }

    /// The end of a range, if all of it lies in the volume.
    fn check(&self, offset: u64, len: u64) -> Result<u64> {
        let size = self.size();
        let end = offset.checked_add(len).filter(|end| *end <= size);
        end.ok_or(Error::PastEnd { offset, len, size })
    }

    /// The first byte from `offset` on that lies in `want`; the end of the volume if there is none.
    ///
    /// # Errors
    /// * [`Error::Dmu`]: an indirect block can't be read.
    pub fn next(&self, offset: u64, want: Extent) -> Result<u64> {
        let size = self.size();
        let at = self.0.data.next_offset(offset.min(size), want)?;
        Ok(at.map_or(size, |at| at.min(size)))
    }
}
