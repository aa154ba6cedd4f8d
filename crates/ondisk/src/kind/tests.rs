use super::*;

/// Goal: each checksum function has its number and its name, and no other number has a function.
#[test]
fn checksums_have_their_numbers_and_names() {
    let names = [
        "inherit",
        "on",
        "off",
        "label",
        "gang_header",
        "zilog",
        "fletcher2",
        "fletcher4",
        "sha256",
        "zilog2",
        "noparity",
        "sha512",
        "skein",
        "edonr",
        "blake3",
    ];
    let found = (0..=u8::MAX).filter_map(|n| ChecksumKind::from_disk(n).ok());
    let found: Vec<_> = found.map(|kind| (kind as usize, kind.name())).collect();
    assert_eq!(found, names.into_iter().enumerate().collect::<Vec<_>>());
}

/// Goal: each compressor has its number and its name, and no other number has a compressor.
#[test]
fn compressors_have_their_numbers_and_names() {
    let names = [
        "inherit",
        "on",
        "uncompressed",
        "lzjb",
        "empty",
        "gzip-1",
        "gzip-2",
        "gzip-3",
        "gzip-4",
        "gzip-5",
        "gzip-6",
        "gzip-7",
        "gzip-8",
        "gzip-9",
        "zle",
        "lz4",
        "zstd",
    ];
    let found = (0..=u8::MAX).filter_map(|n| CompressKind::from_disk(n).ok());
    let found: Vec<_> = found.map(|kind| (kind as usize, kind.name())).collect();
    assert_eq!(found, names.into_iter().enumerate().collect::<Vec<_>>());
}

/// Goal: every byte that is a type has a byte swap, self-describing types included.
#[test]
fn types_have_a_byte_swap() {
    let types: Vec<DmuType> = (0..=u8::MAX).filter_map(|n| DmuType::from_disk(n).ok()).collect();
    assert_eq!(types.len(), TYPES.len() + 4 * 10);
    assert!(types.iter().all(|kind| kind.byteswap() as u8 <= ByteSwap::Acl as u8));
}
