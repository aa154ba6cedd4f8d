//! Pools whose layout changes while they are written. OpenZFS's `zdb` checks the results if it is
//! available.

use std::path::{Path, PathBuf};

use ondisk::config::{AllocBias, DraidShape};
use ondisk::feature::{FEATURES, Feature};
use ondisk::{Ashift, Guid};
use spa::Spa;
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::{AddTerms, PoolProp, PoolWriter, ShapeError};
use spa::import::{AuxVdev, Options, SystemClock};
use testpools::{ask, host, import, judge, pool_of};

fn image(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    path
}

fn vdev(dir: &Path, shape: VdevShape, bias: Option<AllocBias>, names: &[&str]) -> NewVdev {
    let leaves = names.iter().map(|n| NewLeaf { path: image(dir, n) }).collect();
    NewVdev { shape, bias, leaves }
}

fn single(dir: &Path, name: &str) -> NewVdev {
    vdev(dir, VdevShape::Single, None, &[name])
}

fn new_pool(vdevs: Vec<NewVdev>) -> Spa {
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    pool_of(vdevs, &features)
}

/// The output of `zdb -l` for a device.
fn label(path: &Path) -> Option<String> {
    let out = std::process::Command::new(testpools::zdb()?).arg("-l").arg(path).output().unwrap();
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Imports an exported pool read-only.
fn read(dir: &Path) -> Spa {
    let found = spa::discover(&[dir]).pools.remove(0);
    spa::import(&found, &Options::default(), &host(), &SystemClock).unwrap()
}

fn terms() -> AddTerms<'static> {
    AddTerms { ashift: None, check_ashift: true, force: false, claimer: &claim_file }
}

/// Creates a file system with a file of this many bytes.
fn fill(live: &PoolWriter, name: &str, bytes: usize) {
    let at = format!("tank/{name}");
    live.run(testpools::file_system(&at, Vec::new())).unwrap();
    let owned = testpools::own(live, &at);
    testpools::write_file(live, &owned, &testpools::noise(7, bytes)).unwrap();
    live.sync_all().unwrap();
}

/// Goal: vdevs of every class and shape are added to a pool in use, take blocks at once, and are
/// there after an export. `zdb` finds the pool consistent.
#[test]
fn vdevs_are_added() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(vec![single(d, "a")]);
    let live = spa.writer().unwrap();
    fill(live, "before", 4 << 20);
    let room = |live: &PoolWriter| live.dsl().space().rdspace;
    let before = room(live);
    live.vdevs().add(&[vdev(d, VdevShape::Mirror, None, &["m0", "m1"]), single(d, "b")], &terms()).unwrap();
    assert!(room(live) > 2 * before, "the new room is there");
    fill(live, "middle", 16 << 20);
    live.vdevs()
        .add(
            &[
                vdev(d, VdevShape::Mirror, Some(AllocBias::Special), &["s0", "s1"]),
                vdev(d, VdevShape::Single, Some(AllocBias::Log), &["l"]),
                vdev(d, VdevShape::Raidz(1), None, &["r0", "r1", "r2"]),
            ],
            &terms(),
        )
        .unwrap();
    fill(live, "after", 16 << 20);
    let tops = live.config().vdev_tree.as_ref().unwrap().children.len();
    assert_eq!(tops, 6);
    live.export().unwrap();
    drop(spa);
    judge(d, "tank");
    let spa = import(d).unwrap();
    let live = spa.writer().unwrap();
    fill(live, "again", 1 << 20);
    live.vdevs().add(&[single(d, "c")], &terms()).unwrap();
    fill(live, "last", 1 << 20);
    live.export().unwrap();
    drop(spa);
    judge(d, "tank");
    if let Some(config) = ask(d, "tank", &["-C"]) {
        assert!(config.contains("vdev_children: 7"), "{config}");
        assert!(config.contains("create_txg"), "{config}");
    }
}

/// Goal: invalid additions are refused with their reasons, and the pool continues unchanged.
#[test]
fn refused_additions() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(vec![single(d, "a")]);
    let live = spa.writer().unwrap();
    let other = AddTerms { ashift: Some(Ashift(12)), ..terms() };
    let odd = live.vdevs().add(&[single(d, "b")], &other).unwrap_err();
    assert!(matches!(odd, ShapeError::AshiftMismatch { new: Ashift(12), old: Ashift(9) }), "{odd}");
    live.vdevs().add(&[single(d, "b")], &AddTerms { check_ashift: false, ..other }).unwrap();
    let twice = NewVdev { leaves: vec![NewLeaf { path: d.join("a") }], ..single(d, "c") };
    assert!(matches!(live.vdevs().add(&[twice], &terms()), Err(ShapeError::Devices(_))));
    fill(live, "x", 1 << 20);
    live.export().unwrap();
    drop(spa);
    judge(d, "tank");
}

