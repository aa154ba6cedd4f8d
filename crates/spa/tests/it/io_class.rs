//! The class of every I/O: what the engine does counts on its devices as what it is for.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ondisk::{Guid, ObjNum};
use spa::Spa;
use spa::create::{NewLeaf, VdevShape, claim_file};
use spa::engine::{AttachTerms, PoolWriter, ScanCommand, WorkCommand, WorkKind, WorkState};
use spa::import::Options;
use testpools::{images, import, import_as, new_pool, noise, own, read_file, write_file};
use vdev::IoType::{self, Read, Trim, Write};
use vdev::Priority::{
    self, AsyncRead, AsyncWrite, Initialize, Log, Prefetch, Rebuild, Resilver, Scrub, SyncRead,
};

use crate::log::{Files, log_file};

const SIZE: u64 = 128 << 20;
const LEN: usize = 4 << 20;

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

/// Bytes and operations of a pool's devices by class and type.
#[derive(Default)]
struct Classes(BTreeMap<(Priority, IoType), (u64, u64)>);

impl Classes {
    fn of(spa: &Spa) -> Self {
        let classes = spa.tree().describe().stats.classes;
        assert!(classes.iter().all(|one| one.disk_ns.count() == one.ops));
        Self(classes.iter().map(|one| ((one.class, one.io), (one.ops, one.bytes))).collect())
    }

    /// What was done since these.
    fn until(&self, spa: &Spa) -> Self {
        let mut now = Self::of(spa);
        for (key, (ops, bytes)) in &self.0 {
            let one = now.0.get_mut(key).expect("what was counted stays so");
            *one = (one.0 - ops, one.1 - bytes);
        }
        now.0.retain(|_, (ops, _)| *ops > 0);
        now
    }

    fn bytes(&self, class: Priority, io: IoType) -> u64 {
        self.0.get(&(class, io)).map_or(0, |(_, bytes)| *bytes)
    }

    fn has(&self, class: Priority, io: IoType) -> bool {
        self.0.contains_key(&(class, io))
    }

    /// Fails if there is a class that is not among these.
    fn only(&self, classes: &[(Priority, IoType)]) {
        for key in self.0.keys() {
            assert!(classes.contains(key), "{key:?} in {:?}", self.0);
        }
    }
}

fn write(spa: &Spa, seed: u64) -> ObjNum {
    let object = write_file(live(spa), &own(live(spa), "tank"), &noise(seed, LEN)).unwrap();
    live(spa).sync_all().unwrap();
    object
}

/// Overwrites three quarters of a MiB of an image at every step, from an offset on up to its last
/// labels.
fn ruin(image: &Path, from: u64, step: usize) {
    let image = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    for at in (from..SIZE - (2 << 20)).step_by(step) {
        image.write_all_at(&noise(9, 3 << 18), at).unwrap();
    }
}

/// Lets txgs pass until no scan is active.
fn finish(spa: &Spa) {
    live(spa).sync_all().unwrap();
    while live(spa).scans().stat().unwrap().is_scanning() {
        live(spa).sync_all().unwrap();
    }
}

/// Goal: a transaction group is asynchronous writes, and a commit of a log is log writes.
#[test]
fn groups_and_logs() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, SIZE));
    let before = Classes::of(&spa);
    write(&spa, 1);
    let group = before.until(&spa);
    assert!(group.bytes(AsyncWrite, Write) >= LEN as u64, "{:?}", group.0);
    group.only(&[(AsyncWrite, Write), (SyncRead, Read)]);

    let owned = own(live(&spa), "tank");
    let log = live(&spa).logs().open(&owned);
    let commit = |n: u64, len: usize| {
        let object = log_file(live(&spa), &owned, &log, n, &noise(n, len));
        log.commit(Some(object), &Files(&owned)).unwrap();
    };
    // The first commit waits for its txg, because there is no chain yet.
    commit(0, 10);
    let before = Classes::of(&spa);
    commit(1, 500);
    let seen = before.until(&spa);
    assert!(seen.has(Log, Write), "{:?}", seen.0);
    seen.only(&[(Log, Write), (AsyncWrite, Write), (SyncRead, Read)]);
    drop((log, owned));
    live(&spa).export().unwrap();
}

/// Goal: what a sequential reader needs later is prefetched. Without a prefetcher, callers wait for
/// all of it.
#[test]
fn readers() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, SIZE));
    let object = write(&spa, 1);
    live(&spa).export().unwrap();
    drop(spa);
    for read_ahead in [false, true] {
        let spa = import_as(dir.path(), Options { read_ahead, ..Options::default() }).unwrap();
        let owned = own(live(&spa), "tank");
        let before = Classes::of(&spa);
        // One block after the other, so that there is something to prefetch.
        let dnode = owned.objset().dnode(object).unwrap();
        let mut bytes = vec![0; 1 << 17];
        for at in (0..LEN as u64).step_by(bytes.len()) {
            while spa.cache().store().zfetch().io_active() > 0 {
                std::thread::yield_now();
            }
            dnode.read_at(at, &mut bytes).unwrap();
        }
        let seen = before.until(&spa);
        seen.only(&[(SyncRead, Read), (Prefetch, Read), (AsyncWrite, Write)]);
        assert_eq!(seen.bytes(Prefetch, Read) > 1 << 20, read_ahead, "{:?}", seen.0);
        let waited_for = seen.bytes(SyncRead, Read);
        assert_eq!(waited_for >= LEN as u64, !read_ahead, "{:?}", seen.0);
        drop((dnode, owned));
        live(&spa).export().unwrap();
    }
}

