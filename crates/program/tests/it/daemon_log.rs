//! The log of a daemon that a command starts.

use crate::daemon::{command, image, said};

/// Goal: a daemon that a command starts in the background keeps its messages in the file `log` of
/// its folder. That includes those after it has reported that it is ready.
#[test]
fn messages_are_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = dir.path().join("d0");
    image(&disk);
    for line in
        [format!("zpool create -O mountpoint=none tank {}", disk.display()), "zpool export tank".into()]
    {
        let ran = command(dir.path(), &line).output().expect("it runs");
        assert!(ran.status.success(), "{}", said(&ran));
    }
    let log = std::fs::read_to_string(dir.path().join("run/log")).expect("a log");
    assert!(log.contains("serving") && log.contains("imported pool=\"tank\""), "{log}");
}
