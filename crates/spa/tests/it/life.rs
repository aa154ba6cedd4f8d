//! Devices that go offline, become available again, join and leave. OpenZFS's `zdb` checks the
//! results if it is available.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::config::AllocBias;
use ondisk::feature::{FEATURES, Feature};
use ondisk::scan::{ScanFunc, ScanState};
use ondisk::{Guid, ObjNum, VdevKind};
use spa::Spa;
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::{AttachTerms, LifeError, PoolWriter, ScanCommand, ShapeError, VdevValue, Verdict};
use spa::import::{Options, Rewind};
use testpools::{ask, import_as, judge, noise, own, pool_of, read_file, write_file};
use vdev::inject::{self, ALWAYS, Fault, On, Target, Wrong};
use vdev::{VdevAux, VdevState};

const LEN: usize = 1 << 20;

fn image(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    path
}

fn new_pool(dir: &Path, shape: VdevShape, names: &[&str]) -> Spa {
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let leaves = names.iter().map(|name| NewLeaf { path: image(dir, name) }).collect();
    pool_of(vec![NewVdev { shape, bias: None, leaves }], &features)
}

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

fn write(spa: &Spa, seed: u64) -> (u64, ObjNum) {
    let object = write_file(live(spa), &own(live(spa), "tank"), &noise(seed, LEN)).unwrap();
    live(spa).sync_all().unwrap();
    (seed, object)
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

fn again(dir: &Path, spa: Spa) -> Spa {
    export(spa);
    judge(dir, "tank");
    import_as(dir, Options::default()).unwrap()
}

/// The guid of the leaf at a path.
fn guid(spa: &Spa, dir: &Path, name: &str) -> Guid {
    let config = spa.config();
    let path = dir.join(name).display().to_string().into_bytes();
    let mut leaves = config.vdev_tree.as_ref().unwrap().leaves();
    leaves.find(|leaf| leaf.path.as_ref() == Some(&path)).unwrap().guid
}

fn state(spa: &Spa, dir: &Path, name: &str) -> VdevState {
    spa.tree().state_of(guid(spa, dir, name)).unwrap().0
}

/// The tree below the root as text, such as `mirror(a b)`.
fn shape(spa: &Spa) -> String {
    fn words(v: &ondisk::VdevConfig) -> String {
        let path = v.path.as_deref().map(|p| String::from_utf8_lossy(p).into_owned()).unwrap_or_default();
        if v.kind.is_leaf() {
            let old = path.strip_suffix("/old").map_or("", |_| "/old");
            let name = path.trim_end_matches("/old").rsplit('/').next().unwrap().to_owned();
            return name + old;
        }
        let all: Vec<String> = v.children.iter().map(words).collect();
        format!("{}({})", v.kind.name(), all.join(" "))
    }
    let config = spa.config();
    let tops: Vec<String> = config.vdev_tree.as_ref().unwrap().children.iter().map(words).collect();
    tops.join(" ")
}

fn join(spa: &Spa, dir: &Path, old: &str, path: &Path, replace: bool) -> Result<(), LifeError> {
    let terms =
        AttachTerms { replace, sequential: false, force: false, unattended: false, claimer: &claim_file };
    live(spa).vdevs().attach(guid(spa, dir, old), &NewLeaf { path: path.to_owned() }, &terms)
}

fn attach(spa: &Spa, dir: &Path, old: &str, new: &str) {
    join(spa, dir, old, &image(dir, new), false).unwrap();
}

/// Waits until every device has all that it missed, and replaced devices are detached.
fn healed(spa: &Spa) {
    live(spa).scans().hold(false);
    for _ in 0..100_000 {
        live(spa).sync_all().unwrap();
        let scans = live(spa).scans().stat().is_some_and(|s| s.is_scanning());
        if !scans && spa.tree().behind().is_empty() {
            live(spa).vdevs().end_replacements().unwrap();
            return;
        }
    }
    panic!("no end of the resilver");
}

/// Goal: a child of a mirror goes offline, and the pool works without it, also over an import.
///
/// Online again, it lacks what was written meanwhile: it is written, and not read for that. The
/// last up-to-date child can't go offline.
#[test]
fn offline_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Mirror, &["a", "b"]);
    let first = write(&spa, 1);
    live(&spa).vdevs().offline(guid(&spa, d, "a"), false).unwrap();
    live(&spa).vdevs().offline(guid(&spa, d, "a"), false).unwrap();
    assert_eq!(state(&spa, d, "a"), VdevState::Offline);
    assert_eq!(spa.tree().state().0, VdevState::Degraded);
    let refused = live(&spa).vdevs().offline(guid(&spa, d, "b"), false);
    assert!(matches!(refused, Err(LifeError::NoReplicas { .. })));
    // The device is closed, so others can claim it.
    drop(device::FileDevice::open(&d.join("a"), device::Mode::Write).unwrap());
    let second = write(&spa, 2);
    if let Some(config) = ask(d, "tank", &["-C"]) {
        assert!(config.contains("offline: 1"), "{config}");
    }
    let spa = again(d, spa);
    assert_eq!(state(&spa, d, "a"), VdevState::Offline);
    let third = write(&spa, 3);
    live(&spa).scans().hold(true);
    assert_eq!(live(&spa).vdevs().online(guid(&spa, d, "a"), false).unwrap(), VdevState::Healthy);
    check(&spa, &[first, second, third]);
    assert_eq!(spa.tree().stats(guid(&spa, d, "a")).unwrap().checksum_errors.get(), 0);
    let missed = spa.tree().dtl(guid(&spa, d, "a")).unwrap();
    assert!(!missed.is_empty());
    let refused = live(&spa).vdevs().offline(guid(&spa, d, "b"), false);
    assert!(matches!(refused, Err(LifeError::NoReplicas { .. })), "what it lacks, only the other has");
    let spa = again(d, spa);
    healed(&spa);
    live(&spa).vdevs().offline(guid(&spa, d, "b"), true).unwrap();
    check(&spa, &[first, second, third]);
    let spa = again(d, spa);
    assert_eq!(state(&spa, d, "b"), VdevState::Healthy, "it was for the time being");
    check(&spa, &[first, second, third]);
}

