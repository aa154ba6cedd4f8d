//! The blocks and the guarantees of the intent log, as `zdb` sees them in the images after a crash.

use device::{Device, Fault, Faulty, Op};
use dsl::ops::clone::Clone as CloneOf;
use dsl::ops::destroy::DestroyHead;
use dsl::ops::rollback::Rollback;
use dsl::ops::snapshot::Snapshot;
use ondisk::config::AllocBias;
use ondisk::feature::{FEATURES, Feature};
use ondisk::zil::{Create, FileId, RecordBody, TxKind};
use ondisk::{ObjNum, Txg};
use parking_lot::Mutex;
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::{AddTerms, IntentLogs, LifeError, LogHandle, PoolWriter, ShapeError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testpools::{ask, images, judge, new_pool, noise, own, pool_of, write_file};
use zil::{Bytes, Missing, Source};

/// The source of file data for the log.
pub(crate) struct Files<'a>(pub(crate) &'a dsl::Owned);

impl Source for Files<'_> {
    fn data(&self, object: ObjNum, offset: u64, len: usize) -> Result<Bytes, Missing> {
        let dn = self.0.objset().dnode(object).map_err(|_| Missing::Gone)?;
        Bytes::of(&dn, offset, len).map_err(|_| Missing::Gone)
    }
}

/// The images that a crash now would leave. The held transaction keeps its txg from syncing
/// meanwhile.
fn crash(live: &PoolWriter, from: &Path) -> tempfile::TempDir {
    let hold = live.tx(0).unwrap();
    live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
    testkit::copy_of(from)
}

/// Creates a file with these bytes, and logs that.
pub(crate) fn log_file(
    live: &PoolWriter,
    owned: &dsl::Owned,
    log: &LogHandle,
    n: u64,
    bytes: &[u8],
) -> ObjNum {
    let object = write_file(live, owned, bytes).unwrap();
    let tx = live.tx(0).unwrap();
    let create = Create {
        doid: 34,
        foid: FileId { object: object.0, slots: 1 },
        mode: 0o100_644,
        uid: 1,
        gid: 2,
        gen_: tx.txg().0,
        crtime: [3, 4],
        rdev: 0,
        xvattr: None,
        acl: None,
        domains: Vec::new(),
        name: format!("file{n}").into_bytes(),
        link: None,
    };
    log.log_names(&tx, TxKind::Create, false, &RecordBody::Create(create));
    log.log_write(&tx, object, 0, bytes, bytes.len() < 1000);
    object
}

/// Checks that a chain has what was committed and nothing else, as `zdb` reads it, across txgs.
///
/// The space of its blocks must be accounted for at any moment, and an exported pool must have no
/// chain.
fn chain(shape: VdevShape, count: usize, log_devices: usize) {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), count + log_devices, 96 << 20);
    let vdev = |shape, bias, images: &[PathBuf]| {
        let leaves = images.iter().map(|p| NewLeaf { path: p.clone() }).collect();
        NewVdev { shape, bias, leaves }
    };
    let mut vdevs = vec![vdev(shape, None, &images[..count])];
    if log_devices > 0 {
        vdevs.push(vdev(VdevShape::Mirror, Some(AllocBias::Log), &images[count..]));
    }
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let spa = pool_of(vdevs, &features);
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let log = live.logs().open(&owned);
    // The first commit waits for its txg, because there is no chain yet.
    let first = log_file(live, &owned, &log, 0, b"first");
    log.commit(Some(first), &Files(&owned)).unwrap();
    assert_eq!(log.stats().block_count, 0);
    for round in 0..2u64 {
        for n in 1..20 {
            let len = [10, 500, 4000, 70_000, 300_000][n as usize % 5];
            let object = log_file(live, &owned, &log, round * 100 + n, &noise(n, len));
            if n % 2 == 0 {
                log.commit(Some(object), &Files(&owned)).unwrap();
            }
        }
        let left = crash(live, dir.path());
        if let Some(said) = ask(left.path(), "tank", &["-iiiii"]) {
            assert!(said.contains("TX_CREATE"), "{said}");
            let last = format!("file{}", round * 100 + 18);
            assert!(said.contains(&last), "{last}: {said}");
            assert!(!said.contains(&format!("file{}\n", round * 100 + 19)), "{said}");
            // All blocks are on the right vdev.
            let place = if log_devices > 0 { "DVA[0]=<1:" } else { "DVA[0]=<0:" };
            let blocks: Vec<&str> = said.lines().filter(|l| l.contains("Block seqno")).collect();
            assert!(!blocks.is_empty() && blocks.iter().all(|b| b.contains(place)), "{blocks:?}");
        }
        judge(left.path(), "tank");
        if round % 2 == 1 {
            live.sync_all().unwrap();
            judge(crash(live, dir.path()).path(), "tank");
        }
    }
    let stats = log.stats();
    assert!(stats.block_count > 0 && stats.itx_needcopy_count > 0 && stats.itx_copied_count > 0, "{stats:?}");
    let (here, elsewhere) =
        if log_devices > 0 { (stats.slog, stats.normal) } else { (stats.normal, stats.slog) };
    assert_eq!((here.count, here.bytes), (stats.block_count, stats.block_bytes));
    assert!(here.alloc >= here.bytes && (elsewhere.count, elsewhere.bytes, elsewhere.alloc) == (0, 0, 0));
    drop(log);
    drop(owned);
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    if let Some(said) = ask(dir.path(), "tank", &["-iiii"]) {
        assert!(!said.contains("ZIL header"), "{said}");
    }
}

