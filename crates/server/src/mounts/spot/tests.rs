//! Paths with links in them.

use super::*;
use std::os::unix::fs::symlink;

fn stand() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let real = std::fs::canonicalize(dir.path()).expect("it is there");
    (dir, real)
}

/// Goal: what is missing is made, but not what a link names; links of one's own lead where they say, relative ones and `..` too; what comes out has no link in it.
#[test]
fn found_and_made() {
    let (_dir, at) = stand();
    assert_eq!(find(&at.join("a/b")).expect("made"), Spot { path: at.join("a/b"), fresh: true });
    assert_eq!(find(&at.join("a/b")).expect("found"), Spot { path: at.join("a/b"), fresh: false });
    symlink(at.join("a"), at.join("absolute")).expect("a link");
    symlink("../a/../absolute/b", at.join("a/relative")).expect("a link");
    let found = find(&at.join("absolute/relative/c/../d")).expect("made");
    assert_eq!(found, Spot { path: at.join("a/b/d"), fresh: true });
    assert!(at.join("a/b/c").is_dir());
    std::fs::write(at.join("file"), "").expect("a file");
    let errno = |path: &str| find(&at.join(path)).expect_err(path).raw_os_error();
    assert_eq!(errno("file/x"), Some(Errno::NOTDIR.raw_os_error()));
    symlink("nowhere", at.join("lost")).expect("a link");
    assert_eq!(errno("lost/x"), Some(Errno::NOENT.raw_os_error()));
    symlink("ring", at.join("ring")).expect("a link");
    assert_eq!(errno("ring"), Some(Errno::LOOP.raw_os_error()));
}

/// Goal: a link that is somebody else's is not followed, wherever it stands in the path. Only root can make one.
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
