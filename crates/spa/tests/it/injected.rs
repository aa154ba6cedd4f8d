//! Injected faults in parts of labels and in blocks of the MOS. OpenZFS's `zdb` checks the results
//! if it is available.

use ondisk::label::LABELS;
use ondisk::{DmuType, Guid, Txg};
use spa::create::VdevShape;
use spa::engine::{PoolProp, ScanCommand};
use testpools::ward::{Ward, live, ward};
use vdev::inject::{self, ALWAYS, Bad, Fault, MosBlocks, On, Part, Spell, Target, Wrong};
use vdev::label::Labels;
use vdev::{VdevAux, VdevState};

const EIO: Wrong = Wrong::Error(5);

/// Injected faults, which are removed on drop.
struct Asked(Vec<u64>);

impl Asked {
    fn of(ward: &Ward, device: usize, part: Part, on: Option<On>, wrong: Wrong) -> Asked {
        Self::target(ward, Target::Label { leaf: leaf(ward, device), part, on, wrong })
    }

    fn target(ward: &Ward, target: Target) -> Asked {
        Asked(vec![inject::add(Fault { pool: ward.spa.guid(), target, often: ALWAYS }).unwrap()])
    }

    /// The number of times that they were triggered.
    fn hits(&self) -> u64 {
        inject::list().iter().filter(|(id, ..)| self.0.contains(id)).map(|(_, _, hits)| hits).sum()
    }

