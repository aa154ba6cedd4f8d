//! Checksums, compressors and ciphers of the OpenZFS format.
//!
//! # Theory
//! Everything here is a function from bytes to bytes: no I/O, no threads, no knowledge of pools. What a pool
//! needs only once (the salted checksums' templates, a dataset's keys) is built once and passed in.
//! Compressed, encrypted and checksummed bytes come from disks and may be hostile: every decoder is bounded by
//! the buffers that its caller gave, and answers with [`Error`] when they don't fit.
//!
//! # Absent
//! Which block is protected how (that is `zio`), where keys are kept (`dsl`), what blocks mean (`ondisk`).
//!
//! # See
//! OpenZFS: `zio_checksum.c`, `zio_compress.c`, `zio_crypt.c`.

pub mod checksum;
pub mod compress;
pub mod crypt;
pub mod error;

pub use checksum::{Checksum, Checksummer};
pub use error::Error;

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;
