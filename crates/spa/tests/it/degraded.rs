//! Pools that are written without some of their devices, or from an older state on.

use ondisk::config::AllocBias;
use ondisk::feature::{FEATURES, Feature};
use ondisk::{Guid, ObjNum, Txg};
use spa::Spa;
use spa::create::{NewLeaf, NewVdev, VdevShape};
use spa::engine::{PoolProp, PoolWriter};
use spa::import::{Options, Rewind};
use testpools::{
    ask, images, import, import_as, judge, new_pool, noise, own, pool_of, read_file, write_file,
};
use vdev::VdevState;

const LEN: usize = 1 << 20;

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

/// Writes a file and syncs it. Returns its object and its txg.
fn write(spa: &Spa, seed: u64) -> (ObjNum, Txg) {
    let object = write_file(live(spa), &own(live(spa), "tank"), &noise(seed, LEN)).unwrap();
    live(spa).sync_all().unwrap();
    (object, spa.last_synced_txg())
}

fn check(spa: &Spa, files: &[(u64, ObjNum)]) {
    let owned = own(live(spa), "tank");
    for (seed, object) in files {
        assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed}");
    }
}

fn export(spa: Spa) {
    live(&spa).export().unwrap();
}

fn leaf(spa: &Spa, n: usize) -> (Guid, VdevState) {
    let info = &spa.tree().describe().children[0].children[n];
    (info.guid, info.state)
}

/// Goal: a pool is written without a device that it does not need. When the device is available
/// again, its DTL shows what it missed, as `zdb` confirms, and no stale data is read.
#[test]
fn a_missing_device_comes_back() {
    for (shape, count) in [(VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), count, 96 << 20);
        let spa = new_pool(shape, &images);
        let first = write(&spa, 1).0;
        let before = spa.last_synced_txg();
        export(spa);

        let away = tempfile::tempdir().unwrap();
        let hidden = away.path().join("d0.img");
        std::fs::rename(&images[0], &hidden).unwrap();
        let spa = import(dir.path()).unwrap();
        assert_eq!((leaf(&spa, 0).1, spa.tree().state().0), (VdevState::CantOpen, VdevState::Degraded));
        let (second, txg) = write(&spa, 2);
        check(&spa, &[(1, first), (2, second)]);
        export(spa);
        judge(dir.path(), "tank");
        if let Some(text) = ask(dir.path(), "tank", &["-ddd"]) {
            let start = text.find("Dirty time logs").unwrap();
            assert!(text[start..].contains("missing"), "{text}");
        }

        std::fs::rename(&hidden, &images[0]).unwrap();
        let spa = import(dir.path()).unwrap();
        let (guid, state) = leaf(&spa, 0);
        let missed = spa.tree().dtl(guid).unwrap();
        assert_eq!(
            (state, missed.contains(txg.0), missed.contains(before.0)),
            (VdevState::Healthy, true, false)
        );
        // The pool uses the device as an up-to-date one until its DTLs are loaded.
        let errors = || -> u64 {
            let top = &spa.tree().describe().children[0];
            top.children.iter().map(|leaf| leaf.stats.checksum_errors).sum()
        };
        let before_reading = errors();
        check(&spa, &[(1, first), (2, second)]);
        let third = write(&spa, 3).0;
        check(&spa, &[(1, first), (2, second), (3, third)]);
        assert_eq!(errors(), before_reading);
        export(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: a pool can be written without its log device if the import requests that.
#[test]
fn a_missing_log_is_done_without() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, 96 << 20);
    let vdev = |n: usize, bias| NewVdev {
        shape: VdevShape::Single,
        bias,
        leaves: vec![NewLeaf { path: images[n].clone() }],
    };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let spa = pool_of(vec![vdev(0, None), vdev(1, Some(AllocBias::Log))], &features);
    let first = write(&spa, 1).0;
    export(spa);
    let away = tempfile::tempdir().unwrap();
    let hidden = away.path().join("d1.img");
    std::fs::rename(&images[1], &hidden).unwrap();
    assert!(import(dir.path()).is_err());
    let options = || Options { missing_log: true, ..Options::default() };
    let spa = import_as(dir.path(), options()).unwrap();
    let second = write(&spa, 2).0;
    export(spa);
    std::fs::rename(hidden, &images[1]).unwrap();
    let spa = import(dir.path()).unwrap();
    check(&spa, &[(1, first), (2, second)]);
    export(spa);
    judge(dir.path(), "tank");
}

