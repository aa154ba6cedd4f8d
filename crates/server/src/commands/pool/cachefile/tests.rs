use crate::commands::pool::cachefile::*;

/// Goal: damaged files are kept, each whole and under a name of its own. An intact file is not
/// taken for damaged.
#[test]
fn damaged() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zpool.cache");
    let memory = Memory::default();
    for (n, bad) in [&b"no list"[..], b"another"].into_iter().enumerate() {
        std::fs::write(&file, bad).unwrap();
        memory.write(&file, &[], None);
        assert_eq!(std::fs::read(dir.path().join(format!("zpool.cache.bad-{}", n + 1))).unwrap(), bad);
        assert!(!file.exists(), "no pool is in it");
    }
    let mut list = Nvlist::new();
    list.set("theirs", Value::List(Nvlist::new()));
    std::fs::write(&file, list.encode_xdr()).unwrap();
    memory.write(&file, &[], None);
    assert_eq!(std::fs::read(&file).unwrap(), list.encode_xdr());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

/// Goal: a damaged file that can't be kept under another name is not overwritten.
#[test]
fn full() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zpool.cache");
    for n in 1..=BAD_MAX {
        std::fs::write(dir.path().join(format!("zpool.cache.bad-{n}")), "old").unwrap();
    }
    std::fs::write(&file, "no list").unwrap();
    Memory::default().write(&file, &[], None);
    assert_eq!(std::fs::read(&file).unwrap(), b"no list");
}

/// Goal: a file says which pools it lists. A file that is missing or damaged lists none.
#[test]
fn listed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zpool.cache");
    assert_eq!(pools_of(&file), []);
    std::fs::write(&file, "no list").unwrap();
    assert_eq!(pools_of(&file), []);
    let mut list = Nvlist::new();
    list.set("nothing", Value::List(Nvlist::new()));
    for (name, guid) in [("a", 7), ("b", 8)] {
        let mut pool = Nvlist::new();
        pool.set("pool_guid", Value::Uint64(guid));
        list.set(name, Value::List(pool));
    }
    std::fs::write(&file, list.encode_xdr()).unwrap();
    assert_eq!(pools_of(&file), [Guid(7), Guid(8)]);
}
