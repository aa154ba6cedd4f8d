//! Changing the mode of a file with an NFSv4 ACL that says more than the mode (`zfs_acl_chmod`),
//! and inheriting from such an ACL.

mod inherit;

pub use inherit::AclInherit;
pub(super) use inherit::{AUTO_INHERIT, Heir, inherit};

use super::trivial::{ALLOW, DENY, EXECUTE, Trivial, all_execute, stored};
use super::update::NO_EXECS_DENIED;
use ondisk::acl::{Ace, Who};
use ondisk::znode::Pflags;

const FILE_INHERIT: u16 = 0x1;
const DIRECTORY_INHERIT: u16 = 0x2;
const INHERIT_ONLY: u16 = 0x8;
/// The ACL has an inheritable entry (`ZFS_INHERIT_ACE`).
pub(super) const HAS_INHERITABLE: u64 = 0x2;
/// An entry is of a type that only CIFS has (`ZFS_ACL_OBJ_ACE`).
const HAS_OBJECTS: u64 = 0x8;

/// What a new mode does to an ACL that says more than a mode: the property `aclmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclMode {
    /// The ACL is discarded (`ZFS_ACL_DISCARD`).
    Discard,
    /// Other entries stay, limited to the group's permissions (`ZFS_ACL_GROUPMASK`).
    GroupMask,
    /// Other entries stay (`ZFS_ACL_PASSTHROUGH`).
    Passthrough,
    /// The mode can't be changed (`ZFS_ACL_RESTRICTED`).
    Restricted,
}

/// An ACL to store.
pub(super) struct NewAcl {
    pub(super) count: u64,
    pub(super) aces: Vec<u8>,
    /// The flags of the file that describe the ACL.
    pub(super) flags: u64,
}

/// The ACL that `old` becomes with a new mode.
///
/// The mode replaces the entries for the owner, the group and everyone. Inheritable ones are kept
/// only for inheriting. `old` is empty if the ACL is discarded.
pub(super) fn chmod(old: &[Ace], mode: u32, directory: bool, masked: bool) -> NewAcl {
    let Trivial { exceptions, plain } = Trivial::of(mode, directory);
    let group = plain[1].mask;
    let mut kept = Vec::new();
    let mut flags = 0;
    let mut execute = all_execute(mode);
    for ace in old {
        let mut ace = *ace;
        let inheritable = directory && ace.flags & (FILE_INHERIT | DIRECTORY_INHERIT) != 0;
        if matches!(ace.who, Who::Owner | Who::OwningGroup | Who::Everyone) {
            if !inheritable {
                continue;
            }
            ace.flags |= INHERIT_ONLY;
        }
        flags |= if inheritable { HAS_INHERITABLE } else { 0 };
        if matches!(ace.kind, ALLOW | DENY) && ace.flags & INHERIT_ONLY == 0 {
            if ace.kind == ALLOW && masked {
                ace.mask &= group;
            }
            execute &= ace.kind == ALLOW || ace.mask & EXECUTE == 0;
        } else if ace.guids.is_some() {
            flags |= HAS_OBJECTS;
        }
        kept.push(ace);
    }
    flags |= if kept.is_empty() { Pflags::ACL_TRIVIAL } else { 0 };
    flags |= if execute { NO_EXECS_DENIED } else { 0 };
    let (count, aces) = stored(exceptions.iter().chain(&kept).chain(&plain));
    NewAcl { count, aces, flags }
}

/// The entries of a mode around other entries. If `masked`, the others are limited to the group's
/// permissions.
fn around(others: &[Ace], mode: u32, directory: bool, masked: bool) -> Vec<Ace> {
    let Trivial { exceptions, plain } = Trivial::of(mode, directory);
    let group = plain[1].mask;
    let mut all = exceptions;
    all.extend(others.iter().map(|ace| {
        let cut = masked && ace.kind == ALLOW && ace.flags & INHERIT_ONLY == 0;
        Ace { mask: if cut { ace.mask & group } else { ace.mask }, ..*ace }
    }));
    all.extend(plain);
    all
}

#[cfg(test)]
mod tests;
