//! Splits of pools of mirrors. OpenZFS's `zdb` checks the results if it is available.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::config::AllocBias;
use ondisk::feature::{FEATURES, Feature};
use ondisk::{Guid, ObjNum};
use spa::Spa;
use spa::create::{NewLeaf, NewVdev, VdevShape};
use spa::engine::{LogHandle, PoolWriter, ShapeError};
use spa::import::{Options, Resources, SystemClock, import_for_writing};
use spa::{SplitError, SplitTerms, Unfit};
use testpools::{ask, host, import_as, judge, noise, own, pool_of, read_file, write_file};
use zil::{Bytes, Missing, Source};

const LEN: usize = 1 << 20;

fn vdev(dir: &Path, shape: VdevShape, bias: Option<AllocBias>, names: &[&str]) -> NewVdev {
    let image = |name: &&str| {
        let path = dir.join(name);
        std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
        NewLeaf { path }
    };
    NewVdev { shape, bias, leaves: names.iter().map(image).collect() }
}

fn mirror(dir: &Path, names: &[&str]) -> NewVdev {
    vdev(dir, VdevShape::Mirror, None, names)
}

fn new_pool(vdevs: Vec<NewVdev>) -> Spa {
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    pool_of(vdevs, &features)
}

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

fn write(spa: &Spa, seed: u64) -> (u64, ObjNum) {
    let pool = spa.name().to_owned();
    let object = write_file(live(spa), &own(live(spa), &pool), &noise(seed, LEN)).unwrap();
    live(spa).sync_all().unwrap();
    (seed, object)
}

fn check(spa: &Spa, files: &[(u64, ObjNum)]) {
    let owned = own(live(spa), spa.name());
    for (seed, object) in files {
        assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed}");
    }
}

struct Files<'a>(&'a dsl::Owned);

impl Source for Files<'_> {
    fn data(&self, object: ObjNum, offset: u64, len: usize) -> Result<Bytes, Missing> {
        let dn = self.0.objset().dnode(object).map_err(|_| Missing::Gone)?;
        Bytes::of(&dn, offset, len).map_err(|_| Missing::Gone)
    }
}

/// Commits some writes, so that there is an intent log.
fn commit(live: &PoolWriter, owned: &dsl::Owned, log: &LogHandle) {
    for n in 0..5 {
        let bytes = noise(n, 3000);
        let object = write_file(live, owned, &bytes).unwrap();
        let tx = live.tx(0).unwrap();
        log.log_write(&tx, object, 0, &bytes, false);
        drop(tx);
        log.commit(Some(object), &Files(owned)).unwrap();
    }
    assert!(log.stats().block_count > 0);
}

/// The guids of the leaves at these paths.
fn guids(spa: &Spa, dir: &Path, names: &[&str]) -> Vec<Guid> {
    let config = spa.config();
    let leaves: Vec<_> = config.vdev_tree.as_ref().unwrap().leaves().cloned().collect();
    let one = |name: &&str| {
        let path = dir.join(name).display().to_string().into_bytes();
        leaves.iter().find(|leaf| leaf.path.as_ref() == Some(&path)).unwrap().guid
    };
    names.iter().map(one).collect()
}

fn try_split(spa: &Spa, leaves: &[Guid]) -> Result<Spa, SplitError> {
    let terms = SplitTerms {
        name: "half",
        guid: Guid(0x5eed),
        leaves,
        altroot: None,
        host: &host(),
        workers: Arc::new(zio::Workers::new("zio", 1)),
        cache: (64u64 << 20).into(),
    };
    live(spa).split(&terms)
}

fn split(spa: &Spa, dir: &Path, names: &[&str]) -> Spa {
    try_split(spa, &guids(spa, dir, names)).unwrap()
}

fn export(spa: Spa) {
    live(&spa).export().unwrap();
}

/// Imports a pool by name for writing.
fn named(dir: &Path, name: &str) -> Spa {
    let pools = spa::discover(&[dir]).pools;
    let found = pools.iter().find(|pool| pool.name == name).unwrap();
    let options = Options { readonly: false, force: true, ..Options::default() };
    import_for_writing(found, &options, None, &host(), &SystemClock, Resources::of_system(name)).unwrap()
}

/// The output of `zdb -l` for a device.
fn label(path: &Path) -> Option<String> {
    let out = std::process::Command::new(testpools::zdb()?).arg("-l").arg(path).output().unwrap();
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Moves images into their own directory.
fn move_to(dir: &Path, away: &str, names: &[&str]) -> PathBuf {
    let to = dir.join(away);
    std::fs::create_dir(&to).unwrap();
    for name in names {
        std::fs::rename(dir.join(name), to.join(name)).unwrap();
    }
    to
}

/// Goal: a child of a two-way mirror becomes a pool of its own with the same contents. Both pools
/// work independently, and `zdb` finds both consistent.
#[test]
fn a_mirror_of_two() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(vec![mirror(d, &["a", "b"])]);
    let first = write(&spa, 1);
    let owned = own(live(&spa), "tank");
    let log = live(&spa).logs().open(&owned);
    commit(live(&spa), &owned, &log);
    let half = split(&spa, d, &["b"]);
    commit(live(&spa), &owned, &log);
    drop(log);
    drop(owned);
    let (second, third) = (write(&spa, 2), write(&half, 3));
    check(&spa, &[first, second]);
    check(&half, &[first, third]);
    let config = spa.config();
    let kinds: Vec<_> = config.vdev_tree.as_ref().unwrap().children.iter().map(|t| t.kind.name()).collect();
    assert_eq!(kinds, ["file"]);
    export(half);
    export(spa);
    judge(d, "tank");
    judge(d, "half");
    if let Some(label) = label(&d.join("b")) {
        assert!(label.contains("name: 'half'") && label.contains("split_guid"), "{label}");
        assert!(label.contains("labels = 0 1 2 3"), "{label}");
        let history = ask(d, "half", &["-h"]).unwrap();
        assert!(history.contains("from pool tank"), "{history}");
        let history = ask(d, "tank", &["-h"]).unwrap();
        assert!(history.contains("detach") && !history.contains("from pool"), "{history}");
    }
    let (spa, half) = (named(d, "tank"), named(d, "half"));
    check(&spa, &[first, second]);
    check(&half, &[first, third]);
    write(&half, 4);
    export(half);
    export(spa);
    judge(d, "tank");
    judge(d, "half");
}

