//! Quotas of users, groups and projects, which are set as properties of a dataset and kept in its file system.

use dsl::PropError;
use dsl::prop::parse::number;
use poolhouse::Pool;
use zpl::{FileSystem, Fuid, Policies, SpaceKind};

use super::tasks::bad_value;
use crate::api::{DatasetChange, Error, Settings};
use crate::faults::{of_dsl, of_library, of_zpl};
use crate::view::space::{Limited, limited};

/// A limit of one user, group or project.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    kind: SpaceKind,
    id: u32,
    /// Bytes or objects; 0 for none.
    most: u64,
}

/// Takes the limits from what is to be set: they are none of the dataset's own properties.
///
/// # Errors
/// In OpenZFS's words, what is wrong with one.
pub fn split(change: &DatasetChange) -> Result<(DatasetChange, Vec<Limit>), Error> {
    let mut change = change.clone();
    let mut limits = Vec::new();
    if let DatasetChange::Set { name, props, .. }
    | DatasetChange::Create { name, props, .. }
    | DatasetChange::Clone { name, props, .. } = &mut change
    {
        let mut others = Settings::new();
        for (property, text) in std::mem::take(props) {
            match limited(&property) {
                None => others.push((property, text)),
                Some(meant) => limits.push(limit(meant, &property, &text).map_err(|e| bad_value(name, &e))?),
            }
        }
        *props = others;
    }
    Ok((change, limits))
}

fn limit(meant: Limited, property: &str, text: &str) -> Result<Limit, PropError> {
    match meant {
        Limited::Nobody => Err(PropError::NobodyOf(property.to_owned())),
        Limited::Counted => Err(PropError::CountedOnly(property.to_owned())),
        Limited::By(kind, id) => {
            let most = if text == "none" { 0 } else { number(text)? };
            Ok(Limit { kind, id, most })
        }
    }
}

/// Sets limits of a file system, which is `open` if it is mounted, and waits until they are on disk.
///
/// # Errors
/// As opening the file system and writing to it fail.
pub fn set(pool: &Pool, dataset: &str, open: Option<FileSystem>, limits: &[Limit]) -> Result<(), Error> {
    let fs = match open {
        Some(fs) => fs,
        None => {
            let found = pool.dsl().dataset(dataset).map_err(|e| Error::new(dataset, of_dsl(&e)))?;
            let opened = pool.open_for_writing(&found, Policies::default());
            opened.map_err(|e| Error::new(dataset, of_library(&e)))?
        }
    };
    let failed = |e: zpl::Error| Error::new(dataset, of_zpl(&e));
    for limit in limits {
        fs.set_quota(limit.kind, Fuid(limit.id.into()), limit.most).map_err(failed)?;
    }
    fs.sync().map_err(failed)
}
