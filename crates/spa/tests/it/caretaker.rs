//! What a pool does on its own about its devices: too many errors, hot spares, devices that become
//! available again. OpenZFS's `zdb` checks the results if it is available.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use device::{FileDevice, Layer, Mode};
use ondisk::config::DraidShape;
use ondisk::feature::{FEATURES, Feature};
use ondisk::label::LABEL_SIZE;
use parking_lot::{Condvar, Mutex};
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::{AttachTerms, SystemWorld, VdevValue, Verdict, World};
use testpools::patient::{LEN, Patient, hide, image, patient, unhide};
use testpools::{ask, own, pool_in};
use vdev::inject::{self, On, Wrong};
use vdev::label::LabelWriter;
use vdev::{VdevAux, VdevState};

/// Goal: a device is faulted after ten failed reads and not before, and the pool works without it.
/// When it works again and is cleared, it is resilvered.
#[test]
fn reads_that_fail() {
    let p = patient(VdevShape::Raidz(1), &["a", "b", "c"]);
    let files = [p.write(1), p.write(2)];
    let p = p.again(|_| ());
    p.ails("a", Some(On::Read), Wrong::Error(5));
    let owned = own(p.live(), "tank");
    let mut few = vec![0; 128 << 10];
    owned.objset().dnode(files[0].1).unwrap().read_at(0, &mut few).unwrap();
    p.live().monitor().run_now();
    assert_eq!(p.state("a").0, VdevState::Healthy);
    drop(owned);
    p.check(&files);
    p.live().monitor().run_now();
    assert_eq!(p.state("a"), (VdevState::Faulted, VdevAux::ErrExceeded));
    let late = p.write(3);
    if let Some(config) = ask(p.dir.path(), "tank", &["-C"]) {
        assert!(config.contains("aux_state: 'err_exceeded'") && config.contains("faulted: 1"), "{config}");
    }
    inject::forget(p.spa.guid());
    // Only `zpool clear` makes a faulted device healthy again.
    p.live().monitor().run_now();
    assert_eq!(p.state("a").0, VdevState::Faulted);
    p.live().clear(None).unwrap();
    assert_eq!(p.state("a"), (VdevState::Healthy, VdevAux::None));
    p.healed();
    let p = p.again(|dir| std::fs::remove_file(dir.join("b")).unwrap());
    p.check(&[files[0], files[1], late]);
}

/// Goal: a device that returns wrong data too often is degraded, and stays in use. If two devices
/// of a vdev do so at the same time, neither is degraded.
#[test]
fn wrong_bytes() {
    for sick in [&["a"][..], &["a", "b"]] {
        let p = patient(VdevShape::Raidz(2), &["a", "b", "c", "d"]);
        let files = [p.write(1), p.write(2)];
        let p = p.again(|_| ());
        sick.iter().for_each(|name| p.ails(name, Some(On::Read), Wrong::Corrupt));
        p.check(&files);
        p.live().monitor().run_now();
        let now = p.state("a");
        match sick.len() {
            1 => assert_eq!(now, (VdevState::Degraded, VdevAux::ErrExceeded)),
            _ => assert_eq!(now.0, VdevState::Healthy),
        }
        assert!(p.spa.tree().stats(p.guid("a")).unwrap().checksum_errors.get() > 10);
    }
}

/// Goal: the error limits are properties of the device or of its top-level vdev, and take effect at
/// once. `none` is as if the property were not set.
#[test]
fn limits_are_properties() {
    let tops = |p: &Patient| p.spa.config().vdev_tree.as_ref().unwrap().children[0].guid;
    let few = VdevValue::Number(2);
    let p = patient(VdevShape::Raidz(1), &["a", "b", "c"]);
    let files = [p.write(1)];
    let p = p.again(|_| ());
    p.live().vdevs().set_vdev(tops(&p), "checksum_n", VdevValue::Number(100_000)).unwrap();
    p.ails("a", Some(On::Read), Wrong::Corrupt);
    p.check(&files);
    p.live().monitor().run_now();
    assert_eq!(p.state("a").0, VdevState::Healthy, "as many as the top-level vdev allows");
    // The limit survives an import, and the leaf's own limit overrides it.
    let p = p.again(|_| ());
    p.live().vdevs().set_vdev(p.guid("a"), "checksum_n", few).unwrap();
    p.live().vdevs().set_vdev(p.guid("a"), "checksum_t", VdevValue::Number(u64::MAX)).unwrap();
    p.ails("a", Some(On::Read), Wrong::Corrupt);
    p.check(&files);
    p.live().monitor().run_now();
    assert_eq!(p.state("a").0, VdevState::Degraded);
}

