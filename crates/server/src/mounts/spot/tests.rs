//! Paths with links in them.

use crate::mounts::spot::*;
use std::os::unix::fs::symlink;

fn stand() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let real = std::fs::canonicalize(dir.path()).expect("it is there");
    (dir, real)
}

/// Goal: missing folders are created, but not what a link names. Links of this user are followed,
/// relative ones and `..` too. The resulting path has no link in it.
#[test]
fn found_and_made() {
    let (_dir, at) = stand();
    let made = find(&at.join("a/b")).expect("made");
    assert_eq!(made, Spot { path: at.join("a/b"), made: vec![at.join("a"), at.join("a/b")] });
    assert!(made.is_fresh());
    let found_again = find(&at.join("a/b")).expect("found");
    assert_eq!(found_again, Spot { path: at.join("a/b"), made: Vec::new() });
    assert!(!found_again.is_fresh());
    symlink(at.join("a"), at.join("absolute")).expect("a link");
    symlink("../a/../absolute/b", at.join("a/relative")).expect("a link");
    let found = find(&at.join("absolute/relative/c/../d")).expect("made");
    assert_eq!((&found.path, found.is_fresh()), (&at.join("a/b/d"), true));
    assert!(at.join("a/b/c").is_dir());
    std::fs::write(at.join("file"), "").expect("a file");
    let errno = |path: &str| find(&at.join(path)).expect_err(path).raw_os_error();
    assert_eq!(errno("file/x"), Some(Errno::NOTDIR.raw_os_error()));
    symlink("nowhere", at.join("lost")).expect("a link");
    assert_eq!(errno("lost/x"), Some(Errno::NOENT.raw_os_error()));
    symlink("ring", at.join("ring")).expect("a link");
    assert_eq!(errno("ring"), Some(Errno::LOOP.raw_os_error()));
}

/// Goal: a link of another user is not followed, wherever it is in the path. Only root can create
/// one.
#[test]
fn strangers_lead_nowhere() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_dir, at) = stand();
    std::fs::create_dir(at.join("etc")).expect("a folder");
    symlink(at.join("etc"), at.join("trap")).expect("a link");
    std::os::unix::fs::lchown(at.join("trap"), Some(61_003), None).expect("root may");
    for path in ["trap", "trap/deep"] {
        let errno = find(&at.join(path)).expect_err("a trap").raw_os_error();
        assert_eq!(errno, Some(Errno::LOOP.raw_os_error()), "{path}");
    }
    assert!(!at.join("etc/deep").exists());
}

/// Goal: after a failed mount, the folders created for it are removed. Others, and those that are
/// not empty, stay.
#[test]
fn undone_as_far_as_it_is_empty() {
    let (_dir, at) = stand();
    std::fs::create_dir(at.join("there")).expect("a folder");
    let spot = find(&at.join("there/a/b")).expect("made");
    spot.undo();
    assert_eq!(std::fs::read_dir(at.join("there")).expect("it was there").count(), 0);
    let spot = find(&at.join("there/a/b")).expect("made");
    std::fs::write(at.join("there/a/file"), "").expect("a file");
    spot.undo();
    assert!(at.join("there/a/file").exists() && !at.join("there/a/b").exists());
    find(&at.join("there/a")).expect("found").undo();
    assert!(at.join("there/a/file").exists());
}
