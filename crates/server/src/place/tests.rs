use super::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

/// A folder is made private, and one that others may enter, or that is a link, is refused.
#[test]
fn trusts_private_folders_only() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::at(&dir.path().join("deep/er"));
    place.prepare().unwrap();
    assert_eq!(std::fs::metadata(place.dir()).unwrap().mode() & 0o777, 0o700);
    std::fs::set_permissions(place.dir(), Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(place.check(), Err(PlaceError::Foreign { .. })));
    std::fs::set_permissions(place.dir(), Permissions::from_mode(0o700)).unwrap();
    place.check().unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(place.dir(), &link).unwrap();
    assert!(matches!(Place::at(&link).check(), Err(PlaceError::Foreign { .. })));
}

/// One daemon at a time; the place is free again when it goes.
#[test]
fn one_daemon_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::at(&dir.path().join("run"));
    place.prepare().unwrap();
    let first = place.lock_daemon().unwrap();
    assert!(first.is_some());
    assert!(place.lock_daemon().unwrap().is_none());
    drop(first);
    assert!(place.lock_daemon().unwrap().is_some());
}
