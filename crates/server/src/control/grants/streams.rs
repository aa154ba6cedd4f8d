//! What other users may send and receive.
//!
//! # See
//! OpenZFS `zfs_secpolicy_send_new`, `zfs_secpolicy_recv`, and `zfs_check_settable` for the
//! properties that come with a stream.

use api::{Caller, Error, Reason, ReceiveRequest, SendRequest};
use dsl::Dsl;

use super::{At, above, check, head_of, here, permission_to_set};
use crate::pools::table::PoolTable;

/// Checks whether the caller may send this.
///
/// # Errors
/// See [`authorize`](super::authorize).
pub(crate) fn may_send(pools: &PoolTable, caller: &Caller, request: &SendRequest) -> Result<(), Error> {
    let or_raw = request.raw.then_some("send:raw");
    either(pools, caller, &request.dataset, "send", or_raw)
}

/// Checks whether the caller may receive this. The permissions are those on the dataset, or on the
/// one above if it is new.
///
/// Stricter than OpenZFS: to read the origin of a clone needs the permission `clone` there, and
/// only owners correct snapshots. A weak checksum would let others choose the bytes of a damaged
/// block, which other datasets may share.
///
/// `is_new` says whether it is new, if that is known.
///
/// # Errors
/// See [`authorize`](super::authorize).
pub(crate) fn may_receive(
    pools: &PoolTable,
    caller: &Caller,
    request: &ReceiveRequest,
    is_new: Option<bool>,
) -> Result<(), Error> {
    if caller.owns() {
        return Ok(());
    }
    if request.corrective {
        return Err(Error::new(&request.target, Reason::Permission));
    }
    if let Some(origin) = &request.origin {
        check(pools, caller, &[here(origin, "clone")])?;
    }
    let head = head_of(&request.target);
    let imported = pools.pool_of(head)?;
    let is_new = match is_new {
        Some(is_new) => is_new,
        None => !imported.pool.spa().read(|| exists(imported.pool.dsl(), head))?,
    };
    let at = if is_new { above(head) } else { head };
    either(pools, caller, at, "receive", (!request.force).then_some("receive:append"))?;
    // Commands add `encryption=off` themselves, which is no change below a plain dataset.
    let below_plain = || {
        let above = |dsl: &Dsl| dsl.dataset(above(head))?.dir().encryption_root();
        imported.pool.spa().read(|| above(imported.pool.dsl())).is_ok_and(|root| root.is_none())
    };
    let of_user =
        |(name, value): &&(String, String)| name != "encryption" || value != "off" || !below_plain();
    for (name, _) in request.encryption.iter().filter(of_user) {
        may_set(pools, caller, (head, is_new), name)?;
    }
    check(pools, caller, &[here(at, "mount"), here(at, "create")])
}

/// Checks whether the caller may receive into a dataset without force.
///
/// # Errors
/// See [`authorize`](super::authorize).
pub(super) fn may_append(pools: &PoolTable, caller: &Caller, head: &str) -> Result<(), Error> {
    either(pools, caller, head, "receive", Some("receive:append"))
}

/// Checks whether the caller may set a property of a dataset that is received. `is_new` says
/// whether that does not exist yet.
///
/// # Errors
/// See [`authorize`](super::authorize).
pub(crate) fn may_set(
    pools: &PoolTable,
    caller: &Caller,
    (head, is_new): (&str, bool),
    property: &str,
) -> Result<(), Error> {
    if caller.owns() {
        return Ok(());
    }
    let at = if is_new { At::Below(above(head)) } else { At::Here(head) };
    check(pools, caller, &[(at, permission_to_set(property))])
}

/// Checks for one of two permissions.
fn either(
    pools: &PoolTable,
    caller: &Caller,
    at: &str,
    permission: &str,
    or: Option<&str>,
) -> Result<(), Error> {
    if caller.owns() {
        return Ok(());
    }
    match (check(pools, caller, &[here(at, permission)]), or) {
        (Err(error), Some(or)) if matches!(error.reason, Reason::Permission) => {
            check(pools, caller, &[here(at, or)])
        }
        (done, _) => done,
    }
}

/// Whether a dataset exists.
fn exists(dsl: &Dsl, name: &str) -> Result<bool, Error> {
    match dsl.dataset(name) {
        Ok(_) => Ok(true),
        Err(dsl::Error::NoSuchDataset { .. }) => Ok(false),
        Err(error) => Err(Error::new(name, crate::replies::of_dsl(&error))),
    }
}
