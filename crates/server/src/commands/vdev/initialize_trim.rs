//! Initialization and TRIM of devices, and pruning of dedup tables: from a request to the engine.

use ondisk::Guid;
use rustix::io::Errno;
use spa::engine::{PoolWriter, Prune, ShapeError, WorkCommand, WorkKind, WorkRefusal};

use crate::pools::imported::Imported;
use crate::replies::{of_shape, of_work};
use api::{self, Error, PoolChange, Reason};

/// Starts or stops the work on all devices that don't refuse it (`spa_vdev_initialize`,
/// `spa_vdev_trim`).
///
/// # Errors
/// * [`Reason::Several`]: devices refused. Each error is a [`Reason::System`] about a guid.
/// * [`Reason::Suspended`]: the pool accepts no writes.
/// * [`Reason::BadRequest`]: the change is another one, or undoes a TRIM.
pub(crate) fn work(imported: &Imported, live: &PoolWriter, change: &PoolChange) -> Result<(), Error> {
    let name = imported.pool.name();
    let PoolChange::Work { kind, command, devices, rate, secure } = change else {
        return Err(Error::new(name, Reason::BadRequest { what: "no work of devices".to_owned() }));
    };
    let kind = match kind {
        api::WorkKind::Initialize => WorkKind::Initialize,
        api::WorkKind::Trim => WorkKind::Trim,
    };
    let command = match command {
        api::WorkCommand::Start => WorkCommand::Start { rate: *rate, secure: *secure },
        api::WorkCommand::Cancel => WorkCommand::Cancel,
        api::WorkCommand::Suspend => WorkCommand::Suspend,
        api::WorkCommand::Undo if kind == WorkKind::Initialize => WorkCommand::Undo,
        api::WorkCommand::Undo => {
            return Err(Error::new(name, Reason::BadRequest { what: "TRIM can't be undone".to_owned() }));
        }
    };
    let guids: Vec<Guid> = devices.iter().copied().map(Guid).collect();
    let refused = live
        .initialize_trim()
        .work(&guids, kind, command)
        .map_err(|_| Error::new(name, Reason::Suspended))?;
    let error = |(at, why): (usize, WorkRefusal)| Error::new(devices[at].to_string(), of_work(why));
    let errors: Vec<Error> = refused.into_iter().map(error).collect();
    if errors.is_empty() { Ok(()) } else { Err(Error::new(name, Reason::Several { errors })) }
}

/// Removes entries from the dedup tables (`ddt_prune_unique_entries`).
///
/// # Errors
/// * [`Reason::BadRequest`]: not exactly one amount is given, or it is not a percentage.
/// * [`Reason::System`] (`ENOTSUP`): the feature `fast_dedup` is not enabled.
/// * All others: see [`of_shape`].
pub(crate) fn prune(
    name: &str,
    live: &PoolWriter,
    older: Option<u64>,
    percent: Option<u64>,
) -> Result<(), Error> {
    let what = match (older, percent) {
        (Some(seconds), None) => Prune::Older(seconds),
        (None, Some(percent @ 1..=100)) => Prune::Percent(percent),
        _ => return Err(Error::new(name, Reason::BadRequest { what: "how much is pruned".to_owned() })),
    };
    let done = live.prune_ddt(what).map_err(|e| match e {
        ShapeError::Unsupported { .. } => Reason::System { errno: Errno::NOTSUP.raw_os_error() },
        e => of_shape(&e),
    });
    done.map(drop).map_err(|reason| Error::new(name, reason))
}