    fn cancel(&self) {
        self.0.iter().for_each(|id| {
            inject::cancel(Some(*id));
        });
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn leaf(ward: &Ward, device: usize) -> Guid {
    ward.spa.config().vdev_tree.as_ref().unwrap().leaves().nth(device).unwrap().guid
}

/// The write errors of a child of the mirror.
fn charged(ward: &Ward, device: usize) -> u64 {
    ward.spa.tree().describe().children[0].children[device].stats.write_errors
}

/// Changes the config in all labels, and calls `rescue` whenever the pool is suspended. Returns
/// true if it was.
fn comment(ward: &Ward, text: &str, rescue: impl Fn()) -> bool {
    let live = live(&ward.spa);
    let mut suspended = false;
    std::thread::scope(|s| {
        let setter = s.spawn(|| live.set(vec![PoolProp::Text("comment".into(), text.into())]).unwrap());
        while !setter.is_finished() {
            if live.suspended().is_some() {
                suspended = true;
                rescue();
            }
            std::thread::yield_now();
        }
    });
    suspended
}

/// The newest uberblock of each label of a device.
fn newest(ward: &Ward, device: usize) -> Vec<Txg> {
    let shift = ondisk::label::uberblock_shift(ondisk::Ashift(ward.spa.tree().describe().children[0].ashift));
    let labels = Labels::new(&*ward.patients[device]);
    (0..LABELS)
        .map(|l| labels.uberblocks(l, shift).unwrap().iter().map(|(_, ub)| ub.txg).max().unwrap())
        .collect()
}

/// Goal: a device that can't write a part of its labels counts the errors and stays in use, since
/// it works otherwise. The pool continues with the other device.
#[test]
fn one_side_fails() {
    for part in [Part::Nvlist, Part::Uber] {
        let ward = ward(VdevShape::Mirror, 2);
        let first = ward.write(1).0;
        let asked = Asked::of(&ward, 0, part, Some(On::Write), EIO);
        let (second, suspended) = ward.write(2);
        assert!(!suspended && !comment(&ward, "changed", || ()));
        assert!(
            charged(&ward, 0) > 0 && charged(&ward, 0) == asked.hits() && charged(&ward, 1) == 0,
            "{part:?}"
        );
        assert_eq!(ward.states(), [VdevState::Healthy; 2]);
        let (behind, ahead) = (newest(&ward, 0), newest(&ward, 1));
        assert!(
            behind.iter().zip(&ahead).all(|(a, b)| (a < b) == (part == Part::Uber)),
            "{behind:?} {ahead:?}"
        );
        ward.discharge(&[(1, first), (2, second)]);
    }
}

/// Goal: a pool that can't write any label is suspended. It continues when it is cleared, with
/// nothing lost.
#[test]
fn no_label_is_left() {
    for part in [Part::Nvlist, Part::Uber] {
        let ward = ward(VdevShape::Single, 1);
        let first = ward.write(1).0;
        let second = ward.dirty(2);
        let asked = Asked::of(&ward, 0, part, None, EIO);
        assert!(comment(&ward, "changed", || {
            asked.cancel();
            ward.rescue();
        }));
        let (third, suspended) = ward.write(3);
        assert!(!suspended);
        assert_eq!(ward.states(), [VdevState::Healthy]);
        assert_eq!(ward.spa.config().comment.as_deref(), Some("changed"));
        ward.discharge(&[(1, first), (2, second), (3, third)]);
    }
}

/// Goal: the probe of a device reads and writes a part of its labels that is otherwise unused.
///
/// A device that fails there is faulted as soon as it fails elsewhere, and no sooner. It gets what
/// it missed afterwards. Faults in the part that is never accessed have no effect.
#[test]
fn a_probe_fails() {
    let ward = ward(VdevShape::Mirror, 2);
    let first = ward.write(1).0;
    let (pad, unused) =
        (Asked::of(&ward, 0, Part::Pad2, None, EIO), Asked::of(&ward, 0, Part::Pad1, None, EIO));
    let second = ward.write(2).0;
    assert_eq!((ward.states(), pad.hits()), (vec![VdevState::Healthy; 2], 0));
    let ring = Asked::of(&ward, 0, Part::Uber, Some(On::Write), EIO);
    let (third, suspended) = ward.write(3);
    assert!(!suspended);
    assert_eq!(ward.states(), [VdevState::Faulted, VdevState::Healthy]);
    assert_eq!((pad.hits(), unused.hits()), (LABELS as u64, 0), "all four were tried");
    drop((pad, ring));
    ward.rescue();
    while !ward.spa.tree().behind().is_empty() {
        live(&ward.spa).sync_all().unwrap();
    }
    assert_eq!(ward.states(), [VdevState::Healthy; 2]);
    ward.discharge(&[(1, first), (2, second), (3, third)]);
}

/// Goal: uberblock writes that a device silently drops are not on it, and no error is reported.
#[test]
fn uberblocks_are_lost() {
    let ward = ward(VdevShape::Mirror, 2);
    let first = ward.write(1).0;
    let before = newest(&ward, 0);
    let asked = Asked::of(&ward, 0, Part::Uber, Some(On::Write), Wrong::Noop);
    let (second, suspended) = ward.write(2);
    assert!(!suspended && asked.hits() > 0);
    assert_eq!((ward.states(), charged(&ward, 0)), (vec![VdevState::Healthy; 2], 0));
    assert_eq!(newest(&ward, 0), before);
    assert!(newest(&ward, 1).iter().all(|txg| *txg > before[0]));
    ward.discharge(&[(1, first), (2, second)]);
}

/// Goal: flushes that a device silently drops, as injected, are counted and never reach it. Its
/// data is lost when its power fails, and no error is reported.
///
/// After the fault is removed, the device is flushed again.
#[test]
fn flushes_are_lost() {
    let ward = ward(VdevShape::Mirror, 2);
    let first = ward.write(1).0;
    let before = newest(&ward, 0);
    let target = Target::Leaf { leaf: leaf(&ward, 0), on: Some(On::Flush), wrong: Wrong::Noop };
    let asked = Asked::target(&ward, target);
    let (second, suspended) = ward.write(2);
    assert!(!suspended && asked.hits() >= 2, "{}", asked.hits());
    assert_eq!((ward.states(), charged(&ward, 0)), (vec![VdevState::Healthy; 2], 0));
    assert!(newest(&ward, 0).iter().all(|txg| *txg > before[0]), "it was written");
    ward.patients.iter().for_each(|p| p.lose().unwrap());
    assert_eq!(newest(&ward, 0), before);
    assert!(newest(&ward, 1).iter().all(|txg| *txg > before[0]));
    asked.cancel();
    let hits = asked.hits();
    let (third, _) = ward.write(3);
    ward.patients.iter().for_each(|p| p.lose().unwrap());
    assert_eq!((newest(&ward, 0), asked.hits()), (newest(&ward, 1), hits));
    ward.discharge(&[(1, first), (2, second), (3, third)]);
}

/// Goal: a sync that can't read the pool's own objects, because of an injected fault, waits until
/// the fault is removed. Then it continues, and nothing is lost.
#[test]
fn what_a_group_needs_cannot_be_read() {
    for kind in [Some(DmuType::SPACE_MAP), None] {
        let ward = ward(VdevShape::Mirror, 2);
        let first = ward.write(1).0;
        ward.spa.cache().purge();
        let second = ward.dirty(2);
        testpools::remove_file(live(&ward.spa), &testpools::own(live(&ward.spa), "tank"), first).unwrap();
        let asked = Asked::target(&ward, Target::Mos(MosBlocks { kind, copies: 0, how: Bad::Io }));
        let suspended = ward.sync(|| {
            asked.cancel();
            ward.rescue();
        });
        assert!(suspended, "{kind:?}");
        assert_eq!(ward.states(), [VdevState::Healthy; 2]);
        let third = ward.write(3).0;
        ward.discharge(&[(2, second), (3, third)]);
    }
}

/// This variable makes the test program the process that ends.
const VICTIM: &str = "POOLHOUSE_TEST_VICTIM";

/// Goal: while writes are lost, as injected, no error is reported. Afterwards the process aborts
/// rather than sync another txg.
#[test]
fn lost_writes_end_the_program() {
    if std::env::var_os(VICTIM).is_some() {
        let ward = ward(VdevShape::Single, 1);
        let target = Target::Writes(Spell::Groups(1));
        let asked =
            Asked(vec![inject::add(Fault { pool: ward.spa.guid(), target, often: ALWAYS / 5 * 3 }).unwrap()]);
        assert!(!ward.write(1).1 && asked.hits() > 0 && ward.states() == [VdevState::Healthy]);
        eprintln!("it goes on");
        for seed in 2..9 {
            ward.write(seed);
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "injected::lost_writes_end_the_program", "--nocapture"]).env(VICTIM, "1");
    let out = victim.env("TMPDIR", dir.path()).output().unwrap();
    let words = String::from_utf8_lossy(&out.stderr);
    let (before, after) = words.split_once("it goes on").expect("one group was synced");
    assert!(
        !before.contains("lost") && after.contains("Pool 'tank' has lost writes, as was asked for"),
        "{words}"
    );
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&out.status), Some(6));
}