/// Goal: a slow device is left alone until both properties that limit slow I/O are set, on it or on
/// its top-level vdev.
///
/// It is degraded when its slow operations reach that limit, and stays in use.
#[test]
fn slow_devices() {
    vdev::SLOW_MS.set(20);
    // All events count, also if the test takes less than a second.
    vdev::SLOW_EVENTS.set(u64::MAX);
    let p = patient(VdevShape::Raidz(1), &["a", "b", "c"]);
    let files = [p.write(1)];
    let p = p.again(|_| ());
    let slow = Wrong::Delay { each: std::time::Duration::from_millis(25), lanes: 4 };
    let read = |p: &Patient| {
        p.spa.cache().purge();
        p.check(&files);
        p.live().monitor().run_now();
    };
    p.ails("b", Some(On::Read), slow);
    read(&p);
    let count = |p: &Patient| p.spa.tree().stats(p.guid("b")).unwrap().slow_ios.get();
    assert!(count(&p) >= 5, "{}", count(&p));
    assert_eq!(p.state("b").0, VdevState::Healthy, "nobody has said how many are too many");
    let top = p.spa.config().vdev_tree.as_ref().unwrap().children[0].guid;
    p.live().vdevs().set_vdev(p.guid("b"), "slow_io_n", VdevValue::Number(5)).unwrap();
    read(&p);
    assert_eq!(p.state("b").0, VdevState::Healthy, "nobody has said within what time");
    p.live().vdevs().set_vdev(top, "slow_io_t", VdevValue::Number(600)).unwrap();
    read(&p);
    assert_eq!(p.state("b"), (VdevState::Degraded, VdevAux::ErrExceeded));
    assert_eq!((p.state("a").0, p.state("c").0), (VdevState::Healthy, VdevState::Healthy));
    inject::forget(p.spa.guid());
    let late = p.write(2);
    let p = p.again(|dir| std::fs::remove_file(dir.join("a")).unwrap());
    p.check(&[files[0], late]);
}

/// Goal: a device that the pool needs is degraded, never faulted, whatever fails, and stays
/// readable.
#[test]
fn the_last_device_is_kept() {
    let p = patient(VdevShape::Single, &["a"]);
    let files = [p.write(1)];
    let p = p.again(|_| ());
    let owned = own(p.live(), "tank");
    let mut bytes = vec![0; 128 << 10];
    let dn = owned.objset().dnode(files[0].1).unwrap();
    dn.read_at(0, &mut bytes).unwrap();
    // A sync finds everything in the cache now. A sync that had to read would suspend the pool
    // until it is cleared.
    p.live().clear(None).unwrap();
    (0..3).for_each(|_| p.live().sync_all().unwrap());
    p.ails("a", Some(On::Read), Wrong::Error(5));
    (1..20).for_each(|block| assert!(dn.read_at(block * (128 << 10), &mut bytes).is_err()));
    drop((dn, owned));
    inject::forget(p.spa.guid());
    p.live().monitor().run_now();
    assert_eq!(p.state("a"), (VdevState::Degraded, VdevAux::ErrExceeded));
    p.live().clear(None).unwrap();
    assert_eq!(p.state("a").0, VdevState::Healthy);
    p.check(&files);
}

/// Goal: when a device fails entirely, a spare replaces it and is resilvered without a command.
/// After the device works again, is cleared and is resilvered, the spare is detached.
#[test]
fn a_spare_steps_in_and_out() {
    let p = patient(VdevShape::Raidz(1), &["a", "b", "c"]);
    p.spare("s");
    let first = p.write(1);
    p.dies("b");
    let second = p.write(2);
    p.until_shape("raidz(a spare(b s) c)");
    p.healed();
    assert_eq!(p.state("b").0, VdevState::Faulted);
    assert_eq!(p.state("s").0, VdevState::Healthy);
    let third = p.write(3);
    let p = p.again(|dir| hide(dir, "c"));
    p.check(&[first, second, third]);
    let p = p.again(|dir| unhide(dir, "c"));
    p.live().clear(None).unwrap();
    p.until_shape("raidz(a b c)");
    let spares = p.spa.spares();
    assert_eq!((spares.len(), spares[0].state), (1, VdevState::Healthy));
    let p = p.again(|dir| std::fs::remove_file(dir.join("c")).unwrap());
    p.check(&[first, second, third]);
}

