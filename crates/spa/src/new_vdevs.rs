//! New vdevs: their description, the claims on their devices, and the config that follows from it.

pub(crate) mod geometry;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, DeviceError, FileDevice, Mode};
use ondisk::config::{AllocBias, DraidShape, PoolState};
use ondisk::label::{LABELS, SPA_MINDEVSIZE};
use ondisk::version::{SPA_VERSION_FEATURES, SPA_VERSION_RAIDZ2, SPA_VERSION_RAIDZ3, SPA_VERSION_SLOGS};
use ondisk::{Ashift, Guid, PoolConfig, Txg, VdevConfig, VdevKind};
use vdev::label::LabelWriter;

use crate::Labels;
pub use crate::aux_devices::Claimer;
use geometry::{FILE_LOGICAL, FILE_PHYSICAL, asize, auto_ashift, leaf_asize, metaslab_shift};

/// The transaction group that creates a pool (`TXG_INITIAL`).
pub const TXG_INITIAL: Txg = Txg(4);

/// A device of a new vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLeaf {
    /// Path of the image file or block device; it is what the label records.
    pub path: PathBuf,
}

/// The kind of a new top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VdevShape {
    /// One device.
    Single,
    /// Each device holds a copy.
    Mirror,
    /// Parity, 1 to 3.
    Raidz(u64),
    /// Parity, 1 to 3, over redundancy groups of the children, with distributed spares.
    Draid(u64, DraidShape),
}

/// A new top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVdev {
    /// Its kind.
    pub shape: VdevShape,
    /// The allocation class of its space, if it is not for normal data.
    pub bias: Option<AllocBias>,
    /// Its devices, in order.
    pub leaves: Vec<NewLeaf>,
}

/// The devices of a new pool, and their layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Top-level vdevs, in order.
    pub vdevs: Vec<NewVdev>,
    /// Sector size of all vdevs as a shift, 9 to 16; otherwise each device's own (`ashift`).
    pub ashift: Option<Ashift>,
    /// Take devices even if their labels name a pool that is not exported (`-f`).
    pub force: bool,
}

/// Why a pool can't be created, or devices can't be added to one. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A device can't be opened, or another program has it open.
    #[error("cannot open '{path}'")]
    Open {
        /// Path of the device.
        path: String,
        /// The cause.
        #[source]
        source: DeviceError,
    },
    /// A device has less than 64 MiB (`EOVERFLOW`).
    #[error("'{path}' is too small: {size} bytes, {SPA_MINDEVSIZE} are needed")]
    TooSmall {
        /// Path of the device.
        path: String,
        /// Its size in bytes.
        size: u64,
    },
    /// The label of a device names a pool.
    #[error("'{path}' is part of the pool '{pool}'")]
    InUse {
        /// Path of the device.
        path: String,
        /// The pool.
        pool: String,
        /// The state of the pool by the label.
        state: PoolState,
    },
    /// A device is named twice.
    #[error("'{path}' is named twice")]
    Twice {
        /// Path of the device.
        path: String,
    },
    /// The devices can't have this layout: too few for the parity, or redundancy groups that don't
    /// fit.
    #[error("a vdev of {children} devices cannot have this shape")]
    Shape {
        /// Devices of the vdev.
        children: usize,
        /// The shape.
        shape: VdevShape,
    },
    /// The format has no such sector size, or it is less than a device's own (`EDOM`).
    #[error("the ashift {} is not possible for '{path}'", ashift.0)]
    Ashift {
        /// A device that this size does not fit.
        path: String,
        /// The requested shift.
        ashift: Ashift,
    },
    /// No vdev is for normal data (`EINVAL`).
    #[error("a pool needs a vdev that is for data")]
    NoData,
    /// Pools of this version have no such vdevs (`ENOTSUP`).
    #[error("pool must be upgraded to add these vdevs")]
    OldPool,
    /// Writing the first transaction group failed.
    #[error("the pool could not be written")]
    Write(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

/// Devices, opened and claimed, by guid.
pub(crate) type Claimed = HashMap<Guid, Arc<dyn Device>>;

/// Opens image files and block devices of the system.
///
/// # Errors
/// * [`DeviceError::Busy`]: another program, or this one, has the device open.
/// * Other errors of [`FileDevice::open`]: the path cannot be opened.
pub fn claim_file(path: &Path) -> device::Result<(Arc<dyn Device>, VdevKind)> {
    let device = FileDevice::open(path, Mode::Write)?;
    let kind = if device.is_block() { VdevKind::Disk } else { VdevKind::File };
    Ok((Arc::new(device), kind))
}

/// What new vdevs have in common.
pub(crate) struct Terms<'a> {
    /// Id of the first one.
    pub(crate) first: u64,
    /// Sector size, if the caller prescribes one.
    pub(crate) ashift: Option<Ashift>,
    /// Take devices of pools that are not imported on this machine.
    pub(crate) force: bool,
    /// The transaction group in which they are added.
    pub(crate) txg: Txg,
    /// How devices are opened.
    pub(crate) claimer: &'a Claimer<'a>,
    /// The pool's version.
    pub(crate) version: u64,
}