/// Goal: while a device is being replaced, neither it nor the new one counts as redundancy. A
/// raidz2 faults one more device then, and only degrades the next, which stays in use.
///
/// After the replacement that device can be faulted too.
#[test]
fn a_replacement_is_not_counted_on() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Raidz(2), &["a", "b", "c", "e", "f"]);
    let first = write(&spa, 1);
    live(&spa).scans().hold(true);
    join(&spa, d, "f", &image(d, "n"), true).unwrap();
    live(&spa).vdevs().offline(guid(&spa, d, "n"), true).unwrap();
    let fault = |name: &str| live(&spa).vdevs().fault(guid(&spa, d, name), Verdict::ByHandForNow).unwrap();
    let states = || ["a", "b"].map(|name| state(&spa, d, name));
    fault("a");
    fault("b");
    assert_eq!(states(), [VdevState::Faulted, VdevState::Degraded]);
    // The device that is being replaced can be faulted itself, if its data is elsewhere.
    live(&spa).clear(None).unwrap();
    fault("f");
    assert_eq!(state(&spa, d, "f"), VdevState::Faulted);
    let second = write(&spa, 2);
    check(&spa, &[first, second]);
    live(&spa).vdevs().online(guid(&spa, d, "n"), false).unwrap();
    live(&spa).scans().hold(false);
    live(&spa).scans().wait().unwrap();
    live(&spa).vdevs().end_replacements().unwrap();
    assert_eq!(shape(&spa), "raidz(a b c e n)");
    fault("a");
    fault("b");
    assert_eq!(states(), [VdevState::Faulted; 2]);
    live(&spa).clear(None).unwrap();
    healed(&spa);
    let spa = again(d, spa);
    check(&spa, &[first, second]);
}

