//! Errors, and files that were left out.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no estimate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory can't be opened.
    #[error("cannot open {}: {source}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A record can't have this size.
    #[error("bad record size {size}: it must be a power of two from 4K to 16M")]
    RecordSize {
        /// The size in bytes.
        size: u32,
    },
    /// A pool can't have sectors of this size.
    #[error("bad ashift {ashift}: it must be from 9 to 16")]
    Ashift {
        /// The power of two.
        ashift: u32,
    },
    /// There are no record sizes or compressors, or too many.
    #[error("1 to {} record sizes and compressors are possible", crate::COLUMNS_MAX)]
    Columns,
    /// The time ended before enough was read.
    #[error("the time ended after {read} of {size} bytes were read")]
    Time {
        /// Bytes that were read.
        read: u64,
        /// Bytes of all files.
        size: u64,
    },
}

/// The result of an estimate.
pub type Result<T> = std::result::Result<T, Error>;

/// Most failures that are kept by name.
const NAMED_MAX: usize = 100;

/// Files and directories that could not be read.
#[derive(Debug, Default)]
pub struct Failures {
    /// How many there are.
    pub count: u64,
    /// The first hundred, with the reasons.
    pub first: Vec<(PathBuf, io::Error)>,
}

impl Failures {
    pub(crate) fn add(&mut self, path: &Path, error: io::Error) {
        self.count += 1;
        if self.first.len() < NAMED_MAX {
            self.first.push((path.to_owned(), error));
        }
    }

    /// Adds these behind its own.
    pub(crate) fn append(&mut self, other: Failures) {
        self.count += other.count;
        self.first.extend(other.first);
        self.first.truncate(NAMED_MAX);
    }
}
