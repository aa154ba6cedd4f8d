//! The POSIX file system on an object set.
