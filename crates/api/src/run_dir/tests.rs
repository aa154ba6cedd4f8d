use super::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

/// Goal: a folder is created private. One that others may enter, or a symbolic link, is refused.
#[test]
fn trusts_private_folders_only() {
    let dir = tempfile::tempdir().unwrap();
    let place = RunDir::at(&dir.path().join("deep/er"));
    place.prepare().unwrap();
    assert_eq!(std::fs::metadata(place.dir()).unwrap().mode() & 0o777, 0o700);
    std::fs::set_permissions(place.dir(), Permissions::from_mode(0o755)).unwrap();
    let open = place.check().unwrap_err();
    assert!(matches!(open, RunDirError::Open { mode: 0o755, wanted: 0o700, .. }));
    assert!(open.to_string().ends_with(&format!("is 0755; `chmod 700 {}`", place.dir().display())));
    std::fs::set_permissions(place.dir(), Permissions::from_mode(0o700)).unwrap();
    place.check().unwrap();
    // A folder of root's is foreign to another user, and the reverse.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(place.dir(), Some(7), None).unwrap();
        let foreign = place.check().unwrap_err().to_string();
        assert!(foreign.ends_with("belongs to user 7, and not to user 0"), "{foreign}");
        std::os::unix::fs::chown(place.dir(), Some(0), None).unwrap();
    }
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(place.dir(), &link).unwrap();
    assert!(matches!(RunDir::at(&link).check(), Err(RunDirError::NoFolder { .. })));
}

/// Goal: there is one daemon at a time. The folder is free again when it ends.
#[test]
fn one_daemon_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let place = RunDir::at(&dir.path().join("run"));
    place.prepare().unwrap();
    let first = place.lock_daemon().unwrap();
    assert!(first.is_some());
    assert!(place.lock_daemon().unwrap().is_none());
    drop(first);
    assert!(place.lock_daemon().unwrap().is_some());
}
