use super::*;
use crate::bytes::le64;
use proptest::prelude::*;

/// Goal: a header decodes to what was encoded, with and without histogram, in the sizes that
/// OpenZFS uses.
#[test]
fn header_round_trips() {
    for (have_histogram, size) in [(false, 24), (true, 320)] {
        let mut phys = SpaceMapPhys::empty(7, have_histogram);
        (phys.length, phys.alloc) = (64, -512);
        if have_histogram {
            phys.histogram[31] = 3;
        }
        let raw = phys.encode();
        assert_eq!(raw.len(), size);
        assert_eq!(SpaceMapPhys::decode(&raw).unwrap(), phys);
    }
}

/// Goal: ranges of any length at any offset decode to what was encoded, wherever in a block they
/// begin, and no entry crosses blocks.
#[test]
fn entries_round_trip() {
    let range = (any::<bool>(), 0u64..1 << 50, 1u64..1 << 38, any::<bool>());
    proptest!(|(start in 0u64..64, ranges in prop::collection::vec(range, 1..20), v2 in any::<bool>())| {
        let mut encoder = EntryEncoder::new(start * 8, 128, v2);
        let mut want: Vec<(MapType, u64, u64)> = Vec::new();
        encoder.debug(MapType::Free, 3, 77);
        for (free, offset, run, small) in ranges {
            // Without the feature, maps are small enough for one word.
            let offset = if v2 { offset } else { offset % SM_OFFSET_MAX };
            let run = if small || !v2 { run % 100_000 + 1 } else { run };
            let kind = if free { MapType::Free } else { MapType::Alloc };
            encoder.range(kind, offset, run, None);
            match want.last_mut() {
                Some((k, o, r)) if *k == kind && *o + *r == offset => *r += run,
                _ => want.push((kind, offset, run)),
            }
        }
        let raw = encoder.finish();
        let (mut at, mut got): (usize, Vec<(MapType, u64, u64)>) = (0, Vec::new());
        while at < raw.len() {
            let room = 16 - (start as usize + at / 8) % 16;
            let next = (room > 1 && at + 16 <= raw.len()).then(|| le64(&raw, at + 8));
            let (entry, took) = decode_entry(le64(&raw, at), next).unwrap();
            match entry {
                SpaceMapEntry::Debug { action, pass, txg } if at == 0 => {
                    prop_assert_eq!((action, pass, txg), (MapType::Free, 3, 77));
                }
                SpaceMapEntry::Debug { txg, .. } => prop_assert_eq!(txg, 0),
                SpaceMapEntry::Range { kind, offset, run, .. } => match got.last_mut() {
                    Some((k, o, r)) if *k == kind && *o + *r == offset => *r += run,
                    _ => got.push((kind, offset, run)),
                },
            }
            at += took * 8;
        }
        prop_assert_eq!(got, want);
    });
}
