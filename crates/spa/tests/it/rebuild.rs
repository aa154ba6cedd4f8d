//! Sequential rebuilds: a device gets all that it lacks in the order of its space. OpenZFS's `zdb`
//! checks the results if it is available.

use std::path::{Path, PathBuf};

use ondisk::config::DraidShape;
use ondisk::scan::{REBUILD_ACTIVE, REBUILD_CANCELED, REBUILD_COMPLETE, RebuildPhys, ScanFunc, ScanState};
use ondisk::{Guid, ObjNum, VdevId};
use spa::Spa;
use spa::create::{NewLeaf, VdevShape, claim_file};
use spa::engine::{AttachTerms, LifeError, PoolWriter, ScanCommand, ScanRefusal};
use testpools::{ask, images, import, judge, new_pool, noise, own, read_file, remove_file, write_file};
use vdev::VdevState;

const LEN: usize = 2 << 20;
const SIZE: u64 = 192 << 20;

type File = (u64, ObjNum);

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

fn write(spa: &Spa, seeds: std::ops::Range<u64>) -> Vec<File> {
    let owned = own(live(spa), "tank");
    let files = seeds.map(|seed| (seed, write_file(live(spa), &owned, &noise(seed, LEN)).unwrap())).collect();
    drop(owned);
    live(spa).sync_all().unwrap();
    files
}

/// Removes every other file.
fn thin(spa: &Spa, files: &mut Vec<File>) {
    let owned = own(live(spa), "tank");
    let mut n = 0;
    files.retain(|(_, object)| {
        n += 1;
        if n % 2 == 0 {
            remove_file(live(spa), &owned, *object).unwrap();
        }
        n % 2 != 0
    });
    drop(owned);
    live(spa).sync_all().unwrap();
}

fn check(spa: &Spa, files: &[File]) {
    let owned = own(live(spa), "tank");
    for (seed, object) in files {
        assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed}");
    }
}

fn guid(spa: &Spa, path: &Path) -> Guid {
    let config = spa.config();
    let path = path.display().to_string().into_bytes();
    let mut leaves = config.vdev_tree.as_ref().unwrap().leaves();
    leaves.find(|leaf| leaf.path.as_ref() == Some(&path)).unwrap().guid
}

fn join(spa: &Spa, old: &Path, new: &Path, replace: bool, sequential: bool) -> Result<(), LifeError> {
    let terms = AttachTerms { replace, sequential, force: false, unattended: false, claimer: &claim_file };
    live(spa).vdevs().attach(guid(spa, old), &NewLeaf { path: new.to_owned() }, &terms)
}

fn new_image(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    path
}

/// The recorded state of the rebuild.
fn progress(spa: &Spa) -> RebuildPhys {
    let config = spa.config();
    let zap = config.vdev_tree.as_ref().unwrap().children[0].top_zap.unwrap();
    spa.mos().rebuild(zap).unwrap().unwrap()
}

fn active(spa: &Spa) -> bool {
    live(spa).scans().rebuild_stat(VdevId(0)).is_some()
}

/// Waits for the end of the rebuild and of the scrub that follows it, which must find nothing.
fn finished(spa: &Spa) {
    live(spa).scans().hold(false);
    live(spa).scans().limit_slices(0);
    live(spa).scans().wait().unwrap();
    assert_eq!((progress(spa).state, progress(spa).errors), (REBUILD_COMPLETE, 0));
    assert!(spa.tree().behind().is_empty());
    let scrub = live(spa).scans().stat().unwrap().phys;
    assert_eq!((scrub.func, scrub.state), (ScanFunc::Scrub, ScanState::Finished));
    assert_eq!((scrub.errors, scrub.processed), (0, 0), "the scrub found something to put right");
}

/// Lets txgs pass, each after a slice of a few ranges.
fn some_slices(spa: &Spa) {
    live(spa).scans().limit_slices(3);
    live(spa).scans().hold(false);
    let from = live(spa).scans().rebuild_stat(VdevId(0)).unwrap().phys.last_offset;
    for _ in 0..20 {
        live(spa).sync_all().unwrap();
        if live(spa).scans().rebuild_stat(VdevId(0)).unwrap().phys.last_offset > from {
            break;
        }
    }
    live(spa).scans().hold(true);
    live(spa).sync_all().unwrap();
    assert!(progress(spa).last_offset > from && progress(spa).state == REBUILD_ACTIVE);
}

