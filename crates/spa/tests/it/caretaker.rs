//! What a pool does about its devices by itself: too many errors, hot spares, devices that come back; judged by OpenZFS's `zdb` where it is at hand.

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

/// Goal: a device whose reads fail ten times is faulted, and the pool lives without it; before it has failed so often it is not. When it is well and cleared it
/// is brought up to date.
#[test]
fn reads_that_fail() {
    let p = patient(VdevShape::Raidz(1), &["a", "b", "c"]);
    let files = [p.write(1), p.write(2)];
    let p = p.again(|_| ());
    p.ails("a", Some(On::Read), Wrong::Error(5));
    let owned = own(p.live(), "tank");
    let mut few = vec![0; 128 << 10];
    owned.objset().dnode(files[0].1).unwrap().read_at(0, &mut few).unwrap();
    p.live().see_to_devices();
    assert_eq!(p.state("a").0, VdevState::Healthy);
    drop(owned);
    p.check(&files);
    p.live().see_to_devices();
    assert_eq!(p.state("a"), (VdevState::Faulted, VdevAux::ErrExceeded));
    let late = p.write(3);
    if let Some(config) = ask(p.dir.path(), "tank", &["-C"]) {
        assert!(config.contains("aux_state: 'err_exceeded'") && config.contains("faulted: 1"), "{config}");
    }
    inject::forget(p.spa.guid());
    // It is nobody's but the administrator's to say that it is well.
    p.live().see_to_devices();
    assert_eq!(p.state("a").0, VdevState::Faulted);
    p.live().clear(None).unwrap();
    assert_eq!(p.state("a"), (VdevState::Healthy, VdevAux::None));
    p.healed();
    let p = p.again(|dir| std::fs::remove_file(dir.join("b")).unwrap());
    p.check(&[files[0], files[1], late]);
}

/// Goal: a device that gives wrong bytes too often is degraded, and goes on being used; when two sisters do it at the same time none of them is to blame.
#[test]
fn wrong_bytes() {
    for sick in [&["a"][..], &["a", "b"]] {
        let p = patient(VdevShape::Raidz(2), &["a", "b", "c", "d"]);
        let files = [p.write(1), p.write(2)];
        let p = p.again(|_| ());
        sick.iter().for_each(|name| p.ails(name, Some(On::Read), Wrong::Corrupt));
        p.check(&files);
        p.live().see_to_devices();
        let now = p.state("a");
        match sick.len() {
            1 => assert_eq!(now, (VdevState::Degraded, VdevAux::ErrExceeded)),
            _ => assert_eq!(now.0, VdevState::Healthy),
        }
        assert!(p.spa.tree().stats(p.guid("a")).unwrap().checksum_errors.get() > 10);
    }
}

/// Goal: how many errors are too many is what the device's property says, or that of its top-level vdev, at once; `none` is as if it was not set.
#[test]
fn limits_are_properties() {
    let tops = |p: &Patient| p.spa.config().vdev_tree.as_ref().unwrap().children[0].guid;
    let few = VdevValue::Number(2);
    let p = patient(VdevShape::Raidz(1), &["a", "b", "c"]);
    let files = [p.write(1)];
    let p = p.again(|_| ());
    p.live().set_vdev(tops(&p), "checksum_n", VdevValue::Number(100_000)).unwrap();
    p.ails("a", Some(On::Read), Wrong::Corrupt);
    p.check(&files);
    p.live().see_to_devices();
    assert_eq!(p.state("a").0, VdevState::Healthy, "as many as the top-level vdev allows");
    // It outlives an import, and the leaf's own goes before.
    let p = p.again(|_| ());
    p.live().set_vdev(p.guid("a"), "checksum_n", few).unwrap();
    p.live().set_vdev(p.guid("a"), "checksum_t", VdevValue::Number(u64::MAX)).unwrap();
    p.ails("a", Some(On::Read), Wrong::Corrupt);
    p.check(&files);
    p.live().see_to_devices();
    assert_eq!(p.state("a").0, VdevState::Degraded);
}

