//! Prefetch for sequential readers: what the devices read, and when.

use crate::rig::{Rig, tx};
use arc::{CacheType, Policy};
use device::wrapper::Wrapper;
use device::{Device, MemDevice, SystemClock};
use dmu::{Dnode, NewObject, Objset};
use ondisk::objset::ObjsetKind;
use ondisk::{BlkId, DmuType, ObjNum};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use vdev::{Pace, Priority, Request};
use zio::ReadOptions;

const BLOCK: u64 = 1 << 17;
const BLOCKS: u64 = 64;

/// A device that counts reads. While it is closed, it holds reads until a given number waits.
struct Gate {
    inner: MemDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Large reads, which are reads of data.
    reads: u64,
    waiting: usize,
    most: usize,
    /// The number of waiting reads that opens the gate.
    opens_at: Option<usize>,
}

impl Wrapper for Gate {
    fn inner(&self) -> &dyn Device {
        &self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> device::Result<()> {
        if buf.len() as u64 == BLOCK {
            let mut s = self.state.lock();
            s.reads += 1;
            s.waiting += 1;
            s.most = s.most.max(s.waiting);
            if s.opens_at.is_some_and(|at| s.waiting >= at) {
                s.opens_at = None;
                self.changed.notify_all();
            }
            while s.opens_at.is_some() {
                self.changed.wait(&mut s);
            }
            s.waiting -= 1;
        }
        self.inner.read_at(buf, offset)
    }
}

struct Pool {
    rig: Rig,
    gate: Arc<Gate>,
    os: Objset,
    objects: Vec<ObjNum>,
    _ahead: arc::PrefetchGuard,
}

/// Creates `objects` objects of 64 blocks, none of which is cached.
fn pool(objects: u64) -> Pool {
    let (inner, state) = (MemDevice::new("d", 1 << 40), Mutex::default());
    let gate = Arc::new(Gate { inner, state, changed: Condvar::new() });
    let rig = Rig::over(gate.clone());
    let os = rig.create(ObjsetKind::Other, 0);
    let spec = NewObject { block_size: BLOCK as u32, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let objects: Vec<ObjNum> =
        (0..objects).map(|_| os.create_object(&tx(1), &spec).unwrap().object()).collect();
    for object in &objects {
        let dn = os.dnode(*object).unwrap();
        for b in 0..BLOCKS {
            dn.write_at(&tx(1), b * BLOCK, &content(*object, b)).unwrap();
        }
    }
    let ahead = rig.cache.begin_prefetch();
    let os = rig.sync(&os, 1);
    Pool { rig, gate, os, objects, _ahead: ahead }
}

fn content(object: ObjNum, block: u64) -> Vec<u8> {
    // The content is incompressible, so that the size of a read tells data from metadata.
    let mut x = (object.0 << 32 | block) * 2 + 1;
    let mut word = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x ^ x >> 29).to_le_bytes()
    };
    (0..BLOCK / 8).flat_map(|_| word()).collect()
}

impl Pool {
    fn named(&self, name: &str) -> u64 {
        self.rig.cache.store().named().into_iter().find(|(n, _)| *n == name).unwrap().1
    }

    fn dnode(&self, n: usize) -> Dnode {
        self.os.dnode(self.objects[n]).unwrap()
    }

    /// Reads a block when no prefetch is under way, and compares it.
    fn read(&self, dn: &Dnode, block: u64) {
        while self.rig.cache.store().zfetch().io_active() > 0 {
            std::thread::yield_now();
        }
        self.compare(dn, block);
    }

    fn compare(&self, dn: &Dnode, block: u64) {
        let mut buf = vec![0; BLOCK as usize];
        dn.read_at(block * BLOCK, &mut buf).unwrap();
        assert!(buf == content(dn.object(), block), "block {block}");
    }

    fn reads(&self) -> u64 {
        self.gate.state.lock().reads
    }
}