/// Goal: a fault by command survives an import only if requested, can be cleared, and keeps a
/// device offline that was offline before.
#[test]
fn faults_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let mut spa = new_pool(d, VdevShape::Raidz(1), &["a", "b", "c"]);
    let first = write(&spa, 1);
    for temporary in [false, true] {
        live(&spa)
            .vdevs()
            .fault(guid(&spa, d, "a"), if temporary { Verdict::ByHandForNow } else { Verdict::ByHand })
            .unwrap();
        assert_eq!(state(&spa, d, "a"), VdevState::Faulted);
        assert_eq!(live(&spa).vdevs().online(guid(&spa, d, "a"), false).unwrap(), VdevState::Faulted);
        spa = again(d, spa);
        let expected = if temporary { VdevState::Healthy } else { VdevState::Faulted };
        assert_eq!(state(&spa, d, "a"), expected);
        live(&spa).clear(Some(guid(&spa, d, "a"))).unwrap();
        assert_eq!(state(&spa, d, "a"), VdevState::Healthy);
    }
    healed(&spa);
    live(&spa).vdevs().offline(guid(&spa, d, "a"), false).unwrap();
    live(&spa).vdevs().fault(guid(&spa, d, "a"), Verdict::ByHand).unwrap();
    assert_eq!(state(&spa, d, "a"), VdevState::Faulted);
    live(&spa).clear(None).unwrap();
    assert_eq!(state(&spa, d, "a"), VdevState::Offline);
    live(&spa).vdevs().fault(guid(&spa, d, "b"), Verdict::ByHand).unwrap();
    assert_eq!(state(&spa, d, "b"), VdevState::Degraded, "the pool can't do without it");
    check(&spa, &[first]);
}

/// Goal: a diagnosis faults a failing device, and degrades a poor one, which stays in use. Both
/// show too many errors until they are cleared; an import tries the faulted one again.
#[test]
fn verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let mut spa = new_pool(d, VdevShape::Raidz(2), &["a", "b", "c", "d"]);
    let first = write(&spa, 1);
    for cleared in [true, false] {
        live(&spa).vdevs().fault(guid(&spa, d, "a"), Verdict::Poor).unwrap();
        live(&spa).vdevs().fault(guid(&spa, d, "b"), Verdict::Failing).unwrap();
        live(&spa).vdevs().fault(guid(&spa, d, "b"), Verdict::Poor).unwrap();
        for (name, expected) in [("a", VdevState::Degraded), ("b", VdevState::Faulted)] {
            let told = spa.tree().state_of(guid(&spa, d, name)).unwrap();
            assert_eq!(told, (expected, VdevAux::ErrExceeded), "{name}");
        }
        assert_eq!(spa.tree().state().0, VdevState::Degraded);
        let second = write(&spa, 2);
        if cleared {
            live(&spa).clear(None).unwrap();
        } else {
            spa = again(d, spa);
        }
        let poor = if cleared { VdevState::Healthy } else { VdevState::Degraded };
        assert_eq!((state(&spa, d, "a"), state(&spa, d, "b")), (poor, VdevState::Healthy));
        healed(&spa);
        check(&spa, &[first, second]);
    }
}

/// Goal: a child that is attached late during a resilver waits for the end of that resilver, as
/// config and feature show. Afterwards it gets all that it lacks.
#[test]
fn a_resilver_waits() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Single, &["a"]);
    let files: Vec<(u64, ObjNum)> = (1..5).map(|seed| write(&spa, seed)).collect();
    live(&spa).scans().limit_slices(2);
    live(&spa).scans().hold(true);
    attach(&spa, d, "a", "b");
    // A few slices at a time, each with a txg, so that the progress does not depend on time.
    let much = |s: spa::engine::ScanStat| s.issued * 4 > s.phys.to_examine;
    while !live(&spa).scans().stat().is_some_and(much) {
        live(&spa).scans().hold(false);
        live(&spa).sync_all().unwrap();
        live(&spa).scans().hold(true);
        live(&spa).sync_all().unwrap();
    }
    assert!(live(&spa).scans().stat().unwrap().is_scanning(), "it is to be found at work");
    let begun = live(&spa).scans().stat().unwrap().phys.max_txg;
    attach(&spa, d, "a", "c");
    live(&spa).sync_all().unwrap();
    let active = |spa: &Spa| spa.features().is_active("com.datto:resilver_defer");
    let waits = |spa: &Spa| {
        let config = spa.config();
        let root = config.vdev_tree.as_ref().unwrap();
        root.leaves().filter(|leaf| leaf.resilver_defer).map(|leaf| leaf.guid).collect::<Vec<_>>()
    };
    assert_eq!(live(&spa).scans().stat().unwrap().phys.max_txg, begun, "it goes on");
    assert!(active(&spa));
    assert_eq!(waits(&spa), vec![guid(&spa, d, "c")]);
    export(spa);
    judge(d, "tank");
    let spa = import_as(d, Options::default()).unwrap();
    healed(&spa);
    assert!(!active(&spa) && waits(&spa).is_empty());
    let spa = again(d, spa);
    check(&spa, &files);
    for name in ["a", "b"] {
        live(&spa).vdevs().detach(guid(&spa, d, name)).unwrap();
    }
    check(&spa, &files);
}

