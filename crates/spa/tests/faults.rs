//! Pools whose devices fail while they are written: a faulted device or a suspended pool, never a wrong one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::{Device, DeviceError, Op};
use ondisk::ObjNum;
use parking_lot::Mutex;
use rig::{images, import, judge, new_pool_on, noise, own, read_file, write_file};
use spa::Spa;
use spa::create::{VdevShape, claim_file};
use spa::engine::Live;
use vdev::VdevState;
use zio::Reason;

/// What a device refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ill {
    /// Writes with these numbers, flushes counted as well.
    Numbers(Range<u64>),
    /// Flushes.
    Flushes,
    /// Everything.
    Gone,
}

/// A device over an image that falls ill when it is told to. While its flushes fail, what is written is lost when it is healed.
struct Patient {
    inner: Arc<dyn Device>,
    ill: Mutex<Option<Ill>>,
    count: AtomicU64,
}

impl Patient {
    fn fall(&self, ill: Ill) {
        *self.ill.lock() = Some(ill);
    }

    fn heal(&self) {
        *self.ill.lock() = None;
    }

    fn gate(&self, op: Op) -> device::Result<()> {
        let number = if op == Op::Read { 0 } else { self.count.fetch_add(1, Relaxed) };
        let bad = match &*self.ill.lock() {
            None => false,
            Some(Ill::Numbers(range)) => op != Op::Read && range.contains(&number),
            Some(Ill::Flushes) => op == Op::Flush,
            Some(Ill::Gone) => true,
        };
        let source = std::io::Error::from_raw_os_error(5);
        if bad {
            Err(DeviceError::Io { op, device: "ill".into(), offset: 0, len: 0, source })
        } else {
            Ok(())
        }
    }
}

