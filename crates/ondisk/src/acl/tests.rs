use super::*;

/// Goal: a version 1 entry has the size that its kind of subject needs.
#[test]
fn fuid_entries_are_sized_by_need() {
    let mut b = Vec::new();
    b.extend([0, 0, 0, 0x10, 1, 0, 0, 0]); // owner
    b.extend([1, 0, 0x40, 0, 2, 0, 0, 0]); // group 7
    b.extend(7u64.to_le_bytes());
    b.extend([5, 0, 0, 0, 4, 0, 0, 0]); // object entry of user 8
    b.extend(8u64.to_le_bytes());
    b.extend([9; 32]);
    b.extend([0, 0, 0, 0x40, 8, 0, 0, 0]); // everyone
    let got = aces(AclVersion::Fuid, 4, &b).unwrap();
    let who: Vec<_> = got.iter().map(|a| a.who).collect();
    assert_eq!(who, [Who::Owner, Who::Group(7), Who::User(8), Who::Everyone]);
    assert_eq!(got[2].guids, Some([[9; 16]; 2]));
    assert!(aces(AclVersion::Fuid, 5, &b).is_err());
}

/// Goal: swapping entries to the other byte order and back keeps their contents.
#[test]
fn swapping_finds_the_entries() {
    let le: Vec<u8> =
        [&[0u8, 0, 0, 0x10, 1, 2, 3, 4][..], &[1, 0, 0x40, 0, 2, 0, 0, 0], &7u64.to_le_bytes()].concat();
    let mut be: Vec<u8> =
        [&[0u8, 0, 0x10, 0, 4, 3, 2, 1][..], &[0, 1, 0, 0x40, 0, 0, 0, 2], &7u64.to_be_bytes()].concat();
    be.extend([0; 5]);
    swap_v1(&mut be);
    assert_eq!(be[..24], le);
}