/// Goal: a scrub reads as a scrub, and callers' reads have none of it. So do its repairs.
#[test]
fn scrubs() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    write(&spa, 1);
    let scrub = || {
        let before = Classes::of(&spa);
        live(&spa).scan(ScanCommand::Scrub).unwrap();
        finish(&spa);
        before.until(&spa)
    };
    let clean = scrub();
    assert!(clean.bytes(Scrub, Read) >= 2 * LEN as u64, "{:?}", clean.0);
    assert!(clean.bytes(SyncRead, Read) < LEN as u64 / 2, "{:?}", clean.0);
    clean.only(&[(Scrub, Read), (SyncRead, Read), (AsyncWrite, Write)]);
    ruin(&images[1], 4 << 20, 1 << 20);
    let repair = scrub();
    assert!(repair.bytes(Scrub, Write) >= LEN as u64 / 2, "{:?}", repair.0);
    repair.only(&[(Scrub, Read), (Scrub, Write), (SyncRead, Read), (AsyncRead, Read), (AsyncWrite, Write)]);
    live(&spa).export().unwrap();
}

/// Goal: what a read finds wrong is repaired by asynchronous writes, and what the repair reads for
/// that, no caller waits for.
#[test]
fn repairs() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    let object = write(&spa, 1);
    live(&spa).export().unwrap();
    drop(spa);
    let spa = import(dir.path()).unwrap();
    // Something of each child, and no block of both.
    (0..2).for_each(|n| ruin(&images[n], (4 + n as u64) << 20, 2 << 20));
    let before = Classes::of(&spa);
    assert!(read_file(&own(live(&spa), "tank"), object, LEN) == noise(1, LEN));
    (0..3).for_each(|_| live(&spa).sync_all().unwrap());
    let healed = before.until(&spa);
    assert!(healed.has(AsyncRead, Read), "{:?}", healed.0);
    healed.only(&[(AsyncRead, Read), (Prefetch, Read), (SyncRead, Read), (AsyncWrite, Write)]);
    let healed: u64 = spa.tree().describe().children[0].children.iter().map(|c| c.stats.self_healed).sum();
    assert!(healed > 0);
    live(&spa).export().unwrap();
}

fn guid(spa: &Spa, path: &Path) -> Guid {
    let path = path.display().to_string().into_bytes();
    let config = spa.config();
    let mut leaves = config.vdev_tree.as_ref().unwrap().leaves();
    leaves.find(|leaf| leaf.path.as_ref() == Some(&path)).unwrap().guid
}

/// Goal: what a new child of a mirror gets are writes of the resilver, or of the rebuild and then
/// of nothing else; its source is read likewise.
#[test]
fn resilvers_and_rebuilds() {
    for sequential in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), 2, SIZE);
        let spa = new_pool(VdevShape::Single, &images[..1]);
        write(&spa, 1);
        let before = Classes::of(&spa);
        let terms =
            AttachTerms { replace: false, sequential, force: false, unattended: false, claimer: &claim_file };
        let new = NewLeaf { path: images[1].clone() };
        live(&spa).vdevs().attach(guid(&spa, &images[0]), &new, &terms).unwrap();
        live(&spa).scans().wait().unwrap();
        finish(&spa);
        let seen = before.until(&spa);
        let (class, others) = match sequential {
            false => (Resilver, vec![]),
            // A scrub follows.
            true => (Rebuild, vec![(Scrub, Read)]),
        };
        for io in [Read, Write] {
            assert!(seen.bytes(class, io) >= LEN as u64, "{:?}", seen.0);
        }
        let mine = [(class, Read), (class, Write), (SyncRead, Read), (AsyncWrite, Write)];
        seen.only(&[&mine[..], &others].concat());
        assert!(seen.bytes(SyncRead, Read) < LEN as u64 / 2, "{:?}", seen.0);
        live(&spa).export().unwrap();
    }
}

/// Goal: initialisation and discards are classes of their own.
#[test]
fn initialisation_and_discards() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 1, SIZE);
    let spa = new_pool(VdevShape::Single, &images);
    let leaf = guid(&spa, &images[0]);
    let works = live(&spa).initialize_trim();
    let start = WorkCommand::Start { rate: 0, secure: false };
    for (kind, class, io) in
        [(WorkKind::Initialize, Initialize, Write), (WorkKind::Trim, Priority::Trim, Trim)]
    {
        let before = Classes::of(&spa);
        assert_eq!(works.work(&[leaf], kind, start).unwrap(), []);
        while works.stat(leaf, kind).state == WorkState::Active {
            std::thread::yield_now();
        }
        let seen = before.until(&spa);
        // Space that the images' file system can't discard stays; then there is no operation.
        assert!(seen.bytes(class, io) > 64 << 20 || kind == WorkKind::Trim, "{:?}", seen.0);
        assert!(seen.has(class, io), "{:?}", seen.0);
        seen.only(&[(class, io), (SyncRead, Read), (AsyncWrite, Write)]);
    }
    live(&spa).export().unwrap();
}