/// Goal: the checks of [`chain`] hold on a single disk.
#[test]
fn chain_on_a_disk() {
    chain(VdevShape::Single, 1, 0);
}

/// Goal: the checks of [`chain`] hold on raidz.
#[test]
fn chain_on_raidz() {
    chain(VdevShape::Raidz(1), 3, 0);
}

/// Goal: the checks of [`chain`] hold on log devices.
#[test]
fn chain_on_log_devices() {
    chain(VdevShape::Single, 1, 2);
}

/// Goal: no log block leaks, and none that is still needed is freed.
///
/// This covers a log that is closed and opened again, a snapshot and a clone under it, a rollback,
/// and the destruction of its dataset.
#[test]
fn a_life_of_logs() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 96 << 20));
    let live = spa.writer().unwrap();
    live.run(testpools::file_system("tank/fs", Vec::new())).unwrap();
    let mut owned = own(live, "tank/fs");
    let mut log = live.logs().open(&owned);
    let snapshot = |name: &str| {
        let task = Snapshot { names: vec![name.into()], props: Vec::new(), enforce_limits: false };
        live.run(Box::new(task)).unwrap();
    };
    for round in 0..3 {
        for n in 0..5 {
            let object = log_file(live, &owned, &log, round * 10 + n, &noise(n, 5000));
            log.commit(Some(object), &Files(&owned)).unwrap();
        }
        judge(crash(live, dir.path()).path(), "tank");
        if round == 1 {
            snapshot("tank/fs@one");
            let clone = CloneOf {
                name: "tank/clone".into(),
                origin: "tank/fs@one".into(),
                props: Vec::new(),
                enforce_limits: false,
            };
            live.run(Box::new(clone)).unwrap();
            judge(crash(live, dir.path()).path(), "tank");
        } else {
            // The log is opened again at once, while the txg that removes the old one is still
            // open, and later.
            drop(log);
            drop(owned);
            if round == 2 {
                live.sync_all().unwrap();
            }
            owned = own(live, "tank/fs");
            log = live.logs().open(&owned);
        }
    }
    let object = log_file(live, &owned, &log, 99, b"for nothing");
    log.commit(Some(object), &Files(&owned)).unwrap();
    log_file(live, &owned, &log, 100, b"not even logged");
    drop(log);
    drop(owned);
    live.run(Box::new(Rollback { name: "tank/fs".into(), to: None })).unwrap();
    judge(crash(live, dir.path()).path(), "tank");
    for name in ["tank/clone", "tank/fs"] {
        let owned = own(live, name);
        let log = live.logs().open(&owned);
        let object = log_file(live, &owned, &log, 1, b"the last");
        log.commit(Some(object), &Files(&owned)).unwrap();
        let object = log_file(live, &owned, &log, 2, b"the very last");
        log.commit(Some(object), &Files(&owned)).unwrap();
    }
    live.run(Box::new(DestroyHead { name: "tank/clone".into() })).unwrap();
    live.sync_all().unwrap();
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    if let Some(said) = ask(dir.path(), "tank", &["-iiii"]) {
        assert!(!said.contains("ZIL header"), "{said}");
    }
}