/// Goal: a child of a mirror is rebuilt while files come and go and logs are written, and over an
/// export.
///
/// Then it has everything: the scrub finds nothing, and the pool works with it alone. `zdb` agrees,
/// also in between.
#[test]
fn a_mirror_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let paths = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &paths);
    let mut files = write(&spa, 0..24);
    thin(&spa, &mut files);
    let new = new_image(dir.path(), "new");
    live(&spa).scans().hold(true);
    join(&spa, &paths[0], &new, false, true).unwrap();
    assert!(active(&spa) && progress(&spa).state == REBUILD_ACTIVE && progress(&spa).last_offset == 0);
    assert!(matches!(live(&spa).scan(ScanCommand::Scrub), Err(ScanRefusal::Busy)));
    some_slices(&spa);
    thin(&spa, &mut files);
    files.extend(write(&spa, 100..106));
    some_slices(&spa);
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    if let Some(text) = ask(dir.path(), "tank", &["-C"]) {
        assert!(text.contains("rebuild_txg"), "{text}");
    }
    let spa = import(dir.path()).unwrap();
    assert!(active(&spa));
    check(&spa, &files);
    files.extend(write(&spa, 200..203));
    finished(&spa);
    for path in &paths {
        live(&spa).vdevs().detach(guid(&spa, path)).unwrap();
        std::fs::remove_file(path).unwrap();
    }
    check(&spa, &files);
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    assert!(import(dir.path()).unwrap().error_count() == 0);
}

