//! The devices that an imported pool claims, and the contents of their labels meanwhile.

use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use device::{Device, DeviceError, Fault, Faulty, FileDevice, Mode, Op};
use ondisk::config::{AllocBias, PoolState};
use ondisk::feature::{FEATURES, Feature};
use ondisk::{Guid, Txg};
use parking_lot::Mutex;
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::AttachTerms;
use spa::import::{Options, Rewind};
use spa::{Labels, Spa};
use testpools::patient::{LEN, Patient, image, live, patient};
use testpools::{import_as, judge, new_pool, new_pool_on, noise, own, pool_of, read_file, write_file};
use vdev::VdevState;

/// The same value on every Linux.
const O_EXCL: i32 = 0o200;

fn is_held(path: &Path) -> bool {
    matches!(FileDevice::open(path, Mode::Write), Err(DeviceError::Busy { .. }))
}

fn held(dir: &Path, names: &[&str]) -> Vec<bool> {
    names.iter().map(|name| is_held(&dir.join(name))).collect()
}

fn leaf(dir: &Path, name: &str) -> NewLeaf {
    NewLeaf { path: image(dir, name) }
}

fn replace(p: &Patient, old: Guid, new: &Path) {
    let terms = AttachTerms {
        replace: true,
        sequential: false,
        force: false,
        unattended: false,
        claimer: &claim_file,
    };
    p.live().vdevs().attach(old, &NewLeaf { path: new.to_owned() }, &terms).unwrap();
}

/// Goal: each device of a pool is claimed from the moment that it joins until it leaves or the pool
/// is exported.
///
/// This holds for data, log, special, spare and cache devices, also of a pool imported read-only.
#[test]
fn every_device_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let single = |name, bias| NewVdev { shape: VdevShape::Single, bias, leaves: vec![leaf(d, name)] };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let mirror = NewVdev { shape: VdevShape::Mirror, bias: None, leaves: vec![leaf(d, "a"), leaf(d, "b")] };
    let log = single("log", Some(AllocBias::Log));
    let spa = pool_of(vec![mirror, log, single("special", Some(AllocBias::Special))], &features);
    let all = ["a", "b", "log", "special", "s", "l"];
    live(&spa).vdevs().add_aux(&[leaf(d, "s")], &[leaf(d, "l")], false, &claim_file).unwrap();
    assert_eq!(held(d, &all), [true; 6], "added");
    let guids = [spa.spares()[0].config.guid, spa.l2cache()[0].config.guid];
    live(&spa).export().unwrap();
    drop(spa);
    assert_eq!(held(d, &all), [false; 6], "exported");
    let scan = spa::discover(&[d]);
    let read =
        spa::import(&scan.pools[0], &Options::default(), &testpools::host(), &spa::SystemClock).unwrap();
    assert_eq!(held(d, &all), [true; 6], "read");
    drop(read);
    assert_eq!(held(d, &all), [false; 6], "read no more");
    let spa = import_as(d, Options::default()).unwrap();
    assert_eq!(held(d, &all), [true; 6], "imported");
    let (spares, cache) = (spa.spares(), spa.l2cache());
    assert_eq!([spares[0].state, cache[0].state], [VdevState::Healthy; 2]);
    live(&spa).vdevs().offline(guids[1], true).unwrap();
    assert!(!is_held(&d.join("l")), "a cache device that is offline");
    live(&spa).vdevs().online(guids[1], false).unwrap();
    assert!(is_held(&d.join("l")), "online again");
    guids.into_iter().for_each(|guid| live(&spa).vdevs().remove_aux(guid).unwrap());
    assert_eq!(held(d, &all), [true, true, true, true, false, false], "removed");
    live(&spa).export().unwrap();
    drop(spa);
    judge(d, "tank");
}

/// Goal: a hot spare is claimed before its use, during it and afterwards.
#[test]
fn a_spare_stays_held() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    p.spare("s");
    let s = p.path("s");
    let first = p.write(1);
    replace(&p, p.guid("a"), &s);
    p.healed();
    assert!(is_held(&s), "in use");
    let p = p.again(|_| {});
    assert!(is_held(&s), "in use since the import");
    p.live().vdevs().detach(p.guid("s")).unwrap();
    assert!(is_held(&s), "a spare again");
    replace(&p, p.guid("a"), &s);
    p.healed();
    p.live().vdevs().detach(p.guid("a")).unwrap();
    assert_eq!((p.shape().as_str(), is_held(&s), is_held(&p.path("a"))), ("mirror(s b)", true, false));
    p.check(&[first]);
}