/// The txg and the heads of the list that tells the next import where to look for logs.
fn unsettled(live: &PoolWriter) -> (Txg, Vec<u64>) {
    let words = live.dsl().mos().dir_words(ondisk::mos::UNSETTLED).unwrap().unwrap();
    assert_eq!(words[0], 1);
    (Txg(words[1]), words[2..].to_vec())
}

/// Goal: the pool says which of its datasets have a log, at each import and export. That they have
/// no others is checked by each import of a debug build.
#[test]
fn imports_know_where_to_look() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 96 << 20));
    let live = spa.writer().unwrap();
    for n in 0..40 {
        live.run(testpools::file_system(&format!("tank/fs{n}"), Vec::new())).unwrap();
    }
    assert_eq!(unsettled(live).1, [0u64; 0]);
    let owned = own(live, "tank/fs7");
    let log = live.logs().open(&owned);
    let object = log_file(live, &owned, &log, 1, b"logged");
    log.commit(Some(object), &Files(&owned)).unwrap();
    let crashed = crash(live, dir.path());
    {
        let again = testpools::import(crashed.path()).unwrap();
        let live = again.writer().unwrap();
        let (txg, heads) = unsettled(live);
        assert_eq!(heads, [owned.object()]);
        assert!(txg < live.txgs().synced());
        // Without a replay, the log stays, and so does the head in the list.
        live.export().unwrap();
    }
    let again = testpools::import(crashed.path()).unwrap();
    assert_eq!(unsettled(again.writer().unwrap()).1, [owned.object()]);
    drop(log);
    drop(owned);
    live.export().unwrap();
    drop(spa);
    let spa = testpools::import(dir.path()).unwrap();
    assert_eq!(unsettled(spa.writer().unwrap()).1, [0u64; 0]);
}

/// Bytes of each device of [`with_faulty_log`].
const SIZE: u64 = 96 << 20;

/// A pool of a disk and of a log device that can be made to fail.
fn with_faulty_log() -> (tempfile::TempDir, spa::Spa, Arc<Faulty>) {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, SIZE);
    let patient = Mutex::new(None);
    let claimer = |path: &Path| {
        let (device, kind) = claim_file(path)?;
        if path != images[1] {
            return Ok((device, kind));
        }
        let faulty = Arc::new(Faulty::new(device, 1));
        *patient.lock() = Some(faulty.clone());
        Ok((faulty as Arc<dyn Device>, kind))
    };
    let vdev = |n: usize, bias| NewVdev {
        shape: VdevShape::Single,
        bias,
        leaves: vec![NewLeaf { path: images[n].clone() }],
    };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let spa = testpools::pool_on(vec![vdev(0, None), vdev(1, Some(AllocBias::Log))], &features, &claimer, 1);
    (dir, spa, patient.into_inner().unwrap())
}

/// Goal: while a log device takes no blocks, commits wait for their txgs. When it works again, a
/// new chain begins.
#[test]
fn broken_logs_promise_nothing() {
    let (dir, spa, patient) = with_faulty_log();
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let log = live.logs().open(&owned);
    let commit = |n: u64| {
        let object = log_file(live, &owned, &log, n, b"bytes");
        let txg = live.txgs().open();
        log.commit(Some(object), &Files(&owned)).unwrap();
        txg
    };
    let written = || log.stats().block_count;
    commit(0);
    commit(1);
    assert!(written() > 0);
    // Writes of its labels still succeed.
    patient.inject(Fault::Error { op: Op::Write, range: 4 << 20..SIZE - (1 << 20) });
    let txg = commit(2);
    assert!(live.txgs().synced() >= txg, "nothing else kept the promise");
    judge(crash(live, dir.path()).path(), "tank");
    patient.heal();
    for _ in 0..4 {
        live.sync_all().unwrap();
        commit(3);
    }
    let before = written();
    commit(4);
    assert!(written() > before, "a new chain has begun");
    judge(crash(live, dir.path()).path(), "tank");
}

