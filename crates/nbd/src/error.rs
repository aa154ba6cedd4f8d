//! Errors, and their codes in the protocol.

use std::sync::Arc;

/// Failure of an operation on an export, or of the server itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No export of this name is offered here.
    #[error("no export {name}")]
    NoExport {
        /// The requested name.
        name: String,
    },
    /// The export can't be opened now.
    ///
    /// Another user has the volume, or the pool is being exported.
    #[error("{name} is in use, or about to go")]
    Busy {
        /// The name of the export.
        name: String,
    },
    /// The range ends past the end of the export.
    #[error("{len} bytes at {offset} pass the end of an export of {size} bytes")]
    PastEnd {
        /// The first byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        len: u64,
        /// Size of the export in bytes.
        size: u64,
    },
    /// The export is read-only.
    #[error("the export is read-only")]
    ReadOnly,
    /// The request is invalid: it has an unknown command or flag, or an impossible length.
    #[error("the request makes no sense: {why}")]
    BadRequest {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A read is longer than one answer may be.
    #[error("{len} bytes are more than a request may ask for")]
    TooLong {
        /// Length of the read in bytes.
        len: u64,
    },
    /// Zeroing would not be faster than a write of zeros, and the client wants it only if it is.
    #[error("zeroes that take room are not quicker than data")]
    NotFast,
    /// The volume failed.
    #[error(transparent)]
    Volume(#[from] zvol::Error),
    /// The volume could not be opened, or its dataset could not be read.
    #[error("{name} can't be opened")]
    Open {
        /// The name of the export.
        name: String,
        /// The cause.
        #[source]
        source: Arc<poolhouse::Error>,
    },
    /// The certificates of a listener can't be used.
    #[error("cannot use certificates")]
    Tls(#[source] Arc<crate::tls::TlsError>),
    /// A system call that the server needs failed.
    #[error("cannot {operation}")]
    System {
        /// The call, as a phrase.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Arc<std::io::Error>,
    },
}

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The error codes of the protocol (`NBD_E*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// `NBD_EPERM`: not permitted.
    Perm = 1,
    /// `NBD_EIO`: a read or write failed.
    Io = 5,
    /// `NBD_EINVAL`: the request is invalid.
    Inval = 22,
    /// `NBD_ENOSPC`: no space is left.
    NoSpc = 28,
    /// `NBD_EOVERFLOW`: the request is too long.
    Overflow = 75,
    /// `NBD_ENOTSUP`: the operation would not be fast.
    NotSup = 95,
    /// `NBD_ESHUTDOWN`: the export is closing.
    Shutdown = 108,
}

impl Error {
    /// The code that the client gets. `written` is whether the request is a write.
    ///
    /// A write past the end fails for lack of space. A read past the end is invalid.
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
