use std::io::IoSliceMut;

use ondisk::replay::{Begin, Free, Spill};

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
    assert!((1..=4 << 20).contains(&reader.payload.len()));
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(&bytes), Err(Error::Record { record: 0, .. })));
}

/// A source that counts its reads, which have at most `most` bytes.
struct Counted<'a> {
    left: &'a [u8],
    most: usize,
    reads: usize,
}

impl Read for Counted<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> std::io::Result<usize> {
        self.reads += 1;
        let mut now = &self.left[..self.left.len().min(self.most)];
        let read = now.read_vectored(parts)?;
        self.left = &self.left[read..];
        Ok(read)
    }
}

/// A stream of ten blocks, with another stream behind it. Also the length of the first.
fn blocks() -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, ByteOrder::Little);
    writer.begin(&begin(), &[1; 64]).unwrap();
    for block in 0..10u64 {
        let spill = Spill {
            object: block + 1,
            length: 4096,
            to_guid: GUID,
            flags: 0,
            compression: 0,
            compressed_size: 0,
            crypt: Default::default(),
            kind: 0,
        };
        writer.write(&Record::Spill(spill), &vec![block as u8; 4096]).unwrap();
    }
    writer.end(GUID).unwrap();
    let length = bytes.len();
    bytes.extend(small(ByteOrder::Little));
    (bytes, length)
}

/// Goal: a payload and the record behind it are one read. Nothing is read behind BEGIN's list
/// before the next record is requested, and nothing behind END.
#[test]
fn reads_are_few_and_end_with_the_stream() {
    let (bytes, length) = blocks();
    let source = Counted { left: &bytes, most: usize::MAX, reads: 0 };
    let mut reader = Reader::new(source);
    reader.next_packet().unwrap().unwrap();
    assert_eq!(bytes.len() - reader.source.left.len(), RECORD_SIZE + 64);
    let mut blocks = 0;
    loop {
        let packet = reader.next_packet().unwrap().unwrap();
        match packet.record {
            Record::Spill(spill) => {
                assert!(packet.payload.iter().all(|byte| u64::from(*byte) == spill.object - 1));
                blocks += 1;
            }
            Record::End(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((blocks, reader.position()), (10, length as u64));
    assert_eq!(bytes.len() - reader.source.left.len(), length);
    // BEGIN, its list, the first record, and each block with the record behind it.
    assert_eq!(reader.source.reads, 3 + 10);
}

/// Goal: however short the reads are, the records are the same. A stream that ends within a record
/// that was read with a payload ends in the same error.
#[test]
fn short_reads() {
    let (bytes, length) = blocks();
    let all = |bytes: &[u8], most| {
        let mut reader = Reader::new(Counted { left: bytes, most, reads: 0 });
        let mut records = Vec::new();
        loop {
            match reader.next_packet() {
                Ok(Some(packet)) => records.push((packet.record, packet.payload.to_vec())),
                Ok(None) => return Ok(records),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    let whole = all(&bytes, usize::MAX).unwrap();
    for most in [1, 7, 311, 313, 4096, 4400, 5000] {
        assert!(all(&bytes, most).unwrap() == whole, "{most}");
    }
    let cut = length - 100;
    for most in [1, 313, usize::MAX] {
        let want = format!("the stream ends inside record 11, which begins at byte {}", length - RECORD_SIZE);
        assert_eq!(all(&bytes[..cut], most).unwrap_err(), want);
    }
}