/// Goal: whenever a device lacks data, a resilver is active or pending, although it begins some
/// txgs later. So a thread that waits for it waits long enough.
///
/// This holds for a device that is attached and for one that is brought online.
#[test]
fn a_resilver_is_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Single, &["a"]);
    let first = write(&spa, 1);
    live(&spa).scans().hold(true);
    let there =
        || live(&spa).scans().awaits_resilver() || live(&spa).scans().stat().is_some_and(|s| s.is_scanning());
    let watched = |change: &(dyn Fn() + Sync)| {
        let lacks = || !spa.tree().behind().is_empty();
        std::thread::scope(|scope| {
            let change = scope.spawn(change);
            let (mut looks, mut seen) = (0u64, false);
            while !change.is_finished() || !seen {
                // The resilver does not end, because scans are held.
                if lacks() {
                    seen = true;
                    assert!(there(), "at look {looks}");
                }
                looks += 1;
            }
        });
        live(&spa).scans().hold(false);
        healed(&spa);
        live(&spa).scans().hold(true);
    };
    watched(&|| attach(&spa, d, "a", "b"));
    live(&spa).vdevs().offline(guid(&spa, d, "b"), false).unwrap();
    let second = write(&spa, 2);
    let b = guid(&spa, d, "b");
    watched(&|| assert_eq!(live(&spa).vdevs().online(b, false).unwrap(), VdevState::Healthy));
    check(&spa, &[first, second]);
}

/// Goal: the end of a scan does not mark a device up to date that was offline when it began. This
/// holds although nothing was written to that device meanwhile.
///
/// It also holds after an import.
#[test]
fn passed_by_while_away() {
    for imported in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
        let mirror = |bias, names: [&str; 2]| {
            let leaves = names.map(|name| NewLeaf { path: image(d, name) }).into();
            NewVdev { shape: VdevShape::Mirror, bias, leaves }
        };
        let tops = vec![mirror(None, ["a", "b"]), mirror(Some(AllocBias::Log), ["l", "m"])];
        let spa = pool_of(tops, &features);
        let mut files = vec![write(&spa, 1)];
        let away = guid(&spa, d, "m");
        live(&spa).vdevs().offline(away, true).unwrap();
        // These txgs write nothing to the log.
        files.extend((2..6).map(|seed| write(&spa, seed)));
        let missed = spa.tree().dtl(away).unwrap();
        live(&spa).scans().hold(true);
        attach(&spa, d, "a", "c");
        live(&spa).sync_all().unwrap();
        let begun = live(&spa).scans().stat().unwrap().phys.max_txg;
        assert!(missed.iter().last().unwrap().1 < begun, "{missed:?} is all that it missed until {begun}");
        let spa = if imported {
            again(d, spa)
        } else {
            live(&spa).vdevs().online(away, false).unwrap();
            spa
        };
        assert_eq!(state(&spa, d, "m"), VdevState::Healthy);
        healed(&spa);
        assert!(live(&spa).scans().stat().unwrap().phys.max_txg > begun, "one that has seen it");
        check(&spa, &files);
        export(spa);
        judge(d, "tank");
    }
}

