//! The block reference table (BRT): clones of blocks.

use crate::{Error, Mos, Result};
use ondisk::brt::{BRT_VDEV_PREFIX, BrtVdevPhys};
use ondisk::{Corrupt, ObjNum, VdevId};

mod table;

pub use table::CloneTable;

/// The table of one top-level vdev (`brt_vdev_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrtVdev {
    /// The vdev.
    pub vdev: VdevId,
    /// The object of the header and the counts.
    pub object: ObjNum,
    /// The header.
    pub phys: BrtVdevPhys,
}

/// A cloned block (`brt_entry_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrtEntry {
    /// Byte offset of its first copy on the vdev.
    pub offset: u64,
    /// References beyond the first.
    pub refcnt: u64,
}

impl Mos {
    /// The tables of the vdevs that have one. `vdevs` is the number of top-level vdevs.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn brt(&self, vdevs: u32) -> Result<Vec<BrtVdev>> {
        let mut out = Vec::new();
        for vdev in 0..vdevs {
            let Some(object) = self.dir(&format!("{BRT_VDEV_PREFIX}{vdev}"))? else { continue };
            let dn = self.objset().dnode(object)?;
            let phys = BrtVdevPhys::decode(dn.bonus()).map_err(Error::corrupt(object))?;
            out.push(BrtVdev { vdev: VdevId(vdev), object, phys });
        }
        Ok(out)
    }

    /// The entries of a vdev's table, in the order of the ZAP.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), here or from the iterator.
    pub fn brt_entries(&self, brt: &BrtVdev) -> Result<impl Iterator<Item = Result<BrtEntry>> + use<>> {
        let object = ObjNum(brt.phys.mos_entries);
        let shape = move |why| Error::Corrupt { object, source: Corrupt::Shape { what: "BRT entry", why } };
        let foreign = brt.phys.big_endian;
        Ok(crate::mos::walk(&self.zap(object)?).map(move |e| {
            let e = e?;
            let dmu::zap::Key::Words(key) = &e.key else { return Err(shape("its key is a name")) };
            let [offset] = key.as_slice() else { return Err(shape("its key is not one word")) };
            let refcnt = match e.value.as_bytes() {
                // One word, or eight bytes in the byte order of the writer.
                Some(raw) => {
                    let raw: [u8; 8] = raw.try_into().map_err(|_| shape("its count is not eight bytes"))?;
                    if foreign { u64::from_be_bytes(raw) } else { u64::from_le_bytes(raw) }
                }
                None => e.value.as_u64().ok_or_else(|| shape("its count is not one word"))?,
            };
            Ok(BrtEntry { offset: *offset, refcnt })
        }))
    }
}

/// The bytes that cloning saves on all vdevs (`brt_get_saved`).
pub fn saved(brt: &[BrtVdev]) -> u64 {
    brt.iter().fold(0, |n, b| n.saturating_add(b.phys.savedspace))
}

/// The bytes of cloned blocks on all vdevs (`brt_get_used`).
pub fn used(brt: &[BrtVdev]) -> u64 {
    brt.iter().fold(0, |n, b| n.saturating_add(b.phys.usedspace))
}