/// Goal: a rebuild replaces a device of a single-disk vdev and of a mirror, and the old one is
/// detached without a command.
#[test]
fn a_device_is_replaced() {
    for (shape, count) in [(VdevShape::Single, 1), (VdevShape::Mirror, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let paths = images(dir.path(), count, SIZE);
        let spa = new_pool(shape, &paths);
        let files = write(&spa, 0..8);
        let new = new_image(dir.path(), "new");
        join(&spa, &paths[0], &new, true, true).unwrap();
        finished(&spa);
        live(&spa).vdevs().end_replacements().unwrap();
        let leaves = spa.config().vdev_tree.as_ref().unwrap().leaves().count();
        assert_eq!(leaves, count);
        std::fs::remove_file(&paths[0]).unwrap();
        check(&spa, &files);
        live(&spa).export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: what can't be rebuilt is refused, and nothing starts beside a rebuild. A rebuild whose
/// device goes offline is canceled, and a resilver brings the device up to date later.
#[test]
fn refusals_and_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let paths = images(dir.path(), 3, SIZE);
    let spa = new_pool(VdevShape::Raidz(1), &paths);
    let new = new_image(dir.path(), "new");
    let refused = join(&spa, &paths[0], &new, true, true);
    assert!(matches!(refused, Err(LifeError::NotSequential { .. })), "{refused:?}");
    drop(spa);
    let dir = tempfile::tempdir().unwrap();
    let paths = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &paths);
    let files = write(&spa, 0..6);
    let (new, other) = (new_image(dir.path(), "new"), new_image(dir.path(), "other"));
    live(&spa).scans().hold(true);
    join(&spa, &paths[0], &new, false, true).unwrap();
    let refused = join(&spa, &paths[0], &other, false, false);
    assert!(matches!(refused, Err(LifeError::Rebuilding)), "{refused:?}");
    some_slices(&spa);
    // Another attach restarts the rebuild.
    join(&spa, &paths[0], &other, false, true).unwrap();
    assert_eq!(progress(&spa).last_offset, 0);
    live(&spa).vdevs().detach(guid(&spa, &other)).unwrap();
    live(&spa).vdevs().offline(guid(&spa, &new), false).unwrap();
    live(&spa).scans().hold(false);
    live(&spa).scans().wait().unwrap();
    assert_eq!(progress(&spa).state, REBUILD_CANCELED);
    live(&spa).scans().hold(true);
    assert_eq!(live(&spa).vdevs().online(guid(&spa, &new), false).unwrap(), VdevState::Healthy);
    let refused = join(&spa, &paths[0], &new_image(dir.path(), "more"), false, true);
    assert!(matches!(refused, Err(LifeError::Resilvering)), "{refused:?}");
    live(&spa).scans().hold(false);
    live(&spa).scans().limit_slices(0);
    live(&spa).scans().wait().unwrap();
    let resilver = live(&spa).scans().stat().unwrap().phys;
    assert_eq!((resilver.func, resilver.state), (ScanFunc::Resilver, ScanState::Finished));
    assert!(spa.tree().behind().is_empty());
    assert_eq!(progress(&spa), RebuildPhys::default(), "the resilver is reported, not the rebuild");
    check(&spa, &files);
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}

/// Goal: a dRAID's distributed spare and a new device are rebuilt with the data of a missing
/// device, from parity.
#[test]
fn a_draid_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let paths = images(dir.path(), 5, SIZE);
    let shape = VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 });
    let spa = new_pool(shape, &paths);
    let mut files = write(&spa, 0..16);
    thin(&spa, &mut files);
    live(&spa).vdevs().offline(guid(&spa, &paths[1]), false).unwrap();
    live(&spa).scans().hold(true);
    join(&spa, &paths[1], Path::new("draid1-0-0"), true, true).unwrap();
    some_slices(&spa);
    thin(&spa, &mut files);
    files.extend(write(&spa, 100..104));
    finished(&spa);
    check(&spa, &files);
    // With the spare's data, another device may go offline.
    live(&spa).vdevs().offline(guid(&spa, &paths[3]), true).unwrap();
    check(&spa, &files);
    live(&spa).vdevs().online(guid(&spa, &paths[3]), false).unwrap();
    live(&spa).scans().wait().unwrap();
    let new = new_image(dir.path(), "new");
    join(&spa, &paths[1], &new, true, true).unwrap();
    finished(&spa);
    live(&spa).vdevs().end_replacements().unwrap();
    assert_eq!(spa.config().vdev_tree.as_ref().unwrap().leaves().count(), 5);
    std::fs::remove_file(&paths[1]).unwrap();
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    // The rebuilt device is complete: another device may be missing.
    std::fs::remove_file(&paths[4]).unwrap();
    let spa = import(dir.path()).unwrap();
    check(&spa, &files);
    assert_eq!(spa.error_count(), 0);
}

/// Goal: a distributed spare that was filled while a device with parts of it was offline does not
/// count as having these parts. This holds in the same import and in a later one.
///
/// It gets them when the device is online again, and a scrub finds nothing.
#[test]
fn a_spare_with_a_part_away() {
    for sequential in [true, false] {
        let lacks = [0, 2, 3, 4, 5].map(|away| filled_without(away, sequential));
        assert!(lacks.contains(&true) && lacks.contains(&false), "{lacks:?}");
    }
}

/// Fills a distributed spare while a device is offline, then brings the device online. Returns true
/// if the spare lacked anything in between.
fn filled_without(away: usize, sequential: bool) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let paths = images(dir.path(), 6, SIZE);
    let shape = VdevShape::Draid(2, DraidShape { ndata: 2, nspares: 1, ngroups: 5 });
    let spa = new_pool(shape, &paths);
    let files = write(&spa, 0..8);
    live(&spa).vdevs().offline(guid(&spa, &paths[away]), false).unwrap();
    live(&spa).vdevs().offline(guid(&spa, &paths[1]), false).unwrap();
    live(&spa).scans().hold(true);
    join(&spa, &paths[1], Path::new("draid2-0-0"), true, sequential).unwrap();
    // Only a part is done before the export. The import continues from the recorded state alone.
    live(&spa).scans().limit_slices(3);
    live(&spa).scans().hold(false);
    let done = || match live(&spa).scans().rebuild_stat(VdevId(0)) {
        Some(rebuild) => rebuild.phys.bytes_issued,
        None => live(&spa).scans().stat().map_or(0, |stat| stat.phys.examined),
    };
    while done() == 0 {
        live(&spa).sync_all().unwrap();
    }
    live(&spa).scans().hold(true);
    live(&spa).export().unwrap();
    drop(spa);
    let spa = import(dir.path()).unwrap();
    live(&spa).scans().wait().unwrap();
    let spare = guid(&spa, Path::new("draid2-0-0"));
    let lacks = !spa.tree().dtl(spare).unwrap().is_empty();
    live(&spa).vdevs().online(guid(&spa, &paths[away]), false).unwrap();
    live(&spa).scans().wait().unwrap();
    assert!(spa.tree().behind().is_empty(), "{:?}", spa.tree().dtl(spare));
    live(&spa).scan(ScanCommand::Scrub).unwrap();
    live(&spa).scans().wait().unwrap();
    let scrub = live(&spa).scans().stat().unwrap().phys;
    assert_eq!((scrub.errors, scrub.processed), (0, 0), "without {away}, sequential: {sequential}");
    check(&spa, &files);
    live(&spa).export().unwrap();
    drop(spa);
    if lacks {
        judge(dir.path(), "tank");
    }
    lacks
}