/// Goal: a pool that is rewound continues from the older state, and the discarded state never
/// reappears.
#[test]
fn given_up_states_stay_so() {
    for exports in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), 2, 96 << 20);
        let spa = new_pool(VdevShape::Mirror, &images);
        let (first, txg) = write(&spa, 1);
        let given_up = write(&spa, 2).0;
        export(spa);
        let newest = {
            let spa = import(dir.path()).unwrap();
            spa.last_synced_txg()
        };
        let rewind = Options { max_txg: Some(txg), rewind: Rewind::Extreme, ..Options::default() };
        let spa = import_as(dir.path(), rewind).unwrap();
        assert!(spa.last_synced_txg() > newest, "{:?} {newest:?}", spa.last_synced_txg());
        check(&spa, &[(1, first)]);
        if exports {
            export(spa)
        } else {
            drop(spa)
        }
        let spa = import(dir.path()).unwrap();
        check(&spa, &[(1, first)]);
        assert!(own(live(&spa), "tank").objset().dnode(given_up).is_err());
        let third = write(&spa, 3).0;
        check(&spa, &[(1, first), (3, third)]);
        export(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: a pool with `multihost=on` shows other hosts that it is in use, and they can import it
/// after its export.
#[test]
fn other_hosts_see_a_beating_heart() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, 96 << 20);
    let spa = new_pool(VdevShape::Mirror, &images);
    live(&spa).set(vec![PoolProp::Number("multihost".into(), 1)]).unwrap();
    let mmp = spa.uberblock().mmp.unwrap();
    assert_eq!((mmp.interval_ms(), mmp.fail_intervals(), mmp.seq()), (Some(1000), Some(10), Some(0)));
    assert!(mmp.delay_ns > 0);
    // Other hosts look at the best uberblock of the labels.
    let seen =
        || spa::import::list_txgs(&spa::discover(&[dir.path()]).pools[0]).unwrap()[0].uberblock.clone();
    let group = spa.last_synced_txg();
    while seen().mmp.unwrap().seq().is_none_or(|n| n == 0) {
        std::thread::yield_now();
    }
    assert_eq!(seen().txg, group);
    let first = write(&spa, 1).0;
    export(spa);
    judge(dir.path(), "tank");
    let spa = import(dir.path()).unwrap();
    assert!(spa.uberblock().mmp.unwrap().delay_ns > 0);
    check(&spa, &[(1, first)]);
    live(&spa).set(vec![PoolProp::Number("multihost".into(), 0)]).unwrap();
    assert_eq!(spa.uberblock().mmp.unwrap().delay_ns, 0);
    export(spa);
    judge(dir.path(), "tank");
}

/// Goal: a device that is connected while the pool is in use is found at its path. It takes part
/// again, and its DTL holds what it missed. Another device at that path is not used.
#[test]
fn a_device_is_plugged_in() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, 96 << 20);
    let spa = new_pool(VdevShape::Mirror, &images);
    export(spa);
    let away = tempfile::tempdir().unwrap();
    let hidden = away.path().join("d0.img");
    std::fs::rename(&images[0], &hidden).unwrap();
    let spa = import(dir.path()).unwrap();
    let (missed, txg) = write(&spa, 1);
    assert_eq!(live(&spa).vdevs().reopen(None).unwrap(), 0);
    std::fs::File::create(&images[0]).unwrap().set_len(96 << 20).unwrap();
    assert_eq!(live(&spa).vdevs().reopen(None).unwrap(), 0);
    assert_eq!(leaf(&spa, 0).1, VdevState::CantOpen);
    live(&spa).scans().hold(true);
    std::fs::rename(&hidden, &images[0]).unwrap();
    live(&spa).clear(None).unwrap();
    assert_eq!((leaf(&spa, 0).1, spa.tree().state().0), (VdevState::Healthy, VdevState::Healthy));
    assert!(spa.tree().dtl(leaf(&spa, 0).0).unwrap().contains(txg.0));
    let (both, later) = write(&spa, 2);
    assert!(!spa.tree().dtl(leaf(&spa, 0).0).unwrap().contains(later.0));
    check(&spa, &[(1, missed), (2, both)]);
    assert_eq!(live(&spa).vdevs().reopen(None).unwrap(), 0, "it is there");
    export(spa);
    judge(dir.path(), "tank");
    let spa = import(dir.path()).unwrap();
    check(&spa, &[(1, missed), (2, both)]);
}