/// Goal: a spare that is too small is skipped for the next one. When a new device replaces the
/// failed one, the spare is free again, and replaces the next failed device.
#[test]
fn spares_are_tried_in_turn() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let small = p.path("small");
    std::fs::File::create(&small).unwrap().set_len(80 << 20).unwrap();
    p.live().vdevs().add_aux(&[NewLeaf { path: small }, p.leaf("s")], &[], false, &claim_file).unwrap();
    let first = p.write(1);
    p.dies("a");
    let second = p.write(2);
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    let terms = AttachTerms {
        replace: true,
        sequential: false,
        force: false,
        unattended: false,
        claimer: &claim_file,
    };
    p.live().vdevs().attach(p.guid("a"), &p.leaf("new"), &terms).unwrap();
    p.until_shape("mirror(new b)");
    p.dies("b");
    let third = p.write(3);
    p.until_shape("mirror(new spare(b s))");
    p.healed();
    let p = p.again(|dir| std::fs::remove_file(dir.join("new")).unwrap());
    p.check(&[first, second, third]);
}

/// Goal: a device that is faulted by command gets a spare too, and one that is taken offline gets
/// none.
#[test]
fn by_hand() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let first = p.write(1);
    p.live().vdevs().offline(p.guid("a"), false).unwrap();
    p.spare("s");
    p.live().monitor().run_now();
    assert_eq!(p.shape(), "mirror(a b)");
    p.live().vdevs().online(p.guid("a"), false).unwrap();
    p.healed();
    p.live().vdevs().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    p.live().clear(Some(p.guid("a"))).unwrap();
    p.until_shape("mirror(a b)");
    p.check(&[first]);
    p.again(|_| ());
}

/// Goal: a device that was missing at the import gets no spare. When it is available again, it is
/// opened without a command and resilvered with what it missed and no more.
#[test]
fn a_device_comes_back() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    p.spare("s");
    let first = p.write(1);
    let p = p.again(|dir| hide(dir, "a"));
    assert_eq!(p.state("a").0, VdevState::CantOpen);
    let second = p.write(2);
    p.live().monitor().run_now();
    assert_eq!(p.shape(), "mirror(a b)");
    unhide(p.dir.path(), "a");
    p.live().monitor().run_now();
    assert_eq!(p.state("a").0, VdevState::Healthy);
    p.healed();
    let written = p.spa.tree().stats(p.guid("a")).unwrap().scan_repaired.get();
    assert!((LEN as u64..2 * LEN as u64).contains(&written), "{written} bytes");
    let p = p.again(|dir| std::fs::remove_file(dir.join("b")).unwrap());
    p.check(&[first, second]);
}

/// Goal: with `autoreplace=on`, a blank device at the path of a missing one replaces it. A device
/// of another pool does not, and without the property no device does.
#[test]
fn another_device_takes_the_place() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let first = p.write(1);
    let other = patient(VdevShape::Single, &["x"]);
    other.live().export().unwrap();
    let p = p.again(|dir| {
        std::fs::remove_file(dir.join("a")).unwrap();
        image(dir, "a");
    });
    p.live().monitor().run_now();
    assert_eq!((p.shape().as_str(), p.state("a").0), ("mirror(a b)", VdevState::CantOpen));
    // A disk of another pool.
    std::fs::copy(other.path("x"), p.path("a")).unwrap();
    p.set("autoreplace", 1);
    p.live().monitor().run_now();
    assert_eq!(p.shape(), "mirror(a b)");
    assert!(
        std::fs::read(p.path("a")).unwrap() == std::fs::read(other.path("x")).unwrap(),
        "it is as it was"
    );
    std::fs::remove_file(p.path("a")).unwrap();
    image(p.dir.path(), "a");
    p.live().monitor().run_now();
    p.until("replaced", |p| p.shape() == "mirror(a b)" && p.state("a").0 == VdevState::Healthy);
    p.healed();
    let second = p.write(2);
    let p = p.again(|dir| std::fs::remove_file(dir.join("b")).unwrap());
    p.check(&[first, second]);
}

