//! What a new pool shall be, and the config that follows from it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, DeviceError, FileDevice, Mode};
use ondisk::config::{AllocBias, DraidShape, PoolState};
use ondisk::label::SPA_MINDEVSIZE;
use ondisk::version::{SPA_VERSION_FEATURES, SPA_VERSION_RAIDZ2, SPA_VERSION_RAIDZ3, SPA_VERSION_SLOGS};
use ondisk::{Ashift, Guid, Txg, VdevConfig, VdevKind};

use crate::Labels;
use crate::create::geometry::{FILE_LOGICAL, FILE_PHYSICAL, asize, auto_ashift, leaf_asize, metaslab_shift};

/// A device of a new vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLeaf {
    /// Path of the image file or block device; it is what the label records.
    pub path: PathBuf,
}

/// What holds a new top-level vdev together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VdevShape {
    /// One device.
    Single,
    /// Copies on all.
    Mirror,
    /// Parity, 1 to 3.
    Raidz(u64),
    /// Parity, 1 to 3, over groups of the children, with distributed spares.
    Draid(u64, DraidShape),
}

/// A new top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVdev {
    /// What holds it together.
    pub shape: VdevShape,
    /// What its space is for, if not for everything.
    pub bias: Option<AllocBias>,
    /// Its devices, in order.
    pub leaves: Vec<NewLeaf>,
}

/// The devices of a pool to be made, and how they are laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Top-level vdevs, in order.
    pub vdevs: Vec<NewVdev>,
    /// Sector size of all vdevs as a shift, 9 to 16; otherwise each device's own (`ashift`).
    pub ashift: Option<Ashift>,
    /// Take devices although they seem to belong to a pool that is not exported (`-f`).
    pub force: bool,
}

/// Why a pool can't be made, or devices can't be added to one. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A device can't be opened, or somebody holds it.
    #[error("cannot open '{path}'")]
    Open {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: DeviceError,
    },
    /// A device has less than 64 MiB (`EOVERFLOW`).
    #[error("'{path}' is too small: {size} bytes, {SPA_MINDEVSIZE} are needed")]
    TooSmall {
        /// Which.
        path: String,
        /// Its size in bytes.
        size: u64,
    },
    /// A device belongs to a pool, as its label says.
    #[error("'{path}' is part of the pool '{pool}'")]
    InUse {
        /// Which.
        path: String,
        /// The pool.
        pool: String,
        /// What state the pool was left in.
        state: PoolState,
    },
    /// A device is named twice.
    #[error("'{path}' is named twice")]
    Twice {
        /// Which.
        path: String,
    },
    /// The devices can't be laid out so: too few for the parity, a draid whose groups don't fit.
    #[error("a vdev of {children} devices cannot have this shape")]
    Shape {
        /// Devices of the vdev.
        children: usize,
        /// The shape.
        shape: VdevShape,
    },
    /// The sector size is not one of those that the format has, or less than a device's own (`EDOM`).
    #[error("the ashift {} is not possible for '{path}'", ashift.0)]
    Ashift {
        /// A device that it does not go with.
        path: String,
        /// The shift asked for.
        ashift: Ashift,
    },
    /// There is no vdev that data could be allocated from (`EINVAL`).
    #[error("a pool needs a vdev that is for data")]
    NoData,
    /// Pools of its version know no such vdevs (`ENOTSUP`).
    #[error("pool must be upgraded to add these vdevs")]
    OldPool,
    /// Writing the first group failed.
    #[error("the pool could not be written")]
    Write(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

/// Devices, opened and claimed, by guid.
pub(crate) type Claimed = HashMap<Guid, Arc<dyn Device>>;

/// Opens a device to own and write it, and says whether it is a disk or a file; tests hand in devices that they watch.
pub type Claimer<'a> = dyn Fn(&Path) -> device::Result<(Arc<dyn Device>, VdevKind)> + 'a;

/// Opens image files and block devices of the system.
///
/// # Errors
/// As [`FileDevice::open`].
pub fn claim_file(path: &Path) -> device::Result<(Arc<dyn Device>, VdevKind)> {
    let device = FileDevice::open(path, Mode::Write)?;
    let kind = if device.is_block() { VdevKind::Disk } else { VdevKind::File };
    Ok((Arc::new(device), kind))
}

/// What new vdevs have in common.
pub(crate) struct Terms<'a> {
    /// Number of the first one.
    pub(crate) first: u64,
    /// Sector size, if it is prescribed.
    pub(crate) ashift: Option<Ashift>,
    /// Take what belongs to a pool that nobody uses now.
    pub(crate) force: bool,
    /// The group in which they are added.
    pub(crate) txg: Txg,
    /// How devices are opened.
    pub(crate) claimer: &'a Claimer<'a>,
    /// The pool's version.
    pub(crate) version: u64,
}

/// Opens and claims the devices of new vdevs, and says what they will be.
///
/// # Errors
/// As [`CreateError`] says; nothing is changed, and nothing stays claimed.
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
    // Only OpenZFS partitions disks for itself; what we are given we take as it is.
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

/// Opens a device that shall be beside the tree, and says what it will be.
///
/// # Errors
/// As [`claim`].
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

/// Bytes of the sectors that a device needs, and of those that it likes best; of files, as tunables have it.
fn sectors(device: &dyn Device, kind: VdevKind) -> (u32, u32) {
    let file = |tunable: &observe::Tunable| match kind {
        VdevKind::File => 1u32 << tunable.get().clamp(9, 16),
        _ => 0,
    };
    let logical = device.logical_sector().max(file(&FILE_LOGICAL));
    (logical, device.physical_sector().max(file(&FILE_PHYSICAL)))
}

/// Opens a device for itself alone, if it is large enough and nobody's.
fn open(file: &Path, terms: &Terms<'_>) -> Result<(Arc<dyn Device>, VdevKind), CreateError> {
    let path = || file.display().to_string();
    let (device, kind) =
        (terms.claimer)(file).map_err(|source| CreateError::Open { path: path(), source })?;
    if device.size() < SPA_MINDEVSIZE {
        return Err(CreateError::TooSmall { path: path(), size: device.size() });
    }
    if let Some(label) = Labels::read(&*device).newest() {
        // Devices of a destroyed pool are free, and so are hot spares and cache devices, which don't know whose they are; others only
        // by force. That the owner is not at work on this machine, the claim has shown; on another one, nobody can know.
        let free = matches!(label.state, PoolState::Destroyed | PoolState::Spare | PoolState::L2cache);
        if !free && !terms.force {
            let pool = label.name.clone().unwrap_or_default();
            return Err(CreateError::InUse { path: path(), pool, state: label.state });
        }
    }
    Ok((device, kind))
}