/// Goal: the same holds if an online device misses data of the txg in which the scan begins. Both
/// then lack data up to the same txg. A long soak once waited for ever for this.
#[test]
fn passed_by_amid_a_group() {
    for imported in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let spa = new_pool(d, VdevShape::Mirror, &["a", "b", "c"]);
        let mut files = vec![write(&spa, 1)];
        live(&spa).scans().hold(true);
        live(&spa).vdevs().offline(guid(&spa, d, "c"), true).unwrap();
        // The limit keeps it from being faulted for the refused writes.
        let limit = VdevValue::Number(1 << 20);
        live(&spa).vdevs().set_vdev(guid(&spa, d, "b"), "io_n", limit).unwrap();
        let target = Target::Leaf { leaf: guid(&spa, d, "b"), on: Some(On::Write), wrong: Wrong::Error(5) };
        inject::add(Fault { pool: spa.guid(), target, often: ALWAYS }).unwrap();
        files.push(write(&spa, 2));
        // The resilver begins in the next txg, of which it misses some data too.
        let object = write_file(live(&spa), &own(live(&spa), "tank"), &noise(3, LEN)).unwrap();
        files.push((3, object));
        live(&spa).scans().request_resilver();
        live(&spa).sync_all().unwrap();
        let begun = live(&spa).scans().stat().unwrap().phys;
        assert_eq!((begun.func, begun.state), (ScanFunc::Resilver, ScanState::Scanning));
        inject::forget(spa.guid());
        let spa = if imported {
            again(d, spa)
        } else {
            live(&spa).vdevs().online(guid(&spa, d, "c"), false).unwrap();
            spa
        };
        healed(&spa);
        assert!(live(&spa).scans().stat().unwrap().phys.max_txg > begun.max_txg, "one that has seen it");
        live(&spa).scan(ScanCommand::Scrub).unwrap();
        live(&spa).scans().wait().unwrap();
        assert_eq!(live(&spa).scans().stat().unwrap().phys.processed, 0, "nobody lacks anything");
        check(&spa, &files);
        export(spa);
        judge(d, "tank");
    }
}

/// Goal: a disk becomes a mirror of two and then of three. A new child is written, and not read for
/// what it lacks.
///
/// A detached device leaves a consistent pool, and no label that could be imported.
#[test]
fn attach_and_detach() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Single, &["a"]);
    let first = write(&spa, 1);
    live(&spa).scans().hold(true);
    attach(&spa, d, "a", "b");
    assert_eq!(shape(&spa), "mirror(a b)");
    let second = write(&spa, 2);
    check(&spa, &[first, second]);
    assert_eq!(spa.tree().stats(guid(&spa, d, "b")).unwrap().checksum_errors.get(), 0);
    let refused = live(&spa).vdevs().detach(guid(&spa, d, "a"));
    assert!(matches!(refused, Err(LifeError::NoReplicas { .. })));
    let spa = again(d, spa);
    check(&spa, &[first, second]);
    healed(&spa);
    assert_eq!(spa.tree().stats(guid(&spa, d, "b")).unwrap().checksum_errors.get(), 0);
    attach(&spa, d, "b", "c");
    assert_eq!(shape(&spa), "mirror(a b c)");
    live(&spa).vdevs().detach(guid(&spa, d, "a")).unwrap();
    assert_eq!(shape(&spa), "mirror(b c)");
    let third = write(&spa, 3);
    let spa = again(d, spa);
    check(&spa, &[first, second, third]);
    live(&spa).vdevs().detach(guid(&spa, d, "c")).unwrap();
    assert_eq!(shape(&spa), "b");
    let fourth = write(&spa, 4);
    live(&spa).scans().hold(true);
    attach(&spa, d, "b", "e");
    let refused = live(&spa).vdevs().detach(guid(&spa, d, "b"));
    assert!(matches!(refused, Err(LifeError::NoReplicas { .. })));
    live(&spa).vdevs().detach(guid(&spa, d, "e")).unwrap();
    let spa = again(d, spa);
    check(&spa, &[first, second, third, fourth]);
    export(spa);
    std::fs::remove_file(d.join("b")).unwrap();
    assert!(spa::discover(&[d]).pools.is_empty(), "what was detached is no pool");
}

