//! The error logs, and the scrub of the blocks that they name.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dsl::ops::clone::Clone as CloneTask;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::promote::Promote;
use dsl::ops::snapshot::Snapshot;
use dsl::sync::SyncTask;
use dsl::{Setting, Value};
use ondisk::feature::{FEATURES, Feature};
use ondisk::scan::{ScanFunc, ScanState};
use ondisk::{BlkId, Blkptr, Level, ObjNum};
use pool::errlog::ErrLog;
use spa::Spa;
use spa::create::{NewLeaf, NewVdev, VdevShape};
use spa::engine::{PoolProp, PoolWriter, ScanCommand, ScanDone};
use testpools::{ask, file_system, images, import, new_pool, noise, own, pool_of, remove_file, write_file};
use zio::Bookmark;

const LEN: usize = 1 << 20;
const BLOCK: u64 = 1 << 17;
const SIZE: u64 = 96 << 20;
const LABELS: u64 = 4 << 20;
const HEAD_ERRLOG: &str = "com.delphix:head_errlog";

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

fn run(spa: &Spa, task: impl SyncTask + Send + 'static) {
    live(spa).run(Box::new(task)).unwrap();
}

fn snapshot(spa: &Spa, name: &str) {
    run(spa, Snapshot { names: vec![name.to_owned()], props: Vec::new(), enforce_limits: false });
}

fn clone(spa: &Spa, origin: &str, name: &str) {
    let (name, origin) = (name.to_owned(), origin.to_owned());
    run(spa, CloneTask { name, origin, props: Vec::new(), enforce_limits: false });
}

fn dataset(spa: &Spa, name: &str) -> u64 {
    live(spa).dsl().dataset(name).unwrap().object().0
}

/// A pool of one disk, with or without `head_errlog`.
fn single(dir: &Path, by_head: bool) -> (Spa, PathBuf) {
    let image = images(dir, 1, SIZE).remove(0);
    let leaves = vec![NewLeaf { path: image.clone() }];
    let features: Vec<&'static Feature> =
        FEATURES.iter().filter(|f| f.can_write() && (by_head || f.guid != HEAD_ERRLOG)).collect();
    (pool_of(vec![NewVdev { shape: VdevShape::Single, bias: None, leaves }], &features), image)
}

fn write(spa: &Spa, seed: u64) -> ObjNum {
    let object = write_file(live(spa), &own(live(spa), "tank"), &noise(seed, LEN)).unwrap();
    live(spa).sync_all().unwrap();
    object
}

/// The offset of a file's block on its disk, which holds the only copy.
fn place(spa: &Spa, object: ObjNum, blkid: u64) -> u64 {
    let os = live(spa).dsl().dataset("tank").unwrap().objset().unwrap().unwrap();
    let bp = os.dnode(object).unwrap().bp(Level(0), BlkId(blkid)).unwrap();
    let dva = *bp.stored().unwrap().copies().next().unwrap();
    LABELS + dva.offset.0
}

/// Inverts a sector. A second call restores it.
fn flip(image: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image).unwrap();
    let mut sector = [0; 512];
    file.read_exact_at(&mut sector, at).unwrap();
    file.write_all_at(&sector.map(|b| !b), at).unwrap();
}

/// Reads one block of a file, not from the cache. Returns true if the read succeeded.
fn read(spa: &Spa, object: ObjNum, blkid: u64) -> bool {
    spa.cache().purge();
    let os = live(spa).dsl().dataset("tank").unwrap().objset().unwrap().unwrap();
    os.dnode(object).unwrap().read_at(blkid * BLOCK, &mut [0; 512]).is_ok()
}

fn listed(spa: &Spa) -> Vec<(u64, u64)> {
    let mut all = spa.damaged_objects(live(spa).dsl().heads()).unwrap();
    all.sort_unstable();
    all
}

