use super::*;

/// Goal: every number has a default within its bounds, is set and given back, and nonsense is refused by name.
#[test]
fn set_and_given_back() {
    let tunables = Tunables::default();
    for knob in &KNOBS {
        let listed = tunables.list().into_iter().find(|t| t.name == knob.name).unwrap();
        assert_eq!(listed.value, listed.default, "{}", knob.name);
        assert!((knob.least..=knob.most).contains(&listed.default), "{}", knob.name);
        assert!(tunables.set(knob.name, knob.least, &[]).is_ok());
        assert!(knob.most == u64::MAX || tunables.set(knob.name, knob.most + 1, &[]).is_err());
    }
    for knob in &KNOBS {
        assert!(tunables.list().iter().any(|t| (t.name.as_str(), t.value) == (knob.name, knob.least)));
    }
    assert!(tunables.set("zfs_arc_max", 0, &[]).is_ok());
    let arc = tunables.list().into_iter().find(|t| t.name == "zfs_arc_max").unwrap();
    assert_eq!(arc.value, arc.default);
    assert!(tunables.set("zfs_txg_timeout", 0, &[]).is_err());
    assert!(matches!(tunables.set("zfs_nonsense", 1, &[]).unwrap_err().reason, Reason::BadProperty { .. }));
}

/// Goal: numbers that are read where they steer are all listed with their defaults, within bounds, and nonsense is refused.
#[test]
fn steered_by_statics() {
    let tunables = Tunables::default();
    for one in &STEERED {
        assert!((one.least..=one.most).contains(&one.at.default()), "{}", one.name);
        assert!(tunables.list().iter().any(|t| t.name == one.name && t.default == one.at.default()));
        assert!(one.most == u64::MAX || tunables.set(one.name, one.most + 1, &[]).is_err());
    }
    for name in ["zfs_vdev_default_ms_count", "zfs_vdev_min_ms_count", "zfs_vdev_ms_count_limit"] {
        assert!(tunables.set(name, 1, &[]).is_err(), "{name}: it would be a vdev without metaslabs");
    }
    tunables.set("zfs_vdev_ms_count_limit", 1 << 18, &[]).unwrap();
    assert_eq!(MS_COUNT_LIMIT.get(), 1 << 18);
    tunables.set("zfs_vdev_ms_count_limit", MS_COUNT_LIMIT.default(), &[]).unwrap();
    let names: Vec<String> = tunables.list().into_iter().map(|t| t.name).collect();
    assert!(names.is_sorted());
}

/// Goal: `zfs_arc_min` and `zfs_arc_max` are the bounds of the cache that all pools share, the upper one before the lower, and kstats tell them with what the machine has.
#[test]
fn bounds_of_the_cache() {
    let tunables = Tunables::default();
    let (min, max) = tunables.store().bounds();
    assert_eq!(max, poolhouse::default_cache_bytes());
    assert_eq!(min, default("zfs_arc_min").min(max));
    assert!(tunables.set("zfs_arc_min", ARC_LEAST - 1, &[]).is_err());
    tunables.set("zfs_arc_max", 256 << 20, &[]).unwrap();
    tunables.set("zfs_arc_min", 100 << 20, &[]).unwrap();
    assert_eq!(tunables.store().bounds(), (100 << 20, 256 << 20));
    tunables.set("zfs_arc_max", 64 << 20, &[]).unwrap();
    assert_eq!(tunables.store().bounds(), (64 << 20, 64 << 20));
    tunables.set("zfs_arc_max", 256 << 20, &[]).unwrap();
    // As if others lacked more than there is.
    tunables.store().adapt(arc::Memory { all: 1 << 40, free: 0 });
    let told: BTreeMap<_, _> = crate::kstats::arc(tunables.store()).into_iter().collect();
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
    tunables.set("zfs_arc_min", 0, &[]).unwrap();
    assert_eq!(tunables.store().bounds().0, default("zfs_arc_min").min(256 << 20));
}
