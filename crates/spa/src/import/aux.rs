//! Hot spares and cache devices of an imported pool.

use device::{Layer, Mode};
use ondisk::config::PoolState;
use ondisk::{Nvlist, Txg, VdevConfig, VdevKind, mos};
use pool::Mos;
use vdev::{VdevAux, VdevState};

use crate::aux_devices;
use crate::aux_devices::Asides;
use crate::discovery;
use crate::discovery::Member;
use crate::discovery::location::Openings;
use crate::discovery::probe;
use crate::import::devices::Devices;
use crate::{DeviceLocation, Labels, SpaError};

/// A hot spare or cache device of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct AuxVdev {
    /// Its state: healthy, not openable, or, for a cache device, offline. The tree shows whether a
    /// spare is in use.
    pub config: VdevConfig,
    /// Where it was found.
    pub place: Option<DeviceLocation>,
    /// Its state: healthy, not openable, or, of a cache device, offline. That a spare is in use
    /// shows in the tree.
    pub state: VdevState,
    /// Why it is in this state.
    pub aux: VdevAux,
}

/// The auxiliary devices that the MOS lists under `name`, an entry of its directory and of the list
/// there.
pub(super) fn load(mos: &Mos, name: &'static str, found: &[Member]) -> Result<Vec<AuxVdev>, SpaError> {
    let what = if name == mos::SPARES { "hot spares" } else { "cache devices" };
    let nv = mos.named_nvlist(name).map_err(|source| SpaError::Mos { what, source })?;
    let lists = nv.as_ref().and_then(|nv| nv.lists(name)).unwrap_or(&[]);
    lists.iter().map(|list| one(list, what, found)).collect()
}

fn one(list: &Nvlist, what: &'static str, found: &[Member]) -> Result<AuxVdev, SpaError> {
    let mut config = VdevConfig::from_nvlist(list).map_err(|source| SpaError::Corrupt { what, source })?;
    if config.kind == VdevKind::DraidSpare {
        // A distributed spare has no device of its own: it is space on the others.
        return Ok(AuxVdev { config, place: None, state: VdevState::Healthy, aux: VdevAux::None });
    }
    let mut member = found.iter().find(|m| m.guid() == config.guid).cloned();
    if member.is_none() {
        // The search may not have covered all of the pool's devices.
        let recorded = config.path.as_deref().map(path_of).filter(|p| p.is_absolute());
        let there =
            recorded.and_then(|p| probe::one(p, |p| discovery::probe(p, usize::MAX))).unwrap_or_default();
        member = there.into_iter().find(|m| m.guid() == config.guid);
        if member.is_none() {
            // The power may have failed while the spare stepped in. Such labels count for nothing
            // else.
            let begun = recorded.and_then(|p| probe::one(p, discovery::probe_void)).unwrap_or_default();
            member = begun.into_iter().find(|m| m.guid() == config.guid);
        }
    }
    let place = member.map(|m| m.place);
    if let Some(place) = &place {
        config.path = Some(place.to_string().into_bytes());
    }
    let (state, aux) = match &place {
        // It was taken offline, whether its device is present or not.
        _ if config.offline => (VdevState::Offline, VdevAux::None),
        None => (VdevState::CantOpen, VdevAux::OpenFailed),
        Some(place) => look(place, &config),
    };
    Ok(AuxVdev { config, place, state, aux })
}

/// The state of the auxiliary device at a place, if it answers.
pub(crate) fn look(place: &DeviceLocation, config: &VdevConfig) -> (VdevState, VdevAux) {
    let (at, own) = (place.clone(), config.clone());
    let checked = probe::one(&place.path, move |_| check(&at, &own));
    checked.unwrap_or((VdevState::CantOpen, VdevAux::OpenFailed))
}

/// Claims those that are present. One that another program has in use shows as one that cannot be
/// opened.
pub(super) fn hold<'a>(all: impl Iterator<Item = &'a mut AuxVdev>, devices: &Devices) -> Asides {
    let mut asides = Asides::new();
    for one in all.filter(|one| one.state == VdevState::Healthy) {
        let Some(place) = &one.place else { continue };
        let held = match devices.opened(place) {
            // A spare that is in use, or seems so by its labels; or another part of the same disk.
            Some(device) => Ok(aux_devices::adopt(&place.path, device)),
            None => aux_devices::hold(&place.path),
        };
        match held {
            Ok(held) => {
                asides.insert(one.config.guid, held);
            }
            Err(_) => (one.state, one.aux) = (VdevState::CantOpen, VdevAux::OpenFailed),
        }
    }
    asides
}

fn path_of(raw: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt;
    std::path::Path::new(std::ffi::OsStr::from_bytes(raw))
}

/// The state of the auxiliary device at a place, by its label (`vdev_validate_aux`).
fn check(place: &DeviceLocation, config: &VdevConfig) -> (VdevState, VdevAux) {
    let Ok(device) = Openings::new(Mode::Peek, Layer::default()).open(place) else {
        return (VdevState::CantOpen, VdevAux::OpenFailed);
    };
    let labels = Labels::read(&*device);
    // A spare in use has a label of the pool.
    let known = labels.best(Txg(u64::MAX)).is_some_and(|l| {
        l.guid == Some(config.guid)
            && matches!(
                l.state,
                PoolState::Spare | PoolState::L2cache | PoolState::Active | PoolState::Exported
            )
    });
    if known { (VdevState::Healthy, VdevAux::None) } else { (VdevState::CantOpen, VdevAux::CorruptData) }
}
