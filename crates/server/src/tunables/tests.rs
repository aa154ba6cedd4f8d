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