fn scan(spa: &Spa, command: ScanCommand) {
    assert_eq!(live(spa).scan(command).unwrap(), ScanDone::Done);
    let going = || {
        let errors =
            live(spa).scans().error_scrub_stat().is_some_and(|(s, _)| s.state == ScanState::ErrorScrubbing);
        errors || live(spa).scans().stat().is_some_and(|s| s.is_scanning())
    };
    while going() {
        live(spa).sync_all().unwrap();
    }
}

/// Exports the pool, runs `zdb`, and imports the pool again. `zdb` checks only metadata, because
/// contents are damaged on purpose.
fn again(spa: Spa, dir: &Path) -> Spa {
    live(&spa).export().unwrap();
    drop(spa);
    if let Some(blocks) = ask(dir, "tank", &["-b"]) {
        assert!(blocks.contains("No leaks"), "{blocks}");
        ask(dir, "tank", &["-d"]);
    }
    import(dir).unwrap()
}

/// Goal: damage that a read finds is listed at once, and is in the log after an import in the form
/// that `zdb` knows.
///
/// It stays while scrubs find it, and the first scrub that doesn't find it removes it.
#[test]
fn an_error_lasts_as_long_as_its_block() {
    for by_head in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (spa, image) = single(dir.path(), by_head);
        let (good, bad) = (write(&spa, 1), write(&spa, 2));
        let at = place(&spa, bad, 3);
        flip(&image, at);
        assert!(read(&spa, good, 3) && read(&spa, bad, 2) && listed(&spa).is_empty());
        assert!(!read(&spa, bad, 3) && !read(&spa, bad, 3));
        let (ds, expected) = (dataset(&spa, "tank"), vec![(dataset(&spa, "tank"), bad.0)]);
        assert_eq!((listed(&spa), spa.error_count()), (expected.clone(), 1));
        let spa = again(spa, dir.path());
        assert_eq!((listed(&spa), spa.error_count()), (expected.clone(), 1));
        let log = spa.mos().errlog(ErrLog::Last, by_head).unwrap();
        assert_eq!(log.len(), 1);
        assert_eq!((log[0].objset, log[0].object, log[0].level, log[0].blkid), (ds, bad.0, 0, 3));
        assert_eq!(log[0].birth.is_some(), by_head);
        scan(&spa, ScanCommand::Scrub);
        assert_eq!(live(&spa).scans().stat().unwrap().phys.errors, 1);
        let spa = again(spa, dir.path());
        assert_eq!((listed(&spa), spa.error_count()), (expected, 1));
        flip(&image, at);
        scan(&spa, ScanCommand::Scrub);
        assert_eq!((listed(&spa), spa.error_count()), (vec![], 0));
        let spa = again(spa, dir.path());
        assert_eq!(spa.error_count(), 0);
    }
}

/// Goal: a scrub that is stopped keeps the old errors and adds those that it found.
#[test]
fn a_stopped_scrub_forgets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (spa, image) = single(dir.path(), true);
    let bad = write(&spa, 1);
    flip(&image, place(&spa, bad, 0));
    assert!(!read(&spa, bad, 0));
    live(&spa).sync_all().unwrap();
    live(&spa).scans().hold(true);
    live(&spa).scan(ScanCommand::Scrub).unwrap();
    flip(&image, place(&spa, bad, 5));
    assert!(!read(&spa, bad, 5));
    live(&spa).sync_all().unwrap();
    assert_eq!(spa.mos().errlog_count(ErrLog::Scrub, true).unwrap(), 1, "while a scrub goes on");
    live(&spa).scan(ScanCommand::Stop).unwrap();
    assert_eq!(spa.mos().errlog_count(ErrLog::Scrub, true).unwrap(), 0);
    assert_eq!(spa.mos().errlog_count(ErrLog::Last, true).unwrap(), 2);
    again(spa, dir.path());
}

