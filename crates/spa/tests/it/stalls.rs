//! Devices that stall, lose data that they accepted, or are full. Writers wait or get an error, and
//! nothing is wrong afterwards.

use std::process::Command;

use device::{Device, Fault, Op};
use ondisk::label::{LABEL_SIZE, LABELS, label_offset};
use ondisk::{DmuType, Dva, Level, ObjNum, Psize};
use spa::create::VdevShape;
use spa::engine::{PoolProp, TaskError};
use testpools::ward::{LEN, Ward, live, ward, ward_of};
use testpools::{file_system, noise, own, read_file, write_file};
use vdev::VdevState;
use zio::{ClassHint, FailMode, IoFlags, Reason, Want};

const SHAPES: [(VdevShape, usize); 3] =
    [(VdevShape::Single, 1), (VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3)];

fn check(ward: &Ward, files: &[(u64, ObjNum)]) {
    let owned = own(live(&ward.spa), "tank");
    for (seed, object) in files {
        assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed}");
    }
}

/// Goal: while a device does not respond, its txg waits and no error is reported. Other threads
/// read, and make changes in the next txg.
///
/// When the device responds, nothing is lost, and no error counts against it.
#[test]
fn a_stalled_device_is_waited_for() {
    for (shape, count) in SHAPES {
        let ward = ward(shape, count);
        let live = live(&ward.spa);
        let first = ward.write(1).0;
        let second = ward.dirty(2);
        ward.patients[0].inject(Fault::Stalled);
        let third = std::thread::scope(|s| {
            let syncer = s.spawn(|| live.sync_all());
            while ward.patients[0].waiting() == 0 {
                std::thread::yield_now();
            }
            check(&ward, &[(1, first), (2, second)]);
            let third = ward.dirty(3);
            assert!(live.read(|dsl| dsl.list_sorted(None, &dsl::ListOptions::default()).is_ok()));
            assert!(!syncer.is_finished() && live.suspended().is_none());
            ward.patients[0].heal();
            syncer.join().unwrap().unwrap();
            third
        });
        assert!(ward.states().iter().all(|state| *state == VdevState::Healthy));
        check(&ward, &[(1, first), (2, second), (3, third)]);
        ward.discharge(&[(1, first), (2, second), (3, third)]);
    }
}

/// Goal: a device disappears in the middle of a txg, loses its volatile cache, and becomes
/// available again, and nothing is missing.
///
/// A pool that needs the device writes the data again. Otherwise the device's DTL has what it
/// missed.
#[test]
fn a_device_goes_and_comes_back_without_its_cache() {
    for (shape, count) in SHAPES {
        for after in [1, 4, 9, 17] {
            let ward = ward(shape, count);
            let first = ward.write(1).0;
            let second = ward.dirty(2);
            let gone = &ward.patients[0];
            let from = gone.count() + after;
            gone.inject(Fault::Numbered { range: from..u64::MAX });
            let suspended = ward.sync(|| {
                gone.lose().unwrap();
                ward.rescue();
            });
            assert_eq!(suspended, shape == VdevShape::Single);
            if !suspended {
                assert_eq!(ward.states()[0], VdevState::Faulted);
                gone.lose().unwrap();
                ward.rescue();
                assert_eq!(ward.states()[0], VdevState::Healthy);
            }
            let third = ward.write(3).0;
            ward.discharge(&[(1, first), (2, second), (3, third)]);
        }
    }
}

/// Goal: a sync that finds no space on healthy devices suspends the pool. A clear changes nothing
/// without space, and continues the sync with space.
#[test]
fn without_room_a_group_waits() {
    let ward = ward(VdevShape::Single, 1);
    let live = live(&ward.spa);
    let first = ward.write(1).0;
    let second = ward.dirty(2);
    let owned = own(live, "tank");
    let zio = owned.objset().cache().zio();
    let txg = live.txgs().open();
    let space = zio.space();
    // Allocates all free space, down to single sectors.
    let mut taken: Vec<Dva> = Vec::new();
    for class in [ClassHint::default(), ClassHint::Log { devices: false }] {
        for psize in (9..=17).rev().map(|shift| Psize(1 << shift)) {
            let kind = DmuType::PLAIN_FILE_CONTENTS;
            let want = Want {
                psize,
                copies: 1,
                txg,
                kind,
                level: Level(0),
                class,
                gang_header: false,
                flags: IoFlags::NONE,
            };
            while let Ok(dvas) = space.allocate(&want) {
                taken.extend(dvas.iter().flatten());
            }
        }
    }
    drop(owned);
    let mut tries = 0;
    std::thread::scope(|s| {
        let syncer = s.spawn(|| live.sync_all());
        while tries < 3 {
            if live.suspended() == Some(Reason::Io) {
                assert!(!syncer.is_finished());
                tries += 1;
                if tries == 3 {
                    taken.iter().for_each(|dva| space.unallocate(dva, txg));
                }
                live.clear(None).unwrap();
            }
            std::thread::yield_now();
        }
        syncer.join().unwrap().unwrap();
    });
    drop(space);
    assert!(ward.states().iter().all(|state| *state == VdevState::Healthy));
    let third = ward.write(3).0;
    ward.discharge(&[(1, first), (2, second), (3, third)]);
}

