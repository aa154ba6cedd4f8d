use super::*;

/// Goal: labels have OpenZFS's offsets, also if the device's size is not a multiple of a label.
#[test]
fn label_offsets() {
    let size = 100_663_296;
    let at: Vec<_> = (0..5).map(|l| label_offset(size + 4097, l)).collect();
    assert_eq!(at, [Some(0), Some(262_144), Some(size - 524_288), Some(size - 262_144), None]);
    assert_eq!(label_offset(4 * LABEL_SIZE - 1, 0), None);
}

/// Goal: the ring has 128 slots of 1 KiB for small sectors, and never fewer than 16 slots of 8 KiB.
#[test]
fn ring_geometry() {
    for (ashift, shift, count) in [(9, 10, 128), (12, 12, 32), (13, 13, 16), (16, 13, 16)] {
        assert_eq!(uberblock_shift(Ashift(ashift)), shift);
        assert_eq!(uberblock_count(shift), count);
        assert_eq!(uberblock_offset(shift, count - 1) + (1 << shift), LABEL_SIZE);
    }
}

/// Goal: a boot environment decodes as text or list, and an unwritten one as none.
#[test]
fn boot_environments() {
    let mut part = vec![0; PAD_SIZE as usize];
    let eck = part.len() - ECK_SIZE;
    assert!(matches!(BootEnv::decode(&part), Err(Corrupt::Magic { .. })));
    part[eck..eck + 8].copy_from_slice(&ZEC_MAGIC.to_le_bytes());
    assert_eq!(BootEnv::decode(&part), Ok(None));
    part[8..15].copy_from_slice(b"next=1\n");
    assert_eq!(BootEnv::decode(&part), Ok(Some(BootEnv::Raw(b"next=1\n".to_vec()))));
    let mut nv = Nvlist::new();
    nv.set("once", crate::Value::Uint64(1));
    let packed = nv.encode_xdr();
    part[0] = 1;
    part[8..8 + packed.len()].copy_from_slice(&packed);
    assert_eq!(BootEnv::decode(&part), Ok(Some(BootEnv::Nvlist(nv))));
    assert!(BootEnv::decode(&part[..20]).is_err());
}

/// Goal: a boot environment that is only a trailer (found by fuzzing) is an error, and no panic.
#[test]
fn boot_environment_of_a_trailer_alone() {
    let mut part = vec![0; ECK_SIZE + 6];
    part[6..14].copy_from_slice(&ZEC_MAGIC.to_le_bytes());
    assert!(matches!(BootEnv::decode(&part), Err(Corrupt::Truncated { .. })));
}
