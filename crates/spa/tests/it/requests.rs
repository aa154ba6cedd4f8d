//! Requests that a pool must survive, whatever their size and order: each is done or refused, and
//! the pool goes on. An error in the sync of a txg would stop it.

use crate::write::judge;
use dsl::ops::bookmark::{CreateBookmarks, DestroyBookmarks};
use dsl::ops::clone::Clone;
use dsl::ops::destroy::DestroySnapshots;
use dsl::ops::hold::HoldSnapshots;
use dsl::ops::props::{InheritProp, SetAs, SetProps, Setting};
use dsl::ops::rename::{Rename, RenameSnapshot};
use dsl::ops::snapshot::Snapshot;
use dsl::prop::Value as PropValue;
use dsl::{Error, Refusal};
use ondisk::{Nvlist, Value};
use spa::create::VdevShape;
use spa::engine::{PoolWriter, TaskError};
use testpools::{file_system, images, new_pool};

fn refused(done: Result<(), TaskError>) -> Error {
    match done {
        Err(TaskError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn snapshot(live: &PoolWriter, names: &[&str]) -> Result<(), TaskError> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    live.run(Box::new(Snapshot { names, ..Snapshot::default() }))
}

/// Runs a test on a new pool with the file system `tank/a`.
fn on_a_pool(test: impl FnOnce(&PoolWriter)) {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 128 << 20));
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    test(live);
    live.sync_all().unwrap();
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}

/// Goal: a property whose name leaves no space for the marks of received and hidden values is
/// refused as a received one, and can be inherited as a local one.
#[test]
fn long_property_names() {
    on_a_pool(|live| {
        let set = |name: &str, len: usize, source| {
            let (property, value) = (format!("u:{}", "x".repeat(len - 2)), PropValue::Text("v".into()));
            let props = vec![Setting { name: property, value }];
            live.run(Box::new(SetProps { name: name.into(), props, source }))
        };
        let inherit = |property: String| {
            live.run(Box::new(InheritProp { name: "tank/a".into(), property, received: false }))
        };
        snapshot(live, &["tank/a@s"]).unwrap();
        // A snapshot has no hidden values.
        for (name, most) in [("tank/a", 247), ("tank/a@s", 249)] {
            set(name, most, SetAs::Received).unwrap();
            for (len, source) in [(most + 1, SetAs::Received), (255, SetAs::Received), (256, SetAs::Local)] {
                assert!(matches!(refused(set(name, len, source)), Error::BadProperty { .. }), "{len}");
            }
            set(name, 255, SetAs::Local).unwrap();
        }
        inherit(format!("u:{}", "x".repeat(253))).unwrap();
        inherit(format!("u:{}", "x".repeat(245))).unwrap();
        for bad in [String::new(), "u:\0".into(), format!("u:{}", "x".repeat(254))] {
            assert!(matches!(refused(inherit(bad)), Error::BadProperty { .. }));
        }
    });
}

/// Goal: many properties are set at once in a small pool.
#[test]
fn many_properties() {
    on_a_pool(|live| {
        let one = |n: u32| Setting { name: format!("u:{n}"), value: PropValue::Text("x".repeat(200)) };
        let props = (0..700).map(one).collect();
        live.run(Box::new(SetProps { name: "tank/a".into(), props, source: SetAs::Local })).unwrap();
        let values = live.dsl().dataset("tank/a").unwrap().properties().unwrap();
        assert_eq!(values.iter().filter(|value| value.name.starts_with("u:")).count(), 700);
    });
}

/// Goal: a tag that no list of holds can have is refused.
#[test]
fn odd_tags() {
    on_a_pool(|live| {
        snapshot(live, &["tank/a@s"]).unwrap();
        let hold = |tag: &str| {
            live.run(Box::new(HoldSnapshots { holds: vec![("tank/a@s".to_owned(), tag.to_owned())] }))
        };
        assert!(matches!(refused(hold("")), Error::BadName { .. }));
        assert!(matches!(refused(hold("a\0b")), Error::BadName { .. }));
        let long = refused(hold(&"x".repeat(256)));
        assert!(matches!(long, Error::Refused { why: Refusal::TagTooLong, .. }), "{long:?}");
        hold(&"x".repeat(255)).unwrap();
    });
}

/// Goal: a request for two snapshots of one dataset is refused as a whole.
#[test]
fn a_snapshot_twice() {
    on_a_pool(|live| {
        for names in [["tank/a@s", "tank/a@s"], ["tank/a@s", "tank/a@t"]] {
            let error = refused(snapshot(live, &names));
            assert!(matches!(error, Error::Refused { why: Refusal::CrossDevice, .. }), "{error:?}");
        }
        assert_eq!(live.dsl().dataset("tank/a").unwrap().snapshots().unwrap().len(), 0);
        snapshot(live, &["tank/a@s", "tank@s"]).unwrap();
    });
}

