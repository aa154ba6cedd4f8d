//! Packages: what goes to the daemon, and what becomes of the rest of the tree.

use ondisk::nvlist::{Nvlist, Value};

use super::*;
use crate::zfs::package::{Member, Package, Snap};

/// The head of a package with this list.
fn package_head(name: &str, features: u64, list: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, ByteOrder::Little);
    let version_info = 2 | features << Begin::FEATURES_SHIFT;
    let begin = Begin { version_info, objset_type: 0, to_guid: 0, ..begin(name, 0) };
    writer.begin(&begin, list).unwrap();
    writer.end_head().unwrap();
    bytes
}

fn package_end() -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, ByteOrder::Little).end_package().unwrap();
    bytes
}

fn pairs(pairs: &[(&str, Value)]) -> Nvlist {
    pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.clone())).collect()
}

/// A member of a package: name, guid, parent's guid, origin, snapshots.
fn member(name: &str, guid: u64, parent_from: u64, origin: u64, snaps: &[(&str, u64)]) -> Member {
    let snap = |(name, guid): &(&str, u64)| Snap { name: (*name).to_owned(), guid: *guid, ..Snap::default() };
    Member {
        guid,
        name: name.to_owned(),
        parent_from,
        origin: Some(origin).filter(|guid| *guid != 0),
        props: Some(Nvlist::new()),
        snaps: snaps.iter().map(snap).collect(),
        ..Member::default()
    }
}

fn package(from: Option<&str>, members: Vec<Member>) -> Package {
    Package { from: from.map(str::to_owned), to: "s".to_owned(), recursive: true, raw: false, members }
}

/// Runs a command with a package of streams. The daemon takes each stream to its END.
fn ran_package(pools: Pools, line: &str, stream: &[u8]) -> Ran {
    ran_streams(pools, line, stream, |_| Ok(Received { bytes: 624, ..Received::default() }))
}

/// Goal: each stream of a package goes to the daemon with its name, properties and holds.
#[test]
fn packages() {
    let props = pairs(&[
        ("compression", Value::Uint64(16)),
        ("quota", Value::Uint64(0)),
        ("keylocation", Value::String(b"prompt".to_vec())),
        ("com.example:p", Value::String(b"v".to_vec())),
    ]);
    let mut top = member("src/a", 1, 0, 0, &[("s", 101)]);
    top.props = Some(props);
    top.holds = true;
    top.snaps[0].props = Some(pairs(&[("com.example:s", Value::String(b"w".to_vec()))]));
    top.snaps[0].holds = Some(pairs(&[("keep", Value::Uint64(7))]));
    let child = member("src/a/b", 2, 101, 0, &[("s", 102)]);
    let list = package(None, vec![top, child]).encode();
    let to = |name: &str, guid| Begin { to_guid: guid, ..begin(name, 0) };
    for (flags, holds) in [(features::HOLDS, true), (0, false)] {
        let mut stream = package_head("src/a@s", flags, &list);
        stream.extend(bytes(&to("src/a@s", 101)));
        stream.extend(bytes(&to("src/a/b@s", 102)));
        stream.extend(package_end());
        stream.extend(b"more");
        let ran = ran_package(pools(), "receive tank/new", &stream);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        // What follows the package is not read.
        assert_eq!(ran.left, 4);
        let targets: Vec<_> = ran.requests.iter().map(|request| request.target.as_str()).collect();
        assert_eq!(targets, ["tank/new@s", "tank/new/b@s"]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let first = &ran.requests[0];
        assert!(first.unmounted);
        assert_eq!(
            first.received,
            Some(vec![pair("compression", "zstd"), pair("quota", "none"), pair("com.example:p", "v")])
        );
        assert_eq!(first.snapshot, [pair("com.example:s", "w")]);
        assert_eq!(ran.requests[1].received, Some(Vec::new()));
        assert_eq!(ran.asked.contains(&"hold tank/new@s keep".to_owned()), holds);
    }
    let mut stream = package_head("src/a@s", features::HOLDS, &list);
    stream.extend(bytes(&to("src/a@s", 101)));
    stream.extend(package_end());
    let ran = ran_package(pools(), "receive -h -d tank/fs", &stream);
    assert_eq!((ran.code, ran.requests[0].target.as_str()), (0, "tank/fs/a@s"));
    assert!(!ran.asked.iter().any(|one| one.starts_with("hold")));
}

/// Goal: properties of the command line are set at the topmost dataset, and inherited below it.
#[test]
fn properties_of_the_command_line() {
    let mut top = member("src/a", 1, 0, 0, &[("s", 101)]);
    top.props = Some(pairs(&[("quota", Value::Uint64(4096)), ("atime", Value::Uint64(0))]));
    let child = member("src/a/b", 2, 101, 0, &[("s", 102)]);
    let list = package(None, vec![top, child]).encode();
    let mut stream = package_head("src/a@s", 0, &list);
    stream.extend(bytes(&Begin { to_guid: 101, ..begin("src/a@s", 0) }));
    stream.extend(bytes(&Begin { to_guid: 102, objset_type: 3, ..begin("src/a/b@s", 0) }));
    stream.extend(package_end());
    let line = "receive -o compress=lz4 -x quota -x atime -x volblocksize tank/new";
    let ran = ran_package(pools(), line, &stream);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let line = "receive -o compress=lz4 -o com.example:x=y -x quota -x atime -x snapdev -o exec=off tank/new";
    let ran = ran_package(pools(), line, &stream);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(
        ran.err,
        "Warning: tank/new/b: property 'quota' does not apply to datasets of this type\n\
         Warning: tank/new/b: property 'atime' does not apply to datasets of this type\n"
    );
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        ran.requests[0].local,
        [pair("compression", "lz4"), pair("com.example:x", "y"), pair("exec", "off")]
    );
    assert_eq!(ran.requests[0].inherited, ["atime", "snapdev"]);
    assert_eq!(ran.requests[0].received, Some(vec![pair("atime", "off")]));
    assert_eq!(ran.requests[1].local, []);
    assert_eq!(ran.requests[1].inherited, ["compression", "com.example:x", "snapdev"]);
}

