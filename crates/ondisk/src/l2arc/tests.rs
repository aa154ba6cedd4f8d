use super::*;
use crate::{Asize, Offset, VdevId};

fn entry(n: u64) -> LogEntry {
    LogEntry {
        dva: Dva { vdev: VdevId(3), offset: Offset(n << 9), asize: Asize(8192), gang: n % 2 == 1 },
        birth: Txg(1000 + n),
        daddr: (5 << 20) + n * 4096,
        lsize: Lsize(131_072),
        psize: Psize(4096 + n * 512),
        compress: CompressKind::Lz4,
        complevel: 0,
        metadata: n.is_multiple_of(3),
        protected: n.is_multiple_of(5),
        prefetch: false,
        again: n.is_multiple_of(2),
    }
}

fn pointer(daddr: u64) -> LogPointer {
    let sum = [1, 2, 3, daddr];
    LogPointer { daddr, payload_asize: 8192, payload_start: daddr - 8192, asize: 1024, packed: true, sum }
}

fn swapped(raw: &[u8]) -> Vec<u8> {
    let mut raw = raw.to_vec();
    swap64(&mut raw);
    raw
}

/// Goal: a header and a log block decode to what was encoded, in either byte order.
#[test]
fn both_orders_say_the_same() {
    let header = DevHeader {
        pool: Guid(11),
        vdev: Guid(12),
        log_entries: 62,
        evict: 9 << 20,
        first: true,
        start: (4 << 20) + 512,
        end: 60 << 20,
        newest: [pointer(8 << 20), LogPointer::default()],
        log_asize: 1024,
        log_count: 1,
        trim: [7, 3],
    };
    let raw = header.encode();
    assert_eq!(DevHeader::decode(&raw).unwrap(), header);
    assert_eq!(DevHeader::decode(&swapped(&raw)).unwrap(), header);
    let block = LogBlock { prev: pointer(7 << 20), entries: (0..1022).map(entry).collect() };
    let raw = block.encode();
    assert_eq!(LogBlock::decode(&raw, 1022).unwrap(), block);
    assert_eq!(LogBlock::decode(&swapped(&raw), 1022).unwrap(), block);
    // Bytes beyond the used entries are left from a larger log block.
    assert_eq!(LogBlock::decode(&raw, 3).unwrap().entries.len(), 3);
}

/// Goal: the decoder refuses what no writer makes, and names the field.
#[test]
fn nonsense_is_refused() {
    let header = DevHeader { log_entries: 1023, ..DevHeader::default() };
    assert!(matches!(DevHeader::decode(&header.encode()), Err(Corrupt::Range { field: "log entries", .. })));
    assert!(matches!(DevHeader::decode(&[0; 512]), Err(Corrupt::Magic { .. })));
    assert!(matches!(DevHeader::decode(&[0; 511]), Err(Corrupt::Truncated { .. })));
    let too_large = LogPointer { asize: 1 << 17, ..pointer(8 << 20) };
    let header = DevHeader { newest: [too_large; 2], ..DevHeader::default() };
    assert!(matches!(DevHeader::decode(&header.encode()), Err(Corrupt::Range { field: "asize", .. })));
    let short = LogBlock::default().encode();
    assert!(matches!(LogBlock::decode(&short[..1024], 1), Err(Corrupt::Truncated { .. })));
}