/// Goal: a device whose operations are slow is left alone until both properties that limit them are set, by itself or by its top-level vdev, and is degraded when there
/// are as many as these say; it goes on being used.
#[test]
fn slow_devices() {
    vdev::SLOW_MS.set(20);
    // All count, also where all of this is over within a second.
    vdev::SLOW_EVENTS.set(u64::MAX);
    let p = patient(VdevShape::Raidz(1), &["a", "b", "c"]);
    let files = [p.write(1)];
    let p = p.again(|_| ());
    let slow = Wrong::Delay { each: std::time::Duration::from_millis(25), lanes: 4 };
    let read = |p: &Patient| {
        p.spa.cache().purge();
        p.check(&files);
        p.live().see_to_devices();
    };
    p.ails("b", Some(On::Read), slow);
    read(&p);
    let count = |p: &Patient| p.spa.tree().stats(p.guid("b")).unwrap().slow_ios.get();
    assert!(count(&p) >= 5, "{}", count(&p));
    assert_eq!(p.state("b").0, VdevState::Healthy, "nobody has said how many are too many");
    let top = p.spa.config().vdev_tree.as_ref().unwrap().children[0].guid;
    p.live().set_vdev(p.guid("b"), "slow_io_n", VdevValue::Number(5)).unwrap();
    read(&p);
    assert_eq!(p.state("b").0, VdevState::Healthy, "nobody has said within what time");
    p.live().set_vdev(top, "slow_io_t", VdevValue::Number(600)).unwrap();
    read(&p);
    assert_eq!(p.state("b"), (VdevState::Degraded, VdevAux::ErrExceeded));
    assert_eq!((p.state("a").0, p.state("c").0), (VdevState::Healthy, VdevState::Healthy));
    inject::forget(p.spa.guid());
    let late = p.write(2);
    let p = p.again(|dir| std::fs::remove_file(dir.join("a")).unwrap());
    p.check(&[files[0], late]);
}

/// Goal: a device that the pool can't do without is degraded, whatever fails, and stays readable.
#[test]
fn the_last_device_is_kept() {
    let p = patient(VdevShape::Single, &["a"]);
    let files = [p.write(1)];
    let p = p.again(|_| ());
    let owned = own(p.live(), "tank");
    let mut bytes = vec![0; 128 << 10];
    let dn = owned.objset().dnode(files[0].1).unwrap();
    dn.read_at(0, &mut bytes).unwrap();
    // What groups need is cached: one that had to read now would have the pool suspended, until somebody clears it.
    p.live().clear(None).unwrap();
    (0..3).for_each(|_| p.live().sync_all().unwrap());
    p.ails("a", Some(On::Read), Wrong::Error(5));
    (1..20).for_each(|block| assert!(dn.read_at(block * (128 << 10), &mut bytes).is_err()));
    drop((dn, owned));
    inject::forget(p.spa.guid());
    p.live().see_to_devices();
    assert_eq!(p.state("a"), (VdevState::Degraded, VdevAux::ErrExceeded));
    p.live().clear(None).unwrap();
    assert_eq!(p.state("a").0, VdevState::Healthy);
    p.check(&files);
}

/// Goal: when a device fails altogether a spare takes its place by itself and is brought up to date; when the device is well again and cleared, and has what it
/// missed, the spare goes back.
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

/// Goal: a spare that is too small is passed over for the next; when the device is replaced by another the spare is free again, and steps in for the next one.
#[test]
fn spares_are_tried_in_turn() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let small = p.path("small");
    std::fs::File::create(&small).unwrap().set_len(80 << 20).unwrap();
    p.live().add_aux(&[NewLeaf { path: small }, p.leaf("s")], &[], false, &claim_file).unwrap();
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
    p.live().attach(p.guid("a"), &p.leaf("new"), &terms).unwrap();
    p.until_shape("mirror(new b)");
    p.dies("b");
    let third = p.write(3);
    p.until_shape("mirror(new spare(b s))");
    p.healed();
    let p = p.again(|dir| std::fs::remove_file(dir.join("new")).unwrap());
    p.check(&[first, second, third]);
}

/// Goal: who takes a device out of use by fault has a spare step in too; who takes it offline has not; a spare that is added later steps in at once.
#[test]
fn by_hand() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let first = p.write(1);
    p.live().offline(p.guid("a"), false).unwrap();
    p.spare("s");
    p.live().see_to_devices();
    assert_eq!(p.shape(), "mirror(a b)");
    p.live().online(p.guid("a"), false).unwrap();
    p.healed();
    p.live().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    p.live().clear(Some(p.guid("a"))).unwrap();
    p.until_shape("mirror(a b)");
    p.check(&[first]);
    p.again(|_| ());
}

/// Goal: a device that was not there when the pool was imported summons no spare; when it is back nobody needs to say so, and it gets what it missed and no more.
#[test]
fn a_device_comes_back() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    p.spare("s");
    let first = p.write(1);
    let p = p.again(|dir| hide(dir, "a"));
    assert_eq!(p.state("a").0, VdevState::CantOpen);
    let second = p.write(2);
    p.live().see_to_devices();
    assert_eq!(p.shape(), "mirror(a b)");
    unhide(p.dir.path(), "a");
    p.live().see_to_devices();
    assert_eq!(p.state("a").0, VdevState::Healthy);
    p.healed();
    let written = p.spa.tree().stats(p.guid("a")).unwrap().scan_repaired.get();
    assert!((LEN as u64..2 * LEN as u64).contains(&written), "{written} bytes");
    let p = p.again(|dir| std::fs::remove_file(dir.join("b")).unwrap());
    p.check(&[first, second]);
}