/// Opens and claims the devices of new vdevs, and gives their configs.
///
/// # Errors
/// See [`CreateError`], without `Write`. Nothing is changed, and nothing stays claimed.
pub(crate) fn claim(
    vdevs: &[NewVdev],
    terms: &Terms<'_>,
    random: &mut dyn FnMut() -> u64,
) -> Result<(Vec<VdevConfig>, Claimed), CreateError> {
    let mut claimed = Claimed::new();
    let mut seen = std::collections::HashSet::new();
    let mut tops = Vec::new();
    for (id, vdev) in (terms.first..).zip(vdevs) {
        check_shape(vdev)?;
        if oldest_of(vdev) > terms.version {
            return Err(CreateError::OldPool);
        }
        let mut leaves = Vec::new();
        let (mut logical, mut physical) = (512, 512);
        for (child, leaf) in (0..).zip(&vdev.leaves) {
            let path = leaf.path.display().to_string();
            let identity = crate::discovery::location::Identity::of_path(&leaf.path);
            if identity.is_some_and(|i| !seen.insert(i)) {
                return Err(CreateError::Twice { path });
            }
            let (device, kind) = open(&leaf.path, terms)?;
            let (at_least, at_best) = sectors(&*device, kind);
            (logical, physical) = (logical.max(at_least), physical.max(at_best));
            let guid = fresh(random, &claimed);
            leaves.push(leaf_config(child, guid, leaf, kind, terms.txg));
            claimed.insert(guid, device);
        }
        let ashift = match terms.ashift {
            None => auto_ashift(logical, physical),
            Some(a) if (9..=16).contains(&a.0) && 1u32 << a.0 >= logical => a,
            Some(ashift) => {
                let path = vdev.leaves[0].path.display().to_string();
                return Err(CreateError::Ashift { path, ashift });
            }
        };
        let mut top = match vdev.shape {
            VdevShape::Single => leaves.pop().expect("the shape was checked"),
            shape => interior(shape, fresh(random, &claimed), leaves, terms.txg),
        };
        let size = |v: &VdevConfig| claimed.get(&v.guid).map_or(0, |d| leaf_asize(d.size()));
        let space = asize(&top, &size);
        top.id = id;
        top.ashift = Some(ashift);
        top.asize = Some(space);
        top.metaslab_shift = Some(metaslab_shift(space));
        top.is_log = vdev.bias == Some(AllocBias::Log);
        top.alloc_bias = vdev.bias;
        tops.push(top);
    }
    Ok((tops, claimed))
}

fn fresh(random: &mut dyn FnMut() -> u64, taken: &Claimed) -> Guid {
    loop {
        let guid = Guid(random());
        if guid.0 != 0 && !taken.contains_key(&guid) {
            return guid;
        }
    }
}

fn leaf_config(id: u64, guid: Guid, leaf: &NewLeaf, kind: VdevKind, txg: Txg) -> VdevConfig {
    use std::os::unix::ffi::OsStrExt;
    let mut config = VdevConfig::new(kind, guid);
    config.id = id;
    config.path = Some(leaf.path.as_os_str().as_bytes().to_vec());
    // OpenZFS partitions whole disks itself; Poolhouse takes each device as it is.
    config.whole_disk = (kind == VdevKind::Disk).then_some(false);
    config.create_txg = Some(txg);
    config
}

fn interior(shape: VdevShape, guid: Guid, children: Vec<VdevConfig>, txg: Txg) -> VdevConfig {
    let (kind, nparity, draid) = match shape {
        VdevShape::Single | VdevShape::Mirror => (VdevKind::Mirror, None, None),
        VdevShape::Raidz(p) => (VdevKind::Raidz, Some(p), None),
        VdevShape::Draid(p, d) => (VdevKind::Draid, Some(p), Some(d)),
    };
    let mut config = VdevConfig::new(kind, guid);
    (config.nparity, config.draid) = (nparity, draid);
    config.create_txg = Some(txg);
    config.children = children;
    config
}

/// The first version of pools that may have such a vdev.
fn oldest_of(vdev: &NewVdev) -> u64 {
    let shape = match vdev.shape {
        VdevShape::Single | VdevShape::Mirror | VdevShape::Raidz(..=1) => 1,
        VdevShape::Raidz(2) => SPA_VERSION_RAIDZ2,
        VdevShape::Raidz(_) => SPA_VERSION_RAIDZ3,
        VdevShape::Draid(..) => SPA_VERSION_FEATURES,
    };
    let bias = match vdev.bias {
        None => 1,
        Some(AllocBias::Log) => SPA_VERSION_SLOGS,
        Some(AllocBias::Special | AllocBias::Dedup) => SPA_VERSION_FEATURES,
    };
    shape.max(bias)
}

