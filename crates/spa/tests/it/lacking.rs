//! A pool without one of its top-level vdevs: what is left can be read on request, and not written.

use spa::SpaError;
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::AddTerms;
use spa::import::{OpenFailure, Options, SystemClock, import};
use spa::tunables::MISSING_TOPS;
use testpools::{file_system, host, images, import_as, judge, noise, own, pool_of, read_file, write_file};
use vdev::VdevState;

/// Goal: with `zfs_max_missing_tvds`, a pool can be imported read-only without a vdev that was
/// added late. It is degraded and has what was written before that.
///
/// The import is refused for writing, without the tunable, and without all vdevs. With the vdev,
/// the pool is complete.
#[test]
fn what_is_left_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let images = images(d, 2, 128 << 20);
    let single = |path: &std::path::Path| NewVdev {
        shape: VdevShape::Single,
        bias: None,
        leaves: vec![NewLeaf { path: path.to_owned() }],
    };
    let spa = pool_of(vec![single(&images[0])], &[]);
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    let owned = own(live, "tank/a");
    let bytes = noise(1, 4 << 20);
    let object = write_file(live, &owned, &bytes).unwrap();
    live.sync_all().unwrap();
    drop(owned);
    let terms = AddTerms { ashift: None, check_ashift: false, force: false, claimer: &claim_file };
    live.vdevs().add(&[single(&images[1])], &terms).unwrap();
    live.export().unwrap();
    drop(spa);
    let away = d.join("away");
    std::fs::create_dir(&away).unwrap();
    let elsewhere = away.join("second");
    std::fs::rename(&images[1], &elsewhere).unwrap();
    let read = || import(&spa::discover(&[d]).pools[0], &Options::default(), &host(), &SystemClock);
    let lost = |error: &SpaError| matches!(error, SpaError::CantOpen { .. });
    assert!(read().is_err_and(|failure| lost(&failure.error)));
    MISSING_TOPS.set(1);
    let written = import_as(d, Options::default());
    assert!(matches!(written, Err(OpenFailure::Import(failure)) if lost(&failure.error)));
    let spa = read().unwrap();
    assert_eq!((spa.tree().state().0, spa.tree().lost_tops()), (VdevState::Degraded, 1));
    let options = dsl::Options { pool_name: "tank".to_owned(), ..dsl::Options::default() };
    let dsl = dsl::Dsl::open(spa.mos().clone(), options).unwrap();
    let os = dsl.dataset("tank/a").unwrap().objset().unwrap().unwrap();
    let mut left = vec![0; bytes.len()];
    os.dnode(object).unwrap().read_at(0, &mut left).unwrap();
    assert!(left == bytes);
    drop((os, dsl, spa));
    MISSING_TOPS.set(0);
    assert!(read().is_err_and(|failure| lost(&failure.error)));
    std::fs::rename(&elsewhere, &images[1]).unwrap();
    let spa = import_as(d, Options::default()).unwrap();
    let live = spa.writer().unwrap();
    let owned = own(live, "tank/a");
    assert_eq!(read_file(&owned, object, bytes.len()), bytes);
    drop(owned);
    live.export().unwrap();
    drop(spa);
    judge(d, "tank");
}
