//! Packed nvlists in the MOS, pool properties and features.

use crate::{Error, Mos, Result};
use ondisk::{Corrupt, Nvlist, ObjNum, mos};
use std::collections::BTreeMap;

mod write;

/// Largest packed nvlist that is read. A config of thousands of devices takes a few MiB.
const MAX_PACKED: u64 = 64 << 20;

impl Mos {
    /// The nvlist in a packed-nvlist object (`load_nvlist`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if the size is absurd.
    pub fn nvlist(&self, object: ObjNum) -> Result<Nvlist> {
        const WHAT: &str = "packed nvlist";
        let bad = Error::corrupt(object);
        let dn = self.objset().dnode(object)?;
        let size = match dn.bonus().first_chunk::<8>() {
            Some(b) => u64::from_le_bytes(*b),
            None => return Err(bad(Corrupt::Truncated { what: WHAT, need: 8, have: dn.bonus().len() })),
        };
        if size > MAX_PACKED || size > dn.max_size() {
            return Err(bad(Corrupt::Range { what: WHAT, field: "size", value: size }));
        }
        let mut buf = vec![0; size as usize];
        dn.read_at(0, &mut buf)?;
        Nvlist::decode(&buf).map_err(bad)
    }

    /// The packed nvlist that the MOS directory names `name`.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn named_nvlist(&self, name: &'static str) -> Result<Option<Nvlist>> {
        self.dir(name)?.map(|obj| self.nvlist(obj)).transpose()
    }

    /// The configuration of the pool, with the whole vdev tree (`DMU_POOL_CONFIG`).
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading).
    /// * [`Error::Missing`]: the pool has no configuration.
    pub fn config(&self) -> Result<Nvlist> {
        self.named_nvlist(mos::CONFIG)?.ok_or(Error::Missing { name: mos::CONFIG })
    }

    /// The stored pool properties, by name (`DMU_POOL_PROPS`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn pool_props(&self) -> Result<BTreeMap<String, crate::ZapValue>> {
        let Some(obj) = self.dir(mos::PROPS)? else { return Ok(BTreeMap::new()) };
        self.entries(obj)?.map(|e| e.map(|e| (e.name_lossy(), e.value))).collect()
    }

    /// The features of the pool.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if a count is not one word.
    pub fn features(&self) -> Result<Features> {
        let read = |name| -> Result<BTreeMap<String, u64>> {
            let Some(obj) = self.dir(name)? else { return Ok(BTreeMap::new()) };
            // A feature with an unreadable count must not appear as unused.
            let shape = Corrupt::Shape { what: "feature", why: "its count is not one word" };
            let count = |e: crate::mos::Entry| match e.value.as_u64() {
                Some(count) => Ok((e.name_lossy(), count)),
                None => Err(Error::Corrupt { object: obj, source: shape.clone() }),
            };
            self.entries(obj)?.map(|e| e.and_then(count)).collect()
        };
        Ok(Features {
            for_read: read(mos::FEATURES_FOR_READ)?,
            for_write: read(mos::FEATURES_FOR_WRITE)?,
            enabled_txg: read(mos::FEATURE_ENABLED_TXG)?,
        })
    }
}

/// Feature flags as the pool stores them, by guid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Reference counts of the features needed for reads. A feature with an entry is enabled, and
    /// one with a count above 0 is active.
    pub for_read: BTreeMap<String, u64>,
    /// Reference counts of the features needed only for writes.
    pub for_write: BTreeMap<String, u64>,
    /// The txg in which each was enabled, if the pool records it.
    pub enabled_txg: BTreeMap<String, u64>,
}

impl Features {
    /// The reference count of an enabled feature. `None` if it is not enabled.
    pub fn refcount(&self, guid: &str) -> Option<u64> {
        self.for_read.get(guid).or_else(|| self.for_write.get(guid)).copied()
    }

    /// True if the feature is enabled.
    pub fn is_enabled(&self, guid: &str) -> bool {
        self.refcount(guid).is_some()
    }

    /// True if the feature is in use: it is active.
    pub fn is_active(&self, guid: &str) -> bool {
        self.refcount(guid).is_some_and(|n| n > 0)
    }
}