/// Goal: a reopen makes a device unavailable if it reports that it is gone, or if none of its
/// labels can be read. A device whose probe fails is faulted.
///
/// A needed device stays in use. When the device works again, by itself or after a clear, it gets
/// what it missed, and a scrub finds nothing.
#[test]
fn a_device_is_lost() {
    let gone = |leaf| Target::Leaf { leaf, on: Some(On::Free), wrong: Wrong::Error(6) };
    let label = |leaf, part| Target::Label { leaf, part, on: Some(On::Read), wrong: EIO };
    for (what, by_reopen) in
        [("gone", true), ("gone", false), ("label", true), ("label", false), ("probe", true)]
    {
        let mut ward = ward(VdevShape::Mirror, 2);
        let first = ward.write(1).0;
        let (ill, needed) = (leaf(&ward, 0), leaf(&ward, 1));
        let (target, state, aux) = match what {
            "gone" => (gone(ill), VdevState::CantOpen, VdevAux::OpenFailed),
            "label" => (label(ill, Part::Nvlist), VdevState::CantOpen, VdevAux::BadLabel),
            _ => (label(ill, Part::Pad2), VdevState::Faulted, VdevAux::ErrExceeded),
        };
        let asked = Asked::target(&ward, target);
        let second = ward.dirty(2);
        if by_reopen {
            assert_eq!(live(&ward.spa).vdevs().reopen(None).unwrap(), 0);
        } else {
            assert_eq!(live(&ward.spa).vdevs().online(ill, false).unwrap(), state);
        }
        let now = || ward.spa.tree().state_of(ill).unwrap();
        assert_eq!(now(), (state, aux), "{what}");
        let other = Asked::target(&ward, label(needed, Part::Nvlist));
        live(&ward.spa).vdevs().reopen(None).unwrap();
        drop(other);
        assert_eq!(ward.states(), [state, VdevState::Healthy], "{what}");
        let (third, suspended) = ward.write(3);
        assert!(!suspended);
        live(&ward.spa).monitor().run_now();
        live(&ward.spa).vdevs().reopen(None).unwrap();
        assert_eq!(now().0, state, "{what}: it is as it was");
        if state == VdevState::Faulted {
            live(&ward.spa).clear(None).unwrap();
            assert_eq!(now().0, state, "{what}: that it is cleared makes nothing well");
        }
        drop(asked);
        // The device is closed everywhere now.
        drop(ward.patients.remove(0));
        match state {
            VdevState::Faulted => live(&ward.spa).clear(None).unwrap(),
            _ => live(&ward.spa).monitor().run_now(),
        }
        assert_eq!(ward.states(), [VdevState::Healthy; 2], "{what}");
        live(&ward.spa).scans().wait().unwrap();
        assert!(ward.spa.tree().behind().is_empty());
        live(&ward.spa).scan(ScanCommand::Scrub).unwrap();
        live(&ward.spa).scans().wait().unwrap();
        let scrub = live(&ward.spa).scans().stat().unwrap().phys;
        assert_eq!((scrub.errors, scrub.processed), (0, 0), "{what}");
        ward.discharge(&[(1, first), (2, second), (3, third)]);
    }
}