/// The marks that other programs leave on a device: file systems, volume managers and partition
/// tables. A negative offset counts from the end.
const MARKS: [(&str, i64, &[u8]); 10] = [
    ("an MBR", 510, &[0x55, 0xaa]),
    ("ext4", 1024 + 56, &[0x53, 0xef]),
    ("LVM", 512, b"LABELONE"),
    ("md 1.2", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("swap", 4086, b"SWAPSPACE2"),
    ("btrfs", (64 << 10) + 64, b"_BHRfS_M"),
    ("UFS", (64 << 10) + 1372, &[0x19, 0x01, 0x54, 0x19]),
    ("VMFS", 2 << 20, &[0x5e, 0xf1, 0xab, 0x2f]),
    ("md 1.0", -8192, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a GPT at the end", -512, b"EFI PART"),
];

/// Writes a mark into an image.
fn mark(path: &Path, at: i64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let image = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let size = image.metadata().unwrap().len();
    image.write_all_at(bytes, at.checked_add(if at < 0 { size as i64 } else { 0 }).unwrap() as u64).unwrap();
}

/// Puts a complete image in place. The device monitor, which runs in the background, never sees a
/// partial one.
fn put(p: &Patient, name: &str, make: impl FnOnce(&Path)) {
    let made = image(p.dir.path(), "made");
    make(&made);
    std::fs::rename(made, p.path(name)).unwrap();
}

/// Goal: with `autoreplace=on`, no device with the mark of a file system, volume manager or
/// partition table replaces a missing one.
///
/// This holds for marks at its front and at its end. The device stays unchanged to the last byte.
#[test]
fn what_is_not_blank_is_left_alone() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let first = p.write(1);
    let p = p.again(|dir| std::fs::remove_file(dir.join("a")).unwrap());
    p.set("autoreplace", 1);
    for (what, at, bytes) in MARKS {
        put(&p, "a", |made| {
            // The space after the last label belongs to the device too.
            std::fs::OpenOptions::new().write(true).open(made).unwrap().set_len((128 << 20) + 65536).unwrap();
            mark(made, at, bytes);
        });
        let before = std::fs::read(p.path("a")).unwrap();
        p.live().monitor().run_now();
        assert_eq!((p.shape().as_str(), p.state("a").0), ("mirror(a b)", VdevState::CantOpen), "{what}");
        assert!(std::fs::read(p.path("a")).unwrap() == before, "{what} is as it was");
        std::fs::remove_file(p.path("a")).unwrap();
    }
    image(p.dir.path(), "a");
    p.live().monitor().run_now();
    p.until("replaced", |p| p.shape() == "mirror(a b)" && p.state("a").0 == VdevState::Healthy);
    p.healed();
    p.check(&[first]);
}

/// Goal: the device at the path of a hot spare is used only if it is that spare and was not
/// overwritten since. None of these is used:
///
/// * a device of another pool
/// * a spare of another pool
/// * a blank device
/// * the spare itself with the mark of another program, although its last labels are intact
///
/// Each stays unchanged to the last byte. When the spare is there again, it is used.
#[test]
fn what_is_no_spare_is_left_alone() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let other = patient(VdevShape::Single, &["x"]);
    other.spare("y");
    p.spare("s");
    let first = p.write(1);
    let spare = std::fs::read(p.path("s")).unwrap();
    other.live().export().unwrap();
    let strange = |what: &str| {
        let before = std::fs::read(p.path("s")).unwrap();
        p.live().monitor().run_now();
        assert_eq!(p.shape(), "mirror(a b)", "{what}");
        assert!(std::fs::read(p.path("s")).unwrap() == before, "{what} is as it was");
    };
    put(&p, "s", |made| assert!(std::fs::copy(other.path("x"), made).unwrap() > 0));
    p.live().vdevs().fault(p.guid("a"), Verdict::ByHand).unwrap();
    strange("another pool's device");
    put(&p, "s", |made| assert!(std::fs::copy(other.path("y"), made).unwrap() > 0));
    strange("another pool's spare");
    put(&p, "s", |_| ());
    strange("a blank device");
    // These marks leave the labels at the end intact, or those before the first label and after the
    // second.
    let spoiled = |at, bytes: &[u8]| {
        put(&p, "s", |made| {
            std::fs::write(made, &spare).unwrap();
            mark(made, at, bytes);
        });
    };
    for (what, at, bytes) in MARKS.into_iter().filter(|(_, at, _)| (0..8192).contains(at)) {
        spoiled(at, bytes);
        strange(what);
    }
    spoiled(0, &vec![7; 1 << 20]);
    strange("something at the front");
    put(&p, "s", |made| std::fs::write(made, &spare).unwrap());
    p.live().monitor().run_now();
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    p.check(&[first]);
}

