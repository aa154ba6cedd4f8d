use super::*;
use proptest::prelude::*;

proptest! {
    /// Goal: a directory's bonus decodes to what was encoded.
    #[test]
    fn dir_round_trip(w in proptest::collection::vec(any::<u64>(), 19)) {
        let raw: Vec<u8> = w.iter().flat_map(|w| w.to_le_bytes()).collect();
        let dir = DslDirPhys::decode(&raw).unwrap();
        prop_assert_eq!(&dir.encode()[..raw.len()], &raw[..]);
        prop_assert_eq!(DslDirPhys::decode(&dir.encode()).unwrap(), dir);
    }

    /// Goal: a dataset's bonus decodes to what was encoded.
    #[test]
    fn dataset_round_trip(w in proptest::collection::vec(any::<u64>(), 35)) {
        let mut raw: Vec<u8> = w.iter().flat_map(|w| w.to_le_bytes()).collect();
        raw[128..256].fill(0);
        let ds = DslDatasetPhys::decode(&raw).unwrap();
        prop_assert_eq!(&ds.encode()[..raw.len()], &raw[..]);
    }
}
