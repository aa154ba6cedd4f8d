//! Reads that yield to foreground I/O, and readers that need the same block.

use crate::rig::{Rig, tx};
use device::wrapper::Wrapper;
use device::{Clock, Device, MemDevice};
use dmu::{NewObject, Objset};
use ondisk::objset::ObjsetKind;
use ondisk::{BlkId, Blkptr, DmuType, Level, ObjNum};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;
use vdev::{Pace, Priority, Request};
use zio::{Bookmark, IoFlags, ReadOptions};

/// Reads of so many bytes are those of the foreground that keep the disk busy.
const LONG: usize = 1 << 17;
const SECOND_NS: u64 = 1_000_000_000;

/// A disk that can be busy, or return wrong bytes of other reads.
struct Disk {
    inner: MemDevice,
    state: Mutex<State>,
    changed: Condvar,
    wrong: AtomicBool,
}

#[derive(Default)]
struct State {
    busy: bool,
    waiting: bool,
}

impl Wrapper for Disk {
    fn inner(&self) -> &dyn Device {
        &self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> device::Result<()> {
        if buf.len() == LONG {
            let mut state = self.state.lock();
            state.waiting = true;
            self.changed.notify_all();
            while state.busy {
                self.changed.wait(&mut state);
            }
        }
        self.inner.read_at(buf, offset)?;
        if self.wrong.load(SeqCst) && buf.len() != LONG {
            buf.fill(0xa5);
        }
        Ok(())
    }
}

/// A clock that goes on by a second with each look, until it stands still.
#[derive(Default)]
struct Still {
    now_ns: AtomicU64,
    is_still: AtomicBool,
    slept: AtomicBool,
}

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        match self.is_still.load(SeqCst) {
            true => self.now_ns.load(SeqCst),
            false => self.now_ns.fetch_add(SECOND_NS, SeqCst) + SECOND_NS,
        }
    }

    fn sleep_until(&self, _: u64) {
        self.slept.store(true, SeqCst);
        std::thread::yield_now();
    }
}

struct Pool {
    disk: Arc<Disk>,
    clock: Arc<Still>,
    rig: Rig,
    os: Objset,
    root: Blkptr,
    object: ObjNum,
}

/// A block that is neither compressed nor embedded.
fn noise() -> Vec<u8> {
    let mut x = 1u64;
    let mut word = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x ^ x >> 29).to_le_bytes()
    };
    (0..LONG / 8).flat_map(|_| word()).collect()
}

/// A pool with an object of one long block.
fn pool() -> Pool {
    let inner = MemDevice::new("d", 1 << 40);
    let (state, changed, wrong) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
    let disk = Arc::new(Disk { inner, state, changed, wrong });
    let rig = Rig::over(disk.clone());
    let os = rig.create(ObjsetKind::Other, 0);
    let spec = NewObject { block_size: LONG as u32, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let dn = os.create_object(&tx(1), &spec).unwrap();
    dn.write_at(&tx(1), 0, &noise()).unwrap();
    let os = rig.sync(&os, 1);
    Pool { disk, clock: Arc::default(), rig, root: os.root_bp(), os, object: dn.object() }
}

impl Pool {
    fn read(&self, options: &ReadOptions) -> zio::Result<device::Block> {
        let bookmark = Bookmark { objset: 5, object: ObjNum(0), level: Level(0), blkid: BlkId(0) };
        self.rig.cache.read(&self.root, &bookmark, options)
    }

    fn set_busy(&self, busy: bool) {
        self.disk.state.lock().busy = busy;
        self.disk.changed.notify_all();
    }

    /// Reads a block by a paced read whose turn never comes, and by a reader in the foreground that
    /// joins it. Returns the foreground's result.
    fn join(&self, wrong: bool) -> zio::Result<device::Block> {
        let pace = Pace::new(self.clock.clone(), Arc::default(), || false);
        let paced = ReadOptions::new(Request::paced(Priority::AsyncRead, pace));
        let paced = &paced.with(IoFlags::MAY_BE_FREED);
        let dn = self.os.dnode(self.object).unwrap();
        // The disk took a second for it.
        self.rig.cache.purge();
        self.read(paced).unwrap();
        self.rig.cache.purge();
        self.disk.wrong.store(wrong, SeqCst);
        self.set_busy(true);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            // What the busy read returns does not matter.
            scope.spawn(|| drop(dn.read_at(0, &mut vec![0; LONG])));
            let mut state = self.disk.state.lock();
            while !state.waiting {
                self.disk.changed.wait(&mut state);
            }
            drop(state);
            self.clock.is_still.store(true, SeqCst);
            scope.spawn(|| drop(self.read(paced)));
            while !self.clock.slept.load(SeqCst) {
                std::thread::yield_now();
            }
            scope.spawn(move || tell.send(self.read(&ReadOptions::demand())));
            let found = told.recv_timeout(Duration::from_secs(20));
            self.clock.is_still.store(false, SeqCst);
            self.set_busy(false);
            found.expect("it does not wait for the turn of the other read")
        })
    }
}

/// Goal: a paced read does not wait for its turn while a reader in the foreground waits for it.
#[test]
fn joined_reads_hurry() {
    assert!(pool().join(false).is_ok());
}

/// Goal: a reader does not take over a failure that was recorded nowhere, because its block might
/// have been freed. It reads the block itself, and records the damage.
#[test]
fn failures_of_freed_blocks_are_not_shared() {
    let pool = pool();
    assert!(pool.join(true).is_err());
    let zio = pool.rig.cache.zio();
    let errors = zio.tree().describe().children[0].stats.checksum_errors;
    assert_eq!((zio.damage().count(), errors), (1, 1));
}