/// Goal: an import does not label an overwritten spare as a spare. This holds although its last
/// labels show that it was in use when it was last seen.
#[test]
fn what_is_no_spare_is_not_labelled() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    p.spare("s");
    let first = p.write(1);
    p.live().vdevs().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    let used = std::fs::read(p.path("s")).unwrap();
    p.live().clear(None).unwrap();
    p.until_shape("mirror(a b)");
    let p = p.again(|dir| {
        std::fs::write(dir.join("s"), &used).unwrap();
        mark(&dir.join("s"), 0, &vec![7; 300 << 10]);
    });
    let before = p.path("s");
    let front = std::fs::read(&before).unwrap()[..300 << 10].to_vec();
    assert!(front.iter().all(|byte| *byte == 7), "it is as it was");
    p.live().vdevs().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.live().monitor().run_now();
    assert_eq!(p.shape(), "mirror(a b)");
    p.check(&[first]);
}

/// Goal: a spare stays one if the power fails while it is labelled. It may have a torn label, or
/// the labels that OpenZFS writes before the txg that adds it.
///
/// The next import writes all its labels as a spare.
#[test]
fn a_spare_that_was_being_labelled() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    p.spare("s");
    let first = p.write(1);
    // The device is only read, because the pool itself may be claiming it.
    let all_say_so = |p: &Patient| {
        let device = FileDevice::open(&p.path("s"), Mode::Peek).unwrap();
        let labels = spa::Labels::read(&device);
        labels.copies.iter().all(|l| l.as_ref().is_ok_and(|l| l.state == ondisk::config::PoolState::Spare))
    };
    let written = |dir: &Path, with: &dyn Fn(&LabelWriter<'_>)| {
        let (device, _) = claim_file(&dir.join("s")).unwrap();
        with(&LabelWriter::new(&*device));
    };
    mark(&p.path("s"), 0, &vec![0; LABEL_SIZE as usize]);
    p.live().vdevs().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    let (config, guid) = (p.live().config(), p.guid("s"));
    p.live().clear(None).unwrap();
    p.until_shape("mirror(a b)");
    p.until("labelled", all_say_so);
    let torn = p.again(|dir| written(dir, &|labels| (0..2).for_each(|l| labels.wipe(2 * l).unwrap())));
    assert!(all_say_so(&torn), "it was torn");
    let begun = config.to_label(guid, ondisk::Txg(0)).unwrap();
    let p = torn.again(|dir| {
        written(dir, &|labels| (0..4).for_each(|l| labels.config(l, &begun).unwrap()));
    });
    assert_eq!(p.spa.spares()[0].state, VdevState::Healthy);
    assert!(all_say_so(&p), "it was begun");
    p.check(&[first]);
}

/// Goal: a spare that could not be used is tried again without an event, since it may have grown.
#[test]
fn spares_are_asked_again() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let small = p.path("s");
    std::fs::File::create(&small).unwrap().set_len(80 << 20).unwrap();
    p.live().vdevs().add_aux(&[NewLeaf { path: small.clone() }], &[], false, &claim_file).unwrap();
    let first = p.write(1);
    p.live().vdevs().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.live().monitor().run_now();
    assert_eq!(p.shape(), "mirror(a b)");
    assert!(p.live().monitor().is_polling(), "somebody looks again");
    std::fs::OpenOptions::new().write(true).open(&small).unwrap().set_len(128 << 20).unwrap();
    p.live().monitor().run_now();
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    assert!(!p.live().monitor().is_polling(), "nothing is wanted");
    p.check(&[first]);
}

