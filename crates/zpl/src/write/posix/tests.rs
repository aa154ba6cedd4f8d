use super::*;

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut raw = VERSION.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        raw.extend_from_slice(&tag.to_le_bytes());
        raw.extend_from_slice(&perm.to_le_bytes());
        raw.extend_from_slice(&id.to_le_bytes());
    }
    raw
}

/// Goal: the modes of ACLs are right with and without a mask, and malformed ACLs have none.
#[test]
fn modes() {
    let plain = acl(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 1, 0)]);
    assert_eq!(mode_of(&plain), Some(AclMode { permissions: 0o751, says_all: true }));
    let masked = acl(&[(USER_OBJ, 6, 0), (USER, 7, 12), (GROUP_OBJ, 5, 0), (MASK, 4, 0), (OTHER, 0, 0)]);
    assert_eq!(mode_of(&masked), Some(AclMode { permissions: 0o640, says_all: false }));
    for bad in [&plain[..3], &plain[..11], &plain[..12], b"", b"\x01\0\0\0"] {
        assert_eq!(mode_of(bad), None);
    }
}

/// Goal: a new mode changes the mask, and a new file has no more than the requested mode and its
/// directory allow.
#[test]
fn changes() {
    let mut a = acl(&[(USER_OBJ, 6, 0), (USER, 7, 12), (GROUP_OBJ, 5, 0), (MASK, 4, 0), (OTHER, 0, 0)]);
    let mut b = a.clone();
    assert!(chmod(&mut a, 0o751));
    assert_eq!(a, acl(&[(USER_OBJ, 7, 0), (USER, 7, 12), (GROUP_OBJ, 5, 0), (MASK, 5, 0), (OTHER, 1, 0)]));
    assert_eq!(create(&mut b, 0o2755), Some(AclMode { permissions: 0o2640, says_all: false }));
    assert_eq!(b, acl(&[(USER_OBJ, 6, 0), (USER, 7, 12), (GROUP_OBJ, 5, 0), (MASK, 4, 0), (OTHER, 0, 0)]));
}
