//! Which requests the history keeps.

use super::*;

/// Goal: the history names each snapshot of a request. Requests about other things are not
/// recorded.
#[test]
fn requests_about_snapshots() {
    let snapshots = vec!["t/a@s".to_owned(), "t/b@s".to_owned()];
    let of = |change: &DatasetChange| record(change).map(|(name, input)| (name, format!("{input:?}")));
    let change = DatasetChange::Snapshot { names: snapshots.clone(), props: Vec::new() };
    let (name, input) = record(&change).expect("a record");
    let names: Vec<&[u8]> = input.list("snaps").expect("a list").iter().map(|(name, _)| name).collect();
    assert_eq!((name, names), ("snapshot", vec![&b"t/a@s"[..], b"t/b@s"]));
    let names = vec!["t/a".to_owned(), "t/a@s".to_owned()];
    let (name, input) =
        record(&DatasetChange::Destroy { names, force: false, defer: true }).expect("a record");
    assert_eq!((name, input.has("defer")), ("destroy_snaps", true));
    assert_eq!(input.list("snaps").expect("a list").iter().count(), 1);
    let release = of(&DatasetChange::Release { snapshots, tag: "keep".to_owned() });
    assert_eq!(release.expect("a record").0, "release");
    assert_eq!(of(&DatasetChange::Promote { name: "t/a".to_owned() }), None);
}
