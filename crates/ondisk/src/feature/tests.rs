use super::*;

/// Goal: guids and names are well-formed and unique, and all dependencies exist.
#[test]
fn table_is_consistent() {
    for (i, f) in FEATURES.iter().enumerate() {
        assert!(is_valid_guid(f.guid), "{}", f.guid);
        assert!(FEATURES[..i].iter().all(|g| g.guid != f.guid && g.name != f.name));
        assert!(f.depends.iter().all(|d| Feature::by_name(d).is_some()), "{}", f.name);
        assert!(!(f.readonly_compatible() && f.mos()), "{}", f.name);
        assert!(!f.per_dataset() || f.depends.contains(&"extensible_dataset"), "{}", f.name);
        assert!(f.guid.ends_with(&format!(":{}", f.name)));
    }
    assert!(!is_valid_guid("noseparator") && !is_valid_guid("a:b:c") && !is_valid_guid("a_b:c"));
}

/// Goal: the features in a real pool's label are all known, and are of the kind that labels list.
#[test]
fn label_features_are_mos_features() {
    let packed = include_bytes!("../../tests/data/draid1-d0.nvlist");
    let nv = crate::Nvlist::decode(packed).unwrap();
    for guid in crate::PoolConfig::from_nvlist(&nv).unwrap().features_for_read {
        assert!(Feature::by_guid(&guid).unwrap().mos(), "{guid}");
    }
}