/// Goal: a sequential read of an object reads each block once, and all but two are prefetched. None
/// of these blocks counts as frequently used.
#[test]
fn from_front_to_back() {
    let pool = pool(1);
    let dn = pool.dnode(0);
    (0..BLOCKS).for_each(|b| pool.read(&dn, b));
    assert_eq!(pool.reads(), BLOCKS);
    assert_eq!((pool.named("demand_data_misses"), pool.named("demand_data_hits")), (2, BLOCKS - 2));
    assert_eq!(pool.named("demand_hit_predictive_prefetch"), BLOCKS - 2);
    assert_eq!(pool.named("prefetch_data_misses"), BLOCKS - 2);
    assert_eq!(pool.named("mfu_data"), 0);
    // All blocks are cached now: the prefetcher does nothing, and the device reads nothing.
    let before = (pool.rig.cache.store().zfetch().hits.get(), pool.rig.cache.store().zfetch().misses.get());
    (0..BLOCKS).for_each(|b| pool.read(&dn, b));
    let zfetch = pool.rig.cache.store().zfetch();
    assert_eq!(((zfetch.hits.get(), zfetch.misses.get()), pool.reads()), (before, BLOCKS));
}

/// Goal: reads that yield to foreground I/O prefetch nothing.
#[test]
fn paced() {
    let pool = pool(1);
    let pace = Pace::new(Arc::new(SystemClock::default()), Arc::default(), || false);
    let options = ReadOptions::new(Request::paced(Priority::AsyncRead, pace));
    let os = Objset::open(pool.rig.cache.clone(), 5, &pool.os.root_bp(), options).unwrap();
    let dn = os.dnode(pool.objects[0]).unwrap();
    (0..8).for_each(|b| pool.read(&dn, b));
    assert_eq!((pool.reads(), pool.named("prefetch_data_misses")), (8, 0));
}

/// Goal: a reader of every fourth block causes no extra reads. A random reader causes next to none.
#[test]
fn in_steps_and_at_random() {
    let pool = pool(2);
    let dn = pool.dnode(0);
    (0..BLOCKS / 4).for_each(|n| pool.read(&dn, n * 4));
    assert_eq!((pool.reads(), pool.named("demand_data_misses")), (BLOCKS / 4, 4));
    let (dn, before) = (pool.dnode(1), pool.reads());
    // Each block once, in an order without a stride.
    let order: Vec<u64> = (0..BLOCKS).map(|n| (n * n * 29 / 2 + n * 13 / 2) % BLOCKS).collect();
    let asked: std::collections::BTreeSet<u64> = order.iter().copied().collect();
    order.iter().for_each(|b| pool.read(&dn, *b));
    let more = pool.reads() - before - asked.len() as u64;
    assert!(more <= asked.len() as u64 / 8, "{more} blocks that nobody asked for");
}

/// Goal: several sequential readers keep many reads under way, where each would have one without
/// prefetch. No block is read twice.
#[test]
fn many_at_a_time() {
    const READERS: usize = 3;
    let pool = pool(READERS as u64);
    let dnodes: Vec<Dnode> = (0..READERS).map(|n| pool.dnode(n)).collect();
    dnodes.iter().for_each(|dn| (0..2).for_each(|b| pool.read(dn, b)));
    // From now on, reads complete when 8 are under way.
    pool.gate.state.lock().opens_at = Some(8);
    std::thread::scope(|scope| {
        for dn in &dnodes {
            scope.spawn(|| (2..BLOCKS).for_each(|b| pool.compare(dn, b)));
        }
    });
    assert!(pool.gate.state.lock().most >= 8);
    assert_eq!(pool.reads(), BLOCKS * READERS as u64);
}

