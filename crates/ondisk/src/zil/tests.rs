use super::*;

fn words_of(w: &[u64]) -> Vec<u8> {
    w.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn create_record() -> Vec<u8> {
    // TX_CREATE as `zdb -iiii` shows it for a real pool: doid 34, foid 130, mode 100644, name new-small.
    let mut raw = words_of(&[1, 120, 59, 54, 34, 130, 0o100644, 0, 0, 59, 1795291528, 0, 0]);
    raw.extend(b"new-small\0");
    raw.resize(120, 0);
    raw
}

/// A create record yields its names and numbers.
#[test]
fn create_decodes() {
    let records: Vec<_> = Records::new(&create_record(), false).collect::<Result<_>>().unwrap();
    let RecordBody::Create(c) = &records[0].body else { panic!("{records:?}") };
    assert_eq!((c.doid, c.foid.object, c.foid.slots, c.name.as_slice()), (34, 130, 1, &b"new-small"[..]));
}

/// A record of the other byte order, after its words were swapped, yields the same names and numbers.
#[test]
fn foreign_names_are_swapped_back() {
    let mut raw = create_record();
    crate::bytes::swap64(&mut raw[104..]);
    let got = Record::decode(&raw, true).unwrap();
    assert_eq!(got, Record::decode(&create_record(), false).unwrap());
}

/// Every type number of OpenZFS 2.3 decodes and no other.
#[test]
fn kinds_are_complete() {
    assert_eq!(TxKind::ALL.len(), 25);
    for (i, k) in TxKind::ALL.iter().enumerate() {
        assert_eq!(TxKind::from_disk(i as u64).unwrap(), *k);
    }
    assert!(TxKind::from_disk(25).is_err());
}

proptest::proptest! {
    /// Arbitrary bytes never panic the record walker, and it ends.
    #[test]
    fn records_survive_anything(mut raw in proptest::collection::vec(proptest::num::u8::ANY, 0..700), kind in 0u64..26, foreign: bool) {
        if raw.len() >= 32 {
            raw[..8].copy_from_slice(&kind.to_le_bytes());
            let len = (raw.len() as u64) & !7;
            raw[8..16].copy_from_slice(&len.to_le_bytes());
        }
        for r in Records::new(&raw, foreign).take(100) {
            let _ = r;
        }
        let _ = ZilChain::decode(ChecksumKind::Zilog2, &raw);
        let _ = ZilChain::decode(ChecksumKind::Zilog, &raw);
        let _ = ZilHeader::decode(&raw);
    }
}
