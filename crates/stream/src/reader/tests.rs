use ondisk::replay::{Begin, Free};

use super::*;
use crate::Writer;

const GUID: u64 = 7;

fn begin() -> Begin {
    let mut to_name = [0; 256];
    to_name[..9].copy_from_slice(b"tank/a@b\0");
    Begin {
        magic: BACKUP_MAGIC,
        version_info: 1 | 4 << 2,
        creation_time: 1,
        objset_type: 2,
        flags: 12,
        to_guid: GUID,
        from_guid: 0,
        to_name,
    }
}

/// A stream of three records, the first with a payload.
pub(crate) fn small(order: ByteOrder) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, order);
    writer.begin(&begin(), &[1; 64]).unwrap();
    let free = Free { object: 3, offset: 0, length: u64::MAX, to_guid: GUID };
    writer.write(&Record::Free(free), &[]).unwrap();
    writer.end(GUID).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Record>> {
    let mut reader = Reader::new(bytes);
    let mut records = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        records.push(packet.record);
    }
    Ok(records)
}

/// Goal: streams of both byte orders give the same records. Their sums differ, as names are not
/// numbers.
#[test]
fn both_byte_orders() {
    let little = read(&small(ByteOrder::Little)).unwrap();
    assert_eq!(little.len(), 3);
    assert_eq!(read(&small(ByteOrder::Big)).unwrap()[..2], little[..2]);
    let big = small(ByteOrder::Big);
    let mut reader = Reader::new(&big[..]);
    assert_eq!(reader.next_packet().unwrap().unwrap().payload, [1; 64]);
    assert_eq!(reader.position(), 64 + RECORD_SIZE as u64);
}

/// Goal: whichever byte changes behind the first record, the stream ends in an error, at the latest
/// with the next record. Without checksums it may go on.
#[test]
fn changed_bytes() {
    let whole = small(ByteOrder::Little);
    for at in RECORD_SIZE..2 * RECORD_SIZE + 64 {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert!(read(&bytes).is_err(), "byte {at}");
    }
    let mut bytes = whole;
    bytes[RECORD_SIZE] ^= 1;
    assert!(matches!(read(&bytes), Err(Error::Checksum { record: 1, at: 376, .. })));
    assert_eq!(Reader::unchecked(&bytes[..]).next_packet().unwrap().unwrap().payload[0], 0);
}

/// Goal: wherever a stream is cut, that is an error, except between records.
#[test]
fn cut_streams() {
    let whole = small(ByteOrder::Little);
    for len in 0..whole.len() {
        let cut = read(&whole[..len]);
        match len {
            ..RECORD_SIZE => assert!(matches!(cut, Err(Error::Empty { have }) if have == len)),
            376 | 688 => assert!(cut.is_ok()),
            376.. => assert!(matches!(cut, Err(Error::Truncated { record: 1 | 2, .. })), "{len}"),
            _ => assert!(matches!(cut, Err(Error::Truncated { record: 0, at: 0 })), "{len}"),
        }
    }
}

/// Goal: what is no stream is named, and a length without bytes takes no memory.
#[test]
fn no_streams() {
    assert!(matches!(read(&[0; 400]), Err(Error::Magic { found: 0 })));
    let mut bytes = small(ByteOrder::Little);
    bytes[4..8].copy_from_slice(&(60u32 << 20).to_le_bytes());
    let mut reader = Reader::new(&bytes[..]);
    assert!(matches!(reader.next_packet(), Err(Error::Truncated { record: 0, .. })));
    assert!(reader.payload.capacity() <= 4 << 20);
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(&bytes), Err(Error::Record { record: 0, .. })));
}