/// Goal: failed label writes fault a device that the pool does not need, and suspend a pool that
/// needs it. Nothing is lost.
#[test]
fn labels_that_are_not_taken() {
    for (shape, count) in SHAPES {
        let ward = ward(shape, count);
        let first = ward.write(1).0;
        let size = ward.patients[0].size();
        for label in 0..LABELS {
            let at = label_offset(size, label).unwrap();
            ward.patients[0].inject(Fault::Error { op: Op::Write, range: at..at + LABEL_SIZE });
        }
        let (second, suspended) = ward.write(2);
        assert_eq!(suspended, shape == VdevShape::Single);
        assert!(suspended || ward.states()[0] == VdevState::Faulted);
        let third = ward.write(3).0;
        ward.discharge(&[(1, first), (2, second), (3, third)]);
    }
}

fn set_failmode(ward: &Ward, mode: u64) {
    live(&ward.spa).set(vec![PoolProp::Number("failmode".into(), mode)]).unwrap();
    live(&ward.spa).sync_all().unwrap();
}

/// Goal: with `failmode=continue`, writers to a suspended pool get an error, and with `wait` they
/// block. In both modes reads from the cache work, and all continues after a clear.
#[test]
fn failmodes() {
    for mode in [FailMode::Wait, FailMode::Continue] {
        let ward = ward(VdevShape::Single, 1);
        let live = live(&ward.spa);
        set_failmode(&ward, if mode == FailMode::Wait { 0 } else { 1 });
        let first = ward.write(1).0;
        let second = ward.dirty(2);
        ward.patients[0].inject(Fault::Gone);
        let owned = own(live, "tank");
        std::thread::scope(|s| {
            let syncer = s.spawn(|| live.sync_all());
            while live.suspended().is_none() {
                std::thread::yield_now();
            }
            assert_eq!(live.failmode(), mode);
            assert!(read_file(&owned, second, LEN) == noise(2, LEN));
            let refused = live.run(file_system("tank/a", Vec::new())).unwrap_err();
            assert!(
                matches!(refused, TaskError::Stopped(s) if s.suspended() == Some(zio::Suspended { reason: Reason::Io }))
            );
            let writer = s.spawn(|| write_file(live, &owned, &noise(3, LEN)));
            if mode == FailMode::Continue {
                let refused = writer.join().unwrap().unwrap_err();
                assert!(matches!(refused, TaskError::Stopped(s) if s.suspended().is_some()));
                ward.rescue();
            } else {
                assert!(!writer.is_finished());
                ward.rescue();
                writer.join().unwrap().unwrap();
            }
            syncer.join().unwrap().unwrap();
        });
        drop(owned);
        live.run(file_system("tank/a", Vec::new())).unwrap();
        ward.discharge(&[(1, first), (2, second)]);
    }
}

/// This variable makes the test program the process that ends.
const VICTIM: &str = "POOLHOUSE_TEST_VICTIM";

/// Goal: with `failmode=panic` the process aborts with OpenZFS's message.
#[test]
fn failmode_panic() {
    if std::env::var_os(VICTIM).is_some() {
        let ward = ward(VdevShape::Single, 1);
        set_failmode(&ward, 2);
        ward.patients[0].inject(Fault::Gone);
        ward.write(1);
        return;
    }
    let me = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Command::new(me);
    victim
        .args(["--exact", "stalls::failmode_panic", "--nocapture"])
        .env(VICTIM, "1")
        .env("TMPDIR", dir.path());
    let out = victim.output().unwrap();
    let words = String::from_utf8_lossy(&out.stderr);
    let wanted = "Pool 'tank' has encountered an uncorrectable I/O failure and the failure mode property for this pool is set to panic.";
    assert!(words.contains(wanted), "{words}");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&out.status), Some(6));
}

/// Goal: a sync that reads from a missing device waits for it, also when several threads write its
/// datasets.
#[test]
fn reads_of_a_group_wait() {
    let ward = ward_of(VdevShape::Single, 1, 2);
    let live = live(&ward.spa);
    let names = ["tank/a", "tank/b", "tank/c", "tank/d", "tank/e"];
    let mut files = Vec::new();
    for name in names {
        live.run(file_system(name, Vec::new())).unwrap();
        files.push(write_file(live, &own(live, name), &noise(1, LEN)).unwrap());
    }
    live.sync_all().unwrap();
    let heads: Vec<_> = names.iter().map(|name| own(live, name)).collect();
    for (head, object) in heads.iter().zip(&files) {
        let tx = live.tx(1 << 17).unwrap();
        head.objset().dnode(*object).unwrap().write_at(&tx, 0, &noise(2, 1 << 17)).unwrap();
    }
    // The cache is purged, so the sync must read the indirect blocks.
    heads[0].objset().cache().purge();
    ward.patients[0].inject(Fault::Error { op: Op::Read, range: 0..u64::MAX });
    assert!(ward.sync(|| ward.rescue()));
    for (head, object) in heads.iter().zip(&files) {
        assert!(read_file(head, *object, LEN)[..1 << 17] == noise(2, 1 << 17));
    }
    drop(heads);
    ward.discharge(&[]);
}

