//! What users do: the kinds of operations, and one that has ended.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// When [`Measured::at`] was 0.
pub(crate) static BEGAN: OnceLock<Instant> = OnceLock::new();

named! {
    /// What users reach a dataset through.
    Frontend {
        /// A mounted file system.
        Fuse "fuse",
        /// An exported volume.
        Nbd "nbd",
        /// A volume that is attached as a block device.
        Block "block",
    }
}

named! {
    /// What operations have in common, for the counters of a dataset.
    Class {
        /// They read data.
        Read "read",
        /// They write data.
        Write "write",
        /// They wait until changes are durable.
        Sync "sync",
        /// They find a name in a directory.
        Lookup "lookup",
        /// They list, add, remove or rename names.
        Names "names",
        /// They read or change attributes.
        Attributes "attributes",
        /// They free space, or anything else.
        Other "other",
    }
}

named! {
    /// The operations, by the names of system calls, or of NBD's commands.
    Op {
        /// Reads data.
        Read "read",
        /// Writes data.
        Write "write",
        /// Makes a file or directory durable.
        Fsync "fsync",
        /// Makes a file system durable.
        Syncfs "syncfs",
        /// Makes a volume durable.
        Flush "flush",
        /// Finds a name.
        Lookup "lookup",
        /// Lists names.
        Readdir "readdir",
        /// Creates a file that is not a directory.
        Mknod "mknod",
        /// Creates a file without a name.
        Tmpfile "tmpfile",
        /// Creates a directory.
        Mkdir "mkdir",
        /// Creates a symbolic link.
        Symlink "symlink",
        /// Adds a name to a file.
        Link "link",
        /// Removes a name.
        Unlink "unlink",
        /// Removes a directory.
        Rmdir "rmdir",
        /// Renames.
        Rename "rename",
        /// Reads the target of a symbolic link.
        Readlink "readlink",
        /// Reads attributes.
        Getattr "getattr",
        /// Changes attributes.
        Setattr "setattr",
        /// Reads an extended attribute.
        Getxattr "getxattr",
        /// Lists extended attributes.
        Listxattr "listxattr",
        /// Changes an extended attribute.
        Setxattr "setxattr",
        /// Removes an extended attribute.
        Removexattr "removexattr",
        /// Reads the sizes of a file system.
        Statfs "statfs",
        /// Reads or changes flags of a file.
        Ioctl "ioctl",
        /// Opens a file or directory.
        Open "open",
        /// Finds data or a hole, or tells where both are.
        Seek "lseek",
        /// Allocates, frees or zeroes a range of a file.
        Fallocate "fallocate",
        /// Shares a range with another file.
        CopyFileRange "copy_file_range",
        /// Frees a range of a volume.
        Trim "trim",
        /// Zeroes a range of a volume.
        WriteZeroes "write_zeroes",
        /// Tells where a volume has data and where holes.
        BlockStatus "block_status",
        /// Reads a range of a volume into the cache.
        Cache "cache",
        /// Anything else.
        Unknown "unknown",
    }
}

impl Op {
    /// The class that it belongs to.
    pub fn class(self) -> Class {
        match self {
            Self::Read => Class::Read,
            Self::Write => Class::Write,
            Self::Fsync | Self::Syncfs | Self::Flush => Class::Sync,
            Self::Lookup => Class::Lookup,
            Self::Readdir
            | Self::Mknod
            | Self::Tmpfile
            | Self::Mkdir
            | Self::Symlink
            | Self::Link
            | Self::Unlink
            | Self::Rmdir
            | Self::Rename => Class::Names,
            Self::Readlink
            | Self::Getattr
            | Self::Setattr
            | Self::Getxattr
            | Self::Listxattr
            | Self::Setxattr
            | Self::Removexattr
            | Self::Statfs
            | Self::Ioctl => Class::Attributes,
            Self::Open
            | Self::Seek
            | Self::Fallocate
            | Self::CopyFileRange
            | Self::Trim
            | Self::WriteZeroes
            | Self::BlockStatus
            | Self::Cache
            | Self::Unknown => Class::Other,
        }
    }
}

/// An operation that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What it was.
    pub op: Op,
    /// When it reached the front end.
    pub began: Instant,
    /// How long it took from then on.
    pub took: Duration,
    /// Bytes of data that it read or wrote. Those of a failed one don't count.
    pub bytes: u64,
    /// The errno with which it failed.
    pub failed: Option<i32>,
}

impl Ended {
    /// An operation that ends now.
    pub fn now(op: Op, began: Instant, bytes: u64, failed: Option<i32>) -> Self {
        let bytes = if failed.is_some() { 0 } else { bytes };
        Self { op, began, took: began.elapsed(), bytes, failed }
    }

    /// Its numbers, for several counters.
    pub(crate) fn measured(&self) -> Measured {
        let epoch = BEGAN.get_or_init(Instant::now);
        let (began, ns) = (nanos(self.began.saturating_duration_since(*epoch)), nanos(self.took));
        let (op, bytes, failed) = (self.op, self.bytes, self.failed);
        Measured { op, bytes, failed, ns, began, at: began.saturating_add(ns) }
    }
}

/// An [`Ended`] whose times are numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) op: Op,
    pub(crate) bytes: u64,
    pub(crate) failed: Option<i32>,
    /// How long it took, in nanoseconds.
    pub(crate) ns: u64,
    /// When it began, in nanoseconds after [`BEGAN`]. 0: at that time, or before.
    pub(crate) began: u64,
    /// The same when it ended.
    pub(crate) at: u64,
}

/// Nanoseconds of a time.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
