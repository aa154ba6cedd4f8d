//! Trees that are meant to harm.

use crate::{options, run};
use estimate::{Error, estimate};
use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat};
use std::fs::{create_dir, create_dir_all, hard_link, write};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Goal: symbolic links are counted and not followed, also as an argument. Fifos are not opened.
#[test]
fn links_and_fifos() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
    create_dir(&tree).unwrap();
    create_dir(&outside).unwrap();
    write(outside.join("large"), vec![1; 100_000]).unwrap();
    symlink(&outside, tree.join("folder")).unwrap();
    symlink(outside.join("large"), tree.join("file")).unwrap();
    mknodat(CWD, tree.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    write(tree.join("own"), b"x").unwrap();
    let report = run(&tree, &options(&[4096], &["off"], 9));
    let found = &report.walked;
    assert_eq!((found.files, found.directories, found.others, found.bytes), (1, 1, 3, 1));
    for path in ["tree/folder", "tree/folder/"] {
        let end = estimate(&[dir.path().join(path)], &options(&[4096], &["off"], 9));
        assert!(matches!(end, Err(Error::Directory { .. })), "{path}: {end:?}");
    }
}

/// Goal: what is reached in two ways counts once: by two names, and below two arguments.
#[test]
fn once() {
    let dir = tempfile::tempdir().unwrap();
    create_dir_all(dir.path().join("a/b")).unwrap();
    write(dir.path().join("a/b/file"), vec![7; 5000]).unwrap();
    hard_link(dir.path().join("a/b/file"), dir.path().join("a/other")).unwrap();
    let all = options(&[4096], &["off", "lz4"], 9);
    let one = run(dir.path(), &all);
    assert_eq!((one.walked.files, one.walked.bytes), (1, 5000));
    let roots: Vec<PathBuf> = ["", "a/b", "a", "a/../a"].map(|path| dir.path().join(path)).into();
    let many = estimate(&roots, &all).unwrap();
    assert_eq!(many.walked, one.walked);
}

/// Goal: a path that is longer than a system call takes is no obstacle, and names are bytes.
#[test]
fn deep() {
    let dir = tempfile::tempdir().unwrap();
    let name = [0xff; 200];
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut fd = openat(CWD, dir.path(), flags, Mode::empty()).unwrap();
    for _ in 0..60 {
        mkdirat(&fd, &name[..], Mode::RWXU).unwrap();
        fd = openat(&fd, &name[..], flags, Mode::empty()).unwrap();
    }
    let made = openat(&fd, "end", OFlags::WRONLY | OFlags::CREATE, Mode::RWXU).unwrap();
    rustix::io::write(&made, &[9; 3000]).unwrap();
    let report = run(dir.path(), &options(&[4096], &["off"], 9));
    assert_eq!((report.walked.files, report.walked.directories, report.failures.count), (1, 61, 0));
    assert_eq!(report.rows[0].size - report.rows[0].metadata, 3072);
}

/// Goal: options that no pool can have are refused.
#[test]
fn options_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |records: &[u32], compressors: &[&str], ashift| {
        estimate(&[dir.path().to_owned()], &options(records, compressors, ashift)).unwrap_err()
    };
    for size in [0, 512, 5000, 32 << 20] {
        assert!(matches!(refused(&[size], &["off"], 12), Error::RecordSize { .. }));
    }
    assert!(matches!(refused(&[4096], &["off"], 8), Error::Ashift { .. }));
    assert!(matches!(refused(&[4096], &["off"], 17), Error::Ashift { .. }));
    assert!(matches!(refused(&[], &["off"], 12), Error::Columns));
    assert!(matches!(refused(&[4096], &[], 12), Error::Columns));
    assert!(matches!(refused(&[4096; 17], &["off"], 12), Error::Columns));
}
