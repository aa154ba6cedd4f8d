//! Devices taken out of use, put into use, attached and detached: from a request to the engine.

use ondisk::Guid;
use spa::create::claim_file;
use spa::engine::{AttachTerms, LifeError, PoolWriter, ShapeError, Verdict};

use crate::commands::pool::stand_in;
use crate::commands::vdev::of_shape;
use crate::pools::Imported;
use api::{DeviceRefusal, Error, PoolChange, Reason};

/// Makes such a change (`vdev_offline`, `vdev_fault`, `vdev_online`, `spa_vdev_attach`,
/// `spa_vdev_detach`).
///
/// # Errors
/// * [`Reason::BadRequest`]: it is another kind of change.
/// * All others: see [`of_life`].
pub(crate) fn change(imported: &Imported, live: &PoolWriter, change: &PoolChange) -> Result<(), Error> {
    let name = imported.pool.name();
    let done = match change {
        PoolChange::Offline { guid, temporary, fault: false } => live.offline(Guid(*guid), *temporary),
        PoolChange::Offline { guid, temporary, fault: true } => {
            let verdict = if *temporary { Verdict::ByHandForNow } else { Verdict::ByHand };
            live.fault(Guid(*guid), verdict)
        }
        PoolChange::Online { guid, expand } => live.online(Guid(*guid), *expand).map(drop),
        PoolChange::Attach { guid, new, replace, sequential, force } => {
            let terms = AttachTerms {
                replace: *replace,
                sequential: *sequential,
                force: *force,
                unattended: false,
                claimer: &claim_file,
            };
            live.attach(Guid(*guid), &stand_in(name, new)?, &terms)
        }
        PoolChange::Detach { guid } => live.detach(Guid(*guid)),
        _ => {
            return Err(Error::new(name, Reason::BadRequest { what: "not a change of a device".to_owned() }));
        }
    };
    done.map_err(|e| Error::new(name, of_life(&e)))
}

/// Marks a device as faulted or degraded (`vdev_fault`, `vdev_degrade`).
///
/// # Errors
/// See [`of_life`].
pub(crate) fn judge(pool: &str, live: &PoolWriter, device: Guid, verdict: Verdict) -> Result<(), Error> {
    live.fault(device, verdict).map_err(|e| Error::new(pool, of_life(&e)))
}

/// Why a device was not changed.
///
/// Most failures become [`Reason::Device`] with the [`DeviceRefusal`] of the same name. Those of
/// the vdev tree become what [`of_shape`] gives for them.
pub(crate) fn of_life(error: &LifeError) -> Reason {
    let device = |why| Reason::Device { why };
    match error {
        LifeError::Shape(ShapeError::Devices(e)) => match crate::commands::pool::of_create(e) {
            // Another pool or process uses the device.
            Reason::DeviceTwice => device(DeviceRefusal::InUse),
            Reason::DeviceTooSmall => device(DeviceRefusal::TooSmall),
            reason => reason,
        },
        LifeError::Shape(e) => of_shape(e),
        LifeError::NotLeaf { .. } => device(DeviceRefusal::NotLeaf),
        LifeError::NoReplicas { .. } => device(DeviceRefusal::NoReplicas),
        LifeError::SplitOff { .. } => device(DeviceRefusal::SplitOff),
        LifeError::Target { .. } => device(DeviceRefusal::Target),
        LifeError::TooSmall { .. } => device(DeviceRefusal::TooSmall),
        LifeError::Ashift { .. } => device(DeviceRefusal::Ashift),
        LifeError::InUse => device(DeviceRefusal::InUse),
        LifeError::OnlySpare { .. } => device(DeviceRefusal::OnlySpare),
        LifeError::NotMirror { .. } => device(DeviceRefusal::NotMirror),
        LifeError::Resilvering => device(DeviceRefusal::Resilvering),
        LifeError::Rebuilding => device(DeviceRefusal::Rebuilding),
        LifeError::NotSequential { .. } => device(DeviceRefusal::NotSequential),
        LifeError::RebuildDisabled => device(DeviceRefusal::RebuildDisabled),
    }
}