/// Goal: a spare that one device no longer needs replaces another device that needed one all the
/// time.
#[test]
fn a_spare_that_is_free_again_is_called() {
    let p = patient(VdevShape::Raidz(2), &["a", "b", "c", "d"]);
    p.spare("s");
    let first = p.write(1);
    p.live().vdevs().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.until_shape("raidz(spare(a s) b c d)");
    p.healed();
    p.live().vdevs().fault(p.guid("b"), Verdict::ByHand).unwrap();
    p.live().monitor().run_now();
    assert_eq!(p.shape(), "raidz(spare(a s) b c d)");
    p.live().clear(Some(p.guid("a"))).unwrap();
    p.until_shape("raidz(a spare(b s) c d)");
    p.healed();
    let p = p.again(|_| ());
    p.check(&[first]);
}

/// Stops the pool's own thread just before it attaches a spare.
#[derive(Default)]
struct Way {
    /// Stages: 0 closed, 1 a thread waits, 2 open again.
    stage: Mutex<u8>,
    changed: Condvar,
    armed: AtomicBool,
}

impl Way {
    fn is(&self, stage: u8) {
        let mut now = self.stage.lock();
        while *now != stage {
            assert!(!self.changed.wait_for(&mut now, Duration::from_secs(120)).timed_out(), "never {stage}");
        }
    }

    fn set(&self, stage: u8) {
        *self.stage.lock() = stage;
        self.changed.notify_all();
    }
}

struct Delayed(Arc<Way>);

impl World for Delayed {
    fn now(&self) -> u64 {
        SystemWorld.now()
    }

    fn random(&self) -> u64 {
        SystemWorld.random()
    }

    fn memory(&self) -> u64 {
        SystemWorld.memory()
    }

    /// The layer around opened devices. The engine requests it when it is about to attach a spare.
    fn layer(&self) -> Layer {
        if self.0.armed.swap(false, Relaxed) {
            self.0.set(1);
            self.0.is(2);
        }
        SystemWorld.layer()
    }
}

/// Goal: if a device is cleared while its spare is being attached, the spare is detached again. A
/// long soak once waited for ever for that.
#[test]
fn a_spare_comes_too_late() {
    let (way, dir) = (Arc::new(Way::default()), Arc::new(tempfile::tempdir().unwrap()));
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let leaves = ["a", "b"].map(|name| NewLeaf { path: image(dir.path(), name) }).into();
    let vdevs = vec![NewVdev { shape: VdevShape::Mirror, bias: None, leaves }];
    let spa = pool_in(vdevs, &features, &claim_file, 2, Arc::new(Delayed(Arc::clone(&way))));
    let p = Patient { spa, dir };
    p.spare("s");
    let first = p.write(1);
    way.armed.store(true, Relaxed);
    p.live().vdevs().fault(p.guid("a"), Verdict::Poor).unwrap();
    way.is(1);
    p.live().clear(None).unwrap();
    assert_eq!((p.state("a").0, p.shape().as_str()), (VdevState::Healthy, "mirror(a b)"));
    way.set(2);
    // Waits until the spare is attached.
    p.live().monitor().run_now();
    p.until_shape("mirror(a b)");
    p.healed();
    assert_eq!(p.live().vdevs().spare_count(), 1);
    let p = p.again(|_| ());
    p.check(&[first]);
}

/// Goal: a distributed spare replaces a device of its own dRAID, gets all its blocks, and holds
/// them while another device is missing.
#[test]
fn a_distributed_spare_steps_in() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let p = patient(VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 5 }), &names);
    let first = p.write(1);
    p.dies("c");
    let second = p.write(2);
    p.until_shape("draid(a b spare(c draid1-0-0) d e f)");
    p.healed();
    let third = p.write(3);
    // With the spare's copy, another device may fail now.
    let p = p.again(|dir| std::fs::remove_file(dir.join("e")).unwrap());
    p.check(&[first, second, third]);
    p.live().export().unwrap();
}

/// Goal: a thread that writes the config unchanged does not undo a change that another thread is
/// committing.
#[test]
fn changes_of_the_config_are_kept() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                p.live().sync_anew().unwrap();
            }
        });
        for _ in 0..20 {
            p.live().vdevs().offline(p.guid("a"), false).unwrap();
            let offline =
                |p: &Patient| p.spa.config().vdev_tree.as_ref().unwrap().leaves().any(|leaf| leaf.offline);
            p.live().sync_all().unwrap();
            assert!(offline(&p));
            p.live().vdevs().online(p.guid("a"), false).unwrap();
            p.live().sync_all().unwrap();
            assert!(!offline(&p));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
