//! Writing packed nvlists into the MOS.

use crate::{Mos, Result};
use dmu::{NewObject, Tx};
use ondisk::{DmuType, Nvlist, ObjNum, mos};

/// Bytes of a block of a packed nvlist (`SPA_CONFIG_BLOCKSIZE`).
const BLOCK: usize = 1 << 14;

impl Mos {
    /// Creates an object for a packed nvlist.
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn create_nvlist(&self, tx: &Tx) -> Result<ObjNum> {
        let spec = NewObject { block_size: BLOCK as u32, ..NewObject::new(DmuType::PACKED_NVLIST) };
        let spec = spec.with_bonus(DmuType::PACKED_NVLIST_SIZE, vec![0; 8]);
        Ok(self.objset().create_object(tx, &spec)?.object())
    }

    /// Writes an nvlist into such an object, in whole blocks (`spa_sync_nvlist`).
    ///
    /// If the object holds it already, nothing changes, and the txg does not become dirty.
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn write_nvlist(&self, tx: &Tx, object: ObjNum, list: &Nvlist) -> Result<()> {
        let mut raw = list.encode_xdr();
        let size = raw.len() as u64;
        let dn = self.objset().dnode(object)?;
        let same_size = dn.bonus() == size.to_le_bytes();
        if same_size {
            let mut old = vec![0; raw.len()];
            dn.read_at(0, &mut old)?;
            if old == raw {
                return Ok(());
            }
        }
        raw.resize(raw.len().next_multiple_of(BLOCK), 0);
        dn.write_at(tx, 0, &raw)?;
        if !same_size {
            dn.set_bonus(tx, DmuType::PACKED_NVLIST_SIZE, &size.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes the nvlist that the MOS directory names `name`. The first write creates its object.
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn write_named_nvlist(&self, tx: &Tx, name: &str, list: &Nvlist) -> Result<()> {
        let object = match self.dir(name)? {
            Some(object) => object,
            None => {
                let object = self.create_nvlist(tx)?;
                self.link(tx, name, object)?;
                object
            }
        };
        self.write_nvlist(tx, object, list)
    }

    /// Writes the configuration of the pool (`spa_sync_config_object`).
    ///
    /// # Errors
    /// The errors of [changing](crate::Error#changing).
    pub fn write_config(&self, tx: &Tx, config: &Nvlist) -> Result<()> {
        self.write_named_nvlist(tx, mos::CONFIG, config)
    }
}