/// Goal: two pools of one process share a spare. Both claim it, one at a time uses it, and it is
/// released when both are exported.
#[test]
fn a_shared_spare_is_held_once() {
    let (one, two) = (patient(VdevShape::Mirror, &["a", "b"]), patient(VdevShape::Mirror, &["a", "b"]));
    let dir = tempfile::tempdir().unwrap();
    let shared = [leaf(dir.path(), "s")];
    let s = shared[0].path.clone();
    one.live().vdevs().add_aux(&shared, &[], false, &claim_file).unwrap();
    two.live().vdevs().add_aux(&shared, &[], false, &claim_file).unwrap();
    assert_eq!(one.spa.spares()[0].config.guid, two.spa.spares()[0].config.guid);
    replace(&one, one.guid("a"), &s);
    let terms = AttachTerms {
        replace: true,
        sequential: false,
        force: false,
        unattended: false,
        claimer: &claim_file,
    };
    assert!(two.live().vdevs().attach(two.guid("a"), &shared[0], &terms).is_err(), "the other has it");
    one.healed();
    one.live().vdevs().detach(one.spa.spares()[0].config.guid).unwrap();
    replace(&two, two.guid("a"), &s);
    two.healed();
    let one = one.again(|_| {});
    assert_eq!(one.spa.spares()[0].state, VdevState::Healthy);
    one.live().export().unwrap();
    drop(one);
    assert!(is_held(&s), "in use by the other");
    live(&two.spa).export().unwrap();
    drop(two);
    assert!(!is_held(&s));
}

/// Loop devices over images, which are detached on drop.
struct Loops(Vec<PathBuf>);

impl Loops {
    /// Returns `None` if loop devices are not available.
    #[allow(clippy::print_stderr, reason = "a helper says what it leaves out")]
    fn over(images: &[PathBuf]) -> Option<Loops> {
        let mut loops = Loops(Vec::new());
        for image in images {
            let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
            let Some(made) = made.ok().filter(|made| made.status.success()) else {
                eprintln!("there are no loop devices here");
                return None;
            };
            loops.0.push(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim()));
        }
        Some(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
    }
}

/// Goal: the system too sees the spare and cache devices of an imported pool as in use. An
/// exclusive open, as by mkfs, is refused (`inuse_005_pos`).
#[test]
fn block_devices_are_held() {
    let dir = tempfile::tempdir().unwrap();
    let Some(loops) = Loops::over(&testpools::images(dir.path(), 3, 96 << 20)) else { return };
    let [data, spare, cache] = &loops.0[..] else { panic!("three") };
    let alone =
        |device: &Path| std::fs::OpenOptions::new().read(true).custom_flags(O_EXCL).open(device).is_ok();
    let all = || loops.0.iter().map(|device| alone(device)).collect::<Vec<_>>();
    let spa = new_pool(VdevShape::Single, std::slice::from_ref(data));
    let leaf = |path: &PathBuf| [NewLeaf { path: path.clone() }];
    live(&spa).vdevs().add_aux(&leaf(spare), &leaf(cache), false, &claim_file).unwrap();
    assert_eq!(all(), [false; 3], "added");
    live(&spa).export().unwrap();
    drop(spa);
    assert_eq!(all(), [true; 3], "exported");
    let found = spa::discover(&loops.0);
    for readonly in [true, false] {
        let options = Options { readonly, ..Options::default() };
        let spa = match readonly {
            true => spa::import(&found.pools[0], &options, &testpools::host(), &spa::SystemClock).unwrap(),
            false => {
                let resources = spa::import::Resources::of_system("tank");
                let host = testpools::host();
                let clock = spa::SystemClock;
                spa::import::import_for_writing(&found.pools[0], &options, None, &host, &clock, resources)
                    .unwrap()
            }
        };
        assert_eq!(all(), [false; 3], "imported, readonly={readonly}");
        if let Some(live) = spa.writer() {
            live.vdevs().remove_aux(spa.spares()[0].config.guid).unwrap();
            live.vdevs().remove_aux(spa.l2cache()[0].config.guid).unwrap();
            assert_eq!(all(), [false, true, true], "removed");
            live.export().unwrap();
        }
    }
    assert_eq!(all(), [true; 3], "exported again");
}

fn labels(path: &Path) -> Labels {
    Labels::read(&FileDevice::open(path, Mode::Peek).unwrap())
}

