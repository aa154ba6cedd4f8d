//! Pools on devices that fail on request.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, Fault, Faulty, Op};
use ondisk::ObjNum;
use parking_lot::Mutex;
use spa::Spa;
use spa::create::{VdevShape, claim_file};
use spa::engine::PoolWriter;
use vdev::VdevState;

use crate::{images, import, judge, new_pool_with, noise, own, read_file, write_file};

/// Size of a file in bytes.
pub const LEN: usize = 1 << 20;

/// The writer of a pool.
pub fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

/// A fault: all flushes fail.
pub fn no_flushes() -> Fault {
    Fault::Error { op: Op::Flush, range: 0..1 }
}

/// A pool, and its devices.
pub struct Ward {
    /// The directory of its images.
    pub dir: tempfile::TempDir,
    /// Its devices, in order.
    pub patients: Vec<Arc<Faulty>>,
    /// The pool.
    pub spa: Spa,
}

/// A new pool on devices that, on request, lose their unflushed writes.
pub fn ward(shape: VdevShape, count: usize) -> Ward {
    ward_of(shape, count, 1)
}

/// The same with this many I/O workers.
pub fn ward_of(shape: VdevShape, count: usize, workers: usize) -> Ward {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = images(dir.path(), count, 96 << 20);
    let patients = Mutex::new(Vec::new());
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let patient = Arc::new(Faulty::volatile(inner, 1));
        patients.lock().push(patient.clone());
        Ok((patient as Arc<dyn Device>, kind))
    };
    let spa = new_pool_with(shape, &paths, &claimer, workers);
    Ward { dir, patients: patients.into_inner(), spa }
}

impl Ward {
    /// Writes a file in the open transaction group.
    pub fn dirty(&self, seed: u64) -> ObjNum {
        let live = live(&self.spa);
        write_file(live, &own(live, "tank"), &noise(seed, LEN)).unwrap()
    }

    /// Writes a file and syncs it. Returns whether the pool was suspended meanwhile.
    ///
    /// It repairs the devices whenever the pool is suspended.
    pub fn write(&self, seed: u64) -> (ObjNum, bool) {
        let object = self.dirty(seed);
        (object, self.sync(|| self.rescue()))
    }

    /// Syncs the open transaction group, and calls `rescue` whenever the pool is suspended. Returns
    /// whether it was.
    pub fn sync(&self, rescue: impl Fn()) -> bool {
        let live = live(&self.spa);
        let mut suspended = false;
        std::thread::scope(|s| {
            let syncer = s.spawn(|| live.sync_all().unwrap());
            while !syncer.is_finished() {
                if live.suspended().is_some() {
                    suspended = true;
                    rescue();
                }
                std::thread::yield_now();
            }
        });
        suspended
    }

    /// Removes the faults of the devices, and lets the pool retry.
    pub fn rescue(&self) {
        self.patients.iter().for_each(|p| p.heal());
        live(&self.spa).clear(None).unwrap();
    }

    /// The states of the devices.
    pub fn states(&self) -> Vec<VdevState> {
        let top = &self.spa.tree().describe().children[0];
        if top.children.is_empty() { vec![top.state] } else { top.children.iter().map(|c| c.state).collect() }
    }

    /// Exports the pool, checks it with `zdb`, imports it again and compares its files.
    pub fn discharge(self, files: &[(u64, ObjNum)]) {
        live(&self.spa).export().unwrap();
        drop((self.spa, self.patients));
        judge(self.dir.path(), "tank");
        let spa = import(self.dir.path()).unwrap();
        let owned = own(live(&spa), "tank");
        for (seed, object) in files {
            assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed}");
        }
    }
}
