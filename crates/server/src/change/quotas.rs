//! Quotas of users, groups and projects, and the version, which are set as properties of a dataset and kept in its file system.

use dsl::prop::parse::number;
use dsl::{Prop, PropError};
use ondisk::version::newest_zpl;
use poolhouse::Pool;
use rustix::io::Errno;
use zpl::{FileSystem, Fuid, Policies, SpaceKind};

use super::tasks::{ZPL_VERSION, bad_value, too_old};
use crate::faults::{of_dsl, of_library, of_zpl};
use crate::view::space::{Limited, limited};
use api::{DatasetChange, Error, Reason, Settings};

/// What a file system keeps itself.
#[derive(Debug, Clone, Copy)]
pub enum Own {
    /// A limit of one user, group or project.
    Limit {
        /// What is limited.
        kind: SpaceKind,
        /// Whose.
        id: u32,
        /// Bytes or objects; 0 for none.
        most: u64,
    },
    /// Its version.
    Version(u64),
}

/// Takes from what is to be set what the file system keeps: that is none of the dataset's own properties.
///
/// # Errors
/// In OpenZFS's words, what is wrong with one.
pub fn split(change: &DatasetChange) -> Result<(DatasetChange, Vec<Own>), Error> {
    let mut change = change.clone();
    let mut limits = Vec::new();
    let is_new = !matches!(change, DatasetChange::Set { .. });
    if let DatasetChange::Set { name, props, .. }
    | DatasetChange::Create { name, props, .. }
    | DatasetChange::Clone { name, props, .. } = &mut change
    {
        let mut others = Settings::new();
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
    }
    Ok((change, limits))
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

/// Sets limits and the version of a file system, which is `open` if it is mounted, and waits until they are on disk.
///
/// # Errors
/// As opening the file system and writing to it fail.
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
        // There is none such, or it would be a step back (`zfs_set_version`).
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
