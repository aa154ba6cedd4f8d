//! Pools on files that are removed while in use.

use crate::daemon::{Daemon, image, said};
use std::fs;

/// Goal: a pool whose file was removed reports it, with a path where the file can still be read,
/// and one event.
///
/// It is exported only by force, which names what is lost. A copy of the file from that path is the
/// pool.
#[test]
fn removed_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start(dir.path());
    let file = dir.path().join("d0");
    let shown = file.display().to_string();
    image(&file);
    daemon.good(&format!("zpool create -O canmount=off -O is:here=yes gone {shown}"));
    assert!(!daemon.good("zpool status").contains("removed"));
    fs::remove_file(&file).expect("it was there");
    let status = daemon.good("zpool status -x");
    assert_eq!(status, daemon.good("zpool status"));
    let words = " state: ONLINE\nstatus: One or more files that the pool is kept in have been removed.";
    assert!(status.contains(words), "{status}");
    let place = format!("{shown}, still readable as ");
    let (_, rest) = status.split_once(&place).expect("it is named");
    let still = rest.lines().next().expect("a line").to_owned();
    let events = daemon.good("zpool events -v");
    assert_eq!(events.matches("class = \"resource.fs.zfs.removed\"").count(), 1, "{events}");
    assert!(events.contains(&format!("vdev_path = \"{shown}\"")), "{events}");
    let refused = daemon.ran("zpool export gone");
    assert_eq!(refused.status.code(), Some(1));
    let words =
        "cannot export 'gone': files that it is kept in have been removed, and are gone once it is exported:";
    assert!(said(&refused).contains(&format!("{words}\n\t{place}{still}\n")), "{}", said(&refused));
    assert_eq!(daemon.good("zpool list -H -o name,health"), "gone\tONLINE\n");
    daemon.good("zpool sync gone");
    let copy = dir.path().join("copy");
    fs::copy(&still, &copy).expect("it is still there");
    let forced = daemon.ran("zpool export -f gone");
    assert!(forced.status.success());
    let warned = format!("warning: '{shown}' has been removed, and is gone with the export of 'gone'\n");
    assert_eq!(said(&forced), warned);
    fs::rename(&copy, &file).expect("it is put back");
    daemon.good(&format!("zpool import -d {shown} gone"));
    assert_eq!(daemon.good("zfs get -H -o value is:here gone"), "yes\n");
    assert!(!daemon.good("zpool status").contains("removed"));
    daemon.good("zpool export gone");
}

/// Goal: a pool is exported without force if its other devices have everything that a removed file
/// had.
#[test]
fn removed_file_of_a_mirror() {
    let dir = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start(dir.path());
    let [first, second] = ["d0", "d1"].map(|name| dir.path().join(name));
    [&first, &second].iter().for_each(|path| image(path));
    let pair = format!("{} {}", first.display(), second.display());
    daemon.good(&format!("zpool create -O canmount=off -O is:here=yes pair mirror {pair}"));
    fs::remove_file(&first).expect("it was there");
    assert!(daemon.good("zpool status").contains("still readable as "));
    daemon.good("zpool export pair");
    daemon.good(&format!("zpool import -d {} pair", dir.path().display()));
    assert_eq!(daemon.good("zfs get -H -o value is:here pair"), "yes\n");
    assert_eq!(daemon.good("zpool list -H -o health pair"), "DEGRADED\n");
    // The other file is all that is left.
    fs::remove_file(&second).expect("it was there");
    assert!(!daemon.ran("zpool export pair").status.success());
    daemon.good("zpool export -f pair");
}