/// Goal: snapshots and clones that share a damaged block are reported with the file system that
/// read it.
///
/// * A dataset that no longer has the block is no longer reported, also after a promotion.
/// * When no dataset has the block any more, the log drops it.
#[test]
fn who_shares_a_damaged_block() {
    let dir = tempfile::tempdir().unwrap();
    let (spa, image) = single(dir.path(), true);
    let bad = write(&spa, 1);
    flip(&image, place(&spa, bad, 0));
    assert!(!read(&spa, bad, 0));
    live(&spa).sync_all().unwrap();
    snapshot(&spa, "tank@s");
    clone(&spa, "tank@s", "tank/c");
    snapshot(&spa, "tank/c@t");
    clone(&spa, "tank/c@t", "tank/d");
    let told = |spa: &Spa, names: &[&str]| {
        let mut want: Vec<(u64, u64)> = names.iter().map(|name| (dataset(spa, name), bad.0)).collect();
        want.sort_unstable();
        assert_eq!(listed(spa), want, "{names:?}");
    };
    told(&spa, &["tank", "tank@s", "tank/c", "tank/c@t", "tank/d"]);
    let gone = |spa: &Spa, name: &str| remove_file(live(spa), &own(live(spa), name), bad).unwrap();
    gone(&spa, "tank");
    told(&spa, &["tank@s", "tank/c", "tank/c@t", "tank/d"]);
    gone(&spa, "tank/d");
    live(&spa).sync_all().unwrap();
    told(&spa, &["tank@s", "tank/c", "tank/c@t"]);
    run(&spa, Promote { name: "tank/c".into(), enforce_limits: false });
    told(&spa, &["tank/c@s", "tank/c", "tank/c@t"]);
    let spa = again(spa, dir.path());
    told(&spa, &["tank/c@s", "tank/c", "tank/c@t"]);
    run(&spa, DestroyHead { name: "tank/d".into() });
    run(&spa, DestroySnapshots { names: vec!["tank/c@t".into()], defer: false });
    gone(&spa, "tank/c");
    told(&spa, &["tank/c@s"]);
    scan(&spa, ScanCommand::Scrub);
    assert_eq!(spa.error_count(), 1, "the snapshot still has it");
    run(&spa, Promote { name: "tank".into(), enforce_limits: false });
    told(&spa, &["tank@s"]);
    run(&spa, DestroyHead { name: "tank/c".into() });
    run(&spa, DestroySnapshots { names: vec!["tank@s".into()], defer: false });
    assert_eq!((listed(&spa), spa.error_count()), (vec![], 1), "the log has not been told yet");
    live(&spa).sync_all().unwrap();
    assert_eq!((listed(&spa), spa.error_count()), (vec![], 0));
    again(spa, dir.path());
}

/// Goal: when `head_errlog` is enabled, the log's entries are converted to the new form. Snapshots
/// that share a block are reported from then on.
#[test]
fn a_log_gets_births() {
    let dir = tempfile::tempdir().unwrap();
    let (spa, image) = single(dir.path(), false);
    let bad = write(&spa, 1);
    flip(&image, place(&spa, bad, 0));
    assert!(!read(&spa, bad, 0));
    live(&spa).sync_all().unwrap();
    snapshot(&spa, "tank@s");
    let head = (dataset(&spa, "tank"), bad.0);
    assert_eq!(listed(&spa), vec![head]);
    live(&spa).set(vec![PoolProp::Feature(Feature::by_guid(HEAD_ERRLOG).unwrap())]).unwrap();
    let snap = (dataset(&spa, "tank@s"), bad.0);
    assert_eq!(listed(&spa).len(), 2);
    assert!(listed(&spa).contains(&head) && listed(&spa).contains(&snap));
    let spa = again(spa, dir.path());
    assert_eq!(listed(&spa).len(), 2);
}

