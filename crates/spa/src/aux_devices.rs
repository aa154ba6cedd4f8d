//! Hot spares and cache devices that a pool holds, whether it makes use of them or not.
//!
//! # Theory
//! Every device of an imported pool is claimed, also beside its tree: nobody else may make a file
//! system on a spare that waits. Pools may share a spare, and a claim excludes its own process too.
//! So this process claims each such device once, and its pools share the hold ([`Aside`]). The
//! device itself is handed out to one user at a time.
//!
//! # Locks
//! [`HELD`] is held to look a device up, to enter one and to hand one out. Nothing is opened under
//! it.
//!
//! # Absent
//! Pools of different daemons do not share a spare: the one that comes second shows it as one that
//! cannot be opened.
//!
//! # See
//! OpenZFS `spa_validate_aux`, `spa_open_aux`, whose holder all pools have in common.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use device::{Device, DeviceError, FileDevice, Layer, Mode};
use ondisk::{Guid, VdevKind};
use parking_lot::Mutex;

use crate::create::Claimer;
use crate::discovery::location::Identity;
use crate::discovery::probe;

/// What this process holds.
static HELD: Mutex<BTreeMap<Identity, Weak<Aside>>> = Mutex::new(BTreeMap::new());

/// The devices beside the tree of one pool, by guid.
pub(crate) type Asides = HashMap<Guid, Arc<Aside>>;

/// A device that is held. It is in use while anybody has it besides.
pub(crate) struct Aside {
    device: Arc<dyn Device>,
    /// It has its layer already.
    layered: bool,
}

impl Aside {
    /// Hands the device out, if nobody uses it.
    fn lend(&self, layer: &Layer) -> Option<Arc<dyn Device>> {
        let device = {
            let _held = HELD.lock();
            let free = Arc::strong_count(&self.device) == 1;
            free.then(|| self.device.clone())?
        };
        // As it would be opened now. Its file system may not answer.
        device.grow();
        Some(if self.layered { device } else { layer.around(device) })
    }
}

fn held(identity: Identity) -> Option<Arc<Aside>> {
    HELD.lock().get(&identity)?.upgrade()
}

/// Enters a hold; of two the first counts.
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

/// Holds what is at a path, with the other pools of this process that do.
///
/// # Errors
/// As [`FileDevice::open`].
pub(crate) fn hold(path: &Path) -> device::Result<Arc<Aside>> {
    let silent =
        || DeviceError::Open { device: path.display().to_string(), source: io::ErrorKind::TimedOut.into() };
    let identity = identity_of(path).ok_or_else(silent)?;
    if let Some(aside) = held(identity) {
        return Ok(aside);
    }
    // As much as is allowed: a pool that shares it may be one that writes.
    let open = |path: &Path| match FileDevice::open(path, Mode::Write) {
        Err(DeviceError::Open { .. }) => FileDevice::open(path, Mode::Own),
        opened => opened,
    };
    let device = probe::one(path, open).unwrap_or_else(|| Err(silent()))?;
    Ok(enter(identity, Aside { device: Arc::new(device), layered: false }))
}

/// Holds a device that is open, and was claimed.
pub(crate) fn adopt(path: &Path, device: Arc<dyn Device>) -> Arc<Aside> {
    let aside = Aside { device, layered: true };
    match identity_of(path) {
        Some(identity) => enter(identity, aside),
        // One that a test has made.
        None => Arc::new(aside),
    }
}

/// The device of this identity for one user, if this process holds it.
///
/// # Errors
/// [`DeviceError::Busy`] while somebody uses it.
pub(crate) fn lend(
    identity: Identity,
    path: &Path,
    layer: &Layer,
) -> Option<device::Result<Arc<dyn Device>>> {
    let busy = || DeviceError::Busy { device: path.display().to_string() };
    held(identity).map(|aside| aside.lend(layer).ok_or_else(busy))
}

/// A claimer that hands out what this process holds, and claims the rest.
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
