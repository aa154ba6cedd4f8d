use super::*;

/// Goal: the flags that Linux can show are converted, and no others.
#[test]
fn pflags_map_to_linux() {
    assert_eq!(Pflags(Pflags::IMMUTABLE | Pflags::HIDDEN).to_fs_flags(), 0x10);
    assert_eq!(Pflags(Pflags::APPENDONLY | Pflags::NODUMP).to_fs_flags(), 0x60);
    assert_eq!(Pflags(Pflags::PROJINHERIT | Pflags::PROJID).to_fs_flags(), 0x2000_0000);
}

/// Goal: every field is decoded from its own offset.
#[test]
fn fields_have_their_offsets() {
    let mut b: Vec<u8> = (0u64..33).flat_map(|w| w.to_le_bytes()).collect();
    b[176..].fill(0);
    let z = Znode::parse(&b).unwrap();
    assert_eq!((z.atime, z.crtime, z.generation, z.mode, z.size), ([0, 1], [6, 7], 8, 9, 10));
    assert_eq!((z.parent, z.links, z.xattr, z.rdev), (ObjNum(11), 12, ObjNum(13), 14));
    assert_eq!((z.flags, z.uid, z.gid), (Pflags(15), 16, 17));
    assert!(Znode::parse(&b[..263]).is_err());
}
