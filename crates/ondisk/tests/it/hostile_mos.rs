//! Decoders of structures of the MOS, with bytes that no pool holds.

use ondisk::bookmark::{BookmarkPhys, RedactBlock, RedactionListPhys};
use ondisk::bpobj::{BpobjPhys, DeadlistPhys};
use ondisk::brt::BrtVdevPhys;
use ondisk::ddt::{DdtLogHeader, DdtPacking, DdtPhys, log_entries};
use ondisk::dsl::{DslDatasetPhys, DslDirPhys};
use ondisk::history::HistoryPhys;
use ondisk::indirect::{BirthEntry, MappingEntry, MappingPhys, RemovingPhys};
use ondisk::scan::{ErrBookmark, ScanPhys};
use ondisk::spacemap::{MapType, SpaceMapEntry, SpaceMapPhys, decode_entry};
use proptest::prelude::*;

proptest! {
    /// Goal: no decoder panics on arbitrary bytes.
    #[test]
    fn arbitrary_bytes_are_values(raw in proptest::collection::vec(any::<u8>(), 0..600), flat: bool) {
        let _ = DslDirPhys::decode(&raw);
        let _ = DslDatasetPhys::decode(&raw);
        let _ = BpobjPhys::decode(&raw);
        let _ = DeadlistPhys::decode(&raw);
        let _ = RedactionListPhys::decode(&raw, None);
        let _ = RedactionListPhys::decode(&[], Some(&raw));
        let _ = RedactBlock::decode(&raw);
        let _ = SpaceMapPhys::decode(&raw);
        let _ = MappingPhys::decode(&raw);
        let _ = MappingEntry::decode(&raw);
        let _ = BirthEntry::decode(&raw);
        let _ = DdtPhys::decode(flat, &raw);
        let _ = DdtPacking::split(&raw);
        let _ = DdtLogHeader::decode(&raw);
        let _ = log_entries(flat, &raw);
        let _ = BrtVdevPhys::decode(&raw);
        let _ = ErrBookmark::parse(&raw);
        let _ = ErrBookmark::parse_head(1, &raw);
        let _ = ErrBookmark::decode(&raw);
        if let Ok(h) = HistoryPhys::decode(&raw) && h.eof > 0 {
            prop_assert!(h.to_phys(h.bof) < h.phys_max_off);
        }
        let w: Vec<u64> = raw.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c)).collect();
        let _ = BookmarkPhys::decode(&w);
        let _ = RemovingPhys::decode(&w);
        let _ = ScanPhys::decode(&w);
    }

    /// Goal: any pair of words decodes to an entry of one or two words, in range, or is refused.
    #[test]
    fn space_map_entries_are_in_range(first: u64, next in proptest::option::of(any::<u64>())) {
        if let Ok((entry, words)) = decode_entry(first, next) {
            prop_assert!(words == 1 || (words == 2 && next.is_some()));
            if let SpaceMapEntry::Range { run, offset, .. } = entry {
                prop_assert!((1..=1 << 36).contains(&run) && offset <= u64::MAX >> 1);
            }
        }
    }
}

/// Goal: the three kinds of space map entries have the fields of the format.
#[test]
fn space_map_entry_shapes() {
    let one = (5 << 16) | (1 << 15) | 7;
    let entry = SpaceMapEntry::Range { kind: MapType::Free, vdev: None, offset: 5, run: 8, two_words: false };
    assert_eq!(decode_entry(one, None).unwrap(), (entry, 1));
    let two = (3 << 62) | (99 << 24) | 4;
    let entry =
        SpaceMapEntry::Range { kind: MapType::Free, vdev: Some(4), offset: 77, run: 100, two_words: true };
    assert_eq!(decode_entry(two, Some((1 << 63) | 77)).unwrap(), (entry, 2));
    let debug = (2 << 62) | (1 << 60) | (3 << 50) | 1234;
    let entry = SpaceMapEntry::Debug { action: MapType::Free, pass: 3, txg: 1234 };
    assert_eq!(decode_entry(debug, None).unwrap(), (entry, 1));
    assert!(decode_entry(two, None).is_err());
}
