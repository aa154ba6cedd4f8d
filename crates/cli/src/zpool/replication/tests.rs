//! Mixed pools, in OpenZFS's wording.

use super::*;

fn leaf(path: &str) -> Vdev {
    Vdev { kind: "file".into(), path: Some(path.into()), ..Vdev::default() }
}

fn group(kind: &str, parity: u64, devices: usize) -> Vdev {
    let children = (0..devices).map(|_| leaf("same")).collect();
    Vdev { kind: kind.into(), nparity: parity, children, ..Vdev::default() }
}

fn size(path: &str) -> Option<u64> {
    match path {
        "big" => Some(1 << 30),
        "disk" => Some(64 << 20),
        _ => Some(64 << 20),
    }
}

/// Goal: each mix within one command line is refused with its reason.
#[test]
fn one_line() {
    for (tops, message) in [
        (vec![group("mirror", 0, 2), leaf("a")], "both mirror and file vdevs are present"),
        (vec![group("mirror", 0, 2), group("mirror", 0, 3)], "both 2-way and 3-way mirror vdevs are present"),
        (
            vec![group("raidz", 1, 3), group("raidz", 2, 3)],
            "raidz and raidz vdevs with different redundancy, 1 vs. 2 are present",
        ),
        (
            vec![group("raidz", 2, 4), group("mirror", 0, 2)],
            "raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present",
        ),
    ] {
        assert_eq!(check(None, &tops, &size), [format!("mismatched replication level: {message}")]);
    }
    assert!(check(None, &[group("raidz", 1, 3), group("mirror", 0, 2)], &size).is_empty());
    assert!(check(None, &[leaf("a"), leaf("b")], &size).is_empty());
}

/// Goal: devices of one vdev with different sizes or types are reported.
#[test]
fn uneven_devices() {
    let mut odd = group("mirror", 0, 1);
    odd.children.push(leaf("big"));
    assert_eq!(check(None, &[odd.clone()], &size), ["mirror contains devices of different sizes"]);
    odd.children[1] = Vdev { kind: "disk".into(), ..leaf("disk") };
    assert_eq!(
        check(None, &[odd], &size),
        ["mismatched replication level: mirror contains both files and devices"]
    );
}

/// Goal: an added vdev must match the pool, except for logs. A pool that mixes already accepts any.
#[test]
fn added() {
    let pool = [group("mirror", 0, 2)];
    assert_eq!(
        check(Some(&pool), &[leaf("a")], &size),
        ["mismatched replication level: pool uses mirror and new vdev is file"]
    );
    assert_eq!(
        check(Some(&pool), &[group("mirror", 0, 3)], &size),
        ["mismatched replication level: pool uses 2-way mirror and new vdev uses 3-way mirror"]
    );
    let mut log = leaf("a");
    log.is_log = true;
    assert!(check(Some(&pool), &[log], &size).is_empty());
    let mixed = [group("mirror", 0, 2), leaf("a")];
    assert!(check(Some(&mixed), &[group("raidz", 1, 3)], &size).is_empty());
}