/// Goal: an error scrub reads only the blocks that the log names, keeps those still damaged and
/// removes the rest.
///
/// * It survives an import, and can be paused and stopped.
/// * It does not run beside a scrub.
/// * It is refused for a log without births.
#[test]
fn an_error_scrub() {
    let dir = tempfile::tempdir().unwrap();
    let (spa, image) = single(dir.path(), true);
    let bad = write(&spa, 1);
    let (one, other) = (place(&spa, bad, 0), place(&spa, bad, 5));
    flip(&image, one);
    flip(&image, other);
    assert!(!read(&spa, bad, 0) && !read(&spa, bad, 5));
    live(&spa).sync_all().unwrap();
    flip(&image, one);
    live(&spa).scans().hold(true);
    assert_eq!(live(&spa).scan(ScanCommand::ErrorScrub).unwrap(), ScanDone::Done);
    assert!(
        live(&spa).scan(ScanCommand::Scrub).is_err() && live(&spa).scan(ScanCommand::ErrorScrub).is_err()
    );
    live(&spa).scan(ScanCommand::Pause).unwrap();
    assert!(live(&spa).scan(ScanCommand::Pause).is_err());
    let spa = again(spa, dir.path());
    let (phys, paused_at) = live(&spa).scans().error_scrub_stat().unwrap();
    assert_eq!((phys.func, phys.state, phys.paused), (ScanFunc::ErrorScrub, ScanState::ErrorScrubbing, true));
    assert!(paused_at > 0 && phys.to_examine == 2);
    live(&spa).scans().limit_slices(1);
    assert_eq!(live(&spa).scan(ScanCommand::ErrorScrub).unwrap(), ScanDone::Resumed);
    while live(&spa).scans().error_scrub_stat().unwrap().0.state == ScanState::ErrorScrubbing {
        live(&spa).sync_all().unwrap();
    }
    let (phys, _) = live(&spa).scans().error_scrub_stat().unwrap();
    assert_eq!((phys.state, phys.examined, phys.to_examine, phys.errors), (ScanState::Finished, 2, 0, 1));
    assert_eq!(spa.error_count(), 1);
    assert!(live(&spa).scans().stat().is_none(), "it is no scrub");
    live(&spa).scans().hold(true);
    assert_eq!(live(&spa).scan(ScanCommand::ErrorScrub).unwrap(), ScanDone::Done);
    live(&spa).scan(ScanCommand::Stop).unwrap();
    assert_eq!(live(&spa).scans().error_scrub_stat().unwrap().0.state, ScanState::Canceled);
    assert_eq!(spa.error_count(), 1, "what was not looked at is not forgotten");
    live(&spa).scans().hold(false);
    flip(&image, other);
    scan(&spa, ScanCommand::ErrorScrub);
    assert_eq!((listed(&spa), spa.error_count()), (vec![], 0));
    scan(&spa, ScanCommand::Scrub);
    assert!(live(&spa).scans().error_scrub_stat().is_none(), "a scrub takes its record away");
    let events: Vec<&str> = live(&spa).scans().take_notices().iter().map(|n| n.what).collect();
    for what in ["errorscrub_resume", "errorscrub_start", "errorscrub_finish", "errorscrub_abort"] {
        assert!(events.contains(&what), "{what}: {events:?}");
    }
    again(spa, dir.path());

    let dir = tempfile::tempdir().unwrap();
    let (spa, _) = single(dir.path(), false);
    assert!(live(&spa).scan(ScanCommand::ErrorScrub).is_err());
}

