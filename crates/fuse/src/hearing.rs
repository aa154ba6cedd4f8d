//! Notice of `sync(2)`.
//!
//! # Theory
//! The kernel sends a FUSE daemon no request for `sync(2)` and `syncfs(2)`, with one exception:
//! mounts of a block device (`fuseblk`), from Linux 6.18 on. Such mounts show the device in place
//! of the dataset, and each needs a device of its own. So Poolhouse mounts no file system in this
//! way.
//!
//! But one such mount is enough for `sync(2)`, which reaches all mounts. Its block device is empty,
//! and it has no mountpoint.
//!
//! # Absent
//! `syncfs(2)` on a file system: the kernel sends that to this file system only.
//!
//! # See
//! `fs/fuse/inode.c`, `fuse_sync_fs`, in Linux.

use crate::dispatch::Behaviour;
use crate::error::Error;
use crate::tree::FileTree;
use crate::workers::Workers;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A mount without a mountpoint, by which the kernel reports `sync(2)`. Dropping it ends the mount.
pub struct Hearing {
    /// The first field, so that the workers still serve the end of the mount.
    mount: OwnedFd,
    _workers: Workers,
}

impl Hearing {
    /// Mounts a block device, which it claims. Each `sync(2)` then calls [`FileTree::sync`] of
    /// `tree`.
    ///
    /// # Errors
    /// * [`Error::Device`]: `/dev/fuse` can't be opened.
    /// * [`Error::Mount`]: the kernel refuses the mount; `EPERM` if this process is not root.
    /// * [`Error::Workers`]: the thread that serves the mount can't be started, or can't watch it.
    pub fn new(device: &Path, tree: Arc<dyn FileTree>) -> Result<Self, Error> {
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

    /// Requests `syncfs(2)` of this mount. That shows whether this kernel reports it.
    ///
    /// # Errors
    /// Any errno of open(2) or syncfs(2), which includes the result of [`FileTree::sync`].
    pub fn ask(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(&self.mount, ".", flags, Mode::empty())?)
    }
}
