//! The NFSv4 ACL of a file. POSIX ACLs are extended attributes.

use crate::node::Store;
use crate::{Error, Node, Result};
use ondisk::Corrupt;
use ondisk::acl::{Ace, AclPhys, AclVersion, aces};
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

/// Largest ACL outside its file in bytes: 1024 entries of the largest size (`MAX_ACL_ENTRIES`), and
/// a margin.
const EXTERN_MAX: u32 = 1 << 16;

/// A file's NFSv4 ACL (`zfs_acl_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// The entries in order.
    pub aces: Vec<Ace>,
    /// True if the ACL says no more than the mode (`ZFS_ACL_TRIVIAL`).
    pub trivial: bool,
}

impl Node {
    /// The file's NFSv4 ACL (`zfs_acl_node_read`).
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: the ACL's entries or their number are not what the format says.
    /// * [`Error::Dmu`]: a block of the ACL can't be read.
    pub fn acl(&self) -> Result<Acl> {
        let trivial = self.attr().pflags.has(Pflags::ACL_TRIVIAL);
        let aces = match &self.store {
            Store::Znode(z) => self.phys_aces(&z.acl)?,
            Store::Sa(sa) => match (sa.u64(Sa::DaclCount)?, sa.get(Sa::DaclAces)?) {
                (Some(count), Some(raw)) => {
                    let count = u32::try_from(count).map_err(|_| self.bad_count(count))?;
                    aces(AclVersion::Fuid, count, &raw).map_err(|e| self.corrupt(e))?
                }
                // A file from before system attributes keeps its ACL in the old form.
                _ => match sa.raw(Sa::ZnodeAcl)? {
                    Some((raw, order)) => {
                        self.phys_aces(&AclPhys::parse(order, raw).map_err(|e| self.corrupt(e))?)?
                    }
                    None => Vec::new(),
                },
            },
        };
        Ok(Acl { aces, trivial })
    }

    fn bad_count(&self, value: u64) -> Error {
        self.corrupt(Corrupt::Range { what: "ACL", field: "entries", value })
    }

    fn phys_aces(&self, acl: &AclPhys) -> Result<Vec<Ace>> {
        if let Some(embedded) = acl.aces().map_err(|e| self.corrupt(e))? {
            return Ok(embedded);
        }
        if acl.size > EXTERN_MAX {
            return Err(self.bad_count(acl.count.into()));
        }
        // Blocks of ACL objects are in native order: `zio` has swapped foreign ones by their type.
        let dn = self.fs.objset().dnode(acl.extern_obj)?;
        let mut raw = vec![0; acl.size as usize];
        dn.read_at(0, &mut raw)?;
        aces(acl.version, acl.count, &raw).map_err(|e| self.corrupt(e))
    }
}
