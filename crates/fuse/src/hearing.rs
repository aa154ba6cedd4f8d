//! Hearing of `sync(2)`.
//!
//! # Theory
//! The kernel tells the server of a FUSE mount nothing of `sync(2)` and `syncfs(2)`, unless the
//! mount is one of a block device (`fuseblk`, from Linux 6.18 on). Mounts of that type show their
//! device in the place of their dataset, and need a device each, so that no file system is mounted
//! so. But one such mount is enough to hear of `sync(2)`, which asks all of them. It is made of a
//! block device that holds nothing, and has no place in the tree of names.
//!
//! # Absent
//! `syncfs(2)` on a file system: the kernel asks that file system alone.
//!
//! # See
//! `fs/fuse/inode.c`, `fuse_sync_fs`, in Linux.

use crate::dispatch::Behaviour;
use crate::error::Error;
use crate::tree::Tree;
use crate::workers::Workers;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A mount without a place, by which the kernel tells of `sync(2)`; it ends when this is dropped.
pub struct Hearing {
    /// First, so that its end is still served.
    mount: OwnedFd,
    _workers: Workers,
}

impl Hearing {
    /// Makes one of a block device, which it claims. Its tree's [`Tree::sync`] is what is done at
    /// `sync(2)`.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::Mount`] if the system refuses, as to all but root;
    /// [`Error::Workers`].
    pub fn new(device: &Path, tree: Arc<dyn Tree>) -> Result<Self, Error> {
        let failed = |source| Error::Mount { target: device.to_owned(), source };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let requests =
            rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|source| Error::Device { source })?;
        let mount = || {
            let fs = fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
            let number = requests.as_raw_fd().to_string();
            fsconfig_set_string(&fs, "source", device)?;
            for (key, value) in [
                ("fd", number.as_str()),
                ("rootmode", "40000"),
                ("user_id", "0"),
                ("group_id", "0"),
                ("blksize", "512"),
                ("subtype", "poolhouse"),
            ] {
                fsconfig_set_string(&fs, key, value)?;
            }
            fsconfig_create(&fs)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
            fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let mount = mount().map_err(failed)?;
        let workers = Workers::start("fuse-sync", 1)?;
        workers.serve(requests, tree, Behaviour::default())?;
        Ok(Self { mount, _workers: workers })
    }

    /// Asks as `syncfs(2)` does, by which it shows whether this kernel tells of it.
    ///
    /// # Errors
    /// What the system says.
    pub fn ask(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(&self.mount, ".", flags, Mode::empty())?)
    }
}
