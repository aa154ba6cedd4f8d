//! What can go wrong with a pool's own books.

use ondisk::{Corrupt, ObjNum};

/// Failure to read a pool-wide structure.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read.
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
    /// A compressed entry of a table cannot be unpacked.
    #[error("MOS object {object}: an entry does not decompress")]
    Unpack {
        /// The table.
        object: ObjNum,
        /// Why.
        #[source]
        source: codec::Error,
    },
    /// A feature is not enabled, or would get fewer users than none.
    #[error("the feature {guid} cannot be counted: it is not enabled, or not in use")]
    Feature {
        /// The feature.
        guid: &'static str,
    },
    /// The pool's cache is gone: the pool has been closed.
    #[error("the pool is closed")]
    Closed,
    /// A pool cannot be changed because of what it has.
    #[error("pools with {what} cannot be changed yet")]
    Unsupported {
        /// What it has.
        what: &'static str,
    },
    /// The MOS directory lacks an entry that every pool has.
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
