//! Where the files of an estimate are, and what a walk over them finds.

use crate::Failures;
use crate::directory::Names;
use std::io;
use std::path::{Path, PathBuf};

/// Granularity of the map of holes: the smallest record.
pub(crate) const PAGE: u64 = 4 << 10;
/// Names that are sorted at a time.
pub(crate) const BATCH: usize = 1 << 16;
/// Most files with several names that are remembered.
pub(crate) const LINKED_MAX: usize = 1 << 22;

/// One or more trees of files.
pub(crate) trait Origin: Sync {
    /// Walks over everything.
    fn walk(&self, visitor: &mut dyn Visitor, failures: &mut Failures) -> Walked;

    /// The whole path of a file.
    fn path(&self, root: usize, below: &Path) -> PathBuf;

    /// Reads the ranges of a file from `offset` on that are no holes, and marks their pages.
    /// Returns the number of bytes. `data` has zeros.
    ///
    /// # Errors
    /// The file can't be read, or is no longer the file that the walk found.
    fn fill(&self, file: &File, offset: u64, data: &mut [u8], pages: &mut [bool]) -> io::Result<u64>;
}

/// A file or directory that a walk found.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Index of the tree.
    pub(crate) root: usize,
    /// Its path below the root of the tree.
    pub(crate) path: PathBuf,
    /// What tells it from all others: device and inode, or generation and object.
    pub(crate) id: (u64, u64),
    pub(crate) size: u64,
    /// Whether it takes less space than its size, so that it may have holes.
    pub(crate) sparse: bool,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Access and change, each in seconds and nanoseconds.
    pub(crate) times: [[u64; 2]; 2],
}

/// Something with a dnode and without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    /// A symbolic link.
    Symlink,
    /// A device, fifo or socket.
    Special,
}

/// What a walk found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Regular files. A file with several names counts once.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, devices, fifos and sockets.
    pub others: u64,
    /// Bytes of all files, holes included.
    pub bytes: u64,
    /// Directories where another file system is mounted, which was not entered.
    pub mounts: u64,
}

/// Gets what a walk finds.
pub(crate) trait Visitor {
    /// A regular file. False ends the walk.
    fn file(&mut self, origin: &dyn Origin, file: File) -> bool;
    /// A directory with its names, after all of them were read.
    fn directory(&mut self, directory: &File, names: Names);
    /// Anything else.
    fn other(&mut self, file: &File, kind: Other);
    /// All files were found that are to be in one file system. False ends the walk.
    fn end(&mut self, origin: &dyn Origin) -> bool;
}
