//! Which volumes are estimated, and what ends an estimate.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use api::{AfsVolume, Error, Reason};

fn line(id: u32, name: &str, dataset: &str, updated: u64) -> Line {
    let (name, dataset) = (name.to_owned(), dataset.to_owned());
    Line { volume: AfsVolume { id, name, dataset, updated, ..AfsVolume::default() }, space: None }
}

/// Goal: files that volumes share count once: those of the file system, or else of its newest
/// clone.
#[test]
fn shared_files() {
    let lines = [
        line(3, "root.backup", "t/a/1@3", 9),
        line(1, "root", "t/a/1", 5),
        line(2, "root.readonly", "t/a/1@2", 9),
        line(6, "old.backup", "t/a/4.clones-1@6", 8),
        line(5, "old.readonly", "t/a/4.clones-1@5", 9),
        line(7, "", "t/a/7", 1),
    ];
    let names: Vec<String> = heads(&lines).into_iter().map(|volume| volume.name).collect();
    assert_eq!(names, ["root", "old.readonly", "7"]);
}

fn volumes(look: Look) -> Volumes {
    let each = heads(&[line(1, "one", "t/a/1", 1), line(2, "two", "t/a/2", 1)]);
    Volumes { each, look, state: Mutex::default() }
}

/// Goal: a volume that the daemon refuses is left out, with what to do. Without the daemon, nothing
/// more is requested.
#[test]
fn refusals() {
    let locked = volumes(|opening| match opening.dataset.as_str() {
        "t/a/1" => Err(Denied::NoKey { dataset: "t/a/1".to_owned(), root: "t/a".to_owned() }),
        _ => Err(Denied::Api(Error::new("t/a/2", Reason::Suspended))),
    });
    let why = locked.root(0).unwrap_err().to_string();
    assert_eq!(why, "its key is not loaded: use 'zfs load-key t/a' first");
    assert!(locked.root(1).is_err());
    assert_eq!(locked.state().left_out, BTreeSet::from([0, 1]));
    assert_eq!(locked.state().gone, None);

    let away = volumes(|opening| match opening.dataset.as_str() {
        "t/a/1" => Err(Denied::Theirs),
        _ => panic!("a second request"),
    });
    assert!(away.root(0).is_err() && away.root(1).is_err());
    assert_eq!(away.state().gone.as_deref(), Some("the daemon is another user's"));
}

/// Goal: what is opened is read beside the server, and not for writing.
#[test]
fn readers() {
    let asked = volumes(|opening| {
        assert!(opening.beside && !opening.write && opening.keys.is_empty(), "{opening:?}");
        Err(Denied::Theirs)
    });
    assert!(asked.root(0).is_err());
}
