//! What can go wrong with a dataset.

use ondisk::{Corrupt, ObjNum};

/// Failure of an operation on datasets.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// A pool-wide structure could not be read.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// The bytes of a dataset are not what the format says.
    #[error("dataset object {object}: {source}")]
    Corrupt {
        /// The object.
        object: ObjNum,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// There is no such dataset (`ENOENT`).
    #[error("dataset {name:?} does not exist")]
    NoSuchDataset {
        /// The name asked for.
        name: String,
    },
    /// The name is no dataset's (`EINVAL`).
    #[error("invalid dataset name {name:?}: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// The dataset has no such property.
    #[error("dataset {name:?} has no property {property:?}")]
    NoSuchProperty {
        /// The dataset.
        name: String,
        /// The property.
        property: String,
    },
}

/// Why a name cannot be a dataset's (`namecheck_err_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than 255 bytes.
    #[error("name is too long")]
    TooLong,
    /// Begins with a slash.
    #[error("leading slash in name")]
    LeadingSlash,
    /// Ends with a slash.
    #[error("trailing slash in name")]
    TrailingSlash,
    /// Has an empty component.
    #[error("empty component or misplaced '@' or '#' delimiter in name")]
    EmptyComponent,
    /// Has a character that names may not have.
    #[error("invalid character {0:?} in name")]
    InvalidChar(char),
    /// Has more than one `@` or `#`.
    #[error("multiple '@' and/or '#' delimiters in name")]
    MultipleDelimiters,
    /// A component is `.` or `..`.
    #[error("self reference or parent reference, '.' or '..', in name")]
    DotReference,
}

impl Error {
    pub(crate) fn corrupt(object: ObjNum) -> impl Fn(Corrupt) -> Error {
        move |source| Error::Corrupt { object, source }
    }
}