/// Goal: the dataset's properties take effect: they limit prefetch and caching to metadata or to
/// nothing.
#[test]
fn as_datasets_want_it() {
    let none = Policy { ahead: CacheType::None, ..Policy::default() };
    let metadata = Policy { ahead: CacheType::Metadata, ..Policy::default() };
    for policy in [none, metadata] {
        let pool = pool(1);
        pool.rig.cache.set_policy(5, policy);
        let dn = pool.dnode(0);
        (0..BLOCKS).for_each(|b| pool.read(&dn, b));
        assert_eq!(pool.named("demand_data_misses"), BLOCKS);
        assert_eq!(pool.named("prefetch_data_misses"), 0);
    }
    let pool = pool(1);
    pool.rig.cache.set_policy(5, Policy { keep: CacheType::Metadata, ..Policy::default() });
    let dn = pool.dnode(0);
    (0..2).for_each(|_| (0..8).for_each(|b| pool.read(&dn, b)));
    assert_eq!((pool.reads(), pool.named("data_size")), (16, 0), "each time from the device");
    assert!(pool.named("metadata_size") > 0);
    pool.rig.cache.set_policy(5, Policy::default());
    (0..2).for_each(|_| pool.read(&dn, 20));
    assert_eq!(pool.reads(), 17);
}

/// Goal: a failed prefetch has no effect. No error counts against a device, and no block is
/// reported as damaged, until a read demands the block.
#[test]
fn what_fails() {
    let pool = pool(1);
    let dn = pool.dnode(0);
    let bp = dn.bp(ondisk::Level(0), BlkId(5)).unwrap();
    let at = bp.stored().unwrap().dvas[0].unwrap().offset.0 + ondisk::label::LABEL_START_SIZE;
    pool.gate.inner.write_at(&[0xff; 512], at).unwrap();
    (0..5).for_each(|b| pool.read(&dn, b));
    while pool.rig.cache.store().zfetch().io_active() > 0 {
        std::thread::yield_now();
    }
    assert!(pool.reads() > 5, "it was tried");
    let stats = || pool.rig.cache.zio().tree().describe().children[0].stats.clone();
    assert_eq!(stats().checksum_errors, 0);
    let mut buf = vec![0; BLOCK as usize];
    dn.read_at(5 * BLOCK, &mut buf).unwrap_err();
    assert_eq!(stats().checksum_errors, 1);
    (6..BLOCKS).for_each(|b| pool.read(&dn, b));
}

/// Goal: prefetch keeps no reference to a closed object set. When no read is under way, nothing
/// holds the pool's cache for it.
#[test]
fn nothing_is_kept() {
    let pool = pool(4);
    let before = Arc::strong_count(&pool.rig.cache);
    let dnodes: Vec<Dnode> = (0..4).map(|n| pool.dnode(n)).collect();
    dnodes.iter().for_each(|dn| (0..8).for_each(|b| pool.read(dn, b)));
    assert!(pool.named("prefetch_data_misses") > 0);
    drop(dnodes);
    while pool.rig.cache.store().zfetch().io_active() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&pool.rig.cache), before);
}

/// Goal: blocks of dnodes are prefetched for a walk over the objects of an object set, also where
/// the dataset limits prefetch to metadata.
#[test]
fn of_dnodes() {
    for ahead in [CacheType::All, CacheType::Metadata, CacheType::None] {
        let (inner, state) = (MemDevice::new("d", 1 << 40), Mutex::default());
        let rig = Rig::over(Arc::new(Gate { inner, state, changed: Condvar::new() }));
        let os = rig.create(ObjsetKind::Other, 0);
        let spec = NewObject::new(DmuType::PLAIN_FILE_CONTENTS);
        for _ in 0..1000 {
            os.create_object(&tx(1), &spec).unwrap();
        }
        let _ahead = rig.cache.begin_prefetch();
        rig.cache.set_policy(5, Policy { ahead, ..Policy::default() });
        let os = rig.sync(&os, 1);
        let settled = || {
            while rig.cache.store().zfetch().io_active() > 0 {
                std::thread::yield_now();
            }
        };
        assert_eq!(os.objects(ObjNum(1)).map(Result::unwrap).inspect(|_| settled()).count(), 1000);
        let named = rig.cache.store().named();
        let read = named.iter().find(|(n, _)| *n == "prefetch_metadata_misses").unwrap().1;
        assert_eq!(read > 0, ahead != CacheType::None, "{ahead:?}: {read}");
    }
}
