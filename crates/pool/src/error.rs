//! The errors of pool metadata.

use ondisk::{Corrupt, ObjNum};

/// An operation on pool metadata failed.
///
/// # Reading
/// Every operation that reads the MOS may return these errors:
///
/// * [`Error::Object`]: an object does not exist or can't be read, or its blocks contradict the
///   format.
/// * [`Error::Corrupt`]: the contents of an object are not what the format says.
///
/// # Changing
/// Every operation that changes the MOS may return these, and those of [reading](Error#reading):
///
/// * [`Error::Object`]: an object can't be created or changed, for example because the MOS is not
///   open for changes.
///
/// # Counting features
/// Every operation that counts a user of a feature may return these, and those of
/// [changing](Error#changing):
///
/// * [`Error::Feature`]: the feature is not enabled, or has no user that could be removed.
/// * [`Error::Missing`]: the pool has no ZAPs of features.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read or changed.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// An object's contents are not what the format says.
    #[error("MOS object {object}: {source}")]
    Corrupt {
        /// The object.
        object: ObjNum,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// A compressed entry of a table does not decompress.
    #[error("MOS object {object}: an entry does not decompress")]
    Unpack {
        /// The table.
        object: ObjNum,
        /// The cause.
        #[source]
        source: codec::Error,
    },
    /// A feature is not enabled, or its count of users would fall below zero.
    #[error("the feature {guid} cannot be counted: it is not enabled, or not in use")]
    Feature {
        /// The feature.
        guid: &'static str,
    },
    /// The pool was closed, so its cache is gone.
    #[error("the pool is closed")]
    Closed,
    /// The pool can't be changed because of something that it has.
    #[error("pools with {what} cannot be changed yet")]
    Unsupported {
        /// What it has.
        what: &'static str,
    },
    /// The MOS directory, or the ZAP of a vdev, lacks an entry that must be there.
    #[error("the MOS directory has no entry {name:?}")]
    Missing {
        /// The entry.
        name: &'static str,
    },
}

impl Error {
    /// An error about the contents of `object`.
    pub(crate) fn corrupt(object: ObjNum) -> impl Fn(Corrupt) -> Error {
        move |source| Error::Corrupt { object, source }
    }
}
