//! The ACL equivalent to a mode (`acl_trivial_access_masks`).

use ondisk::acl::{ACE_EVERYONE, ACE_GROUP, ACE_IDENTIFIER_GROUP, ACE_OWNER, Ace, Who};

pub(super) const ALLOW: u16 = 0;
pub(super) const DENY: u16 = 1;

pub(super) const READ: u32 = 0x1;
const WRITE_APPEND: u32 = 0x2 | 0x4;
pub(super) const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
/// Everyone may read the ACL, the attributes and the extended attributes, and synchronize.
const ALWAYS: u32 = 0x2_0000 | 0x80 | 0x8 | 0x10_0000;
/// The owner may write the ACL, the owner, the attributes and the extended attributes.
const OWNERS: u32 = 0x4_0000 | 0x8_0000 | 0x100 | 0x10;

/// The entries of the ACL of a mode.
pub(super) struct Trivial {
    /// The first entries, for a class with more or fewer permissions than a later one.
    pub(super) exceptions: Vec<Ace>,
    /// The permissions of the owner, the group and everyone.
    pub(super) plain: [Ace; 3],
}

impl Trivial {
    pub(super) fn of(mode: u32, directory: bool) -> Trivial {
        let write = WRITE_APPEND | if directory { DELETE_CHILD } else { 0 };
        let kinds = [(4, READ), (2, write), (1, EXECUTE)];
        let may = |class: u32, bit: u32| mode >> (3 * class) & bit != 0;
        let sum = |wanted: &dyn Fn(u32) -> bool| -> u32 {
            kinds.iter().filter(|(bit, _)| wanted(*bit)).map(|(_, mask)| mask).sum()
        };
        // If an earlier class lacks a permission of a later class, it must not gain it through the
        // later entry.
        let first = sum(&|b| may(2, b) && !may(1, b) && may(0, b));
        let not_owner = sum(&|b| !may(2, b) && (may(1, b) || may(0, b)));
        let not_group = sum(&|b| !may(1, b) && may(0, b));
        let ace = |kind, (flags, who), mask| Ace { kind, flags, mask, who, guids: None };
        let owner = (ACE_OWNER, Who::Owner);
        let group = (ACE_GROUP | ACE_IDENTIFIER_GROUP, Who::OwningGroup);
        let exceptions = [ace(ALLOW, owner, first), ace(DENY, owner, not_owner), ace(DENY, group, not_group)];
        Trivial {
            exceptions: exceptions.into_iter().filter(|e| e.mask != 0).collect(),
            plain: [
                ace(ALLOW, owner, ALWAYS | OWNERS | sum(&|b| may(2, b))),
                ace(ALLOW, group, ALWAYS | sum(&|b| may(1, b))),
                ace(ALLOW, (ACE_EVERYONE, Who::Everyone), ALWAYS | sum(&|b| may(0, b))),
            ],
        }
    }
}

/// Entries as they are stored, and their number.
pub(super) fn stored<'a>(aces: impl Iterator<Item = &'a Ace>) -> (u64, Vec<u8>) {
    let mut out = Vec::with_capacity(48);
    let mut count = 0;
    for ace in aces {
        ace.encode(&mut out);
        count += 1;
    }
    (count, out)
}

/// The stored entries of the ACL of a mode, and their number.
pub(super) fn aces(mode: u32, directory: bool) -> (u64, Vec<u8>) {
    let Trivial { exceptions, plain } = Trivial::of(mode, directory);
    stored(exceptions.iter().chain(&plain))
}

/// True if a mode lets everyone execute (`ZFS_NO_EXECS_DENIED`).
pub(super) fn all_execute(mode: u32) -> bool {
    mode & 0o111 == 0o111
}
