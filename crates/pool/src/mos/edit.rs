//! Changes of the MOS directory and its ZAPs.

use super::Mos;
use crate::{Error, Result};
use dmu::zap::{Normalization, Value, Zap};
use dmu::{NewObject, Objset, Tx};
use ondisk::mos::DIRECTORY_OBJECT;
use ondisk::zap::ZapFlags;
use ondisk::{Corrupt, DmuType, ObjNum, mos};
use std::sync::Arc;

impl Mos {
    /// Creates the MOS of a new pool: an empty directory in a live object set.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn create(os: Objset, tx: &Tx) -> Result<Self> {
        let spec = NewObject::new(DmuType::OBJECT_DIRECTORY);
        let (none, flags) = (Normalization::NONE, ZapFlags::default());
        let dir = Zap::create_claim(&os, tx, ObjNum(DIRECTORY_OBJECT), &spec, none, flags)?;
        Ok(Self { os, dir, recent: Arc::default(), counted: Arc::default() })
    }

    /// Creates an empty ZAP.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn create_zap(&self, tx: &Tx) -> Result<ObjNum> {
        self.create_zap_of(tx, DmuType::ZAP_METADATA)
    }

    /// Creates an empty ZAP in an object of this type.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn create_zap_of(&self, tx: &Tx, kind: DmuType) -> Result<ObjNum> {
        Ok(Zap::create_kind(&self.os, tx, kind)?.dnode().object())
    }

    /// Adds an entry to the directory, which names an object.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing). [`Error::Object`] also if the directory has the
    /// name.
    pub fn link(&self, tx: &Tx, name: &str, object: ObjNum) -> Result<()> {
        Ok(self.dir.add(tx, name.as_bytes(), &Value::integers(8, &[object.0]))?)
    }

    /// Removes an entry of the directory. The object stays.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing). [`Error::Object`] also if the directory lacks the
    /// name.
    pub fn unlink(&self, tx: &Tx, name: &str) -> Result<()> {
        Ok(self.dir.remove(tx, name.as_bytes())?)
    }

    /// Sets an entry of the directory to words.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn set_dir_words(&self, tx: &Tx, name: &str, words: &[u64]) -> Result<()> {
        Ok(self.dir.update(tx, name.as_bytes(), &Value::integers(8, words))?)
    }

    /// Sets an entry of the directory to bytes.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn set_dir_bytes(&self, tx: &Tx, name: &str, bytes: &[u8]) -> Result<()> {
        Ok(self.dir.update(tx, name.as_bytes(), &Value::bytes(bytes))?)
    }

    /// Sets an entry of a ZAP to one word.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn set_word(&self, tx: &Tx, zap: ObjNum, name: &str, word: u64) -> Result<()> {
        self.set_words(tx, zap, name, &[word])
    }

    /// Sets an entry of a ZAP to words.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn set_words(&self, tx: &Tx, zap: ObjNum, name: &str, words: &[u64]) -> Result<()> {
        Ok(self.zap(zap)?.update(tx, name.as_bytes(), &Value::integers(8, words))?)
    }

    /// Sets an entry of a ZAP to a string, and appends its NUL.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn set_string(&self, tx: &Tx, zap: ObjNum, name: &str, text: &str) -> Result<()> {
        let raw = [text.as_bytes(), &[0]].concat();
        Ok(self.zap(zap)?.update(tx, name.as_bytes(), &Value::bytes(&raw))?)
    }

    /// Removes an entry of a ZAP.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing). [`Error::Object`] also if the ZAP lacks the entry.
    pub fn unset(&self, tx: &Tx, zap: ObjNum, name: &str) -> Result<()> {
        Ok(self.zap(zap)?.remove(tx, name.as_bytes())?)
    }

    /// Creates the ZAP of a vdev, and adds it to the map of all such ZAPs (`vdev_create_link_zap`).
    ///
    /// The first one creates the map.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn create_vdev_zap(&self, tx: &Tx) -> Result<ObjNum> {
        let map = match self.dir(mos::VDEV_ZAP_MAP)? {
            Some(map) => map,
            None => {
                let map = self.create_zap(tx)?;
                self.link(tx, mos::VDEV_ZAP_MAP, map)?;
                map
            }
        };
        let zap = self.create_zap(tx)?;
        self.set_word(tx, map, &format!("{:x}", zap.0), zap.0)?;
        Ok(zap)
    }

    /// Destroys the ZAP of a vdev (`vdev_destroy_unlink_zap`).
    ///
    /// # Errors
    /// * The errors of [changing](Error#changing). [`Error::Object`] also if the map lacks the ZAP.
    /// * [`Error::Missing`]: the pool has no map of ZAPs.
    pub fn destroy_vdev_zap(&self, tx: &Tx, zap: ObjNum) -> Result<()> {
        let name = mos::VDEV_ZAP_MAP;
        let map = self.dir(name)?.ok_or(Error::Missing { name })?;
        self.unset(tx, map, &format!("{:x}", zap.0))?;
        Ok(self.os.free_object(tx, zap)?)
    }

    /// Writes words into an object that is an array of words, from index `at` on.
    ///
    /// # Errors
    /// The errors of [changing](Error#changing). [`Error::Corrupt`] also if the index is too high.
    pub fn write_words(&self, tx: &Tx, object: ObjNum, at: u64, words: &[u64]) -> Result<()> {
        let raw: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let end = Corrupt::Range { what: "array", field: "index", value: at };
        let offset = at.checked_mul(8).ok_or(Error::Corrupt { object, source: end })?;
        Ok(self.os.dnode(object)?.write_at(tx, offset, &raw)?)
    }
}
