//! Changes to the labels of an image, under right checksums.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use codec::checksum::embedded::{Verifier, seal};
use ondisk::label::{LABELS, PHYS_OFFSET, PHYS_SIZE, RING_OFFSET, RING_SIZE, label_offset};
use ondisk::{Nvlist, Uberblock};

/// Size of an uberblock slot in bytes, on a device with small sectors.
const SLOT: usize = 1024;

fn open(image: &Path) -> (File, u64) {
    let file = File::options().read(true).write(true).open(image).expect("the copy is ours");
    let size = file.metadata().expect("it is open").len();
    (file, size)
}

/// Changes a part of a label, and sets its checksum.
fn rewrite(file: &File, offset: u64, len: usize, change: impl FnOnce(&mut Vec<u8>)) {
    let mut part = vec![0; len];
    file.read_exact_at(&mut part, offset).expect("it is on the device");
    change(&mut part);
    seal(&Verifier::Label { offset }, &mut part, None).expect("it has room for a checksum");
    file.write_all_at(&part, offset).expect("the copy is ours");
}

/// Changes the config in each label of an image.
///
/// # Panics
/// The image can't be read or written, or a label is invalid.
pub fn relabel(image: &Path, change: impl Fn(&mut Nvlist)) {
    let (file, size) = open(image);
    for label in 0..LABELS {
        let offset = label_offset(size, label).expect("a pool's device has room for labels") + PHYS_OFFSET;
        rewrite(&file, offset, PHYS_SIZE as usize, |part| {
            let mut nv = Nvlist::decode(part).expect("OpenZFS wrote it");
            change(&mut nv);
            let packed = nv.encode_xdr();
            part.fill(0);
            part[..packed.len()].copy_from_slice(&packed);
        });
    }
}

/// Sets the multihost fields of all uberblocks of an image with small sectors, as an owner with
/// `multihost=on` would.
///
/// # Panics
/// The image can't be read or written.
pub fn protect(image: &Path, delay_ns: u64, config: u64) {
    let (file, size) = open(image);
    for label in 0..LABELS {
        let ring = label_offset(size, label).expect("a pool's device has room for labels") + RING_OFFSET;
        for offset in (ring..ring + RING_SIZE).step_by(SLOT) {
            let mut slot = vec![0; SLOT];
            file.read_exact_at(&mut slot, offset).expect("it is on the device");
            if Uberblock::decode(&slot).is_ok() {
                rewrite(&file, offset, SLOT, |part| {
                    part[184..192].copy_from_slice(&delay_ns.to_le_bytes());
                    part[192..200].copy_from_slice(&config.to_le_bytes());
                });
            }
        }
    }
}