/// Goal: the head of a package is verified, and the first stream that fails ends it.
#[test]
fn broken_packages() {
    let list = package(None, vec![member("src/a", 1, 0, 0, &[("s", 101)])]).encode();
    let whole = package_head("src/a@s", 0, &list);
    let said = |stream: &[u8], line: &str| {
        let ran = ran_package(pools(), line, stream);
        assert_eq!((ran.code, ran.requests.len()), (1, 0), "{}", ran.err);
        ran.err
    };
    let line = "receive tank/new";
    let mut odd = whole.clone();
    let at = odd.windows(5).rposition(|part| part == b"src/a").unwrap();
    odd[at + 4] = b'b';
    assert_eq!(said(&odd, line), "cannot receive: incorrect header checksum\n");
    assert_eq!(said(&whole[..500], line), "cannot receive: failed to read from stream\n");
    assert_eq!(said(&whole[..whole.len() - 8], line), "cannot receive: failed to read from stream\n");
    let malformed = package_head("src/a@s", 0, b"no list!");
    assert_eq!(said(&malformed, line), "cannot receive: invalid stream (malformed nvlist)\n");
    let mut long = whole.clone();
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(said(&long, line), "cannot receive: nvlist too large\n");
    assert_eq!(
        said(&whole, "receive tank/new@x"),
        "cannot receive: cannot specify snapshot name for multi-snapshot stream\n"
    );
    let mut nested = whole.clone();
    nested.extend(&whole);
    assert_eq!(said(&nested, line), "cannot receive: invalid stream (a package in a package)\n");
    // A package without its END.
    assert_eq!(said(&whole, line), "cannot receive: failed to read from stream\n");
    let mut two = whole;
    two.extend(bytes(&Begin { to_guid: 101, ..begin("src/a@s", 0) }));
    two.extend(bytes(&Begin { to_guid: 102, ..begin("src/a/b@s", 0) }));
    let ran = ran_streams(pools(), line, &two, |_| {
        Err(Denied::Api(Error::new("tank/new", Reason::Refused { why: Refusal::NoSpace })))
    });
    assert_eq!((ran.code, ran.requests.len()), (1, 1));
    assert_eq!(ran.err, "cannot receive new filesystem stream: out of space\n");
}

/// Runs a command with an increment of a tree that has no streams.
fn replicated(pools: Pools, line: &str, members: Vec<Member>) -> Ran {
    let mut stream = package_head("src/fs@s", 0, &package(Some("one"), members).encode());
    stream.extend(package_end());
    ran_package(pools, line, &stream)
}

