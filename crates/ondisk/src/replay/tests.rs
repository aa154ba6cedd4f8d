use proptest::prelude::*;

use super::*;

proptest! {
    /// Goal: a record that is decoded is encoded as it was, but for its padding.
    #[test]
    fn records_come_back(kind in 0..Record::TYPES, bytes in any::<[[u8; 24]; 13]>()) {
        let mut raw: [u8; RECORD_SIZE] = bytes.concat().try_into().unwrap();
        raw[..4].copy_from_slice(&kind.to_le_bytes());
        let record = Record::decode(&raw, ByteOrder::Little).unwrap();
        prop_assert_eq!(record.number(), kind);
        let list = list_length(&raw, ByteOrder::Little);
        let big = record.encode(list, ByteOrder::Big);
        prop_assert_eq!(Record::decode(&big, ByteOrder::Big).unwrap(), record);
        let again = record.encode(list, ByteOrder::Little);
        prop_assert_eq!(Record::decode(&again, ByteOrder::Little).unwrap(), record);
        let differ = raw.iter().zip(&again).filter(|(a, b)| a != b && **b != 0).count();
        prop_assert_eq!(differ, 0, "what is not padding is kept");
    }

    /// Goal: no record has a payload that no block can have.
    #[test]
    fn payloads_have_a_limit(kind in 0..Record::TYPES, bytes in any::<[[u8; 24]; 13]>(), list: u32) {
        let mut raw: [u8; RECORD_SIZE] = bytes.concat().try_into().unwrap();
        raw[..4].copy_from_slice(&kind.to_le_bytes());
        if let Ok(size) = Record::decode(&raw, ByteOrder::Big).map_or(Ok(0), |r| r.payload_size(list)) {
            prop_assert!(size as u64 <= MAX_LIST && size.is_multiple_of(4));
        }
    }
}

/// Goal: an unknown type is named.
#[test]
fn unknown_types() {
    let mut raw = [0; RECORD_SIZE];
    raw[0] = 11;
    let error = Record::decode(&raw, ByteOrder::Little).unwrap_err();
    assert_eq!(error.to_string(), "stream record: type is 11, which is out of range");
}
