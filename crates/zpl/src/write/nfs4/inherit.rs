//! What a new file inherits from the NFSv4 ACL of its directory (`zfs_acl_inherit`).
//!
//! # Theory
//! Entries of a directory's ACL say for which new files they are meant. The new ACL has this order:
//!
//! 1. the mode's entries that must precede all others;
//! 2. the inherited entries that `aclinherit` lets through;
//! 3. the other entries of the mode.
//!
//! An exception is an inherited entry for the owner, the group or everyone that is taken unchanged.
//! Then the ACL determines the mode.

use super::{
    AclMode, DIRECTORY_INHERIT, FILE_INHERIT, HAS_INHERITABLE, HAS_OBJECTS, INHERIT_ONLY, NewAcl, around,
};
use crate::FileType;
use crate::write::trivial::{ALLOW, DENY, EXECUTE, READ, stored};
use crate::write::update::NO_EXECS_DENIED;
use ondisk::acl::{Ace, Who};
use ondisk::znode::Pflags;

/// The entry applies to files in the next directory, and no deeper.
const NO_PROPAGATE: u16 = 0x4;
/// The flags that control inheritance.
const INHERITANCE: u16 = FILE_INHERIT | DIRECTORY_INHERIT | NO_PROPAGATE | INHERIT_ONLY;
/// The entry came from the directory.
const INHERITED: u16 = 0x80;
/// The ACL is inherited automatically: directories have this flag (`ZFS_ACL_AUTO_INHERIT`).
pub(in crate::write) const AUTO_INHERIT: u64 = 0x40;
/// The last type of entry that exists (`MAX_ACE_TYPE`).
const KIND_MAX: u16 = 0x10;

const WRITE: u32 = 0x2;
const WRITE_XATTRS: u32 = 0x10;
const DELETE_CHILD: u32 = 0x40;
const READ_ATTRIBUTES: u32 = 0x80;
const WRITE_ATTRIBUTES: u32 = 0x100;
const DELETE: u32 = 0x1_0000;
const READ_ACL: u32 = 0x2_0000;
const WRITE_ACL: u32 = 0x4_0000;
const WRITE_OWNER: u32 = 0x8_0000;

/// What a new file inherits from its directory's ACL: the property `aclinherit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclInherit {
    /// Nothing (`ZFS_ACL_DISCARD`).
    Discard,
    /// Entries that deny (`ZFS_ACL_NOALLOW`).
    NoAllow,
    /// All entries, without the permission to change the ACL or the owner (`ZFS_ACL_RESTRICTED`).
    Restricted,
    /// All entries (`ZFS_ACL_PASSTHROUGH`).
    Passthrough,
    /// All entries, without the execute permission if the requested mode has none
    /// (`ZFS_ACL_PASSTHROUGH_X`).
    PassthroughX,
}

/// A file that is about to be created.
pub(in crate::write) struct Heir {
    pub(in crate::write) kind: FileType,
    /// The requested mode.
    pub(in crate::write) mode: u32,
    pub(in crate::write) uid: u64,
    pub(in crate::write) gid: u64,
}

/// The mode and the ACL of a new file in a directory whose ACL is `from`.
pub(in crate::write) fn inherit(
    from: &[Ace],
    heir: &Heir,
    how: AclInherit,
    acl_mode: AclMode,
) -> (u32, NewAcl) {
    let directory = heir.kind == FileType::Directory;
    let none = how == AclInherit::Discard || heir.kind == FileType::Symlink;
    let taken: Vec<&Ace> =
        from.iter().filter(|ace| !none && concerns(ace, directory) && passes(ace, how)).collect();
    let given: Vec<Ace> = taken.iter().map(|ace| passed_on(ace, heir, how)).collect();
    // True if the entry itself says what the mode would say.
    let as_is = matches!(how, AclInherit::Passthrough | AclInherit::PassthroughX);
    let speaks = |ace: &&Ace| {
        let class = matches!(ace.who, Who::Owner | Who::OwningGroup | Who::Everyone);
        let file = heir.kind == FileType::Regular;
        class && (file || directory && ace.flags & DIRECTORY_INHERIT != 0)
    };
    let whole = as_is && taken.iter().any(speaks) || acl_mode == AclMode::Restricted && !given.is_empty();
    let (all, mut flags) = if whole {
        (given, 0)
    } else {
        let masked = acl_mode == AclMode::GroupMask && !as_is;
        (around(&given, heir.mode, directory, masked), if directory { AUTO_INHERIT } else { 0 })
    };
    flags |= if directory && all.iter().any(is_inheritable) { HAS_INHERITABLE } else { 0 };
    flags |= if all.iter().any(|ace| ace.guids.is_some()) { HAS_OBJECTS } else { 0 };
    flags |= if all.iter().all(says_no_more) { Pflags::ACL_TRIVIAL } else { 0 };
    let (mode, all_execute) = mode_of(&all, heir);
    flags |= if all_execute { NO_EXECS_DENIED } else { 0 };
    let (count, aces) = stored(all.iter());
    (mode, NewAcl { count, aces, flags })
}

