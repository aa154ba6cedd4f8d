use super::*;
use std::os::unix::fs::PermissionsExt;

/// Goal: output becomes columns: named ones, others under the script's name, and at least one.
#[test]
fn printed() {
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(columns("size", "size=4G\n\nmodel= x y \n"), [pair("size", "4G"), pair("model", "x y")]);
    assert_eq!(columns("media", "ssd\x1b\n"), [pair("media", "ssd")]);
    assert_eq!(columns("media", ""), [pair("media", "-")]);
    assert_eq!(columns("media", "media=\n"), [pair("media", "-")]);
}

/// Goal: scripts run for every device with its path, and a column is as wide as its values.
#[test]
fn run_for_devices() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("where");
    std::fs::write(&path, "#!/bin/sh\necho \"at=$VDEV_PATH\"\n").expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let scripts = Scripts { paths: vec![("where".to_owned(), path)] };
    let leaf = |guid: u64, path: &str| Vdev { guid, path: Some(path.to_owned()), ..Vdev::default() };
    let mut pool = Pool::default();
    pool.root.children = vec![leaf(1, "/dev/a"), leaf(2, "/dev/longer")];
    pool.spares = vec![leaf(3, "/dev/c")];
    let answers = scripts.run(&[pool]);
    assert_eq!(answers.columns, [("at".to_owned(), 11)]);
    assert_eq!(answers.values[&3]["at"], "/dev/c");
    assert_eq!(answers.values.len(), 3);
}
