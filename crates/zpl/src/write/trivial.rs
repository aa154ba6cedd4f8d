//! The ACL that says what a mode says (`acl_trivial_access_masks`).

use ondisk::acl::{ACE_EVERYONE, ACE_GROUP, ACE_IDENTIFIER_GROUP, ACE_OWNER};

const ALLOW: u16 = 0;
const DENY: u16 = 1;

const READ: u32 = 0x1;
const WRITE_APPEND: u32 = 0x2 | 0x4;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
/// To read the ACL, the attributes and the extended attributes, and to synchronize: everybody may.
const ALWAYS: u32 = 0x2_0000 | 0x80 | 0x8 | 0x10_0000;
/// To write the ACL, the owner, the attributes and the extended attributes: the owner may.
const OWNERS: u32 = 0x4_0000 | 0x8_0000 | 0x100 | 0x10;

/// The entries of the ACL of a mode, as they are stored, and their number.
pub(super) fn aces(mode: u32, directory: bool) -> (u64, Vec<u8>) {
    let write = WRITE_APPEND | if directory { DELETE_CHILD } else { 0 };
    let kinds = [(4, READ), (2, write), (1, EXECUTE)];
    let may = |class: u32, bit: u32| mode >> (3 * class) & bit != 0;
    let sum = |wanted: &dyn Fn(u32) -> bool| -> u32 {
        kinds.iter().filter(|(bit, _)| wanted(*bit)).map(|(_, mask)| mask).sum()
    };
    // A class that may do more than one before it must not get it by way of a later entry.
    let first = sum(&|b| may(2, b) && !may(1, b) && may(0, b));
    let not_owner = sum(&|b| !may(2, b) && (may(1, b) || may(0, b)));
    let not_group = sum(&|b| !may(1, b) && may(0, b));
    let group = ACE_GROUP | ACE_IDENTIFIER_GROUP;
    let exceptions = [(ALLOW, ACE_OWNER, first), (DENY, ACE_OWNER, not_owner), (DENY, group, not_group)];
    let plain = [
        (ALLOW, ACE_OWNER, ALWAYS | OWNERS | sum(&|b| may(2, b))),
        (ALLOW, group, ALWAYS | sum(&|b| may(1, b))),
        (ALLOW, ACE_EVERYONE, ALWAYS | sum(&|b| may(0, b))),
    ];
    let mut out = Vec::with_capacity(48);
    let mut count = 0;
    for (kind, flags, mask) in exceptions.into_iter().filter(|e| e.2 != 0).chain(plain) {
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&mask.to_le_bytes());
        count += 1;
    }
    (count, out)
}

/// True if a mode lets everybody execute (`ZFS_NO_EXECS_DENIED`).
pub(super) fn all_execute(mode: u32) -> bool {
    mode & 0o111 == 0o111
}
