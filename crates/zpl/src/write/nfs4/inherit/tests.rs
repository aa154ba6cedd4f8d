//! What a new file inherits from a directory's ACL, entry by entry, for each `aclinherit`.

use super::*;
use crate::write::nfs4::inherit as rules;
use crate::write::trivial::Trivial;
use ondisk::acl::{ACE_EVERYONE, ACE_OWNER, AclVersion, aces};

const BOTH: u16 = FILE_INHERIT | DIRECTORY_INHERIT;
const FULL: u32 = 0x1f_01ff;

fn ace(kind: u16, flags: u16, mask: u32, who: Who) -> Ace {
    Ace { kind, flags, mask, who, guids: None }
}

fn heir(kind: FileType, mode: u32) -> Heir {
    Heir { kind, mode: mode | (kind.bits() as u32) << 12, uid: 500, gid: 50 }
}

fn made(from: &[Ace], heir: &Heir, how: AclInherit) -> (u32, Vec<Ace>, u64) {
    let (mode, new) = rules::inherit(from, heir, how, AclMode::Discard);
    (mode, aces(AclVersion::Fuid, new.count as u32, &new.aces).unwrap(), new.flags)
}

/// Goal: an entry reaches the files that it is meant for, and goes further down only where it says
/// so.
#[test]
fn entries_go_where_they_are_meant_for() {
    let user = |flags| ace(ALLOW, flags, 0x1, Who::User(1000));
    for (flags, file, directory) in [
        (0, None, None),
        (FILE_INHERIT, Some(INHERITED), Some(FILE_INHERIT | INHERIT_ONLY | INHERITED)),
        (DIRECTORY_INHERIT, None, Some(DIRECTORY_INHERIT | INHERITED)),
        (BOTH, Some(INHERITED), Some(BOTH | INHERITED)),
        (BOTH | INHERIT_ONLY, Some(INHERITED), Some(BOTH | INHERITED)),
        (BOTH | NO_PROPAGATE, Some(INHERITED), Some(INHERITED)),
        (FILE_INHERIT | NO_PROPAGATE, Some(INHERITED), None),
    ] {
        for (kind, want) in [(FileType::Regular, file), (FileType::Directory, directory)] {
            let heir = heir(kind, 0o640);
            let (mode, all, flags_now) = made(&[user(flags)], &heir, AclInherit::Restricted);
            assert_eq!(mode, heir.mode);
            let found = all.iter().find(|a| matches!(a.who, Who::User(_)));
            assert_eq!(found.map(|a| a.flags), want, "{flags:x} {kind:?}");
            let further = want.is_some_and(|f| f & BOTH != 0);
            assert_eq!(flags_now & HAS_INHERITABLE != 0, further);
            assert_eq!(flags_now & Pflags::ACL_TRIVIAL != 0, want.is_none());
        }
    }
}

/// Goal: each `aclinherit` lets through and removes what it promises.
#[test]
fn each_rule_does_what_it_says() {
    let from = [
        ace(ALLOW, BOTH, FULL, Who::User(1000)),
        ace(DENY, BOTH, 0x2, Who::Group(7)),
        ace(ALLOW, 0, FULL, Who::User(1001)),
    ];
    let masks = |how, mode| {
        let (_, all, _) = made(&from, &heir(FileType::Regular, mode), how);
        let named = all.into_iter().filter(|a| matches!(a.who, Who::User(_) | Who::Group(_)));
        named.map(|a| (a.kind, a.mask)).collect::<Vec<_>>()
    };
    assert_eq!(masks(AclInherit::Discard, 0o644), []);
    assert_eq!(masks(AclInherit::NoAllow, 0o644), [(DENY, 0x2)]);
    let cut = FULL & !(WRITE_ACL | WRITE_OWNER);
    assert_eq!(masks(AclInherit::Restricted, 0o644), [(ALLOW, cut), (DENY, 0x2)]);
    assert_eq!(masks(AclInherit::Passthrough, 0o644), [(ALLOW, FULL), (DENY, 0x2)]);
    assert_eq!(masks(AclInherit::PassthroughX, 0o644), [(ALLOW, FULL & !EXECUTE), (DENY, 0x2)]);
    assert_eq!(masks(AclInherit::PassthroughX, 0o744), [(ALLOW, FULL), (DENY, 0x2)]);
    let (mode, all, flags) = made(&from, &heir(FileType::Symlink, 0o777), AclInherit::Passthrough);
    assert_eq!((mode & 0o777, all.len(), flags), (0o777, 3, Pflags::ACL_TRIVIAL | NO_EXECS_DENIED));
}

/// Goal: an entry for the owner, the group or everyone that is passed through decides the mode.
/// Otherwise the mode decides, and comes last.
#[test]
fn passed_through_entries_are_the_mode() {
    let owner = ace(ALLOW, ACE_OWNER | BOTH, 0x1f_01ff, Who::Owner);
    let everyone = ace(ALLOW, ACE_EVERYONE | BOTH, 0x21, Who::Everyone);
    let from = [owner, everyone];
    let file = heir(FileType::Regular, 0o4600);
    let (mode, all, flags) = made(&from, &file, AclInherit::Passthrough);
    assert_eq!((mode & 0o7777, all.len()), (0o4755, 2));
    assert_eq!(flags & NO_EXECS_DENIED, NO_EXECS_DENIED);
    // The owner's entry allows deletion, which no mode says.
    assert_eq!(flags & Pflags::ACL_TRIVIAL, 0);
    let (mode, all, flags) = made(&from, &file, AclInherit::Restricted);
    assert_eq!((mode & 0o777, flags & NO_EXECS_DENIED), (0o755, NO_EXECS_DENIED));
    assert_eq!(&all[2..], Trivial::of(0o600, false).plain);
    let (mode, all, flags) = made(&from, &heir(FileType::Directory, 0o700), AclInherit::Passthrough);
    assert_eq!((mode & 0o777, all.len(), flags & HAS_INHERITABLE), (0o755, 2, HAS_INHERITABLE));
    assert_eq!(flags & AUTO_INHERIT, 0);
    // With `aclmode=restricted` a mode neither changes an ACL nor adds to it.
    let user = [ace(ALLOW, BOTH, 0x1, Who::User(1))];
    let (mode, new) = rules::inherit(&user, &file, AclInherit::Restricted, AclMode::Restricted);
    assert_eq!((mode & 0o7777, new.count), (0o4000, 1));
    // The group's mask applies to inherited entries too.
    let all = [ace(ALLOW, BOTH, FULL, Who::User(1))];
    let (_, new) =
        rules::inherit(&all, &heir(FileType::Regular, 0o640), AclInherit::Restricted, AclMode::GroupMask);
    let first = aces(AclVersion::Fuid, new.count as u32, &new.aces).unwrap()[0];
    assert_eq!((first.who, first.mask & 0x7), (Who::User(1), 0x1));
}

/// Goal: an entry that denies the owner or the group by name counts for the mode. An entry that
/// denies others shows that not everyone may execute.
#[test]
fn names_of_owner_and_group_count() {
    let from = [
        ace(DENY, FILE_INHERIT, 0x1, Who::User(500)),
        ace(DENY, FILE_INHERIT, EXECUTE, Who::Group(51)),
        ace(ALLOW, FILE_INHERIT | ACE_EVERYONE, 0x21, Who::Everyone),
    ];
    let (mode, _, flags) = made(&from, &heir(FileType::Regular, 0o600), AclInherit::Passthrough);
    assert_eq!((mode & 0o777, flags & NO_EXECS_DENIED), (0o155, 0));
}
