use crate::telemetry::tunables::*;

/// Goal: each number has a default in its range, and is set and shown. A bad value is refused by
/// name.
#[test]
fn set_and_given_back() {
    let tunables = Tunables::default();
    for given in &GIVEN {
        let listed = tunables.list().into_iter().find(|t| t.name == given.name).unwrap();
        assert_eq!(listed.value, listed.default, "{}", given.name);
        assert!(given.range.contains(&listed.default), "{}", given.name);
        assert!(tunables.set(&Caller::this_process(), given.name, *given.range.start(), &[]).is_ok());
        assert!(
            *given.range.end() == u64::MAX
                || tunables.set(&Caller::this_process(), given.name, *given.range.end() + 1, &[]).is_err()
        );
    }
    for given in &GIVEN {
        assert!(
            tunables.list().iter().any(|t| (t.name.as_str(), t.value) == (given.name, *given.range.start()))
        );
    }
    assert!(tunables.set(&Caller::this_process(), "zfs_arc_max", 0, &[]).is_ok());
    let arc = tunables.list().into_iter().find(|t| t.name == "zfs_arc_max").unwrap();
    assert_eq!(arc.value, arc.default);
    assert!(tunables.set(&Caller::this_process(), "zfs_txg_timeout", 0, &[]).is_err());
    assert!(matches!(
        tunables.set(&Caller::this_process(), "zfs_nonsense", 1, &[]).unwrap_err().reason,
        Reason::BadProperty { .. }
    ));
}

/// Goal: each static is listed with its default, which is in its range. Values outside are refused.
#[test]
fn statics_are_listed() {
    let tunables = Tunables::default();
    for one in statics() {
        let Parameter { name, range, .. } = one.parameter();
        assert!(range.contains(&one.default()), "{name}");
        assert!(tunables.list().iter().any(|t| t.name == *name && t.default == one.default()));
        assert!(
            *range.end() == u64::MAX
                || tunables.set(&Caller::this_process(), name, range.end() + 1, &[]).is_err()
        );
    }
    for name in ["zfs_vdev_default_ms_count", "zfs_vdev_min_ms_count", "zfs_vdev_ms_count_limit"] {
        assert!(
            tunables.set(&Caller::this_process(), name, 1, &[]).is_err(),
            "{name}: it would be a vdev without metaslabs"
        );
    }
    tunables.set(&Caller::this_process(), "zfs_vdev_ms_count_limit", 1 << 18, &[]).unwrap();
    assert_eq!(spa::tunables::MS_COUNT_LIMIT.get(), 1 << 18);
    tunables
        .set(&Caller::this_process(), "zfs_vdev_ms_count_limit", spa::tunables::MS_COUNT_LIMIT.default(), &[])
        .unwrap();
    let names: Vec<String> = tunables.list().into_iter().map(|t| t.name).collect();
    assert!(names.is_sorted());
}

/// Goal: `zfs_arc_min` and `zfs_arc_max` limit the cache of all pools, the upper one first. Kstats
/// show them with the machine's memory.
#[test]
fn bounds_of_the_cache() {
    let tunables = Tunables::default();
    let (min, max) = tunables.store().bounds();
    assert_eq!(max, poolhouse::default_cache_bytes());
    assert_eq!(min, default("zfs_arc_min").min(max));
    assert!(tunables.set(&Caller::this_process(), "zfs_arc_min", ARC_LEAST - 1, &[]).is_err());
    tunables.set(&Caller::this_process(), "zfs_arc_max", 256 << 20, &[]).unwrap();
    tunables.set(&Caller::this_process(), "zfs_arc_min", 100 << 20, &[]).unwrap();
    assert_eq!(tunables.store().bounds(), (100 << 20, 256 << 20));
    tunables.set(&Caller::this_process(), "zfs_arc_max", 64 << 20, &[]).unwrap();
    assert_eq!(tunables.store().bounds(), (64 << 20, 64 << 20));
    tunables.set(&Caller::this_process(), "zfs_arc_max", 256 << 20, &[]).unwrap();
    // The case that other programs lack more memory than there is.
    tunables.store().adapt(arc::Memory { all: 1 << 40, free: 0 });
    let told: BTreeMap<_, _> = crate::telemetry::kstats::arc(tunables.store()).into_iter().collect();
    let number = |name: &str| match told[name] {
        api::KstatValue::Number(n) => i128::from(n),
        api::KstatValue::Signed(n) => i128::from(n),
        api::KstatValue::Text(_) => panic!("{name} is a number"),
    };
    assert_eq!((number("c_min"), number("c_max")), (100 << 20, 256 << 20));
    assert!(number("c") <= 100 << 20, "all that may be given back was");
    assert_eq!(number("arc_no_grow"), 1);
    assert!(number("memory_all_bytes") > 0 && number("arc_sys_free") == number("memory_all_bytes") / 32);
    assert_eq!(number("memory_available_bytes"), number("memory_free_bytes") - number("arc_sys_free"));
    tunables.set(&Caller::this_process(), "zfs_arc_min", 0, &[]).unwrap();
    assert_eq!(tunables.store().bounds().0, default("zfs_arc_min").min(256 << 20));
}

/// Goal: each static that a crate declares is in a list. Otherwise an administrator could not set
/// it.
#[test]
fn every_declaration_is_listed() {
    let mut todo = vec![testkit::workspace_root().join("crates")];
    let mut declared = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            if path.ends_with("tunable.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let mut rest = text.as_str();
            while let Some((_, after)) = rest.split_once("static ") {
                rest = after;
                let Some((kind, value)) = after.split_once('=') else { break };
                if kind.trim_end().ends_with(": Tunable") || kind.trim_end().ends_with(": observe::Tunable") {
                    declared.push(value.split('"').nth(1).unwrap().to_owned());
                }
            }
        }
    }
    let listed: Vec<&str> = statics().map(|one| one.parameter().name).collect();
    assert!(declared.len() > 70, "declarations are found: {}", declared.len());
    for name in declared {
        assert!(listed.contains(&name.as_str()), "{name} is in no list");
    }
}

/// Goal: docs/reference/tunables.md has each number that steers something.
#[test]
fn the_reference_has_each_tunable() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/tunables.md");
    let text = std::fs::read_to_string(page).unwrap();
    for tunable in Tunables::default().list().iter().filter(|tunable| !tunable.no_effect) {
        assert!(text.contains(&format!("`{}`", tunable.name)), "{}", tunable.name);
    }
}
