use std::io;

use ondisk::ByteOrder;
use ondisk::replay::{Begin, CHECKSUM_AT, Free, features, stored_checksum};

use super::*;
use crate::check::check;
use crate::reader::tests::small;

/// Where the second record of a small stream begins: behind BEGIN and its list.
const SECOND: usize = RECORD_SIZE + 64;

fn rewritten(
    bytes: &[u8],
    change: impl FnMut(&Packet<'_>) -> Result<Change, Error>,
) -> crate::Result<Vec<u8>> {
    let mut out = Vec::new();
    rewrite(bytes, &mut out, change).map(|()| out)
}

/// Goal: records that stay do so to the byte, between their fields, too. Several streams behind one
/// another stay as well, each with its sums.
#[test]
fn records_stay() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = small(order).repeat(2);
        assert_eq!(rewritten(&bytes, |_| Ok(Change::Keep)).unwrap(), bytes);
        // Bytes 40 to 280 of a FREE have no field, and the length in its head means nothing.
        let mut padded = Vec::new();
        let mut writer = Writer::new(&mut padded, order);
        let mut reader = Reader::new(&bytes[..]);
        while let Some(packet) = reader.next_packet().unwrap() {
            let mut raw = *packet.raw;
            if matches!(packet.record, Record::Free(_)) {
                (raw[5], raw[100]) = (1, 1);
            }
            writer.copy(&raw, packet.payload).unwrap();
        }
        assert_ne!(padded, bytes);
        assert_eq!(rewritten(&padded, |_| Ok(Change::Keep)).unwrap(), padded);
    }
}

/// Goal: the records of an old sender, which have no checksums, get them. The END of a package
/// follows no stream, so the sum of one stays 0 there.
#[test]
fn checksums_are_added() {
    let order = ByteOrder::Little;
    let bytes = small(order);
    let mut old = bytes.clone();
    let end = old.len() - RECORD_SIZE;
    for record in [SECOND, end] {
        old[record + CHECKSUM_AT..record + RECORD_SIZE].fill(0);
    }
    // The sum of the whole stream counts the sums in the records, which were 0.
    let mut sum = codec::checksum::Fletcher4::new(order);
    sum.append(&old[..end]);
    for (word, to) in sum.finish().0.iter().zip(old[end + 8..].as_chunks_mut::<8>().0) {
        *to = word.to_le_bytes();
    }
    assert!(old != bytes && check(&old[..], drop).is_ok());
    assert_eq!(rewritten(&old, |_| Ok(Change::Keep)).unwrap(), bytes);

    let mut package = Vec::new();
    let mut writer = Writer::new(&mut package, order);
    let begin = Reader::new(&bytes[..]).next_packet().unwrap().unwrap().record;
    let Record::Begin(begin) = begin else { panic!("{begin:?}") };
    writer.begin(&Begin { version_info: 2, ..begin }, &[1; 8]).unwrap();
    writer.end(0).unwrap();
    package.extend(&bytes);
    // As libzfs ends a package: all zeros but for the type.
    package.extend([&[5, 0, 0, 0][..], &[0; RECORD_SIZE - 4]].concat());
    let out = rewritten(&package, |_| Ok(Change::Keep)).unwrap();
    assert!(check(&out[..], drop).is_ok());
    let last: &[u8; RECORD_SIZE] = out.last_chunk().unwrap();
    assert_eq!(last[8..CHECKSUM_AT], [0; CHECKSUM_AT - 8]);
    assert_ne!(stored_checksum(last, order), [0; 4]);
    assert_eq!(out[..out.len() - RECORD_SIZE], package[..package.len() - RECORD_SIZE]);
}

/// Goal: a record that is dropped or replaced leaves a whole stream. All else is as before.
#[test]
fn records_change() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = small(order);
        let dropped =
            rewritten(&bytes, |packet| Ok(if packet.number == 1 { Change::Drop } else { Change::Keep }));
        let dropped = dropped.unwrap();
        assert_eq!(dropped.len(), bytes.len() - RECORD_SIZE);
        check(&dropped[..], |one| assert_eq!(one.records, 2)).unwrap();
        let replaced = rewritten(&bytes, |packet| match packet.record {
            Record::Free(free) => {
                let raw = packet.with(&Record::Free(Free { length: 512, ..free }));
                Ok(Change::Replace { raw, payload: None })
            }
            _ => Ok(Change::Keep),
        });
        let replaced = replaced.unwrap();
        check(&replaced[..], |one| assert_eq!(one.records, 3)).unwrap();
        let differ = bytes.iter().zip(&replaced).enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at);
        let outside = |at: &usize| {
            let sums = SECOND + CHECKSUM_AT..bytes.len();
            !(SECOND + 24..SECOND + 32).contains(at) && !sums.contains(at)
        };
        assert_eq!(differ.filter(outside).count(), 0);
    }
}

/// Goal: no record comes out whose payload its readers would not find.
#[test]
fn payloads_fit() {
    let bytes = small(ByteOrder::Little);
    for payload in [vec![], vec![0; 60], vec![0; 68], vec![0; 63]] {
        let error = rewritten(&bytes, |packet| {
            Ok(Change::Replace { raw: packet.with(&packet.record), payload: Some(payload.clone()) })
        });
        assert!(matches!(error, Err(Error::Order { record: 0, at: 0, why }) if why.contains("want 64")));
    }
    let error = rewritten(&bytes, |packet| {
        let mut raw = packet.with(&packet.record);
        raw[0] = 99;
        Ok(Change::Replace { raw, payload: None })
    });
    assert!(matches!(error, Err(Error::Record { record: 0, .. })));
}

/// Goal: what [`check`] refuses is refused, and the output is no whole stream then; so is a sink
/// that fails, at the record that it does not take.
#[test]
fn spoiled_streams() {
    let bytes = small(ByteOrder::Little);
    let begin_twice = [&bytes[..SECOND], &bytes].concat();
    let mut unknown = bytes.clone();
    // The highest bit of the features.
    unknown[23] = 2;
    assert_eq!(features::KNOWN & 1 << 55, 0);
    for spoiled in [&begin_twice[..], &bytes[SECOND..], &bytes[..SECOND], &bytes[..SECOND + 1], &unknown, &[]]
    {
        let mut out = Vec::new();
        let kept = rewrite(spoiled, &mut out, |_| Ok::<_, Error>(Change::Keep));
        assert!(kept.is_err() && check(&out[..], drop).is_err());
    }
    let mut room = [0; RECORD_SIZE + 100];
    let sink: &mut [u8] = &mut room;
    let error = rewrite(&bytes[..], sink, |_| Ok::<_, Error>(Change::Keep)).unwrap_err();
    let Error::Write { record: 1, at: 376, source } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), io::ErrorKind::WriteZero);
}
