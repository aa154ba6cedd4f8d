//! Properties that a file system stores itself: quotas of users, groups and projects, and the
//! version.

use dsl::prop::parse::number;
use dsl::{Prop, PropError};
use ondisk::version::newest_zpl;
use poolhouse::Pool;
use rustix::io::Errno;
use zpl::{FileSystem, Fuid, Policies, SpaceKind};

use crate::commands::dataset::tasks::{ZPL_VERSION, bad_value, too_old};
use crate::replies::{of_dsl, of_library, of_zpl};
use crate::view::space::{Limited, limited};
use api::{DatasetChange, Error, Reason, Settings};

/// A property that a file system stores itself.
#[derive(Debug, Clone, Copy)]
pub enum Own {
    /// A quota of one user, group or project.
    Limit {
        /// Which quota.
        kind: SpaceKind,
        /// The id of the user, group or project.
        id: u32,
        /// Bytes or objects; 0 for no limit.
        most: u64,
    },
    /// The version of the file system.
    Version(u64),
}

/// Splits a change: returns it without the properties that the file system stores, and those.
///
/// # Errors
/// * [`api::Reason::BadValue`]: a value is not valid, in OpenZFS's words.
pub fn split(change: &DatasetChange) -> Result<(DatasetChange, Vec<Own>), Error> {
    let mut change = change.clone();
    let mut limits = Vec::new();
    let is_new = !matches!(change, DatasetChange::Set { .. });
    if let DatasetChange::Set { name, props, .. }
    | DatasetChange::Create { name, props, .. }
    | DatasetChange::Clone { name, props, .. } = &mut change
    {
        limits = split_list(name, props, is_new)?;
    }
    Ok((change, limits))
}

/// Takes the properties that a file system stores out of a list, and returns them.
///
/// # Errors
/// * [`api::Reason::BadValue`]: a value is not valid, in OpenZFS's words.
pub(crate) fn split_list(name: &str, props: &mut Settings, is_new: bool) -> Result<Vec<Own>, Error> {
    let (mut others, mut limits) = (Settings::new(), Vec::new());
    for (property, text) in std::mem::take(props) {
        if property == Prop::Version.name() && !is_new {
            limits.push(version(&text).map_err(|e| bad_value(name, &e))?);
            continue;
        }
        match limited(&property) {
            None => others.push((property, text)),
            Some(meant) => limits.push(limit(meant, &property, &text).map_err(|e| bad_value(name, &e))?),
        }
    }
    *props = others;
    Ok(limits)
}

fn limit(meant: Limited, property: &str, text: &str) -> Result<Own, PropError> {
    match meant {
        Limited::Nobody => Err(PropError::NobodyOf(property.to_owned())),
        Limited::Counted => Err(PropError::CountedOnly(property.to_owned())),
        Limited::By(kind, id) => {
            let most = if text == "none" { 0 } else { number(text)? };
            Ok(Own::Limit { kind, id, most })
        }
    }
}

fn version(text: &str) -> Result<Own, PropError> {
    Ok(Own::Version(if text == "current" { ZPL_VERSION } else { number(text)? }))
}

/// Sets quotas and the version of a file system, and waits until they are on disk
/// (`zfs_set_userquota`, `zfs_set_version`).
///
/// `open` is the file system if it is mounted.
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::BadType`]: it is not a file system.
/// * [`Reason::BadValue`]: the version of the pool or file system is too old for it.
/// * [`Reason::System`]: the file system's version does not exist or would decrease (`EINVAL`), or
///   the file system is read-only or out of space.
/// * [`Reason::Suspended`], [`Reason::Daemon`]: the pool accepts no writes.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the file system can't be read.
pub fn set(pool: &Pool, dataset: &str, open: Option<FileSystem>, own: &[Own]) -> Result<(), Error> {
    let fs = match open {
        Some(fs) => fs,
        None => {
            let found = pool.dsl().dataset(dataset).map_err(|e| Error::new(dataset, of_dsl(&e)))?;
            let opened = pool.open_for_writing(&found, Policies::default());
            opened.map_err(|e| Error::new(dataset, of_library(&e)))?
        }
    };
    let newest = newest_zpl(pool.spa().version());
    if own.iter().any(|own| matches!(own, Own::Version(v) if (newest + 1..=ZPL_VERSION).contains(v))) {
        return Err(too_old(dataset));
    }
    let failed = |e: zpl::Error| match e {
        // The version does not exist, or is lower than the present one (`zfs_set_version`).
        zpl::Error::UnsupportedVersion { .. } => {
            Error::new(dataset, Reason::System { errno: Errno::INVAL.raw_os_error() })
        }
        e => Error::new(dataset, of_zpl(&e)),
    };
    for own in own {
        match *own {
            Own::Limit { kind, id, most } => fs.set_quota(kind, Fuid(id.into()), most).map_err(failed)?,
            Own::Version(version) => fs.set_version(version).map_err(failed)?,
        }
    }
    fs.sync().map_err(failed)
}
