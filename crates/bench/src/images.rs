//! New pools on sparse images.

use anyhow::{Context, Result};
use poolhouse::device::{Device, Slow, SystemClock};
use poolhouse::ondisk::feature::{FEATURES, Feature};
use poolhouse::ondisk::{Ashift, VdevKind};
use poolhouse::spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use poolhouse::spa::import::Resources;
use poolhouse::spa::{Host, Spa};
use poolhouse::zpl::NewFileSystem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of a pool on images.
pub(crate) const POOL: &str = "bench";
/// How many operations a slow device executes at once.
const SLOW_IN_FLIGHT: u32 = 64;

/// Sparse image files. Dropping this removes them.
pub(crate) struct Images(Vec<PathBuf>);

/// The shape of a pool on images.
pub(crate) struct Geometry {
    /// The sector size; `None` takes that of the devices.
    pub(crate) ashift: Option<Ashift>,
    /// Size of the cache in bytes.
    pub(crate) cache_bytes: u64,
    /// The minimum time of each operation of a device.
    pub(crate) delay: Duration,
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry { ashift: None, cache_bytes: 256 << 20, delay: Duration::ZERO }
    }
}

impl Images {
    /// Creates `count` files of `bytes` bytes each in the directory `dir`.
    pub(crate) fn new(dir: &Path, name: &str, count: usize, bytes: u64) -> Result<Images> {
        let images = Images::there(dir, name, count);
        images.create(bytes)?;
        Ok(images)
    }

    /// Creates the files, of `bytes` bytes each.
    pub(crate) fn create(&self, bytes: u64) -> Result<()> {
        for path in &self.0 {
            std::fs::File::create_new(path)
                .and_then(|file| file.set_len(bytes))
                .with_context(|| format!("make {}", path.display()))?;
        }
        Ok(())
    }

    /// Files that exist already, or that [`Images::create`] will create.
    pub(crate) fn there(dir: &Path, name: &str, count: usize) -> Images {
        Images((0..count).map(|i| dir.join(format!("{name}-{i}.img"))).collect())
    }

    /// Keeps the files after this is dropped.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Writes zeros to all files, so that the host file system allocates their space now. Later
    /// writes then change only data.
    pub(crate) fn prefill(&self) -> Result<()> {
        for path in &self.0 {
            let mut file = std::fs::File::options().write(true).open(path)?;
            let mut left = file.metadata()?.len();
            let piece = vec![0; 1 << 20];
            while left > 0 {
                let n = left.min(piece.len() as u64);
                std::io::Write::write_all(&mut file, &piece[..usize::try_from(n)?])?;
                left -= n;
            }
            file.sync_all()?;
        }
        Ok(())
    }

    /// Creates a pool on all files: a raidz2 if there are several.
    pub(crate) fn pool(&self, geometry: &Geometry) -> Result<Spa> {
        let leaves = self.0.iter().map(|path| NewLeaf { path: path.clone() }).collect();
        let shape = if self.0.len() > 1 { VdevShape::Raidz(2) } else { VdevShape::Single };
        let vdevs = vec![NewVdev { shape, bias: None, leaves }];
        let new = NewPool { name: POOL.into(), vdevs, ashift: geometry.ashift, force: false };
        let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
        let contents = NewFileSystem::new((1_700_000_000, 0));
        let begin = Beginning {
            features: &features,
            contents: &contents,
            props: &Vec::new(),
            crypt: None,
            temporary_name: None,
            version: 5000,
        };
        let Resources { workers, world } = Resources::of_system(POOL);
        let host = Host::of_system();
        let cache = geometry.cache_bytes.into();
        let delay_ns = u64::try_from(geometry.delay.as_nanos())?;
        let claimer = |path: &Path| -> poolhouse::device::Result<(Arc<dyn Device>, VdevKind)> {
            let (device, kind) = claim_file(path)?;
            Ok(match delay_ns {
                0 => (device, kind),
                ns => {
                    (Arc::new(Slow::new(device, Arc::new(SystemClock::default()), ns, SLOW_IN_FLIGHT)), kind)
                }
            })
        };
        let setting = Setting { host: &host, world, claimer: &claimer, workers, cache, altroot: None };
        Ok(create(&new, &begin, &setting)?)
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        for path in &self.0 {
            // Best effort: the next run creates its images again, or reports that it can't.
            let _ = std::fs::remove_file(path);
        }
    }
}
