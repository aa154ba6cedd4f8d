//! What remains of an ACL after a change of the mode, entry by entry.

use super::*;
use ondisk::acl::{AclVersion, aces};

fn ace(kind: u16, flags: u16, mask: u32, who: Who) -> Ace {
    Ace { kind, flags, mask, who, guids: None }
}

fn read(new: &NewAcl) -> Vec<Ace> {
    aces(AclVersion::Fuid, new.count as u32, &new.aces).unwrap()
}

/// Goal: entries for others stay, masked on request. Those for the mode's classes stay only for
/// inheriting, and only in directories.
#[test]
fn keeps_what_a_mode_cannot_say() {
    let user = ace(ALLOW, 0, 0x27, Who::User(1000));
    let denied = ace(DENY, 0, EXECUTE, Who::User(1001));
    let owner = ace(ALLOW, 0x1000, 0x1f_01ff, Who::Owner);
    let everyone = ace(ALLOW, 0x4000 | FILE_INHERIT, 0x1, Who::Everyone);
    let old = [user, denied, owner, everyone];
    for directory in [false, true] {
        let new = chmod(&old, 0o755, directory, false);
        let mut want = vec![user, denied];
        if directory {
            want.push(Ace { flags: everyone.flags | INHERIT_ONLY, ..everyone });
        }
        want.extend(Trivial::of(0o755, directory).plain);
        assert_eq!(read(&new), want);
        assert_eq!(new.flags, if directory { HAS_INHERITABLE } else { 0 });
    }
    let masked = read(&chmod(&old, 0o640, false, true));
    assert_eq!(masked[0], Ace { mask: 0x1, ..user });
    assert_eq!(masked[1], denied);
    let trivial = chmod(&[owner], 0o755, false, false);
    assert_eq!(trivial.flags, Pflags::ACL_TRIVIAL | NO_EXECS_DENIED);
    assert_eq!((trivial.count, &trivial.aces), (3, &super::super::trivial::aces(0o755, false).1));
}