fn is_inheritable(ace: &Ace) -> bool {
    ace.flags & (FILE_INHERIT | DIRECTORY_INHERIT) != 0
}

/// True if an entry is meant for a new file (`zfs_ace_can_use`).
fn concerns(ace: &Ace, directory: bool) -> bool {
    if directory && ace.flags & DIRECTORY_INHERIT != 0 {
        return true;
    }
    ace.flags & FILE_INHERIT != 0 && !(directory && ace.flags & NO_PROPAGATE != 0)
}

fn passes(ace: &Ace, how: AclInherit) -> bool {
    ace.kind <= KIND_MAX && !(how == AclInherit::NoAllow && ace.kind == ALLOW)
}

/// An entry as the new file has it.
fn passed_on(ace: &Ace, heir: &Heir, how: AclInherit) -> Ace {
    let directory = heir.kind == FileType::Directory;
    let mut ace = *ace;
    if ace.kind == ALLOW {
        match how {
            AclInherit::PassthroughX if !directory && heir.mode & 0o111 == 0 => ace.mask &= !EXECUTE,
            AclInherit::Restricted => ace.mask &= !(WRITE_ACL | WRITE_OWNER),
            _ => {}
        }
    }
    if !directory || ace.flags & NO_PROPAGATE != 0 {
        ace.flags &= !INHERITANCE;
    } else if ace.flags & DIRECTORY_INHERIT == 0 {
        // The entry is for files further down.
        ace.flags |= INHERIT_ONLY;
    } else {
        ace.flags &= !INHERIT_ONLY;
    }
    ace.flags |= INHERITED;
    ace
}

/// True if an entry says nothing beyond a mode (`ace_trivial_common`).
fn says_no_more(ace: &Ace) -> bool {
    const OWNERS: u32 = WRITE_OWNER | WRITE_ACL | WRITE_ATTRIBUTES | WRITE_XATTRS;
    let class = matches!(ace.who, Who::Owner | Who::OwningGroup | Who::Everyone);
    let hides = ace.kind == DENY && ace.mask & (READ_ACL | READ_ATTRIBUTES) != 0;
    let removes = ace.mask & DELETE != 0 || ace.mask & DELETE_CHILD != 0 && ace.mask & WRITE == 0;
    let rules = ace.kind == ALLOW && ace.who != Who::Owner && ace.mask & OWNERS != 0;
    class && ace.flags & INHERITANCE == 0 && !hides && !removes && !rules
}

/// The mode closest to an ACL, and whether everyone may execute (`zfs_mode_compute`). For each
/// permission of a class the first matching entry decides.
fn mode_of(aces: &[Ace], heir: &Heir) -> (u32, bool) {
    let mut mode = heir.mode & !0o777;
    let (mut said, mut denied) = (0, false);
    for ace in aces.iter().filter(|ace| ace.flags & INHERIT_ONLY == 0 && ace.kind <= KIND_MAX) {
        let classes: &[u32] = match ace.who {
            Who::Owner => &[6],
            Who::OwningGroup => &[3],
            Who::Everyone => &[6, 3, 0],
            Who::User(id) if id == heir.uid => &[6],
            Who::Group(id) if id == heir.gid => &[3],
            Who::User(_) | Who::Group(_) => {
                denied |= ace.kind == DENY && ace.mask & EXECUTE != 0;
                continue;
            }
        };
        for (mask, bit) in [(READ, 4), (WRITE, 2), (EXECUTE, 1)] {
            let all = classes.iter().map(|shift| bit << shift).fold(0, |all, one| all | one);
            let news = if ace.mask & mask != 0 { all & !said } else { 0 };
            said |= news;
            mode |= if ace.kind == ALLOW { news } else { 0 };
        }
    }
    (mode, !denied && mode & 0o111 == 0o111)
}

#[cfg(test)]
mod tests;
