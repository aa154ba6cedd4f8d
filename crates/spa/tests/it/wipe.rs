//! Initialization and TRIM: free space, and nothing else, is written and discarded, whatever
//! happens at the same time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;

use dsl::ops::destroy::DestroyHead;
use ondisk::config::DraidShape;
use ondisk::{Guid, ObjNum};
use spa::Spa;
use spa::create::VdevShape;
use spa::engine::{PoolProp, PoolWriter, WorkCommand, WorkKind, WorkRefusal, WorkState};
use testpools::{
    ask, file_system, images, import, judge, new_pool, noise, own, read_file, remove_file, write_file,
};

const START: WorkCommand = WorkCommand::Start { rate: 0, secure: false };
/// The pattern that initialization writes.
const FILL: [u8; 8] = 0xdead_beef_dead_beee_u64.to_ne_bytes();

fn leaves(live: &PoolWriter) -> Vec<Guid> {
    live.config().vdev_tree.iter().flat_map(|root| root.leaves().map(|l| l.guid)).collect()
}

fn wait(live: &PoolWriter, kind: WorkKind) {
    for leaf in leaves(live) {
        while live.initialize_trim().stat(leaf, kind).state == WorkState::Active {
            std::thread::yield_now();
        }
    }
}

/// The number of units of the pattern in an image.
fn filled(image: &Path) -> usize {
    std::fs::read(image).unwrap().as_chunks::<8>().0.iter().filter(|w| **w == FILL).count()
}

fn blocks(image: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(image).unwrap()) * 512
}

fn export(spa: Spa, dir: &Path) {
    spa.writer().unwrap().export().unwrap();
    drop(spa);
    judge(dir, "tank");
}

/// Goal: initialization writes all free space of a device once, and records its end in the ZAP as
/// OpenZFS does.
///
/// Nothing is written again before an uninitialize, and the pool's contents stay.
#[test]
fn what_is_free_is_initialized() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 1, 128 << 20);
    let spa = new_pool(VdevShape::Single, &images);
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    let owned = own(live, "tank/a");
    let bytes = noise(1, 10 << 20);
    let object = write_file(live, &owned, &bytes).unwrap();
    live.sync_all().unwrap();
    let all = leaves(live);
    assert_eq!(
        live.initialize_trim().work(&all, WorkKind::Initialize, WorkCommand::Suspend).unwrap(),
        [(0, WorkRefusal::Idle)]
    );
    assert_eq!(
        live.initialize_trim().work(&[Guid(1)], WorkKind::Initialize, START).unwrap(),
        [(0, WorkRefusal::NoDevice)]
    );
    assert_eq!(live.initialize_trim().work(&all, WorkKind::Initialize, START).unwrap(), []);
    wait(live, WorkKind::Initialize);
    let stat = live.initialize_trim().stat(all[0], WorkKind::Initialize);
    assert_eq!((stat.state, stat.done, stat.errors), (WorkState::Complete, stat.estimate, 0));
    assert!(stat.action_time > 0 && stat.estimate > 100 << 20);
    live.sync_all().unwrap();
    let written = filled(&images[0]) * 8;
    assert!(written > 100 << 20, "{written}");
    assert_eq!(read_file(&owned, object, bytes.len()), bytes);
    drop(owned);
    export(spa, dir.path());
    if let Some(zap) = ask(dir.path(), "tank", &["-dddd"]) {
        assert!(zap.contains("com.delphix:vdev_initialize_state = 4"), "{zap}");
    }
    let spa = import(dir.path()).unwrap();
    let live = spa.writer().unwrap();
    assert_eq!(live.initialize_trim().stat(all[0], WorkKind::Initialize).state, WorkState::Complete);
    let owned = own(live, "tank/a");
    assert_eq!(read_file(&owned, object, bytes.len()), bytes);
    remove_file(live, &owned, object).unwrap();
    (0..4).for_each(|_| live.sync_all().unwrap());
    // The initialization has already reached the end.
    live.initialize_trim().work(&all, WorkKind::Initialize, START).unwrap();
    wait(live, WorkKind::Initialize);
    let before = filled(&images[0]) * 8;
    assert!(before <= written, "{before} after {written}");
    live.initialize_trim().work(&all, WorkKind::Initialize, WorkCommand::Undo).unwrap();
    assert_eq!(live.initialize_trim().stat(all[0], WorkKind::Initialize).state, WorkState::None);
    live.initialize_trim().work(&all, WorkKind::Initialize, START).unwrap();
    wait(live, WorkKind::Initialize);
    live.sync_all().unwrap();
    assert!(filled(&images[0]) * 8 > written + (9 << 20));
    drop(owned);
    export(spa, dir.path());
}

