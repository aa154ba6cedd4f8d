//! The meta object set (MOS) and its directory.

use crate::{Error, Result};
use dmu::zap::{Key, Zap};
use dmu::{Dnode, Objset};
use ondisk::mos::DIRECTORY_OBJECT;
use ondisk::version::SPA_VERSION_RAIDZ_DEFLATE;
use ondisk::{Corrupt, ObjNum};
use recent::Recent;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use zio::ReadOptions;

pub use dmu::zap::Value as ZapValue;

mod edit;
mod recent;

/// Typed access to the MOS (`spa_meta_objset`). Clones share it.
#[derive(Debug, Clone)]
pub struct Mos {
    os: Objset,
    dir: Zap,
    recent: Arc<Recent>,
    /// The last txg that changed the counts of features.
    pub(crate) counted: Arc<AtomicU64>,
}

/// An entry of a ZAP whose keys are names.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// The value.
    pub value: ZapValue,
}

impl Entry {
    /// The name as text. Bytes that are not UTF-8 are replaced.
    pub fn name_lossy(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

impl Mos {
    /// Opens the MOS of a pool.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), for its directory.
    pub fn open(os: Objset) -> Result<Self> {
        let dir = Zap::open(&os.dnode(ObjNum(DIRECTORY_OBJECT))?)?;
        Ok(Self { os, dir, recent: Arc::default(), counted: Arc::default() })
    }

    /// The version of the pool, which limits what may be written (`spa_version`).
    pub fn version(&self) -> u64 {
        self.os.cache().zio().pool_version()
    }

    /// True if space is counted deflated, as in all pools since version 3 (`spa_deflate`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn deflates(&self) -> Result<bool> {
        Ok(self.version() >= SPA_VERSION_RAIDZ_DEFLATE || self.dir(ondisk::mos::DEFLATE)?.is_some())
    }

    /// The same MOS, but reads through this handle, and through handles made from it, use
    /// `options`.
    #[must_use]
    pub fn with_options(&self, options: &ReadOptions) -> Self {
        let (os, dir) = (self.os.with_options(options.clone()), self.dir.with_options(options.clone()));
        Self { os, dir, recent: Arc::clone(&self.recent), counted: Arc::clone(&self.counted) }
    }

    /// The read options of this handle.
    pub fn options(&self) -> &ReadOptions {
        self.os.options()
    }

    /// Its object set.
    pub fn objset(&self) -> &Objset {
        &self.os
    }

    /// The object that an entry of the directory names. `None` if there is no entry, or if it is 0.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Object`] also if the entry is not one
    /// number.
    pub fn dir(&self, name: &str) -> Result<Option<ObjNum>> {
        Ok(self.dir.lookup_u64(name.as_bytes())?.filter(|n| *n != 0).map(ObjNum))
    }

    /// The words of an entry of the directory.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn dir_words(&self, name: &str) -> Result<Option<Vec<u64>>> {
        Ok(self.dir.lookup(name.as_bytes())?.map(|v| v.iter().collect()))
    }

    /// The bytes of an entry of the directory.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn dir_bytes(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.dir.lookup(name.as_bytes())?.and_then(|v| v.as_bytes().map(<[u8]>::to_vec)))
    }

    /// Opens an object, and keeps it in use for a while.
    ///
    /// # Errors
    /// The errors of [`Objset::dnode`].
    pub fn dnode(&self, object: ObjNum) -> dmu::Result<Dnode> {
        let dnode = self.os.dnode(object)?;
        if self.os.is_live() {
            self.recent.keep(&dnode);
        }
        Ok(dnode)
    }

    /// Opens a ZAP.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Object`] also if the object is no ZAP.
    pub fn zap(&self, object: ObjNum) -> Result<Zap> {
        Ok(Zap::open(&self.dnode(object)?)?)
    }

    /// The value of a name in a ZAP.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn value(&self, zap: ObjNum, name: &str) -> Result<Option<ZapValue>> {
        Ok(self.zap(zap)?.lookup(name.as_bytes())?)
    }

    /// The number of a name in a ZAP.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Object`] also if the value is not one word.
    pub fn u64(&self, zap: ObjNum, name: &str) -> Result<Option<u64>> {
        Ok(self.zap(zap)?.lookup_u64(name.as_bytes())?)
    }

    /// The words of a name in a ZAP.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn words(&self, zap: ObjNum, name: &str) -> Result<Option<Vec<u64>>> {
        Ok(self.value(zap, name)?.map(|v| v.iter().collect()))
    }

    /// The string of a name in a ZAP, without its final NUL.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn string(&self, zap: ObjNum, name: &str) -> Result<Option<String>> {
        Ok(self.value(zap, name)?.as_ref().and_then(string_of))
    }

    /// The entries of a ZAP whose keys are names.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), here or from the iterator. [`Error::Corrupt`] also
    /// if the keys are words.
    pub fn entries(&self, object: ObjNum) -> Result<impl Iterator<Item = Result<Entry>> + use<>> {
        Ok(walk(&self.zap(object)?).map(move |e| {
            let e = e?;
            match e.key {
                Key::Name(name) => Ok(Entry { name, value: e.value }),
                Key::Words(_) => Err(Error::Corrupt {
                    object,
                    source: Corrupt::Shape { what: "ZAP", why: "its keys are words, not names" },
                }),
            }
        }))
    }
}

/// A ZAP value as a string. `None` if it is not bytes.
///
/// The string ends before the first NUL. Bytes that are not UTF-8 are replaced.
pub fn string_of(value: &ZapValue) -> Option<String> {
    let raw = value.as_bytes()?;
    let end = raw.iter().position(|b| *b == 0).unwrap_or(raw.len());
    Some(String::from_utf8_lossy(&raw[..end]).into_owned())
}

/// The entries of a ZAP, in cursor order. Ends after an error.
pub(crate) fn walk(zap: &Zap) -> impl Iterator<Item = Result<dmu::zap::Entry>> + use<> {
    let mut cursor = zap.cursor();
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let next = cursor.next_entry();
        over = !matches!(next, Ok(Some(_)));
        next.map_err(Error::from).transpose()
    })
}
