use super::*;

/// A record of sfdisk: two partitions, and a container of logical partitions.
const REAL: &str = "0020210083490108000800000000020080490208a59a02180008020000000400009a031805445041000806\
                    0000f8090000000000000000000000000000000000";

fn record() -> Vec<u8> {
    let mut sector = vec![0; SECTOR as usize];
    for (byte, hex) in sector[ENTRIES..].iter_mut().zip(REAL.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// Goal: a real record decodes to its entries, each at its index and with its kind.
#[test]
fn real_record() {
    let [first, second, container, none] = decode(&record()).unwrap();
    let entry =
        |kind, first: u64, sectors: u64| Some(Entry { kind, offset: first * 512, size: sectors * 512 });
    assert_eq!(first, entry(0x83, 2048, 131_072));
    assert_eq!(second, entry(0xa5, 133_120, 262_144));
    assert_eq!(container, entry(5, 395_264, 653_312));
    assert_eq!(none, None);
    assert!(container.unwrap().is_extended() && !first.unwrap().is_extended());
}

/// Goal: the record before a GUID partition table says so, and other sectors are refused.
#[test]
fn other_sectors() {
    let mut guarded = record();
    guarded[ENTRIES + 4] = 0xee;
    assert!(decode(&guarded).unwrap()[0].unwrap().is_protective());
    assert!(matches!(decode(&[0; 512]), Err(Corrupt::Magic { .. })));
    assert!(matches!(decode(&record()[..511]), Err(Corrupt::Truncated { .. })));
    // The code of a FAT boot sector extends to where a record has its entries.
    let mut code = record();
    code[ENTRIES + ENTRY_SIZE] = 0x66;
    assert!(matches!(decode(&code), Err(Corrupt::Range { field: "flag", .. })));
}