/// Goal: with `autoreplace=on` a blank device at the path of one that is missing takes its place; what belongs to another pool does not, nor anything without it.
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
    p.live().see_to_devices();
    assert_eq!((p.shape().as_str(), p.state("a").0), ("mirror(a b)", VdevState::CantOpen));
    // A disk of another pool.
    std::fs::copy(other.path("x"), p.path("a")).unwrap();
    p.set("autoreplace", 1);
    p.live().see_to_devices();
    assert_eq!(p.shape(), "mirror(a b)");
    assert!(
        std::fs::read(p.path("a")).unwrap() == std::fs::read(other.path("x")).unwrap(),
        "it is as it was"
    );
    std::fs::remove_file(p.path("a")).unwrap();
    image(p.dir.path(), "a");
    p.live().see_to_devices();
    p.until("replaced", |p| p.shape() == "mirror(a b)" && p.state("a").0 == VdevState::Healthy);
    p.healed();
    let second = p.write(2);
    let p = p.again(|dir| std::fs::remove_file(dir.join("b")).unwrap());
    p.check(&[first, second]);
}

/// What lies at a few places of an image, as programs that make file systems, volumes and partition tables leave it; -n is counted from the end.
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

/// Puts a mark into an image.
fn mark(path: &Path, at: i64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let image = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let size = image.metadata().unwrap().len();
    image.write_all_at(bytes, at.checked_add(if at < 0 { size as i64 } else { 0 }).unwrap() as u64).unwrap();
}

/// Puts an image in place whole: whoever looks at devices in the background sees nothing of how it was made.
fn put(p: &Patient, name: &str, make: impl FnOnce(&Path)) {
    let made = image(p.dir.path(), "made");
    make(&made);
    std::fs::rename(made, p.path(name)).unwrap();
}

/// Goal: with `autoreplace=on` nothing takes the place of a missing device that is not blank: not what has the mark of any file system, volume or partition table, at its front or its end,
/// which stays as it is to the last byte.
#[test]
fn what_is_not_blank_is_left_alone() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let first = p.write(1);
    let p = p.again(|dir| std::fs::remove_file(dir.join("a")).unwrap());
    p.set("autoreplace", 1);
    for (what, at, bytes) in MARKS {
        put(&p, "a", |made| {
            // What is behind the last label belongs to the device too.
            std::fs::OpenOptions::new().write(true).open(made).unwrap().set_len((128 << 20) + 65536).unwrap();
            mark(made, at, bytes);
        });
        let before = std::fs::read(p.path("a")).unwrap();
        p.live().see_to_devices();
        assert_eq!((p.shape().as_str(), p.state("a").0), ("mirror(a b)", VdevState::CantOpen), "{what}");
        assert!(std::fs::read(p.path("a")).unwrap() == before, "{what} is as it was");
        std::fs::remove_file(p.path("a")).unwrap();
    }
    image(p.dir.path(), "a");
    p.live().see_to_devices();
    p.until("replaced", |p| p.shape() == "mirror(a b)" && p.state("a").0 == VdevState::Healthy);
    p.healed();
    p.check(&[first]);
}

/// Goal: what is at the path of a hot spare steps in only if it is that spare and nothing else since: neither another pool's device, nor another pool's spare, nor a blank one, nor the spare itself with
/// the mark of something that was put on it, whose labels at its end are still there; each stays as it is to the last byte. When the spare is there again it steps in.
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
        p.live().see_to_devices();
        assert_eq!(p.shape(), "mirror(a b)", "{what}");
        assert!(std::fs::read(p.path("s")).unwrap() == before, "{what} is as it was");
    };
    put(&p, "s", |made| assert!(std::fs::copy(other.path("x"), made).unwrap() > 0));
    p.live().fault(p.guid("a"), Verdict::ByHand).unwrap();
    strange("another pool's device");
    put(&p, "s", |made| assert!(std::fs::copy(other.path("y"), made).unwrap() > 0));
    strange("another pool's spare");
    put(&p, "s", |_| ());
    strange("a blank device");
    // Those at the end outlive it, or those before the first label and behind the second.
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
    p.live().see_to_devices();
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    p.check(&[first]);
}

