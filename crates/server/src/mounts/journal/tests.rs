use crate::mounts::journal::*;

fn mounted(target: &str, device: &str) -> Mounted {
    Mounted {
        id: 1,
        target: target.into(),
        source: "p/x".into(),
        fs_type: fuse::system::FS_TYPE.into(),
        device: device.into(),
        user: Some(0),
        others: false,
    }
}

fn note(dataset: &str, target: &str, device: &str, given: &[&str]) -> Note {
    let given = given.iter().map(|word| (*word).to_owned()).collect();
    Note { dataset: dataset.into(), target: target.into(), given, device: device.into(), ended: false }
}

/// Goal: the journal reports the mounts of its folder that still exist, each once, as its last line
/// describes it. Mounts of earlier daemons stay until they are reported. A torn line affects
/// nothing else.
#[test]
fn left_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let made = [
        note("p/a", "/m/a", "0:1", &["ro"]),
        note("p/gone", "/m/gone", "0:2", &[]),
        note("q/b", "/m/b", "0:3", &[]),
        note("p/renamed", "/m/a", "0:1", &["ro", "noexec"]),
    ];
    let mut text: Vec<u8> = made.iter().flat_map(line).collect();
    text.extend_from_slice(b"{\"dataset\":\"torn");
    std::fs::write(journal(dir.path()), text).unwrap();
    replace(&left(dir.path()), &[note("p/before", "/m/c", "0:4", &[])]).unwrap();
    // Another mount at a place of this folder's, and one of another folder.
    let orphans =
        [mounted("/m/a", "0:1"), mounted("/m/b", "0:3"), mounted("/m/gone", "0:9"), mounted("/else", "0:5")];
    let own = remember(dir.path(), &orphans).unwrap();
    assert_eq!(own, orphans[..2]);
    // The next daemon dies before it has mounted anything.
    assert!(remember(dir.path(), &[]).unwrap().is_empty());
    let daemon = Journal::default();
    assert!(daemon.take("p").is_empty(), "it has no folder");
    daemon.open(dir.path());
    let expected = [note("p/before", "/m/c", "0:4", &[]), made[3].clone()];
    assert_eq!(daemon.take("p"), expected);
    assert!(daemon.take("p").is_empty());
    assert_eq!(daemon.take("q"), made[2..3]);
}

/// Goal: a file system nested in an existing mount is restored with it, unless it was unmounted
/// before.
#[test]
fn what_lay_in_a_mount_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let made = [
        note("p", "/m", "0:1", &[]),
        note("p/a", "/m/a", "0:1", &["ro"]),
        note("p/b", "/m/b", "0:1", &[]),
        Note { ended: true, ..note("p/b", "/m/b", "0:1", &[]) },
        note("p/c", "/m/c", "0:2", &[]),
        note("p/d", "/m/d", "0:1", &[]),
        Note { ended: true, ..note("p/d", "/m/d", "0:1", &[]) },
        note("p/d", "/m/d", "0:1", &["noatime"]),
    ];
    std::fs::write(journal(dir.path()), made.iter().flat_map(line).collect::<Vec<u8>>()).unwrap();
    let orphan = mounted("/m", "0:1");
    assert_eq!(remember(dir.path(), std::slice::from_ref(&orphan)).unwrap(), [orphan]);
    let daemon = Journal::default();
    daemon.open(dir.path());
    assert_eq!(daemon.take("p"), [made[0].clone(), made[1].clone(), made[7].clone()]);
}
