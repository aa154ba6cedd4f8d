use super::contents;
use device::{Device, FileDevice, Mode};
use ondisk::label::{LABELS, RING_OFFSET, label_offset};

const SIZE: u64 = 64 << 20;

/// Goal: the mark of a file system is found, unless the device also has four uberblocks of either
/// byte order.
#[test]
fn two_kinds_of_contents_are_none() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let device = FileDevice::open(file.path(), Mode::Write).unwrap();
    assert_eq!(contents(&device), None);
    device.write_at(&[0x53, 0xef], 0x438).unwrap();
    assert_eq!(contents(&device), Some("ext2"));
    let magic = ondisk::uberblock::UBERBLOCK_MAGIC;
    for label in 0..LABELS {
        assert_eq!(contents(&device), Some("ext2"), "{label} uberblocks");
        let at = label_offset(SIZE, label).unwrap() + RING_OFFSET + 1024 * label as u64;
        let bytes = if label % 2 == 0 { magic.to_le_bytes() } else { magic.to_be_bytes() };
        device.write_at(&bytes, at).unwrap();
    }
    assert_eq!(contents(&device), None);
}