/// Goal: a spare that is no more what it was is not labelled as one either when the pool is imported, though it was in use when that was last seen, and its labels at the end say so.
#[test]
fn what_is_no_spare_is_not_labelled() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    p.spare("s");
    let first = p.write(1);
    p.live().fault(p.guid("a"), Verdict::ByHand).unwrap();
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
    p.live().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.live().see_to_devices();
    assert_eq!(p.shape(), "mirror(a b)");
    p.check(&[first]);
}

/// Goal: a spare for which the power failed while it was labelled is one still: with a label that is torn, and with those that OpenZFS writes before the group that takes it in. When the pool is
/// imported all of them say again what it is.
#[test]
fn a_spare_that_was_being_labelled() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    p.spare("s");
    let first = p.write(1);
    // Only looked at: the pool itself may be taking hold of it.
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
    p.live().fault(p.guid("a"), Verdict::ByHand).unwrap();
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

/// Goal: a spare that could not step in is asked again though nothing rings: it may have grown.
#[test]
fn spares_are_asked_again() {
    let p = patient(VdevShape::Mirror, &["a", "b"]);
    let small = p.path("s");
    std::fs::File::create(&small).unwrap().set_len(80 << 20).unwrap();
    p.live().add_aux(&[NewLeaf { path: small.clone() }], &[], false, &claim_file).unwrap();
    let first = p.write(1);
    p.live().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.live().see_to_devices();
    assert_eq!(p.shape(), "mirror(a b)");
    assert!(p.live().looks_for_devices(), "somebody looks again");
    std::fs::OpenOptions::new().write(true).open(&small).unwrap().set_len(128 << 20).unwrap();
    p.live().see_to_devices();
    p.until_shape("mirror(spare(a s) b)");
    p.healed();
    assert!(!p.live().looks_for_devices(), "nothing is wanted");
    p.check(&[first]);
}

/// Goal: a spare that is let go by one device steps in for another that was in need of one all the time.
#[test]
fn a_spare_that_is_free_again_is_called() {
    let p = patient(VdevShape::Raidz(2), &["a", "b", "c", "d"]);
    p.spare("s");
    let first = p.write(1);
    p.live().fault(p.guid("a"), Verdict::ByHand).unwrap();
    p.until_shape("raidz(spare(a s) b c d)");
    p.healed();
    p.live().fault(p.guid("b"), Verdict::ByHand).unwrap();
    p.live().see_to_devices();
    assert_eq!(p.shape(), "raidz(spare(a s) b c d)");
    p.live().clear(Some(p.guid("a"))).unwrap();
    p.until_shape("raidz(a spare(b s) c d)");
    p.healed();
    let p = p.again(|_| ());
    p.check(&[first]);
}

/// Keeps the pool's own thread from a spare that it is about to send.
#[derive(Default)]
struct Way {
    /// Closed, somebody waits, open again.
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

    /// How devices are opened: asked for when a spare is about to step in.
    fn layer(&self) -> Layer {
        if self.0.armed.swap(false, Relaxed) {
            self.0.set(1);
            self.0.is(2);
        }
        SystemWorld.layer()
    }
}

/// Goal: a device that is cleared when its spare is on its way has it no longer than it takes. A long soak waited for ever for such a spare to go.
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
    p.live().fault(p.guid("a"), Verdict::Poor).unwrap();
    way.is(1);
    p.live().clear(None).unwrap();
    assert_eq!((p.state("a").0, p.shape().as_str()), (VdevState::Healthy, "mirror(a b)"));
    way.set(2);
    // Waits until the spare is there.
    p.live().see_to_devices();
    p.until_shape("mirror(a b)");
    p.healed();
    assert_eq!(p.live().spare_count(), 1);
    let p = p.again(|_| ());
    p.check(&[first]);
}

/// Goal: a distributed spare steps in for a device of its own draid, all of whose blocks it then has, and goes when the device is back.
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
    // Another may go now.
    let p = p.again(|dir| std::fs::remove_file(dir.join("e")).unwrap());
    p.check(&[first, second, third]);
    p.live().export().unwrap();
}

/// Goal: who has the config written again, as it is, while another's change of it is being committed takes nothing of that back.
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
            p.live().offline(p.guid("a"), false).unwrap();
            let offline =
                |p: &Patient| p.spa.config().vdev_tree.as_ref().unwrap().leaves().any(|leaf| leaf.offline);
            p.live().sync_all().unwrap();
            assert!(offline(&p));
            p.live().online(p.guid("a"), false).unwrap();
            p.live().sync_all().unwrap();
            assert!(!offline(&p));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