fn check_shape(vdev: &NewVdev) -> Result<(), CreateError> {
    let n = vdev.leaves.len();
    let children = n as u64;
    let fits = match vdev.shape {
        VdevShape::Single => n == 1,
        VdevShape::Mirror => n >= 2,
        VdevShape::Raidz(p) => (1..=3).contains(&p) && children > p && children <= 255,
        VdevShape::Draid(p, d) => {
            let group = d.ndata + p;
            (1..=3).contains(&p)
                && d.ndata > 0
                && children <= 255
                && d.nspares <= 100
                && group + d.nspares <= children
                && d.ngroups > 0
                && (group * d.ngroups).is_multiple_of(children - d.nspares)
        }
    };
    if fits { Ok(()) } else { Err(CreateError::Shape { children: n, shape: vdev.shape }) }
}

/// Opens and claims a spare or cache device, and gives its config.
///
/// # Errors
/// * [`CreateError::Open`]: the device can't be opened or claimed.
/// * [`CreateError::TooSmall`]: it has less than 64 MiB.
/// * [`CreateError::InUse`]: its label names a pool, without force.
///
/// Nothing stays claimed then.
pub(crate) fn claim_aux(
    leaf: &NewLeaf,
    terms: &Terms<'_>,
    random: &mut dyn FnMut() -> u64,
) -> Result<(Arc<dyn Device>, VdevConfig), CreateError> {
    let (device, kind) = open(&leaf.path, terms)?;
    let mut config = leaf_config(0, fresh(random, &Claimed::new()), leaf, kind, terms.txg);
    config.ashift = Some({
        let (logical, physical) = sectors(&*device, kind);
        auto_ashift(logical, physical)
    });
    Ok((device, config))
}

/// Bytes of a device's logical and physical sectors; those of files are tunables.
fn sectors(device: &dyn Device, kind: VdevKind) -> (u32, u32) {
    let file = |tunable: &observe::Tunable| match kind {
        VdevKind::File => 1u32 << tunable.get().clamp(9, 16),
        _ => 0,
    };
    let logical = device.logical_sector().max(file(&FILE_LOGICAL));
    (logical, device.physical_sector().max(file(&FILE_PHYSICAL)))
}

/// Opens a device exclusively, if it is large enough and belongs to no pool.
fn open(file: &Path, terms: &Terms<'_>) -> Result<(Arc<dyn Device>, VdevKind), CreateError> {
    let path = || file.display().to_string();
    let (device, kind) =
        (terms.claimer)(file).map_err(|source| CreateError::Open { path: path(), source })?;
    if device.size() < SPA_MINDEVSIZE {
        return Err(CreateError::TooSmall { path: path(), size: device.size() });
    }
    if let Some(label) = Labels::read(&*device).newest() {
        // Devices of a destroyed pool are free. So are hot spares and cache devices, whose labels
        // don't name a pool. Others are taken only by force. The claim has shown that no pool of
        // this machine uses the device; another machine may, unknown to us.
        let free = matches!(label.state, PoolState::Destroyed | PoolState::Spare | PoolState::L2cache);
        if !free && !terms.force {
            let pool = label.name.clone().unwrap_or_default();
            return Err(CreateError::InUse { path: path(), pool, state: label.state });
        }
    }
    Ok((device, kind))
}

/// Bytes that stay free in the label of a new device, for what labels get later: longer paths,
/// features, states. Without space in its labels, a pool could write nothing more.
pub(crate) const LABEL_RESERVE: usize = 8 << 10;

/// Writes labels of devices that join a pool in `txg`, and empty uberblock rings
/// (`vdev_label_init`).
///
/// The labels must have `reserve` free bytes. Without them, nothing is written.
pub(crate) fn begin_labels(
    config: &PoolConfig,
    claimed: &Claimed,
    txg: Txg,
    reserve: usize,
) -> Result<(), vdev::label::LabelWriteError> {
    let label = |guid: Guid| {
        let mut label = config.to_label(guid, Txg(0)).expect("every claimed device is in the config");
        label.set("create_txg", ondisk::Value::Uint64(txg.0));
        label
    };
    for (guid, device) in claimed {
        LabelWriter::new(&**device).check(&label(*guid), reserve)?;
    }
    for (guid, device) in claimed {
        let label = label(*guid);
        let writer = LabelWriter::new(&**device);
        writer.clear_rings()?;
        (0..LABELS).try_for_each(|l| writer.config(l, &label))?;
    }
    Ok(())
}
