use ondisk::ByteOrder;
use ondisk::replay::CHECKSUM_AT;
use testkit::find;

use super::*;
use crate::reader::tests::small;

/// Length of the list behind the BEGIN of a small stream.
const LIST: usize = 64;

fn checked(bytes: &[u8]) -> Result<Vec<Checked>> {
    let mut all = Vec::new();
    check(bytes, |one| all.push(one))?;
    Ok(all)
}

/// Goal: each stream that OpenZFS's kernel module made is whole, and its size is accounted for.
#[test]
fn real_streams() {
    let Some(pool) = find("send-src") else { return };
    let names = pool.streams();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let bytes = pool.stream(&format!("{name}.zsend")).unwrap();
        let all = checked(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let sum: u64 = all.iter().map(|one| one.bytes).sum();
        assert!(!all.is_empty() && sum <= bytes.len() as u64 && sum > bytes.len() as u64 / 2, "{name}");
        assert!(all.iter().all(|one| one.name.contains(&b'@')), "{name}: {all:?}");
    }
}

/// Goal: a stream whose tail is missing, doubled or another's is refused, and so is one with a
/// changed byte, wherever that is.
#[test]
fn spoiled_streams() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = small(order);
        assert_eq!(checked(&[&bytes[..], &bytes].concat()).unwrap().len(), 2);
        let end = bytes.len() - RECORD_SIZE;
        assert!(matches!(checked(&bytes[..end]), Err(Error::Truncated { .. })));
        let two_ends = [&bytes[..], &bytes[end..]].concat();
        assert!(matches!(checked(&two_ends), Err(Error::Checksum { .. })));
        let two_begins = [&bytes[..RECORD_SIZE + LIST], &bytes].concat();
        assert!(matches!(checked(&two_begins), Err(Error::Order { .. })));
        for at in 0..bytes.len() {
            let mut spoiled = bytes.clone();
            spoiled[at] ^= 0x40;
            assert!(checked(&spoiled).is_err(), "byte {at}");
        }
    }
}

/// Goal: records without checksums, as old senders write them, still have to agree with the sum of
/// the whole stream.
#[test]
fn without_sums_in_records() {
    let mut bytes = small(ByteOrder::Little);
    let end = bytes.len() - RECORD_SIZE;
    for record in [RECORD_SIZE + LIST, end] {
        bytes[record + CHECKSUM_AT..record + RECORD_SIZE].fill(0);
    }
    assert!(matches!(checked(&bytes), Err(Error::Order { why, .. }) if why.contains("whole stream")));
}