/// Goal: after an import for writing returns, every label shows that the pool is in use, and by
/// which host. After an export returns, every label shows that it is not.
#[test]
fn labels_tell_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let paths = testpools::images(dir.path(), 2, 96 << 20);
    let says = |state: PoolState, when: &str| {
        for copy in paths.iter().flat_map(|path| labels(path).copies) {
            let copy = copy.unwrap();
            assert_eq!((copy.state, copy.hostid), (state, Some(0x1234)), "{when}");
        }
    };
    let spa = new_pool(VdevShape::Mirror, &paths);
    says(PoolState::Active, "made");
    live(&spa).export().unwrap();
    drop(spa);
    says(PoolState::Exported, "exported");
    let spa = import_as(dir.path(), Options::default()).unwrap();
    says(PoolState::Active, "imported");
    let guid = live(&spa).reguid(None).unwrap();
    assert!(paths.iter().flat_map(|path| labels(path).copies).all(|c| c.unwrap().pool_guid == Some(guid)));
    live(&spa).export().unwrap();
    drop(spa);
    let name = Some("other".to_owned());
    let spa = import_as(dir.path(), Options { name, ..Options::default() }).unwrap();
    let named = |copy: Result<ondisk::PoolConfig, _>| copy.ok().and_then(|label| label.name);
    assert!(paths.iter().flat_map(|path| labels(path).copies).all(|c| named(c).as_deref() == Some("other")));
    live(&spa).destroy().unwrap();
    drop(spa);
    says(PoolState::Destroyed, "destroyed");
}

/// Goal: the uberblock that an import started from is still known after the import wrote its first
/// txg.
#[test]
fn the_state_that_was_imported() {
    let p = patient(VdevShape::Single, &["a"]);
    p.write(1);
    let then = p.live().uberblock();
    p.write(2);
    p.live().export().unwrap();
    let dir = Arc::clone(&p.dir);
    drop(p);
    let options = Options { max_txg: Some(then.txg), rewind: Rewind::Extreme, ..Options::default() };
    let spa = import_as(dir.path(), options).unwrap();
    assert_eq!(*spa.imported_uberblock(), then);
    assert!(spa.uberblock().txg > Txg(then.txg.0 + 1));
}

/// Goal: if the searched directories hold several names of one device, the recorded name is used
/// and stays recorded. Without it, the first name is used.
#[test]
fn the_recorded_name_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (real, links) = (dir.path().join("real"), dir.path().join("links"));
    [&real, &links].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let target = image(&real, "x");
    ["a", "m", "z"].into_iter().for_each(|name| symlink(&target, links.join(name)).unwrap());
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let leaves = vec![NewLeaf { path: links.join("m") }];
    let spa = pool_of(vec![NewVdev { shape: VdevShape::Single, bias: None, leaves }], &features);
    live(&spa).export().unwrap();
    drop(spa);
    for folders in [vec![&links], vec![&real, &links], vec![&links, &real]] {
        let found = spa::discover(&folders);
        let places: Vec<_> = found.pools[0].members.iter().map(|m| m.place.path.clone()).collect();
        assert_eq!(places, [links.join("m")], "{folders:?}");
    }
    let recorded = |spa: &Spa| {
        let config = spa.config();
        config.vdev_tree.as_ref().unwrap().leaves().next().unwrap().path.clone().unwrap()
    };
    let spa = import_as(&links, Options::default()).unwrap();
    assert_eq!(recorded(&spa), links.join("m").display().to_string().into_bytes());
    live(&spa).export().unwrap();
    drop(spa);
    std::fs::remove_file(links.join("m")).unwrap();
    assert_eq!(spa::discover(&[&links]).pools[0].members[0].place.path, links.join("a"));
}

