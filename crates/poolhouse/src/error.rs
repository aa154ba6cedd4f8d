//! Why an operation on a pool failed.

/// Failure of an operation of the library; the source says more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None of the devices has a label of a pool.
    #[error("no pool found on the {devices} files and devices that were looked at")]
    NoPool {
        /// Files and devices that were looked at.
        devices: usize,
    },
    /// The devices hold several pools, and none was named.
    #[error("the devices hold more than one pool: {}", names.join(", "))]
    SeveralPools {
        /// Their names.
        names: Vec<String>,
    },
    /// No pool of this name or guid is on the devices.
    #[error("no such pool: {name}")]
    NoSuchPool {
        /// What was asked for.
        name: String,
    },
    /// The pool can't be imported.
    #[error(transparent)]
    Import(#[from] Box<spa::Failure>),
    /// The pool can be read, but not written.
    #[error(transparent)]
    Refused(spa::engine::WriteRefusal),
    /// The pool can't be made.
    #[error(transparent)]
    Create(#[from] spa::create::CreateError),
    /// The pool was not opened for writing.
    #[error("the pool is not open for writing")]
    ReadOnly,
    /// The pool takes no more writes.
    #[error(transparent)]
    Stopped(#[from] spa::txg::Stopped),
    /// The pool's own records can't be read.
    #[error(transparent)]
    Pool(#[from] ::pool::Error),
    /// The dataset can't be opened.
    #[error(transparent)]
    Dataset(#[from] dsl::Error),
    /// The key can't be loaded.
    #[error(transparent)]
    Key(#[from] dsl::keys::KeyError),
    /// An object can't be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// The file can't be read.
    #[error(transparent)]
    File(#[from] zpl::Error),
    /// The volume can't be read.
    #[error(transparent)]
    Volume(#[from] zvol::Error),
    /// The intent log of a file system could not be replayed; it is kept.
    #[error(transparent)]
    ReplayFiles(#[from] zil::ReplayError<zpl::Error>),
    /// The intent log of a volume could not be replayed; it is kept.
    #[error(transparent)]
    ReplayVolume(#[from] zil::ReplayError<zvol::Error>),
    /// A dataset's intent log makes no sense.
    #[error(transparent)]
    Log(#[from] zil::Error),
    /// The dataset has nothing in it: it is being received, or is only a name.
    #[error("{dataset}: holds no object set")]
    Empty {
        /// The dataset.
        dataset: String,
    },
}

impl From<spa::import::OpenFailure> for Error {
    fn from(failure: spa::import::OpenFailure) -> Self {
        match failure {
            spa::import::OpenFailure::Import(failure) => Error::Import(failure),
            spa::import::OpenFailure::Refused(why) => Error::Refused(why),
        }
    }
}
