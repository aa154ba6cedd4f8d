use super::*;
use proptest::prelude::*;

fn registry() -> SaRegistry {
    let mut r = SaRegistry::new();
    r.register(b"ZPL_DACL_COUNT", (8 << 24) | 16).unwrap();
    r.register(b"ZPL_SYMLINK", (3 << 16) | 17).unwrap();
    r.register(b"ZPL_DXATTR", (3 << 16) | 20).unwrap();
    r.add_layout(b"2", &[5, 6, 17, 20]).unwrap();
    r.add_layout(b"3", &[20]).unwrap();
    r
}

fn bonus(magic: [u8; 4], info: [u8; 2], lens: [[u8; 2]; 5]) -> Vec<u8> {
    let mut b = [&magic[..], &info, &lens.concat()].concat();
    b.extend([7; 64]);
    b
}

/// Goal: attributes follow the header at multiples of eight, those of varying length with the
/// header's lengths.
#[test]
fn layouts_place_attributes() {
    let r = registry();
    let b = bonus([0x5a, 0x50, 0x2f, 0], [2, 2 << 2], [[5, 0], [9, 0], [0, 0], [0, 0], [0, 0]]);
    let at: Vec<_> = r.locate(&b).unwrap().into_iter().map(|l| (l.num.0, l.range)).collect();
    assert_eq!(at, [(5, 16..24), (6, 24..32), (17, 32..37), (20, 40..49)]);
    // The same, written by a big-endian machine.
    let b = bonus([0, 0x2f, 0x50, 0x5a], [2 << 2, 2], [[0, 5], [0, 9], [0, 0], [0, 0], [0, 0]]);
    let there = r.locate(&b).unwrap();
    assert_eq!((there[3].range.clone(), there[3].order), (40..49, ByteOrder::Big));
}

/// Goal: chosen attributes are found in the wanted order, if all are there and little-endian.
#[test]
fn chosen_attributes() {
    let r = registry();
    let lens = [[5, 0], [9, 0], [0, 0], [0, 0], [0, 0]];
    let b = bonus([0x5a, 0x50, 0x2f, 0], [2, 2 << 2], lens);
    assert_eq!(r.find(&b, [Attr::Symlink, Attr::Mode]).unwrap(), Some([32..37, 16..24]));
    assert_eq!(r.find(&b, [Attr::Mode, Attr::Uid]).unwrap(), None);
    assert_eq!(r.find(&[0; 64], [Attr::Mode]).unwrap(), None);
    assert!(r.find(&b[..20], [Attr::Mode]).is_err());
    let b = bonus([0, 0x2f, 0x50, 0x5a], [2 << 2, 2], [[0, 5], [0, 9], [0, 0], [0, 0], [0, 0]]);
    assert_eq!(r.find(&b, [Attr::Mode]).unwrap(), None);
}

/// Goal: registrations and layouts that contradict what is fixed are refused.
#[test]
fn contradictions_are_refused() {
    let mut r = registry();
    assert!(r.register(b"ZPL_MODE", (8 << 24) | 30).is_err());
    assert!(r.register(b"ZPL_PROJID", (16 << 24) | 21).is_err());
    assert!(r.register(b"ours", (8 << 24) | 20).is_err());
    assert!(r.add_layout(b"4", &[99]).is_err());
    assert!(r.add_layout(b"x", &[1]).is_err());
    let b = bonus([0x5a, 0x50, 0x2f, 0], [9, 2 << 2], [[0; 2]; 5]);
    assert!(r.locate(&b).is_err());
}

proptest! {
    /// Goal: all attributes are inside the bonus, whatever it contains.
    #[test]
    fn attributes_lie_inside(
        info in 0u16..5000,
        rest in prop::collection::vec(any::<u8>(), 0..120),
        big in any::<bool>(),
    ) {
        let mut b = if big { SA_MAGIC.to_be_bytes() } else { SA_MAGIC.to_le_bytes() }.to_vec();
        b.extend(if big { info.to_be_bytes() } else { info.to_le_bytes() });
        b.extend(rest);
        if let Ok(all) = registry().locate(&b) {
            for l in all {
                prop_assert!(l.range.end <= b.len());
            }
        }
    }
}