/// Goal: a device may be detached while offline, before the pool gets a new guid. A scan recognizes
/// that its labels are no pool of their own. A copy of a pool with another guid is a pool.
#[test]
fn a_memory_is_no_pool() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let (b, old) = (p.guid("b"), p.spa.guid());
    let first = p.write(1);
    p.live().vdevs().offline(b, false).unwrap();
    p.live().vdevs().detach(b).unwrap();
    let new = p.live().reguid(None).unwrap();
    p.live().export().unwrap();
    let dir = Arc::clone(&p.dir);
    drop(p);
    let pools = || -> Vec<_> {
        spa::discover(&[dir.path()]).pools.iter().map(|c| (c.guid, c.superseded_by)).collect()
    };
    let mut wanted = vec![(old, Some(new)), (new, None)];
    wanted.sort();
    assert_eq!(pools(), wanted);
    // Without the other device, these labels are all that is known.
    let alone = spa::discover(&[dir.path().join("b")]);
    assert_eq!(alone.pools[0].superseded_by, None);
    std::fs::remove_file(dir.path().join("b")).unwrap();
    let spa = import_as(dir.path(), Options::default()).unwrap();
    let p = Patient { spa, dir: dir.clone() };
    p.check(&[first]);
    // A copy of the pool gets its own guid.
    p.live().export().unwrap();
    drop(p);
    let copies = tempfile::tempdir().unwrap();
    std::fs::copy(dir.path().join("a"), copies.path().join("a")).unwrap();
    let spa = import_as(copies.path(), Options::default()).unwrap();
    live(&spa).reguid(None).unwrap();
    live(&spa).export().unwrap();
    let both = spa::discover(&[dir.path(), copies.path()]);
    assert_eq!(both.pools.iter().map(|c| c.superseded_by).collect::<Vec<_>>(), [None, None]);
}

/// Goal: clearing errors reopens a device whose open descriptor still reads, takes no writes, and
/// no longer is the device at its path.
///
/// The child of a mirror gets what it missed, and a pool on that device alone continues.
#[test]
fn a_device_that_came_back() {
    for shape in [VdevShape::Mirror, VdevShape::Single] {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let names: &[&str] = if shape == VdevShape::Single { &["a"] } else { &["a", "b"] };
        let paths: Vec<_> = names.iter().map(|name| image(dir.path(), name)).collect();
        let faulty: Mutex<Option<Arc<Faulty>>> = Mutex::new(None);
        let claimer = |path: &Path| {
            let (device, kind) = claim_file(path)?;
            if !path.ends_with("a") {
                return Ok((device, kind));
            }
            let device = Arc::new(Faulty::new(device, 1));
            *faulty.lock() = Some(device.clone());
            Ok((device as Arc<dyn Device>, kind))
        };
        let spa = new_pool_on(shape, &paths, &claimer);
        let p = Patient { spa, dir };
        let first = p.write(1);
        let fails = |op| Fault::Error { op, range: 0..u64::MAX };
        let old = faulty.lock().take().unwrap();
        [Op::Write, Op::Flush].into_iter().for_each(|op| old.inject(fails(op)));
        // The same bytes under the same name, as another file.
        std::fs::copy(p.path("a"), p.path("a2")).unwrap();
        std::fs::rename(p.path("a2"), p.path("a")).unwrap();
        let object = write_file(p.live(), &own(p.live(), "tank"), &noise(2, LEN)).unwrap();
        std::thread::scope(|s| {
            let synced = s.spawn(|| p.live().sync_all());
            if shape == VdevShape::Single {
                while p.live().suspended().is_none() {
                    std::thread::yield_now();
                }
            } else {
                p.until("faulted", |p| p.state("a").0 == VdevState::Faulted);
            }
            p.live().clear(None).unwrap();
            synced.join().unwrap().unwrap();
        });
        assert_eq!(p.state("a").0, VdevState::Healthy, "{shape:?}");
        p.healed();
        assert!(is_held(&p.path("a")), "what is there now");
        let mut files = vec![first, (2, object)];
        files.push(p.write(3));
        p.check(&files);
        let p = p.again(|_| {});
        p.check(&files);
        let owned = own(p.live(), "tank");
        assert!(read_file(&owned, object, LEN) == noise(2, LEN));
    }
}

/// Goal: a working device is not abandoned for a copy that was put at its path, because the copy
/// lacks later writes.
#[test]
fn a_copy_is_not_taken_for_a_device() {
    for shape in [VdevShape::Mirror, VdevShape::Single] {
        let names: &[&str] = if shape == VdevShape::Single { &["a"] } else { &["a", "b"] };
        let p = patient(shape, names);
        let mut files = vec![p.write(1)];
        std::fs::copy(p.path("a"), p.path("copy")).unwrap();
        files.push(p.write(2));
        std::fs::rename(p.path("a"), p.path("kept")).unwrap();
        std::fs::rename(p.path("copy"), p.path("a")).unwrap();
        p.live().vdevs().reopen(None).unwrap();
        p.live().clear(None).unwrap();
        files.push(p.write(3));
        assert_eq!(p.state("a").0, VdevState::Healthy, "{shape:?}");
        p.check(&files);
        let p = p.again(|dir| std::fs::rename(dir.join("kept"), dir.join("a")).unwrap());
        p.check(&files);
    }
}
