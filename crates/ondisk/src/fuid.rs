//! FUIDs: owners as a domain and a relative id (`sys/zfs_fuid.h`).

/// An owner in ZPL version 3 and later: an index into the file system's table of domains, and an id
/// in that domain (`FUID_ENCODE`).
///
/// Index 0 is no domain; the id is a plain uid or gid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fuid(pub u64);

impl Fuid {
    /// Index of the domain (`FUID_INDEX`); 0 for plain ids.
    pub fn domain(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The id in its domain (`FUID_RID`).
    pub fn rid(self) -> u32 {
        self.0 as u32
    }
}

/// Name of the array of domains in the packed table.
pub const FUID_NVP_ARRAY: &str = "fuid_nvlist";
/// Name of a domain's index in the packed table.
pub const FUID_IDX: &str = "fuid_idx";
/// Name of a domain's name in the packed table.
pub const FUID_DOMAIN: &str = "fuid_domain";
