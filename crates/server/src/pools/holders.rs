//! The users of a busy pool or dataset, for the refusal of a change.

use crate::control::files::visits::Visits;
use crate::pools::imported::Imported;
use crate::volumes::attach::Attachments;
use api::{Caller, Error, Reason, Refusal};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long other mounts of a file system, and commands that use files without a mount, may take to
/// end by themselves.
pub(super) const PASSING: Duration = Duration::from_millis(500);

/// A file system of the pool that would stay mounted elsewhere, and its users. Unmounts nothing.
///
/// A new mount namespace has copies until its creator has unmounted them. One that ends has copies
/// until the kernel has released them. This function waits for both.
pub(super) fn kept(imported: &Arc<Imported>) -> Option<Error> {
    let mounts = imported.mounts.list();
    // A mount that a user unmounted is noticed here, and lingers or is over.
    mounts.iter().for_each(|live| _ = live.is_attached());
    let since = Instant::now();
    loop {
        let keeper = |places: &fuse::system::Places| {
            let (live, by) = mounts.iter().find_map(|live| Some((live, live.keeper(places)?)))?;
            Some(Error::new(live.name(), Reason::HeldOpen { by }))
        };
        let kept = match fuse::system::Places::read() {
            Ok(places) => keeper(&places),
            Err(error) => {
                tracing::warn!(%error, "it is not known who else has file systems mounted");
                None
            }
        };
        if kept.is_none() && imported.mounts.lingering().is_empty() {
            return None;
        }
        if since.elapsed() >= PASSING {
            return lingers(imported).or(kept);
        }
        std::thread::sleep(PASSING / 50);
    }
}

/// A lingering file system of a pool, and its users.
pub(super) fn lingers(imported: &Imported) -> Option<Error> {
    let lingering = imported.mounts.lingering();
    lingering.first().map(|live| Error::new(live.name(), Reason::HeldOpen { by: live.kept_by() }))
}

/// Adds the users of a busy dataset to the refusal of a change, if they are known. Callers who do
/// not own the daemon do not learn of them.
pub(super) fn with_user(
    caller: &Caller,
    visits: &Visits,
    attachments: &Attachments,
    imported: &Imported,
    error: Error,
) -> Error {
    if !caller.owns() || !matches!(error.reason, Reason::Busy | Reason::Refused { why: Refusal::Busy }) {
        return error;
    }
    let lingering = imported.mounts.lingering();
    let live = lingering.iter().find(|live| live.name() == error.about);
    let visitor = || {
        let object = imported.pool.dsl().dataset(&error.about).ok()?.object().0;
        let users = visits.users(imported.pool.name());
        Some(users.into_iter().find(|(dataset, _)| *dataset == object)?.1)
    };
    let by = live.map(|live| live.kept_by()).or_else(visitor);
    let by = by.or_else(|| attachments.users_of_volume(imported, &error.about));
    match by {
        Some(by) => Error::new(error.about, Reason::HeldOpen { by }),
        None => error,
    }
}