/// Goal: a split takes the named devices of three mirrors, and the three-way one stays a mirror.
///
/// The log devices stay with the old pool, and hot spares are not shared.
#[test]
fn mirrors_with_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let log = vdev(d, VdevShape::Single, Some(AllocBias::Log), &["l"]);
    let special = vdev(d, VdevShape::Mirror, Some(AllocBias::Special), &["s", "t"]);
    let spa = new_pool(vec![mirror(d, &["a", "b", "c"]), log, mirror(d, &["e", "f"]), special]);
    let spare = vdev(d, VdevShape::Single, None, &["h"]).leaves;
    live(&spa).vdevs().add_aux(&spare, &[], false, &spa::create::claim_file).unwrap();
    let first = write(&spa, 1);
    let owned = own(live(&spa), "tank");
    let log = live(&spa).logs().open(&owned);
    commit(live(&spa), &owned, &log);
    let half = split(&spa, d, &["b", "f", "s"]);
    commit(live(&spa), &owned, &log);
    drop(log);
    drop(owned);
    assert!(half.spares().is_empty() && spa.spares().len() == 1);
    let (second, third) = (write(&spa, 2), write(&half, 3));
    check(&spa, &[first, second]);
    check(&half, &[first, third]);
    let kinds = |spa: &Spa| -> Vec<_> {
        let config = spa.config();
        config.vdev_tree.as_ref().unwrap().children.iter().map(|t| t.kind.name()).collect()
    };
    assert_eq!(kinds(&spa), ["mirror", "file", "file", "file"]);
    assert_eq!(kinds(&half), ["file", "hole", "file", "file"]);
    export(half);
    export(spa);
    judge(d, "tank");
    judge(d, "half");
    let away = move_to(d, "away", &["b", "f", "s"]);
    let spa = named(d, "tank");
    let half = import_as(&away, Options::default()).unwrap();
    check(&spa, &[first, second]);
    check(&half, &[first, third]);
}

/// Goal: invalid splits are refused with their reasons, and the pool continues unchanged.
#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(vec![mirror(d, &["a", "b"]), vdev(d, VdevShape::Single, None, &["x"])]);
    let some = guids(&spa, d, &["a"]);
    assert!(matches!(try_split(&spa, &some), Err(SplitError::Unfit(Unfit::NotMirror { .. }))));
    export(spa);
    let d = &d.join("mirrors");
    std::fs::create_dir(d).unwrap();
    let spa = new_pool(vec![mirror(d, &["a", "b"]), mirror(d, &["c", "e"])]);
    for names in [&["a"][..], &["a", "b", "c"], &[]] {
        assert!(
            matches!(try_split(&spa, &guids(&spa, d, names)), Err(SplitError::Unfit(Unfit::Devices))),
            "{names:?}"
        );
    }
    let good = guids(&spa, d, &["a", "c"]);
    live(&spa).checkpoints().take().unwrap();
    assert!(matches!(try_split(&spa, &good), Err(SplitError::Shape(ShapeError::CheckpointExists))));
    live(&spa).checkpoints().discard(true).unwrap();
    let first = write(&spa, 1);
    check(&spa, &[first]);
    export(spa);
    judge(d, "tank");
}

/// Goal: both pools are complete if neither is exported after the split.
#[test]
fn split_and_left() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(vec![mirror(d, &["a", "b"])]);
    let first = write(&spa, 1);
    let half = split(&spa, d, &["a"]);
    drop(half);
    drop(spa);
    let (spa, half) = (named(d, "tank"), named(d, "half"));
    check(&spa, &[first]);
    check(&half, &[first]);
    export(half);
    export(spa);
    judge(d, "tank");
    judge(d, "half");
}

/// Goal: if the old pool's txg did not reach its devices, an import drops the devices that were
/// split off and completes the split. Both pools are consistent.
#[test]
fn the_old_pool_lags_behind() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(vec![mirror(d, &["a", "b"])]);
    let first = write(&spa, 1);
    // The state of the disks when the new pool is written and the old pool's txg is not.
    let before = std::fs::read(d.join("a")).unwrap();
    let half = split(&spa, d, &["b"]);
    drop(half);
    drop(spa);
    std::fs::write(d.join("a"), before).unwrap();
    let spa = named(d, "tank");
    check(&spa, &[first]);
    assert_eq!(spa.tree().state().0, vdev::VdevState::Healthy);
    let config = spa.config();
    let kinds: Vec<_> = config.vdev_tree.as_ref().unwrap().children.iter().map(|t| t.kind.name()).collect();
    assert_eq!(kinds, ["file"]);
    let half = named(d, "half");
    check(&half, &[first]);
    write(&spa, 2);
    export(half);
    export(spa);
    judge(d, "half");
    judge(d, "tank");
}
