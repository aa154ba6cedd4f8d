//! Pools with injected faults of their devices.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::feature::{FEATURES, Feature};
use ondisk::{Guid, ObjNum};
use spa::Spa;
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::{PoolProp, PoolWriter};
use spa::import::Options;
use vdev::inject::{self, ALWAYS, Fault, On, Target, Wrong};
use vdev::{VdevAux, VdevState};

use crate::{import_as, judge, noise, own, pool_of, read_file, write_file};

/// Size of a file in bytes.
pub const LEN: usize = 4 << 20;

/// A pool. Dropping it removes its injected faults.
pub struct Patient {
    /// The pool.
    pub spa: Spa,
    /// The directory of its images.
    pub dir: Arc<tempfile::TempDir>,
}

impl Drop for Patient {
    fn drop(&mut self) {
        inject::forget(self.spa.guid());
    }
}

/// Creates an image.
pub fn image(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    path
}

/// Moves an image to a place where no import finds it.
pub fn hide(dir: &Path, name: &str) {
    std::fs::create_dir_all(dir.join("hidden")).unwrap();
    std::fs::rename(dir.join(name), dir.join("hidden").join(name)).unwrap();
}

/// Moves a hidden image back.
pub fn unhide(dir: &Path, name: &str) {
    std::fs::rename(dir.join("hidden").join(name), dir.join(name)).unwrap();
}

/// The writer of a pool.
pub fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

/// A new pool of one vdev, on images with these names.
pub fn patient(shape: VdevShape, names: &[&str]) -> Patient {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let leaves = names.iter().map(|name| NewLeaf { path: image(dir.path(), name) }).collect();
    let spa = pool_of(vec![NewVdev { shape, bias: None, leaves }], &features);
    Patient { spa, dir }
}

impl Patient {
    /// The writer of the pool.
    pub fn live(&self) -> &PoolWriter {
        live(&self.spa)
    }

    /// The path of an image.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A new device for a vdev.
    pub fn leaf(&self, name: &str) -> NewLeaf {
        NewLeaf { path: image(self.dir.path(), name) }
    }

    /// Writes a file of bytes that follow from a seed, and waits until it is on disk.
    pub fn write(&self, seed: u64) -> (u64, ObjNum) {
        let object = write_file(self.live(), &own(self.live(), "tank"), &noise(seed, LEN)).unwrap();
        self.live().sync_all().unwrap();
        (seed, object)
    }

    /// Checks that the files have the bytes of their seeds.
    pub fn check(&self, files: &[(u64, ObjNum)]) {
        let owned = own(self.live(), "tank");
        for (seed, object) in files {
            assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed}");
        }
    }

    /// Exports the pool, checks it with `zdb`, calls `meanwhile` with its directory, and imports it
    /// again. So no part of it stays in memory.
    pub fn again(self, meanwhile: impl FnOnce(&Path)) -> Patient {
        self.live().export().unwrap();
        judge(self.dir.path(), "tank");
        let dir = Arc::clone(&self.dir);
        drop(self);
        meanwhile(dir.path());
        let spa = import_as(dir.path(), Options::default()).map_err(|e| e.to_string()).unwrap();
        Patient { spa, dir }
    }

    /// The guid of a device.
    pub fn guid(&self, name: &str) -> Guid {
        let config = self.spa.config();
        let path = self.path(name).display().to_string().into_bytes();
        let mut leaves = config.vdev_tree.as_ref().unwrap().leaves();
        leaves.find(|leaf| leaf.path.as_ref() == Some(&path)).unwrap().guid
    }

    /// The state of a device.
    pub fn state(&self, name: &str) -> (VdevState, VdevAux) {
        self.spa.tree().state_of(self.guid(name)).unwrap()
    }

    /// Makes operations of a device fail.
    pub fn ails(&self, name: &str, on: Option<On>, wrong: Wrong) {
        let target = Target::Leaf { leaf: self.guid(name), on, wrong };
        inject::add(Fault { pool: self.spa.guid(), target, often: ALWAYS }).unwrap();
    }

    /// Makes all operations of a device fail, with its probes.
    pub fn dies(&self, name: &str) {
        self.ails(name, None, Wrong::Error(5));
        self.ails(name, Some(On::Probe), Wrong::Error(5));
    }

    /// Adds a hot spare.
    pub fn spare(&self, name: &str) {
        self.live().vdevs().add_aux(&[self.leaf(name)], &[], false, &claim_file).unwrap();
    }

    /// Sets a numeric property of the pool.
    pub fn set(&self, name: &str, number: u64) {
        self.live().set(vec![PoolProp::Number(name.to_owned(), number)]).unwrap();
    }

    /// A description of the vdev tree below the root.
    pub fn shape(&self) -> String {
        fn words(v: &ondisk::VdevConfig) -> String {
            if v.kind.is_leaf() {
                let path =
                    v.path.as_deref().map(|p| String::from_utf8_lossy(p).into_owned()).unwrap_or_default();
                let old = path.strip_suffix("/old").map_or("", |_| "/old");
                return path.trim_end_matches("/old").rsplit('/').next().unwrap().to_owned() + old;
            }
            let all: Vec<String> = v.children.iter().map(words).collect();
            format!("{}({})", v.kind.name(), all.join(" "))
        }
        let config = self.spa.config();
        let tops: Vec<String> = config.vdev_tree.as_ref().unwrap().children.iter().map(words).collect();
        tops.join(" ")
    }

    /// Syncs transaction groups until a condition is true.
    pub fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        for _ in 0..100_000 {
            if so(self) {
                return;
            }
            self.live().sync_all().unwrap();
            std::thread::yield_now();
        }
        panic!("never {what}: {} {:?}", self.shape(), self.spa.tree().behind());
    }

    /// Syncs transaction groups until the vdev tree has this shape.
    pub fn until_shape(&self, shape: &str) {
        self.until(shape, |p| p.shape() == shape);
    }

    /// Waits until all devices are up to date.
    pub fn healed(&self) {
        self.until("healed", |p| {
            !p.live().scans().stat().is_some_and(|s| s.is_scanning()) && p.spa.tree().behind().is_empty()
        });
    }
}
