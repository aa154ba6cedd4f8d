use super::*;
use crate::label::Labels;
use device::{FileDevice, MemDevice, Mode};

/// Goal: every label and uberblock of OpenZFS is the same, byte for byte, when it is rewritten.
#[test]
fn real_labels_are_rewritten_to_the_byte() {
    for name in ["single-lz4", "raidz3-7", "draid1", "whole-disk-gpt"] {
        let Some(fixture) = testkit::find(name) else { continue };
        let real = FileDevice::open(&fixture.images()[0], Mode::Peek).unwrap();
        let labels = Labels::new(&real);
        let Ok(config) = labels.config(0) else { continue };
        let shift = config.list("vdev_tree").and_then(|t| t.u64("ashift")).unwrap().max(10) as u8;
        let ours = MemDevice::new("ours", real.size());
        let writer = LabelWriter::new(&ours);
        for label in 0..LABELS {
            writer.config(label, &labels.config(label).unwrap()).unwrap();
            let ring = labels.uberblocks(label, shift).unwrap();
            assert!(!ring.is_empty());
            for (slot, uberblock) in ring {
                writer.uberblock(label, shift, slot, &uberblock).unwrap();
                let at = label_offset(real.size(), label).unwrap() + uberblock_offset(shift, slot);
                assert_eq!(read(&ours, at, 1 << shift), read(&real, at, 1 << shift), "{name} {label} {slot}");
            }
            let at = label_offset(real.size(), label).unwrap() + PHYS_OFFSET;
            assert_eq!(read(&ours, at, PHYS_SIZE), read(&real, at, PHYS_SIZE), "{name} label {label}");
        }
    }
}

fn read(device: &dyn Device, at: u64, len: u64) -> Vec<u8> {
    let mut buf = vec![0; len as usize];
    device.read_at(&mut buf, at).unwrap();
    buf
}

/// Goal: a config that is too large for a label is refused, and nothing is written.
#[test]
fn a_config_must_fit() {
    let device = MemDevice::new("d", 64 << 20);
    let mut config = Nvlist::new();
    config.set("comment", ondisk::Value::String(vec![b'x'; PHYS_SIZE as usize]));
    let refused = LabelWriter::new(&device).config(0, &config);
    assert!(matches!(refused, Err(LabelWriteError::TooLarge { .. })));
    let mut config = Nvlist::new();
    config.set("comment", ondisk::Value::String(vec![b'x'; PHYS_SIZE as usize - 4096]));
    let writer = LabelWriter::new(&device);
    writer.check(&config, 1024).unwrap();
    assert!(matches!(writer.check(&config, 8192), Err(LabelWriteError::TooLarge { .. })));
    assert!(read(&device, 0, 256 << 10).iter().all(|b| *b == 0));
}

/// Goal: cleared rings hold no uberblocks, and a wiped device has no label, but keeps what stands
/// before it.
#[test]
fn cleared_and_wiped() {
    let device = MemDevice::new("d", 64 << 20);
    let writer = LabelWriter::new(&device);
    let mut config = Nvlist::new();
    config.set("txg", ondisk::Value::Uint64(1));
    writer.config(3, &config).unwrap();
    writer.clear_rings().unwrap();
    assert_eq!(Labels::new(&device).uberblocks(3, 10).unwrap(), []);
    assert_eq!(Labels::new(&device).config(3).unwrap(), config);
    let start = ondisk::label::label_offset(64 << 20, 3).unwrap();
    device.write_at(&[7; 512], start + 1024).unwrap();
    writer.wipe(3).unwrap();
    assert!(Labels::new(&device).config(3).is_err());
    assert_eq!(read(&device, start + 1024, 512), [7; 512]);
}

/// Goal: a ring that is copied elsewhere has there the slots that were valid, byte for byte, with
/// the checksums of the new place. It has nothing else, whatever was there.
#[test]
fn a_ring_elsewhere() {
    let Some(fixture) = testkit::find("single-lz4") else { return };
    let real = FileDevice::open(&fixture.images()[0], Mode::Peek).unwrap();
    let labels = Labels::new(&real);
    let shift =
        labels.config(0).unwrap().list("vdev_tree").and_then(|t| t.u64("ashift")).unwrap().max(10) as u8;
    let ours = MemDevice::new("ours", real.size() + (64 << 20));
    let writer = LabelWriter::new(&ours);
    let size = 1usize << shift;
    for label in 2..LABELS {
        let start = label_offset(ours.size(), label).unwrap();
        ours.write_at(&vec![7; RING_SIZE as usize], start + RING_OFFSET).unwrap();
        writer.ring(label, &labels.ring(0, shift).unwrap()).unwrap();
        let there = labels.uberblocks(0, shift).unwrap();
        assert!(!there.is_empty());
        assert_eq!(Labels::new(&ours).uberblocks(label, shift).unwrap(), there);
        for slot in 0..(RING_SIZE as usize >> shift) {
            let at = uberblock_offset(shift, slot);
            let (is, was) = (read(&ours, start + at, size as u64), read(&real, at, size as u64));
            let used = there.iter().any(|(one, _)| *one == slot);
            assert_eq!(
                is[..size - ECK_SIZE],
                if used { was } else { vec![0; size] }[..size - ECK_SIZE],
                "{slot}"
            );
        }
    }
}
