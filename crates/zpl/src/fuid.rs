//! The table of domains that FUIDs name (`zfs_fuid.c`).

use crate::{Error, Result};
use dmu::Dnode;
use ondisk::Corrupt;
use ondisk::fuid::{FUID_DOMAIN, FUID_IDX, FUID_NVP_ARRAY, Fuid};
use ondisk::nvlist::Nvlist;
use std::collections::BTreeMap;

/// Largest packed table that is read, in bytes: far more domains than any site has.
const TABLE_MAX: u64 = 16 << 20;

/// Domains by their index in FUIDs (`fuid_domain_t`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domains(BTreeMap<u32, String>);

impl Domains {
    /// Reads the table that `dn` holds: a packed nvlist, with its length in the bonus.
    pub(crate) fn load(dn: &Dnode) -> Result<Domains> {
        let corrupt = |source| Error::Corrupt { object: dn.object(), source };
        let size = ondisk::ByteOrder::Little.u64("FUID table", dn.bonus(), 0).map_err(corrupt)?;
        if size == 0 {
            return Ok(Domains::default());
        }
        if size > TABLE_MAX.min(dn.max_size()) {
            return Err(corrupt(Corrupt::Range { what: "FUID table", field: "size", value: size }));
        }
        let mut packed = vec![0; size as usize];
        dn.read_at(0, &mut packed)?;
        let list = Nvlist::decode(&packed).map_err(corrupt)?;
        let bad =
            || corrupt(Corrupt::Shape { what: "FUID table", why: "an entry lacks its index or its domain" });
        let mut out = BTreeMap::new();
        for e in list.lists(FUID_NVP_ARRAY).unwrap_or_default() {
            let idx = e.u64(FUID_IDX).and_then(|i| u32::try_from(i).ok()).ok_or_else(bad)?;
            out.insert(idx, e.str(FUID_DOMAIN).ok_or_else(bad)?.to_owned());
        }
        Ok(Domains(out))
    }

    /// The domain of an owner; `None` for plain ids and unknown domains (`zfs_fuid_find_by_idx`).
    pub fn of(&self, id: Fuid) -> Option<&str> {
        self.0.get(&id.domain()).map(String::as_str)
    }

    /// All domains with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        self.0.iter().map(|(i, d)| (*i, d.as_str()))
    }
}