/// Goal: what the sender destroyed, renamed and promoted is so here, recognized by guids.
#[test]
fn replication() {
    let tree = || {
        let pools = pools();
        pools.datasets.borrow_mut().extend([
            dataset("tank/fs/kid", 0),
            dataset("tank/fs/kid@one", 31),
            dataset("tank/fs/gone", 0),
            dataset("tank/fs/gone@one", 41),
            with(dataset("tank/fs/branch", 0), "origin", "tank/fs/kid@one"),
            dataset("tank/fs/branch@one", 51),
        ]);
        pools
    };
    let members = || {
        vec![
            member("src/fs", 1, 0, 0, &[("one", 11), ("second", 12)]),
            member("src/fs/child", 2, 11, 0, &[("one", 31)]),
            member("src/fs/branch", 3, 11, 31, &[("one", 51)]),
        ]
    };
    let changes = |ran: &Ran| -> Vec<String> {
        let changes = ran.asked.iter().filter(|one| !one.starts_with("log") && !one.starts_with("mount"));
        changes.cloned().collect()
    };
    let ran = replicated(tree(), "receive -F tank/fs", members());
    assert_eq!(
        changes(&ran),
        [
            "rename tank/fs@two to second",
            "destroy tank/fs/gone@one",
            "destroy tank/fs/gone",
            "rename tank/fs/kid to tank/fs/child"
        ]
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    // Without -F nothing is destroyed.
    let ran = replicated(tree(), "receive -v tank/fs", members());
    assert_eq!(changes(&ran), ["rename tank/fs@two to second", "rename tank/fs/kid to tank/fs/child"]);
    assert!(ran.out.starts_with("attempting rename tank/fs@two to tank/fs@second\nsuccess\n"), "{}", ran.out);
    // A dry run changes nothing.
    assert!(changes(&replicated(tree(), "receive -n -F tank/fs", members())).is_empty());
    // What was the clone is the origin now.
    let mut promoted = members();
    promoted[2].origin = None;
    promoted[1].origin = Some(51);
    let ran = replicated(tree(), "receive -v tank/fs", promoted);
    assert!(changes(&ran).contains(&"promote tank/fs/branch".to_owned()), "{:?}", ran.asked);
    assert!(ran.out.contains("promoting tank/fs/branch\n"), "{}", ran.out);
}

/// Goal: what can't be destroyed yet gets a name that is in no stream's way, and is destroyed once
/// nothing is below it.
#[test]
fn subtrees_are_destroyed_from_below() {
    let pools = pools();
    pools.datasets.borrow_mut().extend([
        dataset("tank/fs/a", 0),
        dataset("tank/fs/a@one", 31),
        dataset("tank/fs/a/b", 0),
        dataset("tank/fs/a/b@one", 41),
    ]);
    let members = vec![member("src/fs", 1, 0, 0, &[("one", 11), ("two", 12)])];
    let ran = replicated(pools, "receive -v -F tank/fs", members);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let asked = |what: &str| ran.asked.iter().position(|one| one.starts_with(what));
    let renamed = asked("rename tank/fs/a to tank/fs/recv-").expect("it is in the way");
    let gone = ran.asked.iter().rposition(|one| one.starts_with("destroy tank/fs/recv-"));
    assert!(asked("destroy tank/fs/a").is_some_and(|at| at < renamed), "{:?}", ran.asked);
    let last = gone.map(|at| ran.asked[at].as_str()).expect("it is destroyed");
    assert!(!last["destroy tank/fs/".len()..].contains(['/', '@']), "{:?}", ran.asked);
    assert!(!ran.out.contains("attempting destroy tank/fs/a\nsuccess"), "{}", ran.out);
}

/// Goal: no stream of a package goes to a dataset beside its target, whatever its name.
#[test]
fn streams_beside_the_target() {
    let list = package(None, vec![member("src/a", 1, 0, 0, &[("s", 101)])]).encode();
    for options in ["", "-e "] {
        let mut stream = package_head("src/a@s", 0, &list);
        stream.extend(bytes(&Begin { to_guid: 102, ..begin("src/a2@s", 0) }));
        stream.extend(package_end());
        let ran = ran_package(pools(), &format!("receive {options}-F tank/fs"), &stream);
        assert_eq!((ran.code, ran.requests.len()), (1, 0), "{}", ran.err);
    }
}
