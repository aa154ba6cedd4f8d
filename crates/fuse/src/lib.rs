//! The FUSE door: file systems mounted through /dev/fuse.