/// Goal: a detached device is no pool, but it keeps a complete uberblock without a txg. A repair of
/// that txg brings the pool back as it was (`zhack label repair -u`).
#[test]
fn a_detached_side_can_be_brought_back() {
    use ondisk::label::{LABELS, RING_OFFSET, label_offset, uberblock_shift};
    use vdev::label::{LabelWriter, Labels};
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Mirror, &["a", "b"]);
    let first = write(&spa, 1);
    let last = live(&spa).uberblock();
    live(&spa).vdevs().detach(guid(&spa, d, "b")).unwrap();
    export(spa);
    std::fs::remove_file(d.join("a")).unwrap();
    assert!(spa::discover(&[d]).pools.is_empty());
    let device = device::FileDevice::open(&d.join("b"), device::Mode::Write).unwrap();
    let (labels, writer) = (Labels::new(&device), LabelWriter::new(&device));
    for label in 0..LABELS {
        let mut config = labels.config(label).unwrap();
        assert_eq!((config.u64("txg"), config.u64("create_txg")), (Some(0), Some(0)));
        let mut ring = vec![0; 1024];
        let at = label_offset(device::Device::size(&device), label).unwrap() + RING_OFFSET;
        device::Device::read_at(&device, &mut ring, at).unwrap();
        let mut uberblock = ondisk::Uberblock::decode(&ring).unwrap();
        assert_eq!((uberblock.txg.0, uberblock.rootbp), (0, last.rootbp));
        let shift = uberblock_shift(ondisk::Ashift(9));
        assert_eq!(labels.uberblocks(label, shift).unwrap(), [], "nobody believes it");
        uberblock.txg = ondisk::Blkptr::decode(&uberblock.rootbp).unwrap().birth;
        config.remove("create_txg");
        config.set("txg", ondisk::Value::Uint64(uberblock.txg.0));
        writer.config(label, &config).unwrap();
        writer.uberblock(label, shift, 0, &uberblock).unwrap();
    }
    drop(device);
    let spa = import_as(d, Options::default()).unwrap();
    assert_eq!(shape(&spa), "mirror(a b)");
    check(&spa, &[first]);
    export(spa);
}

/// Goal: a rewind to a state before a detach has the detached device again, although its label is
/// void.
#[test]
fn going_back_has_the_detached_side_again() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Mirror, &["a", "b"]);
    let first = write(&spa, 1);
    let before = live(&spa).uberblock().txg;
    live(&spa).vdevs().detach(guid(&spa, d, "a")).unwrap();
    assert_eq!(shape(&spa), "b");
    export(spa);
    let spa = import_as(d, Options { max_txg: Some(before), rewind: Rewind::Extreme, ..Options::default() })
        .unwrap();
    assert_eq!(shape(&spa), "mirror(a b)");
    check(&spa, &[first]);
    assert_eq!(spa.tree().state_of(guid(&spa, d, "a")).unwrap().0, VdevState::Healthy);
    export(spa);
    judge(d, "tank");
}