/// Goal: the next sync repairs a damaged copy that a read found, from another copy, in every kind
/// of tree. The error counts once.
///
/// A block that was freed meanwhile is not repaired, although its damage was noted.
#[test]
fn a_copy_elsewhere_is_healed() {
    let dir = tempfile::tempdir().unwrap();
    let (spa, image) = single(dir.path(), true);
    live(&spa)
        .run(file_system("tank/two", vec![Setting { name: "copies".into(), value: Value::Number(2) }]))
        .unwrap();
    let owned = own(live(&spa), "tank/two");
    let file = write_file(live(&spa), &owned, &noise(5, LEN)).unwrap();
    drop(owned);
    live(&spa).sync_all().unwrap();
    let two = live(&spa).dsl().dataset("tank/two").unwrap();
    let os = two.objset().unwrap().unwrap();
    let (dnode, meta) = (os.dnode(file).unwrap(), os.meta_dnode());
    let own_block = BlkId(file.0 / 32);
    // Prefetch does not report damage, so the block of the file is its first. The others are an
    // indirect block, a block of dnodes, an indirect block of these, and a block of the MOS.
    let mos = spa.mos().objset().dnode(ObjNum(1)).unwrap();
    let blocks: [Blkptr; 5] = [
        dnode.bp(Level(0), BlkId(0)).unwrap(),
        dnode.bp(Level(1), BlkId(0)).unwrap(),
        meta.bp(Level(0), own_block).unwrap(),
        meta.bp(Level(1), BlkId(0)).unwrap(),
        mos.bp(Level(0), BlkId(0)).unwrap(),
    ];
    let firsts = blocks.each_ref().map(|bp| {
        let copies: Vec<_> = bp.stored().unwrap().copies().copied().collect();
        assert!(copies.len() > 1, "{bp:?}");
        LABELS + copies[0].offset.0
    });
    let sector = |at: u64| {
        let mut bytes = [0; 512];
        std::fs::File::open(&image).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    let right = firsts.map(sector);
    firsts.iter().for_each(|at| flip(&image, *at));
    let errors = || spa.tree().describe().children[0].stats.checksum_errors;
    let before = errors();
    let reads = || {
        spa.cache().purge();
        let os = live(&spa).dsl().dataset("tank/two").unwrap().objset().unwrap().unwrap();
        let mut bytes = vec![0; LEN];
        os.dnode(file).unwrap().read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, noise(5, LEN));
        spa.mos().objset().dnode(ObjNum(1)).unwrap().read_at(0, &mut [0; 512]).unwrap();
    };
    reads();
    live(&spa).sync_all().unwrap();
    assert!(firsts.map(sector) == right, "every first copy is right again");
    assert_eq!(errors() - before, firsts.len() as u64);
    assert_eq!((spa.error_count(), spa.cache().zio().unhealed().count()), (0, 0));

    let (at, met) =
        (firsts[0], Bookmark { objset: two.object().0, object: file, level: Level(0), blkid: BlkId(0) });
    let owned = own(live(&spa), "tank/two");
    remove_file(live(&spa), &owned, file).unwrap();
    drop(owned);
    live(&spa).sync_all().unwrap();
    flip(&image, at);
    spa.cache().zio().unhealed().note(&met, blocks[0].stored().unwrap().phys_birth);
    live(&spa).sync_all().unwrap();
    assert!(sector(at) == right[0].map(|b| !b), "the place is another's");
    assert_eq!(spa.cache().zio().unhealed().count(), 0);
    drop((os, dnode, meta, mos, two));
    again(spa, dir.path());
}

/// Goal: a damaged child of a mirror that a read finds is repaired by the next sync.
#[test]
fn a_side_is_healed() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    let object = write(&spa, 7);
    for (block, image) in images.iter().enumerate() {
        let at = place(&spa, object, block as u64);
        flip(image, at);
        // The mirror chooses the child that it reads.
        let tries =
            (0..200).find(|_| read(&spa, object, block as u64) && spa.cache().zio().unhealed().count() > 0);
        assert!(tries.is_some(), "{}", image.display());
        live(&spa).sync_all().unwrap();
        let sides = [0, 1].map(|side| {
            let mut bytes = vec![0; BLOCK as usize];
            std::fs::File::open(&images[side]).unwrap().read_exact_at(&mut bytes, at).unwrap();
            bytes
        });
        assert!(
            sides[0] == sides[1] && sides[0] == noise(7, LEN)[block * BLOCK as usize..][..BLOCK as usize]
        );
    }
}