/// Goal: many concurrent commits all return, while txgs come and go and the log device works, fails
/// and works again.
///
/// Few of the threads write for all, and the chain after a crash has what they committed.
#[test]
fn many_commit_at_once() {
    const JOBS: u64 = 48;
    const EACH: u64 = 30;
    let (dir, spa, patient) = with_faulty_log();
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let log = live.logs().open(&owned);
    let first = log_file(live, &owned, &log, 0, b"first");
    log.commit(Some(first), &Files(&owned)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (log, owned) = (&log, &owned);
        let jobs: Vec<_> = (0..JOBS)
            .map(|job| {
                scope.spawn(move || {
                    for n in 0..EACH {
                        let object = log_file(live, owned, log, job * EACH + n, &noise(n, 700));
                        log.commit(Some(object), &Files(owned)).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                patient.inject(Fault::Error { op: Op::Write, range: 4 << 20..SIZE - (1 << 20) });
                live.sync_all().unwrap();
                patient.heal();
                live.sync_all().unwrap();
                live.sync_all().unwrap();
            }
        });
        jobs.into_iter().for_each(|job| job.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    patient.heal();
    // These commits run without faults.
    (0..3).for_each(|_| live.sync_all().unwrap());
    let last = live.txgs().open();
    std::thread::scope(|scope| {
        for job in 0..JOBS {
            let (log, owned) = (&log, &owned);
            scope.spawn(move || {
                let object = log_file(live, owned, log, 1_000_000 + job, b"last");
                log.commit(Some(object), &Files(owned)).unwrap();
            });
        }
    });
    let left = crash(live, dir.path());
    if let Some(said) = ask(left.path(), "tank", &["-iiiii"]) {
        let kept = |job: &u64| said.contains(&format!("file{}\n", 1_000_000 + job));
        let kept = (0..JOBS).filter(kept).count() as u64;
        // Records of synced txgs are not in the log any more.
        assert!(kept == JOBS || live.txgs().synced() >= last, "{kept} are in the log: {said}");
    }
    judge(left.path(), "tank");
    assert_eq!(log.stats().commit_count, 1 + JOBS * EACH + JOBS);
}

/// Goal: a commit to a dataset that was closed and opened again covers earlier operations, whether
/// or not its old log is gone.
#[test]
fn a_new_log_owes_what_the_old_one_did() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 1, 96 << 20);
    let spa = new_pool(VdevShape::Single, &images);
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    for chain in [false, true] {
        let log = live.logs().open(&owned);
        if chain {
            let first = log_file(live, &owned, &log, 0, b"first");
            log.commit(Some(first), &Files(&owned)).unwrap();
        }
        let object = log_file(live, &owned, &log, 1, b"bytes");
        let txg = live.txgs().open();
        drop(log);
        let log = live.logs().open(&owned);
        log.commit(Some(object), &Files(&owned)).unwrap();
        assert!(live.txgs().synced() >= txg || log.stats().block_count > 0, "nothing kept the promise");
    }
}

/// Transaction groups that refuse one transaction on request.
struct Flaky {
    spa: Arc<spa::Spa>,
    refuse: AtomicBool,
}

impl zil::Groups for Flaky {
    fn hold(&self) -> zil::Result<dmu::Tx> {
        let refused = || zil::Error::Stopped { source: Arc::new(std::io::Error::other("refused")) };
        match self.refuse.swap(false, Ordering::Relaxed) {
            true => Err(refused()),
            false => self.spa.writer().unwrap().tx(0).map_err(|_| refused()),
        }
    }

    fn open(&self) -> Txg {
        self.spa.writer().unwrap().txgs().open()
    }

    fn synced(&self) -> Txg {
        self.spa.writer().unwrap().txgs().synced()
    }

    fn wait(&self, txg: Txg) -> zil::Result<()> {
        self.spa.writer().unwrap().txgs().wait_synced(txg).unwrap();
        Ok(())
    }
}

/// Goal: records that were taken for a commit and could not be written to the log are covered by
/// later commits. No later commit returns before the dropped records' txg is on disk, whatever its
/// object.
#[test]
fn a_dropped_take_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let spa = Arc::new(new_pool(VdevShape::Single, &images(dir.path(), 1, 96 << 20)));
    let live = spa.writer().unwrap();
    live.run(testpools::file_system("tank/fs", Vec::new())).unwrap();
    let owned = own(live, "tank/fs");
    let groups = Arc::new(Flaky { spa: spa.clone(), refuse: AtomicBool::new(false) });
    // The next commit has records of its own, or is of an object without records, or is of all
    // objects.
    for (more, object) in [(true, Some(ObjNum(4))), (false, Some(ObjNum(4))), (true, None)] {
        let log = zil::Zilog::new(owned.objset().clone(), groups.clone(), Arc::new(|| 7), None);
        let name = |n: u64| {
            let (tx, name) = (live.tx(0).unwrap(), b"name".to_vec());
            log.log_names(&tx, TxKind::Remove, false, &RecordBody::Remove { doid: n, name });
            tx.txg()
        };
        name(1);
        log.commit(Some(ObjNum(1)), &Files(&owned)).unwrap();
        name(2);
        log.commit(Some(ObjNum(2)), &Files(&owned)).unwrap();
        assert!(log.stats().block_count > 0, "there is a chain");
        let dropped = name(3);
        groups.refuse.store(true, Ordering::Relaxed);
        log.commit(Some(ObjNum(3)), &Files(&owned)).unwrap_err();
        if more {
            name(4);
        }
        log.commit(object, &Files(&owned)).unwrap();
        assert!(live.txgs().synced() >= dropped, "nothing kept the promise");
    }
}

/// Goal: a log device whose flush fails is faulted. Commits then rely on their txgs, and the next
/// chain is on the pool's other devices.
#[test]
fn logs_move_off_a_failed_device() {
    let (dir, spa, patient) = with_faulty_log();
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let log = live.logs().open(&owned);
    let commit = |n: u64| {
        let object = log_file(live, &owned, &log, n, b"bytes");
        let txg = live.txgs().open();
        log.commit(Some(object), &Files(&owned)).unwrap();
        txg
    };
    commit(0);
    commit(1);
    patient.inject(Fault::Error { op: Op::Flush, range: 0..SIZE });
    patient.inject(Fault::Error { op: Op::Write, range: 0..SIZE });
    let txg = commit(2);
    assert!(live.txgs().synced() >= txg, "nothing else kept the promise");
    for _ in 0..4 {
        live.sync_all().unwrap();
        commit(3);
    }
    let (blocks, waits) = (log.stats().block_count, log.stats().commit_group_waits);
    commit(4);
    assert!(log.stats().block_count > blocks, "there is no new chain");
    assert_eq!(log.stats().commit_group_waits, waits);
    judge(crash(live, dir.path()).path(), "tank");
}

/// The kinds of the top-level vdevs in the pool's configuration.
fn tops(live: &PoolWriter) -> Vec<ondisk::VdevKind> {
    live.config().vdev_tree.as_ref().unwrap().children.iter().map(|top| top.kind).collect()
}

/// Goal: a log vdev is removed while commits go on.
///
/// * A crash before, during or after the removal loses no committed data.
/// * The vdevs after it keep their numbers.
/// * Its devices are released.
/// * `zdb` finds the pool consistent, also when another log vdev takes over.
#[test]
fn log_vdevs_are_removed() {
    use ondisk::VdevKind::{Hole, Mirror};
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 5, 96 << 20);
    let vdev = |shape, bias, images: &[PathBuf]| {
        let leaves = images.iter().map(|p| NewLeaf { path: p.clone() }).collect();
        NewVdev { shape, bias, leaves }
    };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let log_vdev = |images| vdev(VdevShape::Mirror, Some(AllocBias::Log), images);
    let single = |image: usize| vdev(VdevShape::Single, None, &images[image..=image]);
    let spa = pool_of(vec![single(0), log_vdev(&images[1..3]), single(3)], &features);
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let log = live.logs().open(&owned);
    let commit = |n: u64| {
        let object = log_file(live, &owned, &log, n, &noise(n, 5000));
        log.commit(Some(object), &Files(&owned)).unwrap();
    };
    let guid = |at: usize| live.config().vdev_tree.as_ref().unwrap().children[at].guid;
    (0..20).for_each(commit);
    let log_top = guid(1);
    assert!(matches!(
        live.vdevs().remove_log(guid(0)),
        Err(LifeError::Shape(ShapeError::Unsupported { .. }))
    ));

    // A thread commits all the time, since the log's last block stays there without further
    // commits.
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut n = 100;
            while !stop.load(Ordering::Relaxed) {
                commit(n);
                n += 1;
            }
        });
        let done = live.vdevs().remove_log(log_top);
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    assert_eq!(tops(live)[1], Hole);
    commit(9000);
    let left = crash(live, dir.path());
    if let Some(said) = ask(left.path(), "tank", &["-iiiii"]) {
        assert!(said.contains("file9000"), "what is committed now is logged elsewhere: {said}");
    }
    judge(left.path(), "tank");
    // The devices are released: an added log vdev takes them without force. It comes after the
    // hole, and its removal leaves no hole.
    let terms = AddTerms { ashift: None, check_ashift: true, force: false, claimer: &claim_file };
    live.vdevs().add(&[log_vdev(&images[1..3])], &terms).unwrap();
    assert_eq!(tops(live)[3], Mirror);
    (9001..9010).for_each(commit);
    let blocks = log.stats().block_count;
    assert!(blocks > 0);
    live.vdevs().remove_log(guid(3)).unwrap();
    assert_eq!(tops(live).len(), 3);
    judge(crash(live, dir.path()).path(), "tank");
    drop(log);
    drop(owned);
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    let label = spa::Labels::read(&*claim_file(&images[1]).unwrap().0).newest().is_none();
    assert!(label, "the labels of what was removed are void");
}