impl Device for Patient {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> device::Result<()> {
        self.gate(Op::Read)?;
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> device::Result<()> {
        self.gate(Op::Write)?;
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> device::Result<()> {
        self.gate(Op::Flush)
    }

    fn trim(&self, _: u64, _: u64) -> device::Result<()> {
        Ok(())
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn physical_sector(&self) -> u32 {
        self.inner.physical_sector()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

struct Ward {
    dir: tempfile::TempDir,
    patients: Vec<Arc<Patient>>,
    spa: Spa,
}

fn ward(shape: VdevShape, count: usize) -> Ward {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = images(dir.path(), count, 96 << 20);
    let patients = Mutex::new(Vec::new());
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let patient = Arc::new(Patient { inner, ill: Mutex::new(None), count: AtomicU64::new(0) });
        patients.lock().push(patient.clone());
        Ok((patient as Arc<dyn Device>, kind))
    };
    let spa = new_pool_on(shape, &paths, &claimer);
    Ward { dir, patients: patients.into_inner(), spa }
}

fn live(spa: &Spa) -> &Live {
    spa.writer().unwrap()
}

impl Ward {
    /// Writes a file and syncs it; sees to the devices whenever the pool is suspended, which is told.
    fn write(&self, seed: u64) -> (ObjNum, bool) {
        let live = live(&self.spa);
        let mut suspended = false;
        let object = {
            let owned = own(live, "tank");
            write_file(live, &owned, &noise(seed, 1 << 20)).unwrap()
        };
        std::thread::scope(|s| {
            let syncer = s.spawn(|| live.sync_all().unwrap());
            while !syncer.is_finished() {
                if live.suspended().is_some() {
                    suspended = true;
                    self.rescue();
                }
                std::thread::yield_now();
            }
        });
        (object, suspended)
    }

    fn rescue(&self) {
        self.patients.iter().for_each(|p| p.heal());
        live(&self.spa).clear(None).unwrap();
    }

    /// Exports the pool and has it judged; its files must be what was written.
    fn discharge(self, files: &[(u64, ObjNum)]) {
        live(&self.spa).export().unwrap();
        drop((self.spa, self.patients));
        judge(self.dir.path(), "tank");
        let spa = import(self.dir.path()).unwrap();
        let owned = own(live(&spa), "tank");
        for (seed, object) in files {
            assert!(read_file(&owned, *object, 1 << 20) == noise(*seed, 1 << 20), "file {seed}");
        }
    }
}

/// Goal: wherever in a group a device begins to fail, for one write or for many, a pool without redundancy loses nothing of it:
/// its blocks go elsewhere, or it waits until the device is well.
#[test]
fn one_device_fails_at_any_write() {
    let mut waited = 0;
    for (n, length) in (0..16u64).step_by(5).flat_map(|n| [(n, 1), (n, 1000)]) {
        let ward = ward(VdevShape::Single, 1);
        let first = ward.write(1).0;
        let from = ward.patients[0].count.load(Relaxed) + n;
        ward.patients[0].fall(Ill::Numbers(from..from + length));
        let (second, suspended) = ward.write(2);
        waited += u64::from(suspended);
        ward.patients[0].heal();
        ward.discharge(&[(1, first), (2, second)]);
    }
    assert!(waited > 0);
}

/// Goal: a device whose flushes fail, or that goes away, suspends a pool that can't do without it; when it is back everything is as it
/// should be.
#[test]
fn a_needed_device_flushes_no_more_or_goes() {
    for (shape, count, sick) in
        [(VdevShape::Single, 1, 1), (VdevShape::Mirror, 2, 2), (VdevShape::Raidz(1), 3, 2)]
    {
        for ill in [Ill::Flushes, Ill::Gone] {
            let ward = ward(shape, count);
            let first = ward.write(1).0;
            ward.patients[..sick].iter().for_each(|p| p.fall(ill.clone()));
            let (second, suspended) = ward.write(2);
            assert!(suspended, "{ill:?}");
            let third = ward.write(3).0;
            ward.discharge(&[(1, first), (2, second), (3, third)]);
        }
    }
}

/// Goal: a device that the pool can do without is faulted when it fails, and the pool goes on.
#[test]
fn a_spare_device_is_faulted() {
    for (shape, count) in [(VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3)] {
        for ill in [Ill::Flushes, Ill::Gone] {
            let ward = ward(shape, count);
            let first = ward.write(1).0;
            ward.patients[0].fall(ill);
            let (second, suspended) = ward.write(2);
            let leaf = ward.spa.tree().describe().children[0].children[0].state;
            assert_eq!((suspended, leaf), (false, VdevState::Faulted));
            ward.discharge(&[(1, first), (2, second)]);
        }
    }
}

/// Goal: while a pool is suspended operations are refused, and one that is let go then is as its last group left it.
#[test]
fn a_suspended_pool_can_be_let_go() {
    let ward = ward(VdevShape::Single, 1);
    let first = ward.write(1).0;
    ward.patients[0].fall(Ill::Gone);
    {
        let live = live(&ward.spa);
        let owned = own(live, "tank");
        write_file(live, &owned, &noise(2, 1 << 20)).unwrap();
        std::thread::scope(|s| {
            let waker = s.spawn(|| live.sync_all());
            while live.suspended() != Some(Reason::Io) {
                std::thread::yield_now();
            }
            let refused = live.run(rig::file_system("tank/a", Vec::new())).unwrap_err();
            assert!(matches!(refused, spa::engine::TaskError::Stopped(s) if s.suspended().is_some()));
            // Whoever looks at the pool is not kept waiting.
            assert!(live.read(|dsl| dsl.list_sorted(None, &dsl::ListOptions::default()).is_ok()));
            assert!(ward.spa.mos().features().is_ok());
            assert!(live.export().unwrap_err().suspended().is_some());
            live.txgs().abandon();
            assert!(waker.join().unwrap().is_err());
        });
    }
    drop((ward.spa, ward.patients));
    let spa = import(ward.dir.path()).unwrap();
    let owned = own(live(&spa), "tank");
    assert!(read_file(&owned, first, 1 << 20) == noise(1, 1 << 20));
    drop(owned);
    live(&spa).export().unwrap();
    drop(spa);
    judge(ward.dir.path(), "tank");
}
