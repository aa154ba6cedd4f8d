use super::*;

/// The primary header and the first entries of a disk that `zpool create` partitioned; the other
/// entries are zero.
const REAL: &[u8] = include_bytes!("../../tests/data/gpt-primary.bin");
const DISK: u64 = 100_663_296;

fn entries() -> Vec<u8> {
    let mut e = REAL[512..].to_vec();
    e.resize(128 * 128, 0);
    e
}

/// Goal: the decoder finds the one ZFS partition of a real table, and the location of the other
/// header.
#[test]
fn real_table() {
    let h = Header::decode(&REAL[..512], 512, DISK).unwrap();
    assert_eq!((h.entries_offset(), h.entries_len()), (1024, 16384));
    assert_eq!(h.other_offset(), backup_offset(512, DISK));
    let found = h.partitions(&entries()).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].is_zfs());
    assert_eq!((found[0].number, found[0].offset, &*found[0].name), (1, 1_048_576, "zfs-test"));
    assert_eq!(found[0].size, (0x2f7ff - 0x800 + 1) * 512);
}

/// Goal: the decoder detects each changed bit of the header and of the entries.
#[test]
fn damage_is_noticed() {
    for bit in 0..92 * 8 {
        let mut sector = REAL[..512].to_vec();
        sector[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&sector, 512, DISK).is_err(), "bit {bit}");
    }
    let h = Header::decode(&REAL[..512], 512, DISK).unwrap();
    let mut e = entries();
    e[9000] ^= 1;
    assert!(h.partitions(&e).is_err());
    assert!(h.partitions(&e[..100]).is_err());
}

/// Goal: a header that was copied to another sector is refused; one of a larger disk is refused or
/// loses its partitions.
#[test]
fn misplaced_tables() {
    assert!(Header::decode(&REAL[..512], 1024, DISK).is_err());
    let h = Header::decode(&REAL[..512], 512, 1 << 20).unwrap();
    assert_eq!(h.partitions(&entries()).unwrap(), []);
}

/// Goal: the largest accepted table has 16 MiB of entries, and the decoder refuses a header that
/// claims more.
#[test]
fn largest_table() {
    let header = |entries: u32, size: u32| {
        let mut sector = REAL[..512].to_vec();
        sector[80..84].copy_from_slice(&entries.to_le_bytes());
        sector[84..88].copy_from_slice(&size.to_le_bytes());
        sector[16..20].fill(0);
        let crc = Crc32::new().update(&sector[..HEADER_SIZE]).finish();
        sector[16..20].copy_from_slice(&crc.to_le_bytes());
        Header::decode(&sector, 512, DISK)
    };
    assert_eq!(header(MAX_ENTRIES, MAX_ENTRY_SIZE).unwrap().entries_len(), 1 << 24);
    assert!(header(MAX_ENTRIES + 1, 128).is_err());
    assert!(header(128, MAX_ENTRY_SIZE + 8).is_err());
}