/// Goal: a device is replaced by another one, and by a new one at its path. The pool is consistent
/// before, during and after, and the old device is detached when the new one lacks nothing.
#[test]
fn replace() {
    for (kind, names) in [(VdevShape::Mirror, &["a", "b"][..]), (VdevShape::Raidz(1), &["a", "b", "c"])] {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let spa = new_pool(d, kind, names);
        let first = write(&spa, 1);
        live(&spa).scans().hold(true);
        join(&spa, d, "a", &image(d, "n"), true).unwrap();
        assert!(shape(&spa).contains("(replacing(a n) b"), "{}", shape(&spa));
        let second = write(&spa, 2);
        check(&spa, &[first, second]);
        live(&spa).vdevs().end_replacements().unwrap();
        assert!(shape(&spa).contains("(replacing(a n) b"), "the new one lacks much");
        let spa = again(d, spa);
        check(&spa, &[first, second]);
        healed(&spa);
        assert!(shape(&spa).contains("(n b"), "{}", shape(&spa));
        let third = write(&spa, 3);
        let spa = again(d, spa);
        check(&spa, &[first, second, third]);
        // In place: the device at the same path is a new one.
        live(&spa).vdevs().offline(guid(&spa, d, "b"), false).unwrap();
        let refused = join(&spa, d, "b", &d.join("b"), true);
        assert!(
            matches!(&refused, Err(LifeError::InUse | LifeError::Shape(ShapeError::Devices(_)))),
            "{refused:?}"
        );
        std::fs::remove_file(d.join("b")).unwrap();
        let before = guid(&spa, d, "b");
        live(&spa).scans().hold(true);
        join(&spa, d, "b", &image(d, "b"), true).unwrap();
        assert!(shape(&spa).contains("(n replacing(b/old b)"), "{}", shape(&spa));
        live(&spa).vdevs().detach(guid(&spa, d, "b")).unwrap();
        assert!(shape(&spa).contains("(n b"), "{}", shape(&spa));
        assert_eq!(guid(&spa, d, "b"), before);
        join(&spa, d, "b", &image(d, "b"), true).unwrap();
        let spa = again(d, spa);
        healed(&spa);
        assert!(shape(&spa).contains("(n b"), "{}", shape(&spa));
        assert_ne!(guid(&spa, d, "b"), before);
        check(&spa, &[first, second, third]);
        export(spa);
        judge(d, "tank");
    }
}

/// Goal: a hot spare replaces a device and is in use meanwhile. It is a spare again when it is
/// detached, and stays for good when the device is detached.
#[test]
fn spares_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Raidz(1), &["a", "b", "c"]);
    let first = write(&spa, 1);
    let spare = NewLeaf { path: image(d, "s") };
    live(&spa).vdevs().add_aux(&[spare], &[], false, &claim_file).unwrap();
    join(&spa, d, "a", &d.join("s"), true).unwrap();
    assert_eq!(shape(&spa), "raidz(spare(a s) b c)");
    let second = write(&spa, 2);
    let aux = live(&spa).vdevs().remove_aux(guid(&spa, d, "s"));
    assert!(matches!(aux, Err(ShapeError::Busy { .. })));
    assert!(matches!(join(&spa, d, "b", &d.join("s"), true), Err(LifeError::InUse)));
    let spa = again(d, spa);
    check(&spa, &[first, second]);
    assert_eq!(spa.spares().len(), 1);
    live(&spa).vdevs().detach(guid(&spa, d, "s")).unwrap();
    assert_eq!(shape(&spa), "raidz(a b c)");
    let spa = again(d, spa);
    assert_eq!((spa.spares().len(), spa.spares()[0].state), (1, VdevState::Healthy));
    join(&spa, d, "a", &d.join("s"), true).unwrap();
    healed(&spa);
    live(&spa).vdevs().detach(guid(&spa, d, "a")).unwrap();
    assert_eq!(shape(&spa), "raidz(s b c)");
    assert!(spa.spares().is_empty());
    let spa = again(d, spa);
    check(&spa, &[first, second]);
    assert!(spa.spares().is_empty());
}

/// Goal: if two hot spares replace a device and it is detached, the last spare stays for good, and
/// the other is a spare again.
#[test]
fn of_two_spares_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Raidz(1), &["a", "b", "c"]);
    let first = write(&spa, 1);
    let spares = ["s", "t"].map(|name| NewLeaf { path: image(d, name) });
    live(&spa).vdevs().add_aux(&spares, &[], false, &claim_file).unwrap();
    live(&spa).scans().hold(true);
    join(&spa, d, "a", &d.join("s"), true).unwrap();
    join(&spa, d, "s", &d.join("t"), true).unwrap();
    assert_eq!(shape(&spa), "raidz(spare(a s t) b c)");
    live(&spa).vdevs().detach(guid(&spa, d, "a")).unwrap();
    assert_eq!(spa.spares().len(), 1);
    live(&spa).scans().hold(false);
    live(&spa).scans().wait().unwrap();
    live(&spa).vdevs().end_replacements().unwrap();
    assert_eq!(shape(&spa), "raidz(t b c)");
    let spa = again(d, spa);
    check(&spa, &[first]);
    let spares = spa.spares();
    assert_eq!((spares.len(), spares[0].state), (1, VdevState::Healthy));
    assert!(spares[0].config.path.as_deref().unwrap().ends_with(b"/s"));
}

