use super::*;

/// Goal: every type survives its four bits, and the unused bits in the middle of a stored value are
/// ignored.
#[test]
fn values_hold_type_and_object() {
    for bits in [0u64, 1, 2, 4, 6, 8, 10, 12] {
        assert_eq!(FileType::from_bits(bits).bits(), bits);
    }
    let d = Dirent::from_disk(0x8000_0000_0000_0022);
    assert_eq!(d, Dirent { obj: ObjNum(0x22), kind: FileType::Regular });
    assert_eq!(d.to_disk(), 0x8000_0000_0000_0022);
    assert_eq!(Dirent::from_disk(0x4fff_0000_0000_0007).to_disk(), 0x4000_0000_0000_0007);
    assert_eq!(FileType::from_mode(0o120777), FileType::Symlink);
}
