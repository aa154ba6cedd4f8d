//! The permissions that each kind of change needs, by name alone.

use crate::control::grants::*;
use api::{Budget, DatasetKind, Peer};

fn lines(change: &DatasetChange) -> Vec<String> {
    let line = |(at, permission): &Need<'_>| match at {
        At::Here(name) => format!("{name} {permission}"),
        At::Below(name) => format!("{name}/* {permission}"),
        At::Path(name) => format!("{name}/.. {permission}"),
        At::Snapshot(name, snapshot) => format!("{name}@{snapshot} {permission}"),
    };
    let mut lines: Vec<String> = needs(change).iter().map(line).collect();
    lines.sort();
    lines
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn props(words: &[&str]) -> Settings {
    words.iter().map(|w| ((*w).to_owned(), "1".to_owned())).collect()
}

/// Goal: creating and cloning need what OpenZFS requires of the parent, of the origin, and for each
/// property.
#[test]
fn making() {
    let create = |sparse, set: &[&str]| DatasetChange::Create {
        name: "t/a/b".into(),
        kind: DatasetKind::Filesystem,
        props: props(set),
        sparse,
        parents: false,
        mount: true,
        key: None,
    };
    assert_eq!(lines(&create(false, &[])), ["t/a create", "t/a mount"]);
    assert_eq!(lines(&create(false, &["compress"])), ["t/a create", "t/a mount", "t/a/* compression"]);
    let volume = lines(&create(false, &["volsize"]));
    assert_eq!(volume, ["t/a create", "t/a mount", "t/a/* refreservation", "t/a/* volsize"]);
    assert_eq!(lines(&create(true, &["volsize"])), ["t/a create", "t/a mount", "t/a/* volsize"]);
    let clone = DatasetChange::Clone {
        origin: "t@s".into(),
        name: "t/c".into(),
        props: props(&["a:b"]),
        parents: false,
    };
    assert_eq!(lines(&clone), ["t create", "t mount", "t/* userprop", "t@s clone"]);
}

/// Goal: what a package does behind its streams needs permissions on each dataset, also where it
/// only removes something.
#[test]
fn behind_packages() {
    let received = |snapshots: &[(&str, &[&str])]| DatasetChange::SetReceived {
        snapshots: snapshots.iter().map(|(name, set)| ((*name).to_owned(), props(set))).collect(),
    };
    assert_eq!(lines(&received(&[("t/a@s", &["a:b"])])), ["t/a userprop"]);
    assert!(lines(&received(&[("t/a@s", &[]), ("t/b@s", &[])])).is_empty());
    let moved = DatasetChange::MoveKeys { name: "t/a".into(), own: true };
    assert_eq!(lines(&moved), ["t/a change-key"]);
}

/// Goal: destroying, renaming and changing need what OpenZFS requires.
#[test]
fn changing() {
    let destroy = |names: &[&str]| DatasetChange::Destroy { names: owned(names), force: false, defer: false };
    assert_eq!(lines(&destroy(&["t/a"])), ["t/a destroy", "t/a mount"]);
    assert_eq!(lines(&destroy(&["t/a@s"])), ["t/a@s destroy", "t/a@s mount"]);
    assert_eq!(lines(&destroy(&["t/a#b"])), ["t/a destroy"]);
    let snapshot = |set: &[&str]| DatasetChange::Snapshot { names: owned(&["t@s"]), props: props(set) };
    assert_eq!(lines(&snapshot(&[])), ["t snapshot"]);
    assert_eq!(lines(&snapshot(&["a:b"])), ["t snapshot", "t userprop"]);
    let rename = DatasetChange::Rename {
        from: "t/a".into(),
        to: "t/b/c".into(),
        parents: false,
        keep_mounted: false,
        force: false,
    };
    assert_eq!(lines(&rename), ["t/a mount", "t/a rename", "t/b create", "t/b mount"]);
    let rename = DatasetChange::RenameSnapshot {
        dataset: "t/a".into(),
        from: "s".into(),
        to: "r".into(),
        recursive: false,
    };
    assert_eq!(lines(&rename), ["t/a create", "t/a mount", "t/a@s mount", "t/a@s rename"]);
    let back = DatasetChange::Rollback { snapshot: "t@a".into(), destroy: owned(&["t@b"]), force: false };
    assert_eq!(lines(&back), ["t rollback", "t@b destroy", "t@b mount"]);
    let hold = DatasetChange::Hold { snapshots: owned(&["t@a"]), tag: "x".into() };
    assert_eq!(lines(&hold), ["t hold"]);
    let set = |name: &str, set: &[&str]| {
        lines(&DatasetChange::Set { name: name.into(), props: props(set), keep_mounted: false })
    };
    assert_eq!(set("t", &["recsize", "userquota@root"]), ["t recordsize", "t userquota"]);
    assert_eq!(set("t@s", &["a:b"]), ["t@s userprop"]);
    // Those of the AFS server need a permission that can't be granted.
    let of_afs = ["poolhouse:vicep", "poolhouse:vicep-config", "poolhouse:volume-incomplete"];
    assert_eq!(set("t", &of_afs), of_afs.map(|property| format!("t {property}")));
    assert_eq!(set("t", &["poolhouse:mine"]), ["t userprop"]);
    assert_eq!(set("t", &["nonsense"]), ["t nonsense"]);
}

/// Goal: a change that needs no permission does nothing. It is refused, so that it can't add a
/// history line.
#[test]
fn nothing() {
    let change = DatasetChange::Set { name: "t".into(), props: Settings::new(), keep_mounted: false };
    let stranger = Caller::of_connection(Peer { uid: 7, gid: 7, pid: None }, 0, Budget::of(1 << 20));
    let done = check_change(&PoolTable::default(), &stranger, &change);
    assert!(done.is_err_and(|e| e.reason == Reason::Permission));
}