/// Goal: an operation that never completes is found, with its device, kind and offset, and the pool
/// responds meanwhile. On request the device is faulted, so that no thread waits for it.
#[test]
fn what_hangs_is_found() {
    let ward = ward(VdevShape::Mirror, 2);
    let first = ward.write(1).0;
    let live = live(&ward.spa);
    assert!(live.deadman().look_for_hung(std::time::Duration::ZERO, true).is_empty());
    ward.patients[0].inject(Fault::Stalled);
    let second = ward.dirty(2);
    std::thread::scope(|s| {
        let syncer = s.spawn(|| live.sync_all());
        let found = loop {
            let found = live.deadman().look_for_hung(std::time::Duration::ZERO, false);
            if let Some(hung) = found.first().filter(|_| ward.patients[0].waiting() > 0) {
                break *hung;
            }
            std::thread::yield_now();
        };
        let leaf = ward.spa.tree().describe().children[0].children[0].guid;
        assert_eq!((found.leaf, found.op), (leaf, device::Op::Write));
        assert!(found.offset >= 4 << 20 && found.size > 0);
        assert!(live.deadman().look_for_hung(std::time::Duration::from_secs(3600), true).is_empty());
        assert_eq!(ward.states()[0], VdevState::Healthy);
        assert!(live.read(|dsl| dsl.list_sorted(None, &dsl::ListOptions::default()).is_ok()));
        live.deadman().look_for_hung(std::time::Duration::ZERO, true);
        assert_eq!(ward.states(), [VdevState::Faulted, VdevState::Healthy]);
        ward.patients[0].heal();
        syncer.join().unwrap().unwrap();
    });
    let (reports, _) = ward.spa.tree().take_reports();
    assert!(
        reports.iter().any(|(_, r)| matches!(r.what, vdev::Trouble::Deadman { .. }) && r.range.is_some())
    );
    ward.discharge(&[(1, first), (2, second)]);
}

/// Goal: while a txg is not on disk, operations that are older than the limit of a sync are
/// reported again and again.
#[test]
fn a_group_that_hangs_is_told() {
    use spa::tunables::{DEADMAN_CHECK_MS, DEADMAN_SYNC_MS};
    let ward = ward(VdevShape::Single, 1);
    let live = live(&ward.spa);
    let first = ward.write(1).0;
    let second = ward.dirty(2);
    ward.patients[0].inject(Fault::Stalled);
    DEADMAN_SYNC_MS.set(5);
    DEADMAN_CHECK_MS.set(5);
    let told = |reports: &[(ondisk::Guid, vdev::Report)]| {
        reports.iter().filter(|(_, r)| matches!(r.what, vdev::Trouble::Deadman { .. })).count()
    };
    std::thread::scope(|s| {
        let syncer = s.spawn(|| live.sync_all());
        let began = std::time::Instant::now();
        let mut count = 0;
        while count < 2 && began.elapsed().as_secs() < 120 {
            count += told(&ward.spa.tree().take_reports().0);
            std::thread::yield_now();
        }
        let waits = !syncer.is_finished();
        DEADMAN_SYNC_MS.set(DEADMAN_SYNC_MS.default());
        ward.patients[0].heal();
        syncer.join().unwrap().unwrap();
        assert!(waits && count >= 2);
    });
    DEADMAN_CHECK_MS.set(DEADMAN_CHECK_MS.default());
    ward.discharge(&[(1, first), (2, second)]);
}

/// Goal: a scan has ended, for status queries and for waiters, only when that is on disk. While the
/// txg that ends it can't be written, it counts as active.
#[test]
fn a_scan_ends_on_disk() {
    let ward = ward(VdevShape::Single, 1);
    let live = live(&ward.spa);
    let first = ward.write(1).0;
    live.scans().hold(true);
    live.scan(spa::engine::ScanCommand::Scrub).unwrap();
    let scrubs = || live.scans().stat().is_some_and(|s| s.is_scanning());
    assert!(scrubs());
    live.scans().take_notices();
    ward.patients[0].inject(Fault::Error { op: Op::Write, range: 0..u64::MAX });
    std::thread::scope(|s| {
        let waiter = s.spawn(|| live.scans().wait());
        live.scans().hold(false);
        let began = std::time::Instant::now();
        let mut ends = false;
        while !ends && began.elapsed().as_secs() < 120 {
            ends = live.scans().take_notices().iter().any(|n| n.what == "scrub_finish");
            std::thread::yield_now();
        }
        while live.suspended().is_none() && began.elapsed().as_secs() < 120 {
            std::thread::yield_now();
        }
        let (goes_on, waits) = (scrubs(), !waiter.is_finished());
        ward.rescue();
        waiter.join().unwrap().unwrap();
        assert!(ends && goes_on && waits, "{ends} {goes_on} {waits}");
    });
    assert!(!scrubs());
    assert_eq!(ward.spa.mos().scan().unwrap().unwrap().state, ondisk::scan::ScanState::Finished);
    ward.discharge(&[(1, first)]);
}
