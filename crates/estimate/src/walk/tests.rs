//! What becomes of files that change after the walk.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use crate::{Compressor, Options};
use codec::compress::ZstdLevel;
use ondisk::CompressKind;
use std::fs::{create_dir, remove_file, rename, write};
use std::os::unix::fs::symlink;

#[derive(Default)]
struct Collected(Vec<File>);

impl Visitor for Collected {
    fn file(&mut self, _: &dyn Origin, file: File) -> bool {
        self.0.push(file);
        true
    }

    fn directory(&mut self, _: &File, _: Names) {}

    fn other(&mut self, _: &File, _: Other) {}

    fn end(&mut self, _: &dyn Origin) -> bool {
        true
    }
}

fn options() -> Options {
    let off = Compressor { name: "off".into(), kind: CompressKind::Off, level: ZstdLevel::DEFAULT };
    Options {
        records: vec![4096],
        compressors: vec![off],
        ashift: 9,
        sample: None,
        time: None,
        dedup: false,
        cross: false,
        seed: 1,
        threads: 1,
    }
}

/// Goal: a file that was replaced is not read: by a symbolic link, by another file, or below a
/// directory that became a link.
#[test]
fn replaced() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    create_dir(&tree).unwrap();
    create_dir(tree.join("d")).unwrap();
    write(dir.path().join("secret"), b"secret").unwrap();
    for name in ["link", "other", "d/below"] {
        write(tree.join(name), b"mine").unwrap();
    }
    let (mut found, mut failures) = (Collected::default(), Failures::default());
    let roots = Roots::open(std::slice::from_ref(&tree), false).unwrap();
    roots.walk(&mut found, &mut failures);
    let file = |name: &str| found.0.iter().find(|file| file.path == Path::new(name)).unwrap();
    assert!(["link", "other", "d/below"].iter().all(|name| open(&roots, file(name)).is_ok()));

    remove_file(tree.join("link")).unwrap();
    symlink(dir.path().join("secret"), tree.join("link")).unwrap();
    rename(dir.path().join("secret"), tree.join("other")).unwrap();
    rename(tree.join("d"), dir.path().join("moved")).unwrap();
    symlink(dir.path().join("moved"), tree.join("d")).unwrap();
    for name in ["link", "other", "d/below"] {
        assert!(open(&roots, file(name)).is_err(), "{name}");
    }
}

/// Goal: a file that can't be read whole is a failure with its name, and counts as nothing.
#[test]
fn shrunk() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path().join("short"), vec![1; 9000]).unwrap();
    let (mut found, mut failures) = (Collected::default(), Failures::default());
    let options = options();
    let roots = Roots::open(&[dir.path().to_owned()], false).unwrap();
    roots.walk(&mut found, &mut failures);
    write(dir.path().join("short"), vec![1; 10]).unwrap();
    let mut pass = crate::exact::Pass::new(&options, true, None, crate::Deadline::after(None));
    assert!(pass.file(&roots, found.0.remove(0)));
    pass.end(&roots);
    let measured = pass.finish(&mut failures).ok().unwrap().measured;
    assert_eq!((measured[0].data, failures.count), (0.0, 1));
    assert_eq!(failures.first[0].0, dir.path().join("short"));
}
