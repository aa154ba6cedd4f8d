//! Opens pools by their labels alone, and parses numbers as the tools print them.
#![allow(dead_code, clippy::unwrap_used)]

use arc::Cache;
use device::{Device, FileDevice, Mode};
use dmu::Objset;
use ondisk::config::{PoolConfig, VdevConfig, VdevKind};
use ondisk::label::{LABELS, uberblock_shift};
use ondisk::{Ashift, Blkptr, Guid, Psize, Txg, Uberblock, VdevId};
use pool::Mos;
use pool::metaslab::TopVdev;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use vdev::label::Labels;
use vdev::{Tree, VdevAux};
use zio::{ReadOptions, Zio};

/// An open pool.
pub struct Opened {
    pub mos: Mos,
    pub config: PoolConfig,
    pub cache: Arc<Cache>,
    /// Last synced transaction group.
    pub txg: u64,
    /// The newest uberblock.
    pub newest: Uberblock,
    /// The largest sector shift, which is that of the uberblock ring.
    pub ashift: Ashift,
}

/// Opens an undamaged pool.
pub fn open(images: &[PathBuf]) -> Opened {
    try_open(images).unwrap()
}

/// Opens a pool whose MOS may be damaged. Each label describes its own top-level vdev.
pub fn try_open(images: &[PathBuf]) -> Result<Opened, Box<dyn std::error::Error>> {
    open_in(images, Mode::Peek)
}

/// As `try_open`, with an open mode.
pub fn open_in(images: &[PathBuf], mode: Mode) -> Result<Opened, Box<dyn std::error::Error>> {
    open_through(images, mode, &|device| device)
}

/// As `open_in`, with a wrapper around each device.
pub fn open_through(
    images: &[PathBuf],
    mode: Mode,
    wrap: &dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>,
) -> Result<Opened, Box<dyn std::error::Error>> {
    let mut devices: BTreeMap<Guid, Arc<dyn Device>> = BTreeMap::new();
    let mut tops: BTreeMap<u64, VdevConfig> = BTreeMap::new();
    for path in images {
        let device = wrap(Arc::new(FileDevice::open(path, mode).unwrap()));
        let Ok((_, nv)) = Labels::new(&*device).best_config(Txg(u64::MAX)) else { continue };
        let config = PoolConfig::from_nvlist(&nv).unwrap();
        devices.insert(config.guid.unwrap(), device);
        if let Some(top) = config.vdev_tree {
            tops.insert(top.id, top);
        }
    }
    let children = (0..=*tops.keys().last().unwrap())
        .map(|id| tops.remove(&id).unwrap_or(VdevConfig { id, ..VdevConfig::new(VdevKind::Hole, Guid(0)) }))
        .collect();
    let root = VdevConfig { children, ..VdevConfig::new(VdevKind::Root, Guid(1)) };
    let tree =
        Tree::open(&root, &mut |leaf| devices.get(&leaf.guid).cloned().ok_or(VdevAux::OpenFailed)).unwrap();
    let ashift = Ashift(tree.describe().children.iter().map(|c| c.ashift).max().unwrap());
    let newest = devices
        .values()
        .flat_map(|device| {
            let labels = Labels::new(&**device);
            (0..LABELS)
                .flat_map(|l| labels.uberblocks(l, uberblock_shift(ashift)).unwrap())
                .collect::<Vec<_>>()
        })
        .map(|(_, u)| u)
        .max_by(Uberblock::newer)
        .unwrap();
    let cache = Arc::new(Cache::new(Zio::new(Arc::new(tree)), 64 << 20));
    let os = Objset::open(cache.clone(), 0, &Blkptr::decode(&newest.rootbp)?, ReadOptions::demand())?;
    let mos = Mos::open(os)?;
    if let Some(salt) = mos.dir_bytes(ondisk::mos::CHECKSUM_SALT)?
        && let Ok(salt) = salt.try_into()
    {
        cache.zio().set_salt(&salt);
    }
    let config = PoolConfig::from_nvlist(&mos.config()?)?;
    Ok(Opened { mos, config, cache, txg: newest.txg.0, newest, ashift })
}

impl Opened {
    /// The pool's top-level vdevs with metaslabs.
    pub fn vdevs(&self) -> Vec<TopVdev> {
        self.try_vdevs().unwrap()
    }

    /// As `vdevs`, for a pool that may be damaged.
    pub fn try_vdevs(&self) -> pool::Result<Vec<TopVdev>> {
        let tree = self.cache.zio().tree();
        let tops = self.config.vdev_tree.iter().flat_map(|t| &t.children);
        let all = tops.map(|v| {
            let asize = tree.psize_to_asize(VdevId(v.id as u32), Psize(1 << 17), Txg(0));
            TopVdev::from_config(&self.mos, v, asize.map_or(1 << 17, |a| a.0))
        });
        all.filter_map(Result::transpose).collect()
    }

    /// Returns a function from an allocation to its deflated size.
    pub fn dsize(vdevs: &[TopVdev]) -> impl Fn(&ondisk::Dva) -> u64 {
        |d| vdevs.iter().find(|v| v.id == d.vdev).map_or(0, |v| v.deflate(d.asize.0))
    }
}

/// The range of numbers that a rounded number in zdb's output stands for.
pub fn nice_range(text: &str) -> (f64, f64) {
    let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let scale = match text.chars().last() {
        Some('K') => 1024f64,
        Some('M') => 1024f64.powi(2),
        Some('G') => 1024f64.powi(3),
        Some('T') => 1024f64.powi(4),
        _ => 1.0,
    };
    let value: f64 = digits.parse().unwrap();
    let places = digits.split('.').nth(1).map_or(0, str::len) as i32;
    let half = 0.5 * 10f64.powi(-places);
    ((value - half) * scale - 1.0, (value + half) * scale + 1.0)
}