/// Goal: with `autotrim=on`, freed space is discarded without a command once no rewind can need it.
/// This holds for each shape of vdev and each of its devices.
///
/// Space that was free before, is in use or was reused is not discarded. With `off`, nothing is.
#[test]
fn what_was_freed_is_discarded() {
    let draid = VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 });
    for (shape, count) in
        [(VdevShape::Single, 1), (VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3), (draid, 5)]
    {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), count, 160 << 20);
        let spa = new_pool(shape, &images);
        let live = spa.writer().unwrap();
        live.run(file_system("tank/a", Vec::new())).unwrap();
        let owned = own(live, "tank/a");
        let used = || images.iter().map(|image| blocks(image)).collect::<Vec<u64>>();
        // In several rounds, more than the devices hold.
        let set = |on| live.set(vec![PoolProp::Number("autotrim".to_owned(), on)]).unwrap();
        let mut files = Vec::new();
        let round = |files: &mut Vec<(u64, ObjNum)>, seed: u64| {
            for n in 0..40 {
                files.push((seed + n, write_file(live, &owned, &noise(seed + n, 1 << 20)).unwrap()));
            }
            live.sync_all().unwrap();
            let full = used();
            for n in (1..files.len()).rev().step_by(2) {
                remove_file(live, &owned, files.remove(n).1).unwrap();
            }
            (0..4).for_each(|_| live.sync_all().unwrap());
            live.initialize_trim().trim_freed();
            (full, used())
        };
        let (full, left) = round(&mut files, 0);
        assert!(left >= full, "{shape:?}: nobody asked for it");
        set(1);
        live.initialize_trim().trim_freed();
        assert!(used() >= left, "{shape:?}: what was freed before is for `zpool trim`");
        let (full, left) = round(&mut files, 1000);
        // On a dRAID, one device is the spare in this range.
        let less = full.iter().zip(&left).filter(|(full, left)| *left + (3 << 20) < **full).count();
        let spare = usize::from(matches!(shape, VdevShape::Draid(..)));
        assert!(less >= count - spare, "{shape:?}: {left:?} of {full:?} are still there");
        // The same during other activity.
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !over.load(Relaxed) {
                    live.initialize_trim().trim_freed();
                }
            });
            for n in 2000..2120 {
                files.push((n, write_file(live, &owned, &noise(n, 1 << 20)).unwrap()));
                if files.len() > 60 {
                    remove_file(live, &owned, files.remove(n as usize % 60).1).unwrap();
                }
                if n % 5 == 0 {
                    live.sync_all().unwrap();
                }
            }
            over.store(true, Relaxed);
        });
        for (seed, object) in &files {
            assert_eq!(read_file(&owned, *object, 1 << 20), noise(*seed, 1 << 20), "{shape:?}: {seed}");
        }
        set(0);
        drop(owned);
        export(spa, dir.path());
    }
}

/// Goal: the pool's own thread trims freed space, a part of the device at a time.
#[test]
fn autotrim_needs_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 1, 160 << 20);
    let spa = new_pool(VdevShape::Single, &images);
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    let owned = own(live, "tank/a");
    live.set(vec![PoolProp::Number("autotrim".to_owned(), 1)]).unwrap();
    let object = write_file(live, &owned, &noise(1, 20 << 20)).unwrap();
    live.sync_all().unwrap();
    let full = blocks(&images[0]);
    remove_file(live, &owned, object).unwrap();
    (0..4).for_each(|_| live.sync_all().unwrap());
    // Each iteration stands for a wake-up of that thread.
    let woken = (0..100_000).find(|_| {
        live.monitor().run_now();
        std::thread::yield_now();
        blocks(&images[0]) + (18 << 20) < full
    });
    assert!(woken.is_some(), "{} of {full} are still there", blocks(&images[0]));
    drop(owned);
    export(spa, dir.path());
}

