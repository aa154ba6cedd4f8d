use std::io::Write as _;

use ondisk::replay::{Crypt, Free, Write};

use super::*;

const WRITE: Write = Write {
    object: 3,
    kind: 19,
    offset: 512,
    logical_size: 8,
    to_guid: 7,
    checksum_type: 7,
    flags: 0,
    compression: 0,
    key_checksum: [0; 4],
    key_prop: 0,
    compressed_size: 0,
    crypt: Crypt { salt: [1; 8], iv: [2; 12], mac: [3; 16] },
};

/// Resolves a reference to the block of `WRITE` in a file that has these bytes by then.
fn resolved(bytes: &[u8]) -> Result<Change, Why> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut blocks = Blocks::default();
    blocks.insert((7, 3, 512), 0);
    let reference = WriteByRef {
        object: 4,
        offset: 1024,
        length: 8,
        to_guid: 9,
        ref_guid: 7,
        ref_object: 3,
        ref_offset: 512,
        checksum_type: 7,
        flags: 0,
        key_checksum: [0; 4],
        key_prop: 0,
    };
    blocks.resolve(&file, ByteOrder::Little, &reference)
}

/// Goal: a reference becomes the record that it means, with its own snapshot, object and offset.
#[test]
fn a_reference_in_full() {
    let record = |write: Write| Record::Write(write).encode(0, ByteOrder::Little);
    let Change::Replace { raw, payload } = resolved(&[&record(WRITE)[..], &[6; 8]].concat()).unwrap() else {
        panic!("no replacement");
    };
    assert_eq!(*raw, record(Write { to_guid: 9, object: 4, offset: 1024, ..WRITE }));
    assert_eq!(payload.unwrap(), [6; 8]);
}

/// Goal: if the file changes while it is read, its other record is not taken for the block.
#[test]
fn a_file_that_changes() {
    let free = Record::Free(Free { object: 3, offset: 512, length: 8, to_guid: 7 });
    for other in [
        free,
        Record::Write(Write { object: 4, ..WRITE }),
        Record::Write(Write { offset: 0, ..WRITE }),
        Record::Write(Write { to_guid: 8, ..WRITE }),
        Record::Write(Write { logical_size: u64::MAX, ..WRITE }),
    ] {
        let bytes = [&other.encode(0, ByteOrder::Little)[..], &[6; 8]].concat();
        assert!(matches!(resolved(&bytes), Err(Why::Changed(0))), "{other:?}");
    }
    let bytes = [&Record::Write(WRITE).encode(0, ByteOrder::Little)[..], &[6; 4]].concat();
    for len in [bytes.len(), 100] {
        let error = resolved(&bytes[..len]).unwrap_err();
        assert_eq!(error.to_string(), "Error while reading file: short read");
    }
}
