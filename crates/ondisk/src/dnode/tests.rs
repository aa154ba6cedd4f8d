//! A dnode is decoded whole, or refused with the name of a field.

use super::*;

fn raw(slots: usize) -> Vec<u8> {
    let mut b = vec![0u8; slots * DNODE_MIN_SIZE];
    b[..8].copy_from_slice(&[19, 17, 1, 1, 44, 0, 0, 5]);
    b[8..10].copy_from_slice(&256u16.to_le_bytes());
    b[10..12].copy_from_slice(&168u16.to_le_bytes());
    b[12] = (slots - 1) as u8;
    b[24..32].copy_from_slice(&4096u64.to_le_bytes());
    b
}

/// Goal: geometry, bonus and spill pointer are decoded from where the format has them.
#[test]
fn decodes_parts() {
    let d = DnodePhys::decode(&raw(2)).unwrap().unwrap();
    assert_eq!((d.datablksz, d.bonus.len(), d.num_slots()), (128 << 10, 168, 2));
    assert_eq!((d.used_bytes, d.epbs()), (4096, 10));
    assert!(d.spill.is_some_and(|b| b.is_hole()));
    assert_eq!(DnodePhys::decode(&[0; 512]).unwrap(), None);
}

/// Goal: the bonus is found where the decoder has it, unless there is a spill block, or the bonus
/// ends after the slots.
#[test]
fn bonuses_are_found() {
    let mut b = raw(2);
    assert_eq!(DnodePhys::find_bonus(&b), None);
    b[7] = DnodeFlags::USED_BYTES;
    b[DNODE_CORE_SIZE + BLKPTR_SIZE..][..168].fill(7);
    for (size, found) in [(168, true), (832, true), (833, false)] {
        b[10..12].copy_from_slice(&u16::to_le_bytes(size));
        let bonus = DnodePhys::find_bonus(&b).map(|(kind, at)| (kind, b[at].to_vec()));
        let decoded = DnodePhys::decode(&b).ok().flatten().map(|d| (d.bonus_kind, d.bonus));
        assert_eq!((bonus.is_some(), &bonus), (found, &decoded), "{size}");
    }
    assert_eq!(DnodePhys::find_bonus(&b[..DNODE_MIN_SIZE]), None);
}

/// Goal: the decoder refuses a bonus that overlaps the spill pointer, absurd levels, and slots
/// beyond the block.
#[test]
fn refusals() {
    for (at, v) in [(2, 0), (2, 17), (3, 0), (3, 4), (1, 9), (11, 9), (12, 5), (0, 99), (8, 0)] {
        let mut b = raw(1);
        b[2] = 2;
        b[at] = v;
        if at == 8 {
            b[9] = 0;
        }
        assert!(DnodePhys::decode(&b).is_err(), "byte {at} = {v} was accepted");
    }
}

/// Goal: an encoded dnode decodes to the same dnode, with one slot and several, with and without a
/// spill block.
#[test]
fn encodes_what_it_decodes() {
    for slots in [1, 2, 32] {
        let mut want = DnodePhys::decode(&raw(slots)).unwrap().unwrap();
        want.flags.0 |= DnodeFlags::USED_BYTES;
        assert_eq!(DnodePhys::decode(&want.encode()).unwrap().as_ref(), Some(&want));
        assert_eq!(want.encode().len(), slots * DNODE_MIN_SIZE);
        want.spill = None;
        want.flags.0 &= !DnodeFlags::SPILL;
        want.blkptrs = vec![Blkptr::HOLE];
        want.bonus = vec![7; DnodePhys::tail_len(slots) - BLKPTR_SIZE];
        assert_eq!(DnodePhys::decode(&want.encode()).unwrap(), Some(want));
    }
}

/// Goal: a new dnode has as many pointers as fit beside its bonus, but one beside system
/// attributes.
#[test]
fn pointers_beside_a_bonus() {
    let n = |bonus| DnodePhys::pointers_beside(1, DmuType::SPACE_MAP_HEADER, bonus);
    assert_eq!([n(0), n(64), n(65), n(192), n(193), n(320)], [3, 3, 2, 2, 1, 1]);
    assert_eq!(DnodePhys::pointers_beside(2, DmuType::DSL_DIR, 256), 3);
    assert_eq!(DnodePhys::pointers_beside(8, DmuType::SA, 0), 1);
}