/// Goal: a hot spare that was missing when it was released is labelled as a spare when it is found
/// again. Until then its labels describe a mirror that no longer exists. A long soak found this.
#[test]
fn a_spare_that_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Mirror, &["a", "b"]);
    let first = write(&spa, 1);
    live(&spa).vdevs().add_aux(&[NewLeaf { path: image(d, "s") }], &[], false, &claim_file).unwrap();
    join(&spa, d, "a", &d.join("s"), true).unwrap();
    healed(&spa);
    let used = std::fs::read(d.join("s")).unwrap();
    for side in ["s", "a"] {
        live(&spa).vdevs().detach(guid(&spa, d, side)).unwrap();
    }
    join(&spa, d, "b", &image(d, "n"), false).unwrap();
    healed(&spa);
    export(spa);
    std::fs::remove_file(d.join("a")).unwrap();
    std::fs::write(d.join("s"), used).unwrap();
    let spa = import_as(d, Options::default()).unwrap();
    check(&spa, &[first]);
    export(spa);
    let (device, _) = claim_file(&d.join("s")).unwrap();
    assert_eq!(spa::Labels::read(&*device).newest().unwrap().state, ondisk::config::PoolState::Spare);
    drop(device);
    judge(d, "tank");
}

/// Goal: invalid attachments, replacements and detachments are refused with their reasons, and the
/// pool continues unchanged.
#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let spa = new_pool(d, VdevShape::Raidz(1), &["a", "b", "c"]);
    let config = spa.config();
    let raidz = config.vdev_tree.as_ref().unwrap().children[0].guid;
    let new = NewLeaf { path: image(d, "n") };
    let terms = AttachTerms {
        replace: false,
        sequential: false,
        force: false,
        unattended: false,
        claimer: &claim_file,
    };
    let grown = live(&spa).vdevs().attach(raidz, &new, &terms);
    assert!(matches!(grown, Err(LifeError::Shape(ShapeError::Unsupported { .. }))));
    assert!(matches!(join(&spa, d, "a", &new.path, false), Err(LifeError::Target { .. })));
    assert!(matches!(live(&spa).vdevs().detach(guid(&spa, d, "a")), Err(LifeError::NotMirror { .. })));
    assert!(matches!(live(&spa).vdevs().offline(raidz, false), Err(LifeError::NotLeaf { .. })));
    let small = d.join("small");
    std::fs::File::create(&small).unwrap().set_len(100 << 20).unwrap();
    assert!(matches!(join(&spa, d, "a", &small, true), Err(LifeError::TooSmall { .. })));
    // Sectors larger than the vdev's.
    let large = |_: &Path| -> device::Result<(Arc<dyn device::Device>, VdevKind)> {
        Ok((Arc::new(device::MemDevice::with_sector("large", 128 << 20, 1 << 14)), VdevKind::Disk))
    };
    let terms =
        AttachTerms { replace: true, sequential: false, force: false, unattended: false, claimer: &large };
    let wide = live(&spa).vdevs().attach(guid(&spa, d, "a"), &new, &terms);
    assert!(matches!(wide, Err(LifeError::Ashift { .. })));
    live(&spa).checkpoints().take().unwrap();
    let kept = join(&spa, d, "a", &new.path, true);
    assert!(matches!(kept, Err(LifeError::Shape(ShapeError::CheckpointExists))));
    live(&spa).checkpoints().discard(true).unwrap();
    let first = write(&spa, 1);
    check(&spa, &[first]);
    export(spa);
    judge(d, "tank");
}
