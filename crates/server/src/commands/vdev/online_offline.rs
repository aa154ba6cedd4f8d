//! Devices taken out of use, put into use, attached and detached: from a request to the engine.

use ondisk::Guid;
use spa::create::claim_file;
use spa::engine::{AttachTerms, PoolWriter, Verdict};

use crate::commands::vdev::layout::stand_in;
use crate::pools::imported::Imported;
use crate::replies::of_life;
use api::{Error, PoolChange, Reason};

/// Makes such a change (`vdev_offline`, `vdev_fault`, `vdev_online`, `spa_vdev_attach`,
/// `spa_vdev_detach`).
///
/// # Errors
/// * [`Reason::BadRequest`]: it is another kind of change.
/// * All others: see [`of_life`].
pub(crate) fn change(imported: &Imported, live: &PoolWriter, change: &PoolChange) -> Result<(), Error> {
    let name = imported.pool.name();
    let done = match change {
        PoolChange::Offline { guid, temporary, fault: false } => {
            live.vdevs().offline(Guid(*guid), *temporary)
        }
        PoolChange::Offline { guid, temporary, fault: true } => {
            let verdict = if *temporary { Verdict::ByHandForNow } else { Verdict::ByHand };
            live.vdevs().fault(Guid(*guid), verdict)
        }
        PoolChange::Online { guid, expand } => live.vdevs().online(Guid(*guid), *expand).map(drop),
        PoolChange::Attach { guid, new, replace, sequential, force } => {
            let terms = AttachTerms {
                replace: *replace,
                sequential: *sequential,
                force: *force,
                unattended: false,
                claimer: &claim_file,
            };
            live.vdevs().attach(Guid(*guid), &stand_in(name, new)?, &terms)
        }
        PoolChange::Detach { guid } => live.vdevs().detach(Guid(*guid)),
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
    live.vdevs().fault(device, verdict).map_err(|e| Error::new(pool, of_life(&e)))
}
