//! The hot spares and cache devices that a pool claims, in use or not.
//!
//! # Theory
//! An imported pool claims each of its devices, also those beside its tree. So no other program can
//! make a file system on an idle spare. Pools may share a spare, and a claim excludes other claims
//! of the same process. So this process claims each such device once, and its pools share the claim
//! ([`Aside`]). Only one user at a time gets the device itself.
//!
//! # Locks
//! [`HELD`] is held to look a device up, to enter one and to hand one out. Nothing is opened under
//! it.
//!
//! # Absent
//! Pools of different daemons do not share a spare. The second daemon shows the spare as one that
//! cannot be opened.
//!
//! # See
//! OpenZFS `spa_validate_aux`, `zfs_vdev_holder`: all pools share one holder there.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use device::{Device, DeviceError, FileDevice, Layer, Mode};
use observe::lock::Mutex;
use ondisk::{Guid, VdevKind};

use crate::discovery::location::Identity;
use crate::discovery::probe;

/// Opens a device exclusively for writing, and gives its kind: disk or file. Tests pass devices
/// that they watch.
pub type Claimer<'a> = dyn Fn(&Path) -> device::Result<(Arc<dyn Device>, VdevKind)> + 'a;

/// The devices that this process has claimed.
static HELD: Mutex<BTreeMap<Identity, Weak<Aside>>> = Mutex::new(BTreeMap::new());

/// The devices beside the tree of one pool, by guid.
pub(crate) type Asides = HashMap<Guid, Arc<Aside>>;

/// A claimed device. It is in use while `device` has a second reference.
pub(crate) struct Aside {
    device: Arc<dyn Device>,
    /// The device already has the layer of [`crate::engine::World::layer`].
    layered: bool,
}

impl Aside {
    /// Hands the device out, unless it is in use.
    fn lend(&self, layer: &Layer) -> Option<Arc<dyn Device>> {
        let device = {
            let _held = HELD.lock();
            let free = Arc::strong_count(&self.device) == 1;
            free.then(|| self.device.clone())?
        };
        // Opening would read the size anew too. The file system below may hang.
        device.grow();
        Some(if self.layered { device } else { layer.around(device) })
    }
}

fn held(identity: Identity) -> Option<Arc<Aside>> {
    HELD.lock().get(&identity)?.upgrade()
}

/// Enters a claim; if there is one for the identity already, that one stays.
fn enter(identity: Identity, aside: Aside) -> Arc<Aside> {
    let mut all = HELD.lock();
    all.retain(|_, one| one.strong_count() > 0);
    if let Some(first) = all.get(&identity).and_then(Weak::upgrade) {
        return first;
    }
    let aside = Arc::new(aside);
    all.insert(identity, Arc::downgrade(&aside));
    aside
}

fn identity_of(path: &Path) -> Option<Identity> {
    probe::one(path, Identity::of_path).flatten()
}

/// Claims the device at a path, or shares the claim of this process's other pools.
///
/// # Errors
/// * [`DeviceError::Open`]: the path cannot be opened, or did not answer in time.
/// * Other errors of [`FileDevice::open`]: for example [`DeviceError::Busy`] while another program
///   has the device.
pub(crate) fn hold(path: &Path) -> device::Result<Arc<Aside>> {
    let silent =
        || DeviceError::Open { device: path.display().to_string(), source: io::ErrorKind::TimedOut.into() };
    let identity = identity_of(path).ok_or_else(silent)?;
    if let Some(aside) = held(identity) {
        return Ok(aside);
    }
    // Open it for writing if possible: a pool that shares it may be one that writes.
    let open = |path: &Path| match FileDevice::open(path, Mode::Write) {
        Err(DeviceError::Open { .. }) => FileDevice::open(path, Mode::Own),
        opened => opened,
    };
    let device = probe::one(path, open).unwrap_or_else(|| Err(silent()))?;
    Ok(enter(identity, Aside { device: Arc::new(device), layered: false }))
}

/// Enters a device that the caller has opened and claimed.
pub(crate) fn adopt(path: &Path, device: Arc<dyn Device>) -> Arc<Aside> {
    let aside = Aside { device, layered: true };
    match identity_of(path) {
        Some(identity) => enter(identity, aside),
        // Devices that a test made have no identity.
        None => Arc::new(aside),
    }
}

/// The device of this identity for one user, if this process has claimed it.
///
/// # Errors
/// * [`DeviceError::Busy`]: the device is in use.
pub(crate) fn lend(
    identity: Identity,
    path: &Path,
    layer: &Layer,
) -> Option<device::Result<Arc<dyn Device>>> {
    let busy = || DeviceError::Busy { device: path.display().to_string() };
    held(identity).map(|aside| aside.lend(layer).ok_or_else(busy))
}

/// A claimer that hands out the devices of this process, and claims the others.
pub(crate) fn lending<'a>(
    claimer: &'a Claimer<'a>,
    layer: Layer,
) -> impl Fn(&Path) -> device::Result<(Arc<dyn Device>, VdevKind)> + 'a {
    move |path| {
        let Some(identity) = identity_of(path) else { return claimer(path) };
        match lend(identity, path, &layer) {
            Some(device) => {
                let kind = match identity {
                    Identity::Block { .. } => VdevKind::Disk,
                    Identity::File { .. } => VdevKind::File,
                };
                device.map(|device| (device, kind))
            }
            None => claimer(path),
        }
    }
}