/// Goal: a log with records that no txg has synced goes on when its dataset is opened again.
#[test]
fn a_log_that_is_not_gone_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 96 << 20));
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let log = live.logs().open(&owned);
    let commit = |log: &LogHandle, n| {
        let object = log_file(live, &owned, log, n, b"logged");
        log.commit(Some(object), &Files(&owned)).unwrap();
    };
    // A chain has its first block.
    commit(&log, 0);
    // Its txg can't sync.
    let hold = live.tx(0).unwrap();
    commit(&log, 1);
    drop(log);
    let log = live.logs().open(&owned);
    assert_eq!(log.stats().commit_count, 2);
    commit(&log, 2);
    assert_eq!(log.stats().commit_count, 3);
    drop((hold, log));
    live.sync_all().unwrap();
    assert!(!live.logs().is_open(&owned));
    judge(crash(live, dir.path()).path(), "tank");
}

/// Goal: a dataset that was only read is not written when its log is closed. A log of which all is
/// on disk goes at once too. What it did not log is durable after a commit of the next log.
#[test]
fn logs_at_rest_go_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 96 << 20));
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let rest = || {
        live.sync_all().unwrap();
        owned.objset().root_bp()
    };
    let before = rest();
    drop(live.logs().open(&owned));
    assert!(!live.logs().is_open(&owned));
    assert_eq!(rest(), before);
    // A log with a chain is removed by a txg.
    let log = live.logs().open(&owned);
    for n in 0..2 {
        let object = log_file(live, &owned, &log, n, b"logged");
        log.commit(Some(object), &Files(&owned)).unwrap();
    }
    assert!(log.stats().block_count > 0);
    drop(log);
    assert!(live.logs().is_open(&owned));
    assert_ne!(rest(), before);
    assert!(!live.logs().is_open(&owned));
    judge(crash(live, dir.path()).path(), "tank");
    // Records that have synced are nothing to wait for.
    let log = live.logs().open(&owned);
    log_file(live, &owned, &log, 3, b"never committed");
    let written = rest();
    drop(log);
    assert!(!live.logs().is_open(&owned));
    assert_eq!(rest(), written);
    // Changes without a record.
    let log = live.logs().open(&owned);
    let policy = log.policy();
    log.set_policy(zil::LogPolicy { sync: zil::SyncMode::Disabled, ..policy });
    log_file(live, &owned, &log, 4, b"not logged");
    let open = live.txgs().open();
    drop(log);
    assert!(!live.logs().is_open(&owned));
    // One that was not used passes on what is owed.
    drop(live.logs().open(&owned));
    let log = live.logs().open(&owned);
    log.commit(None, &Files(&owned)).unwrap();
    assert!(live.txgs().synced() >= open);
}

/// Goal: the sums over logs do not fall when a log is closed, nor those of the process when a pool
/// is released. They have what is open once, also after a dataset's log was opened again.
#[test]
fn sums_do_not_fall() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 96 << 20));
    let live = spa.writer().unwrap();
    let mut commits = 0;
    for round in 0..3 {
        let owned = own(live, "tank");
        let log = live.logs().open(&owned);
        for n in 0..20 {
            let file = log_file(live, &owned, &log, round * 100 + n, b"text");
            log.commit(Some(file), &Files(&owned)).unwrap();
            commits += 1;
        }
        assert_eq!(live.logs().sum().commit_count, commits);
        drop(log);
        live.sync_all().unwrap();
        assert!(live.logs().stats().is_empty(), "{:?}", live.logs().stats());
        let sum = live.logs().sum();
        assert_eq!((sum.commit_count, sum.commit_ns.count()), (commits, commits));
    }
    let before = IntentLogs::sum_of_process().commit_count;
    assert!(before >= commits);
    live.export().unwrap();
    drop(spa);
    let after = IntentLogs::sum_of_process().commit_count;
    assert!(after >= before, "{before} {after}");
}