/// Goal: a pool that was not exported after devices were added is complete when it is imported
/// again.
#[test]
fn added_and_left() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(vec![single(d, "a")]);
    let live = spa.writer().unwrap();
    live.vdevs().add(&[single(d, "b")], &terms()).unwrap();
    fill(live, "x", 8 << 20);
    drop(spa);
    let spa = import(d).unwrap();
    let live = spa.writer().unwrap();
    assert_eq!(live.config().vdev_tree.as_ref().unwrap().children.len(), 2);
    live.export().unwrap();
    drop(spa);
    judge(d, "tank");
}

/// Goal: hot spares and cache devices are added and removed, with lists and labels as OpenZFS
/// writes them. Distributed spares are listed with their dRAID.
#[test]
fn spares_and_cache() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let leaf = |name: &str| NewLeaf { path: image(d, name) };
    let draid = VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 });
    let spa = new_pool(vec![vdev(d, draid, None, &["a", "b", "c", "e", "f"])]);
    let live = spa.writer().unwrap();
    live.vdevs().add_aux(&[leaf("s0"), leaf("s1")], &[leaf("l0")], false, &claim_file).unwrap();
    let again = NewLeaf { path: d.join("s0") };
    assert!(matches!(live.vdevs().add_aux(&[again], &[], false, &claim_file), Err(ShapeError::Devices(_))));
    fill(live, "x", 1 << 20);
    live.export().unwrap();
    drop(spa);
    if let Some(label) = label(&d.join("s0")) {
        assert!(label.contains("state: 3"), "{label}");
    }
    if let Some(label) = label(&d.join("l0")) {
        assert!(label.contains("state: 4"), "{label}");
    }
    judge(d, "tank");
    let found = read(d);
    let paths = |list: &[AuxVdev]| -> Vec<String> {
        list.iter().map(|a| String::from_utf8_lossy(a.config.path.as_deref().unwrap()).into_owned()).collect()
    };
    let at = |n: &str| d.join(n).display().to_string();
    assert_eq!(paths(&found.spares()), ["draid1-0-0".to_owned(), at("s0"), at("s1")]);
    assert_eq!(paths(&found.l2cache()), [at("l0")]);
    let guid = |list: &[AuxVdev], n: usize| list[n].config.guid;
    let (virtual_one, spare, cache) =
        (guid(&found.spares(), 0), guid(&found.spares(), 2), guid(&found.l2cache(), 0));
    drop(found);
    let spa = import(d).unwrap();
    let live = spa.writer().unwrap();
    live.vdevs().remove_aux(spare).unwrap();
    live.vdevs().remove_aux(cache).unwrap();
    assert!(matches!(live.vdevs().remove_aux(virtual_one), Err(ShapeError::Unsupported { .. })));
    assert!(matches!(live.vdevs().remove_aux(cache), Err(ShapeError::Tree(_))));
    live.export().unwrap();
    drop(spa);
    judge(d, "tank");
    let found = read(d);
    assert_eq!(paths(&found.spares()), ["draid1-0-0".to_owned(), at("s0")]);
    assert!(found.l2cache().is_empty());
}

/// Goal: properties, features and the guid change in config, labels and MOS. `zdb` sees the changes
/// and the history records them.
#[test]
fn properties_and_guid() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = pool_of(vec![single(d, "a")], &[]);
    let live = spa.writer().unwrap();
    let text = |n: &str, v: &str| PoolProp::Text(n.into(), v.into());
    live.set(vec![
        text("comment", "a pool"),
        text("org.example:note", "mine"),
        PoolProp::Number("autoexpand".into(), 1),
        PoolProp::Feature(Feature::by_name("bookmark_v2").unwrap()),
    ])
    .unwrap();
    live.set(vec![text("org.example:gone", "x"), text("org.example:gone", "")]).unwrap();
    let old = live.config().pool_guid.unwrap();
    let new = live.reguid(None).unwrap();
    assert!(new != old && live.config().pool_guid == Some(new));
    assert!(matches!(live.reguid(Some(Guid(0))), Err(ShapeError::Guid { .. })));
    fill(live, "x", 1 << 20);
    live.export().unwrap();
    drop(spa);
    judge(d, "tank");
    if let Some(config) = ask(d, "tank", &["-C"]) {
        assert!(config.contains("comment: 'a pool'"), "{config}");
        assert!(config.contains(&format!("pool_guid: {}", new.0)), "{config}");
        let label = label(&d.join("a")).unwrap();
        assert!(label.contains("comment: 'a pool'") && label.contains(&new.0.to_string()), "{label}");
        let history = ask(d, "tank", &["-h"]).unwrap();
        for event in ["comment=a pool", "feature@bookmark_v2=enabled", "guid change"] {
            assert!(history.contains(event), "{event}: {history}");
        }
    }
    let found = read(d);
    let props = found.mos().pool_props().unwrap();
    assert_eq!(props["autoexpand"].as_u64(), Some(1));
    assert!(props.contains_key("org.example:note") && !props.contains_key("org.example:gone"));
    assert!(
        found.features().is_enabled("com.datto:bookmark_v2")
            && !found.features().is_enabled("com.datto:encryption")
    );
}
