use super::*;

fn real(packed: &[u8]) -> PoolConfig {
    PoolConfig::from_nvlist(&Nvlist::decode(packed).unwrap()).unwrap()
}

/// Goal: the decoder reads a raidz label with past expansions.
#[test]
fn raidz_label() {
    let c = real(include_bytes!("../../tests/data/raidz-expanded-d0.nvlist"));
    assert_eq!((c.name.as_deref(), c.state, c.txg), (Some("xraidz-expanded"), PoolState::Exported, Txg(127)));
    let tree = c.vdev_tree.unwrap();
    assert_eq!((tree.kind, tree.nparity, tree.ashift), (VdevKind::Raidz, Some(1), Some(Ashift(9))));
    assert_eq!(tree.raidz_expand_txgs, [Txg(46)]);
    assert_eq!(tree.children.len(), 4);
    assert_eq!(tree.children[0].dtl, Some(ObjNum(92)));
    assert_eq!(c.guid, Some(tree.children[0].guid));
    assert_eq!(tree.leaves().count(), 4);
}

/// Goal: the decoder reads the shape of a draid vdev from a label.
#[test]
fn draid_label() {
    let tree = real(include_bytes!("../../tests/data/draid1-d0.nvlist")).vdev_tree.unwrap();
    assert_eq!(tree.draid, Some(DraidShape { ndata: 2, nspares: 1, ngroups: 4 }));
    assert_eq!((tree.kind, tree.nparity), (VdevKind::Draid, Some(1)));
}

/// Goal: the decoder accepts labels of a cache device and of a hot spare, which name no pool.
#[test]
fn auxiliary_labels() {
    let l2 = real(include_bytes!("../../tests/data/stripe-classes-d5.nvlist"));
    assert_eq!((l2.state, l2.name), (PoolState::L2cache, None));
    assert!(l2.guid.is_some());
    let spare = real(include_bytes!("../../tests/data/stripe-classes-d6.nvlist"));
    assert_eq!((spare.state, spare.pool_guid), (PoolState::Spare, None));
}

/// Goal: an offline device shows in its siblings' labels, and its stale label is older than theirs.
#[test]
fn offline_device() {
    let stale = real(include_bytes!("../../tests/data/multi-vdev-d4.nvlist"));
    let fresh = real(include_bytes!("../../tests/data/multi-vdev-d3.nvlist"));
    assert!(stale.txg < fresh.txg);
    let tree = fresh.vdev_tree.unwrap();
    assert!(tree.find(stale.guid.unwrap()).unwrap().offline);
    assert!(!tree.find(fresh.guid.unwrap()).unwrap().offline);
}

/// Goal: the decoder refuses impossible trees: a mirror without children, too much parity, endless
/// depth.
#[test]
fn impossible_trees() {
    let leaf = |kind: &str| {
        let mut nv = Nvlist::new();
        nv.set("type", Value::String(kind.into()));
        nv.set("guid", Value::Uint64(1));
        nv
    };
    assert!(VdevConfig::from_nvlist(&leaf("file")).is_ok());
    assert!(VdevConfig::from_nvlist(&leaf("mirror")).is_err());
    assert!(VdevConfig::from_nvlist(&leaf("quantum")).is_err());
    let mut raidz = leaf("raidz");
    raidz.set("children", Value::ListArray(vec![leaf("file"); 3]));
    assert_eq!(VdevConfig::from_nvlist(&raidz).unwrap().nparity, Some(1));
    for p in [0, 3, 4, u64::MAX] {
        raidz.set("nparity", Value::Uint64(p));
        assert!(VdevConfig::from_nvlist(&raidz).is_err(), "{p}");
    }
    let mut deep = leaf("file");
    for _ in 0..=MAX_DEPTH {
        let mut up = leaf("mirror");
        up.set("children", Value::ListArray(vec![deep]));
        deep = up;
    }
    assert!(VdevConfig::from_nvlist(&deep).is_err());
}

/// Goal: labels of real pools are encoded again byte for byte.
#[test]
fn labels_are_rewritten_to_the_byte() {
    let mut seen = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|e| e != "nvlist") {
            continue;
        }
        let packed = std::fs::read(&path).unwrap();
        let list = Nvlist::decode(&packed).unwrap();
        let Ok(mut config) = PoolConfig::from_nvlist(&list) else { continue };
        let Some((leaf, top)) = config.guid.zip(config.top_guid) else { continue };
        // A label holds its own top-level vdev alone; it only counts the siblings.
        let own = config.vdev_tree.take().unwrap();
        assert_eq!(own.guid, top);
        let mut root = VdevConfig::new(VdevKind::Root, Guid(1));
        for id in 0..config.vdev_children.unwrap() {
            let hole = config.hole_array.contains(&id);
            let kind = if hole { VdevKind::Hole } else { VdevKind::Missing };
            root.children.push(VdevConfig::new(kind, Guid(id + 1000)));
        }
        let at = own.id as usize;
        root.children[at] = own;
        config.vdev_tree = Some(root);
        let again = config.to_label(leaf, config.txg).unwrap();
        assert_eq!(again, list, "{}", path.display());
        let used = again.encode_xdr();
        assert_eq!(used[..], packed[..used.len()], "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 3, "only {seen} labels were found");
}

/// Goal: each kind of vdev has OpenZFS's name, and is found by it.
#[test]
fn vdev_kinds_have_names() {
    use VdevKind::*;
    let names = [
        (Root, "root"),
        (Mirror, "mirror"),
        (Replacing, "replacing"),
        (Spare, "spare"),
        (Raidz, "raidz"),
        (Draid, "draid"),
        (DraidSpare, "dspare"),
        (Disk, "disk"),
        (File, "file"),
        (Missing, "missing"),
        (Hole, "hole"),
        (Indirect, "indirect"),
    ];
    for (kind, name) in names {
        assert_eq!((kind.name(), VdevKind::from_name(name.as_bytes())), (name, Ok(kind)));
    }
    assert!(VdevKind::from_name(b"l2cache").is_err() && VdevKind::from_name(b"\xff").is_err());
    assert!(PoolState::from_disk(8).is_err());
    assert_eq!(PoolState::from_disk(7), Ok(PoolState::PotentiallyActive));
}

/// Goal: a config without a vdev tree, as labels of spares have it, is refused where a pool's is
/// needed. With a tree, both are read and changed.
#[test]
fn rooted_configs_have_a_tree() {
    let mut config = PoolConfig::new("t", 5000);
    assert!(matches!(RootedConfig::try_from(config.clone()), Err(Corrupt::Shape { .. })));
    config.vdev_tree = Some(VdevConfig::new(VdevKind::Root, Guid(1)));
    let mut rooted = RootedConfig::try_from(config.clone()).unwrap();
    rooted.comment = Some("c".to_owned());
    rooted.root_mut().children.push(VdevConfig::new(VdevKind::Disk, Guid(2)));
    assert_eq!((rooted.root().children.len(), rooted.version), (1, 5000));
    rooted.set_root(VdevConfig::new(VdevKind::Root, Guid(3)));
    config.comment = Some("c".to_owned());
    config.vdev_tree = Some(VdevConfig::new(VdevKind::Root, Guid(3)));
    assert_eq!(rooted.into_config(), config);
}
