use super::*;

/// Goal: every number has a default within its bounds, is set and given back, and nonsense is refused by name.
#[test]
fn set_and_given_back() {
    let tunables = Tunables::default();
    for (knob, listed) in KNOBS.iter().zip(tunables.list()) {
        assert_eq!((knob.name, listed.value), (listed.name.as_str(), listed.default));
        assert!((knob.least..=knob.most).contains(&listed.default), "{}", knob.name);
        assert!(tunables.set(knob.name, knob.least, &[]).is_ok());
        assert!(knob.most == u64::MAX || tunables.set(knob.name, knob.most + 1, &[]).is_err());
    }
    assert!(tunables.list().iter().zip(&KNOBS).all(|(listed, knob)| listed.value == knob.least));
    assert!(tunables.set("zfs_arc_max", 0, &[]).is_ok());
    let arc = tunables.list().into_iter().find(|t| t.name == "zfs_arc_max").unwrap();
    assert_eq!(arc.value, arc.default);
    assert!(tunables.set("zfs_txg_timeout", 0, &[]).is_err());
    assert!(matches!(tunables.set("zfs_nonsense", 1, &[]).unwrap_err().reason, Reason::BadProperty { .. }));
}