/// Goal: names with the characters of the engine's own names are refused for everything new, and
/// the engine's own directories can't be renamed. A snapshot `$ORIGIN` would be taken for the
/// pool's.
#[test]
fn the_engines_names() {
    on_a_pool(|live| {
        let bad = |done: Result<(), TaskError>| {
            let error = refused(done);
            assert!(matches!(error, Error::BadName { .. }), "{error:?}");
        };
        snapshot(live, &["tank/a@s"]).unwrap();
        for name in ["tank/a@$ORIGIN", "tank/a@%x"] {
            bad(snapshot(live, &[name]));
            let (dataset, new) = name.split_once('@').unwrap();
            let (dataset, old, new) = (dataset.to_owned(), "s".to_owned(), new.to_owned());
            bad(live.run(Box::new(RenameSnapshot { dataset, old, new, recursive: false })));
        }
        for name in ["tank/$x", "tank/a/%recv", "tank/a/%rollback"] {
            bad(live.run(file_system(name, Vec::new())));
        }
        for (old, new) in [("tank/$MOS", "tank/x"), ("tank/$FREE", "tank/x"), ("tank/a", "tank/$b")] {
            let (old, new) = (old.to_owned(), new.to_owned());
            bad(live.run(Box::new(Rename { old, new, enforce_limits: false })));
        }
        let pairs = vec![("tank/a#$b".to_owned(), "tank/a@s".to_owned())];
        bad(live.run(Box::new(CreateBookmarks { pairs })));
    });
}

/// Goal: a bookmark and its copies, also at a clone, are destroyed in any order after their
/// snapshot.
#[test]
fn copies_of_a_bookmark() {
    on_a_pool(|live| {
        for (round, order) in
            [["a#b", "c#k", "a#d"], ["c#k", "a#b", "a#d"], ["a#d", "c#k", "a#b"]].iter().enumerate()
        {
            let [old, new] = ["old", "new"].map(|name| format!("tank/a@{name}{round}"));
            let pairs = |new: &str, source: &str| {
                let pairs = vec![(format!("tank/{new}"), source.to_owned())];
                live.run(Box::new(CreateBookmarks { pairs })).unwrap();
            };
            snapshot(live, &[&old]).unwrap();
            pairs("a#b", &old);
            snapshot(live, &[&new]).unwrap();
            let name = "tank/c".to_owned();
            live.run(Box::new(Clone { name, origin: new, props: Vec::new(), enforce_limits: false }))
                .unwrap();
            live.run(Box::new(DestroySnapshots { names: vec![old], defer: false })).unwrap();
            pairs("c#k", "tank/a#b");
            pairs("a#d", "tank/a#b");
            for mark in order {
                live.run(Box::new(DestroyBookmarks { names: vec![format!("tank/{mark}")] })).unwrap();
            }
            live.run(Box::new(dsl::ops::destroy::DestroyHead { name: "tank/c".into() })).unwrap();
        }
    });
}

/// Goal: commands and requests of any length are recorded in the history, and the pool goes on. A
/// text is cut off at 8 KiB, and a long input is left out. The smallest history keeps what it has.
#[test]
fn long_history_records() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 128 << 20));
    let live = spa.writer().unwrap();
    live.log_command("zpool create tank", 0).unwrap();
    live.log_command(&"é".repeat(200_000), 0).unwrap();
    let input = |names: u32| {
        let mut snaps = Nvlist::new();
        (0..names).for_each(|n| snaps.set(format!("tank@{n:0200}"), Value::Boolean));
        let mut input = Nvlist::new();
        input.set("snaps", Value::List(snaps));
        input
    };
    live.log_request("destroy_snaps", input(1000), 0).unwrap();
    live.log_request("destroy_snaps", input(10), 0).unwrap();
    live.sync_all().unwrap();
    let records: Vec<Nvlist> =
        spa.read(|| spa.mos().history().unwrap().unwrap().collect::<Result<_, _>>().unwrap());
    let commands: Vec<&[u8]> = records.iter().filter_map(|r| r.string("history command")).collect();
    assert_eq!(commands, ["zpool create tank".as_bytes(), "é".repeat(4096).as_bytes()]);
    let requests = records.iter().filter(|r| r.string("ioctl").is_some());
    let inputs: Vec<bool> = requests.map(|r| r.has("in_nvl")).collect();
    assert_eq!(inputs, [false, true]);
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}