/// Goal: a distributed spare whose device is detached replaces it for good.
///
/// * It stays on the list of spares as in use.
/// * It is read like any device when another one fails.
/// * It is free again as soon as a device has replaced it.
#[test]
fn a_distributed_spare_for_good() {
    for sequential in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let paths = images(dir.path(), 5, SIZE);
        let shape = VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 });
        let spa = new_pool(shape, &paths);
        let mut files = write(&spa, 0..8);
        let named = Path::new("draid1-0-0");
        join(&spa, &paths[1], named, true, sequential).unwrap();
        live(&spa).scans().wait().unwrap();
        let spare = guid(&spa, named);
        live(&spa).vdevs().detach(guid(&spa, &paths[1])).unwrap();
        let place = |spa: &Spa| spa.config().vdev_tree.as_ref().unwrap().children[0].children[1].clone();
        let listed = |spa: &Spa| spa.spares().iter().map(|one| one.config.guid).collect::<Vec<_>>();
        assert_eq!((place(&spa).guid, place(&spa).is_spare, listed(&spa)), (spare, true, vec![spare]));
        files.extend(write(&spa, 8..12));
        let other = join(&spa, &paths[2], named, true, sequential);
        assert!(matches!(other, Err(LifeError::InUse)), "{other:?}");
        live(&spa).export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        if let Some(text) = ask(dir.path(), "tank", &["-C"]) {
            let leaf = text.split_once("type: 'dspare'").expect("it is in the tree").1;
            let leaf = leaf.split_once("children[2]").expect("another follows").0;
            assert!(leaf.contains("is_spare: 1") && leaf.contains(&format!("guid: {}", spare.0)), "{text}");
        }
        // While another device is missing, the spare's data is read, and new data goes to its place
        // too.
        let hidden = dir.path().join("hidden");
        std::fs::rename(&paths[3], &hidden).unwrap();
        let spa = import(dir.path()).unwrap();
        assert_eq!((place(&spa).guid, listed(&spa)), (spare, vec![spare]));
        check(&spa, &files);
        files.extend(write(&spa, 12..14));
        std::fs::rename(&hidden, &paths[3]).unwrap();
        live(&spa).vdevs().reopen(None).unwrap();
        live(&spa).scans().wait().unwrap();
        let new = new_image(dir.path(), "new");
        join(&spa, named, &new, true, sequential).unwrap();
        live(&spa).scans().wait().unwrap();
        live(&spa).vdevs().end_replacements().unwrap();
        assert_eq!(
            (place(&spa).path, place(&spa).is_spare),
            (Some(new.display().to_string().into_bytes()), false)
        );
        assert_eq!(listed(&spa), [spare]);
        // The spare is free.
        join(&spa, &paths[4], named, true, sequential).unwrap();
        live(&spa).scans().wait().unwrap();
        live(&spa).vdevs().detach(spare).unwrap();
        check(&spa, &files);
        assert_eq!((listed(&spa), spa.error_count()), (vec![spare], 0));
        live(&spa).export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
}