/// Goal: TRIM discards free space, for each shape of vdev and each of its devices, and nothing
/// else.
#[test]
fn what_is_free_is_trimmed() {
    let draid = VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 });
    let shapes = [
        (VdevShape::Single, 1),
        (VdevShape::Mirror, 2),
        (VdevShape::Raidz(1), 3),
        (VdevShape::Raidz(2), 5),
        (draid, 5),
    ];
    for (shape, count) in shapes {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), count, 160 << 20);
        let spa = new_pool(shape, &images);
        let live = spa.writer().unwrap();
        live.run(file_system("tank/a", Vec::new())).unwrap();
        let owned = own(live, "tank/a");
        let files: Vec<ObjNum> =
            (0..40).map(|n| write_file(live, &owned, &noise(n, 1 << 20)).unwrap()).collect();
        live.sync_all().unwrap();
        for object in files.iter().skip(1).step_by(2) {
            remove_file(live, &owned, *object).unwrap();
        }
        (0..4).for_each(|_| live.sync_all().unwrap());
        let all = leaves(live);
        assert_eq!(live.initialize_trim().work(&all, WorkKind::Initialize, START).unwrap(), []);
        wait(live, WorkKind::Initialize);
        let full: Vec<u64> = images.iter().map(|i| blocks(i)).collect();
        // On a dRAID, some space is reserved and some is spare.
        let least = if matches!(shape, VdevShape::Draid(..)) { 40 } else { 120 };
        assert!(full.iter().all(|b| *b > least << 20), "{shape:?}: {full:?}");
        assert_eq!(live.initialize_trim().work(&all, WorkKind::Trim, START).unwrap(), []);
        wait(live, WorkKind::Trim);
        let bare: Vec<u64> = images.iter().map(|i| blocks(i)).collect();
        // 20 MiB with parity, and little more.
        let most = if count < 3 { 30 } else { 40 * 2 / (count as u64 - 1) + 12 };
        assert!(bare.iter().all(|b| *b < most << 20), "{shape:?}: {bare:?}");
        for (n, object) in files.iter().enumerate().step_by(2) {
            assert_eq!(read_file(&owned, *object, 1 << 20), noise(n as u64, 1 << 20));
        }
        drop(owned);
        export(spa, dir.path());
        testpools::read_all(dir.path());
    }
}

/// Writes and frees a pool of a shape at random, nearly to its end, while all its devices are
/// initialized and trimmed again and again.
///
/// Its contents are right, now and after an import, and no writer is refused space that exists.
fn writers_lose_nothing(shape: VdevShape, count: usize) {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), count, 128 << 20);
    let spa = new_pool(shape, &images);
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    let owned = own(live, "tank/a");
    let all = leaves(live);
    // The devices are wiped again beside the writes, not for each write.
    let (wrote, writes) = mpsc::sync_channel(1);
    let mut model: BTreeMap<ObjNum, (u64, usize)> = BTreeMap::new();
    std::thread::scope(|s| {
        s.spawn(|| {
            for () in writes {
                for kind in [WorkKind::Initialize, WorkKind::Trim] {
                    if live.initialize_trim().stat(all[0], kind).state != WorkState::Active {
                        if kind == WorkKind::Initialize {
                            live.initialize_trim().work(&all, kind, WorkCommand::Undo).unwrap();
                        }
                        live.initialize_trim().work(&all, kind, START).unwrap();
                    }
                }
            }
        });
        for n in 0..200u64 {
            _ = wrote.try_send(());
            let draw = noise(n + 7, 4);
            let size = [4 << 10, 100 << 10, 1 << 20, 3 << 20][usize::from(draw[0] % 4)];
            match write_file(live, &owned, &noise(n, size)) {
                Ok(object) => drop(model.insert(object, (n, size))),
                Err(e) => assert!(model.len() > 20, "{e}"),
            }
            while model.len() > 30 + usize::from(draw[1] % 16) {
                let at = usize::from(draw[2]) % model.len();
                let object = *model.keys().nth(at).unwrap();
                remove_file(live, &owned, object).unwrap();
                model.remove(&object);
            }
            if draw[3].is_multiple_of(8) {
                live.sync_all().unwrap();
            }
        }
        drop(wrote);
    });
    for (object, (n, size)) in &model {
        assert_eq!(read_file(&owned, *object, *size), noise(*n, *size), "{shape:?}");
    }
    drop(owned);
    export(spa, dir.path());
    let spa = import(dir.path()).unwrap();
    let live = spa.writer().unwrap();
    let owned = own(live, "tank/a");
    for (object, (n, size)) in &model {
        assert_eq!(read_file(&owned, *object, *size), noise(*n, *size), "{shape:?}");
    }
    drop(owned);
    live.run(Box::new(DestroyHead { name: "tank/a".into() })).unwrap();
    wait(live, WorkKind::Initialize);
    wait(live, WorkKind::Trim);
    export(spa, dir.path());
}

#[test]
fn writers_of_a_device_lose_nothing() {
    writers_lose_nothing(VdevShape::Single, 1);
}

#[test]
fn writers_of_a_mirror_lose_nothing() {
    writers_lose_nothing(VdevShape::Mirror, 2);
}

#[test]
fn writers_of_raidz1_lose_nothing() {
    writers_lose_nothing(VdevShape::Raidz(1), 3);
}

#[test]
fn writers_of_raidz2_lose_nothing() {
    writers_lose_nothing(VdevShape::Raidz(2), 4);
}

#[test]
fn writers_of_draid_lose_nothing() {
    writers_lose_nothing(VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 }), 5);
}
