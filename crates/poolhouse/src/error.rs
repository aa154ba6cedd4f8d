//! The error of the library.

/// An operation of the library failed. The source has the details.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No device has a label of a pool.
    #[error("no pool found on the {devices} files and devices that were looked at")]
    NoPool {
        /// How many files and devices were searched.
        devices: usize,
    },
    /// The devices hold several pools, and the caller named none.
    #[error("the devices hold more than one pool: {}", names.join(", "))]
    SeveralPools {
        /// Their names.
        names: Vec<String>,
    },
    /// The devices hold no pool of this name or guid.
    #[error("no such pool: {name}")]
    NoSuchPool {
        /// The requested name or guid.
        name: String,
    },
    /// The pool can't be imported.
    #[error(transparent)]
    Import(#[from] Box<spa::Failure>),
    /// The pool can't be opened for writing.
    #[error(transparent)]
    Refused(spa::import::WriteRefusal),
    /// The pool can't be created.
    #[error(transparent)]
    Create(#[from] spa::create::CreateError),
    /// The pool was not opened for writing.
    #[error("the pool is not open for writing")]
    ReadOnly,
    /// The pool accepts no more writes.
    #[error(transparent)]
    Stopped(#[from] spa::txg::Stopped),
    /// The pool's metadata can't be read.
    #[error(transparent)]
    Pool(#[from] ::pool::Error),
    /// The dataset can't be opened or changed.
    #[error(transparent)]
    Dataset(#[from] dsl::Error),
    /// The key can't be loaded or unloaded.
    #[error(transparent)]
    Key(#[from] dsl::keys::KeyError),
    /// An object can't be read.
    #[error(transparent)]
    Object(#[from] dmu::Error),
    /// The file or file system can't be read or changed.
    #[error(transparent)]
    File(#[from] zpl::Error),
    /// The volume can't be read or changed.
    #[error(transparent)]
    Volume(#[from] zvol::Error),
    /// The dataset can't be sent.
    #[error(transparent)]
    Send(#[from] stream::SendError),
    /// A stream can't be received.
    #[error(transparent)]
    Receive(#[from] stream::ReceiveError),
    /// The intent log of a file system could not be replayed. The log is kept.
    #[error(transparent)]
    ReplayFiles(#[from] zil::ReplayError<zpl::Error>),
    /// The intent log of a volume could not be replayed. The log is kept.
    #[error(transparent)]
    ReplayVolume(#[from] zil::ReplayError<zvol::Error>),
    /// The header of a dataset's intent log is invalid.
    #[error(transparent)]
    Log(#[from] zil::Error),
    /// The dataset has no contents: it is being received, or is only a name.
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

impl From<spa::HeadError> for Error {
    fn from(failure: spa::HeadError) -> Self {
        match failure {
            spa::HeadError::ReadOnly => Error::ReadOnly,
            spa::HeadError::Dataset(why) => Error::Dataset(why),
            spa::HeadError::Log(why) => Error::Log(why),
            spa::HeadError::Object(why) => Error::Object(why),
            spa::HeadError::Stopped(why) => Error::Stopped(why),
        }
    }
}

impl From<spa::engine::TaskError> for Error {
    fn from(error: spa::engine::TaskError) -> Self {
        match error {
            spa::engine::TaskError::Refused(error) => error.into(),
            spa::engine::TaskError::Stopped(stopped) => stopped.into(),
        }
    }
}
