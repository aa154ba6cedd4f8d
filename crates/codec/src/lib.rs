//! Checksums, compressors and ciphers of the OpenZFS format.
//!
//! # Theory
//! Each function maps bytes to bytes, without I/O, threads or knowledge of pools. State that a pool
//! needs only once is made once and passed in: the templates of salted checksums, and a dataset's
//! keys. Compressed, encrypted and checksummed bytes come from disks and can be hostile. The
//! caller's buffers bound every decoder. A decoder returns an [`Error`] if the bytes don't fit.
//!
//! # Absent
//! `zio` knows which block has which protection, `dsl` knows where keys are, and `ondisk` knows
//! what blocks mean.
//!
//! # See
//! OpenZFS: `zio_checksum.c`, `zio_compress.c`, `zio_crypt.c`.

pub mod checksum;
pub mod compress;
pub mod crypt;
pub mod error;
pub mod fcrypt;

pub use checksum::{Checksum, Checksummer};
pub use error::Error;

/// The result of a checksum, compressor or cipher.
pub type Result<T> = std::result::Result<T, Error>;
