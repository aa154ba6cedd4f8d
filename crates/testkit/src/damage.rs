//! Damage: the parts of the images of a damaged fixture that were overwritten.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::copy::copy_sparse;
use crate::fixture::Fixture;

/// Offset and length in the image, and the offset of the bytes in `damage.bin` (-1: zeros).
type Patch = (u64, u64, i64);

/// Writes the damaged images of `base` into `to`. `dir` has the description of the damage.
pub(crate) fn apply(dir: &Path, base: &Fixture, to: &Path) {
    let read = |n: &str| fs::read(dir.join(n)).unwrap_or_else(|e| panic!("{}/{n}: {e}", dir.display()));
    let bytes = read("damage.bin");
    let damage: BTreeMap<String, Vec<Patch>> =
        serde_json::from_slice(&read("damage.json")).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for (image, patches) in damage {
        let from = base
            .images()
            .iter()
            .find(|p| p.ends_with(&image))
            .unwrap_or_else(|| panic!("{}: {image} is no image of {}", dir.display(), base.name()));
        let path = to.join(&image);
        copy_sparse(from, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = OpenOptions::new().write(true).open(&path).expect("just written");
        for (offset, len, at) in patches {
            let zeros;
            let data = match usize::try_from(at) {
                Ok(at) => &bytes[at..at + len as usize],
                Err(_) => {
                    zeros = vec![0; len as usize];
                    &zeros
                }
            };
            file.write_all_at(data, offset).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}
