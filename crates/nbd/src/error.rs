//! Why something failed, and how a client is told.

use std::sync::Arc;

/// Failure of an operation on an export, or of the door itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No export of this name is offered here.
    #[error("no export {name}")]
    NoExport {
        /// What was asked for.
        name: String,
    },
    /// The export is a volume that somebody else has, or its pool is going.
    #[error("{name} is in use, or about to go")]
    Busy {
        /// The export.
        name: String,
    },
    /// The range passes the end.
    #[error("{len} bytes at {offset} pass the end of an export of {size} bytes")]
    PastEnd {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The export's size.
        size: u64,
    },
    /// The export can't be written.
    #[error("the export is read-only")]
    ReadOnly,
    /// A request that makes no sense: an unknown command or flag, a length that can't be.
    #[error("the request makes no sense: {why}")]
    BadRequest {
        /// What is wrong with it.
        why: &'static str,
    },
    /// More than one answer may hold.
    #[error("{len} bytes are more than a request may ask for")]
    TooLong {
        /// Bytes.
        len: u64,
    },
    /// Zeroing would not be quicker than writing.
    #[error("zeroes that take room are not quicker than data")]
    NotFast,
    /// The volume.
    #[error(transparent)]
    Volume(#[from] zvol::Error),
    /// The volume could not be opened.
    #[error("{name} can't be opened")]
    Open {
        /// The export.
        name: String,
        /// Why.
        #[source]
        source: Arc<poolhouse::Error>,
    },
    /// The certificates of a listener.
    #[error("cannot use certificates")]
    Tls(#[source] Arc<crate::tls::TlsError>),
    /// The system refused something that the door needs.
    #[error("cannot {operation}")]
    System {
        /// What.
        operation: &'static str,
        /// Why.
        #[source]
        source: Arc<std::io::Error>,
    },
}

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// What a client is told of a failure (`NBD_E*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// Not permitted.
    Perm = 1,
    /// Reading or writing failed.
    Io = 5,
    /// The request makes no sense.
    Inval = 22,
    /// No room.
    NoSpc = 28,
    /// Too much at once.
    Overflow = 75,
    /// Not quick enough.
    NotSup = 95,
    /// The export is going.
    Shutdown = 108,
}

impl Error {
    /// What a client is told. Past the end there is no room for what is `written`, and what is read makes no sense.
    pub fn code(&self, written: bool) -> Code {
        let past_end = if written { Code::NoSpc } else { Code::Inval };
        match self {
            Error::PastEnd { .. } => past_end,
            Error::ReadOnly => Code::Perm,
            Error::BadRequest { .. } => Code::Inval,
            Error::TooLong { .. } => Code::Overflow,
            Error::NotFast => Code::NotSup,
            Error::NoExport { .. } | Error::Busy { .. } => Code::Shutdown,
            Error::Open { .. } | Error::System { .. } | Error::Tls(_) => Code::Io,
            Error::Volume(e) => match e {
                zvol::Error::PastEnd { .. } => past_end,
                zvol::Error::ReadOnly => Code::Perm,
                zvol::Error::NoSpace | zvol::Error::Quota => Code::NoSpc,
                zvol::Error::BadSize { .. } => Code::Inval,
                zvol::Error::Dmu(_)
                | zvol::Error::NotVolume
                | zvol::Error::Corrupt(_)
                | zvol::Error::Stopped { .. } => Code::Io,
            },
        }
    }
}
