//! The destination of a rescue: folders that are entered step by step, never by a whole path.
//!
//! # Theory
//! Names and links come from a pool that may try to write elsewhere. For example, it may have a
//! link `x` to `/etc` and a folder `x` beside it. So every step below the destination opens the
//! folder itself without following links.
//!
//! A file is created at a free name. What had the name before is removed first, unless it is a
//! folder.
//!
//! # Errors
//! All functions return the [`Errno`] of the system call that failed. Those that return [`Lost`]
//! values continue after a failure.

use super::args::Owners;
use api::files::Meta;
use poolhouse::zpl::FileType;
use rustix::fs::{
    AtFlags, FileType as NodeType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, makedev,
};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An open folder of the destination.
pub struct Folder(OwnedFd);

fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// A kind of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// Owner and group.
    Owner,
    /// An extended attribute.
    Xattr,
    /// Mode, times.
    Other,
}

/// A part of a file's metadata that could not be kept.
pub struct Lost {
    /// Its kind.
    pub kept: Kept,
    /// The part, in words.
    pub what: String,
    /// The system's error.
    pub why: Errno,
}

impl Lost {
    /// Whether the failure means that this user may not set it.
    ///
    /// The user may be root of a namespace. A user that the namespace doesn't know is an invalid
    /// one, so `EINVAL` counts for owners.
    pub fn is_refused(&self) -> bool {
        match self.kept {
            Kept::Owner => matches!(self.why, Errno::PERM | Errno::INVAL),
            Kept::Xattr => self.why == Errno::PERM,
            Kept::Other => false,
        }
    }
}

/// The identity of a folder: no two existing folders share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Folder {
    /// Opens the folder at a path that the user gave. Links in the path are the user's own.
    ///
    /// # Errors
    /// An [`Errno`] of `open`, `ENOTDIR` among them: the path is no folder.
    pub fn open(path: &Path) -> Result<Folder, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Folder(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Enters a folder in this one, and creates it if it does not exist.
    ///
    /// # Errors
    /// An [`Errno`] of `mkdir` or `open`: `ENOTDIR` or `ELOOP` if a link or another file has the
    /// name.
    pub fn enter(&self, child: &[u8]) -> Result<Folder, Errno> {
        match rustix::fs::mkdirat(&self.0, name(child), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Folder(rustix::fs::openat(&self.0, name(child), flags, Mode::empty())?))
    }

    /// Opens the same folder once more.
    ///
    /// # Errors
    /// An [`Errno`] of `fcntl`: `EMFILE` if the process has too many open files.
    pub fn again(&self) -> Result<Folder, Errno> {
        Ok(Folder(rustix::io::fcntl_dupfd_cloexec(&self.0, 0)?))
    }

    /// The folder's identity, as long as the folder exists.
    ///
    /// # Errors
    /// An [`Errno`] of `fstat`.
    pub fn identity(&self) -> Result<Identity, Errno> {
        let stat = rustix::fs::fstat(&self.0)?;
        Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Opens the folder above this one. It must be the one from which this folder was entered.
    ///
    /// # Errors
    /// * `ESTALE`: the folder above has another identity.
    /// * Any other [`Errno`] of `open` and `fstat`.
    pub fn above(&self, identity: &Identity) -> Result<Folder, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = Folder(rustix::fs::openat(&self.0, "..", flags, Mode::empty())?);
        // Another process moved this folder meanwhile.
        if above.identity()? != *identity { Err(Errno::STALE) } else { Ok(above) }
    }

    fn clear(&self, child: &[u8]) -> Result<(), Errno> {
        match rustix::fs::unlinkat(&self.0, name(child), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Creates an empty file in place of what has the name.
    ///
    /// # Errors
    /// An [`Errno`] of `unlink` or `open`: `EISDIR` if a folder has the name.
    pub fn create(&self, child: &[u8]) -> Result<File, Errno> {
        self.clear(child)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.0, name(child), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(fd))
    }

    /// Creates a symbolic link in place of what has the name.
    ///
    /// # Errors
    /// An [`Errno`] of `unlink` or `symlink`: `EISDIR` if a folder has the name.
    pub fn symlink(&self, child: &[u8], target: &[u8]) -> Result<(), Errno> {
        self.clear(child)?;
        rustix::fs::symlinkat(name(target), &self.0, name(child))
    }

    /// Creates a device, fifo or socket in place of what has the name.
    ///
    /// # Errors
    /// * `EINVAL`: the file is of another kind.
    /// * Any other [`Errno`] of `unlink` and `mknod`: `EISDIR` if a folder has the name.
    pub fn node(&self, child: &[u8], meta: &Meta) -> Result<(), Errno> {
        self.clear(child)?;
        let kind = match meta.kind {
            FileType::Fifo => NodeType::Fifo,
            FileType::Socket => NodeType::Socket,
            FileType::CharDevice => NodeType::CharacterDevice,
            FileType::BlockDevice => NodeType::BlockDevice,
            FileType::Unknown | FileType::Directory | FileType::Regular | FileType::Symlink => {
                return Err(Errno::INVAL);
            }
        };
        let (major, minor) = meta.rdev.unwrap_or_default();
        rustix::fs::mknodat(&self.0, name(child), kind, Mode::RUSR | Mode::WUSR, makedev(major, minor))
    }

    /// Creates another name for a file that was copied before, whose path below `top` is given.
    ///
    /// # Errors
    /// An [`Errno`] of `unlink` or `link`: `EISDIR` if a folder has the name.
    pub fn link(&self, child: &[u8], top: &Folder, copied: &[u8]) -> Result<(), Errno> {
        self.clear(child)?;
        rustix::fs::linkat(&top.0, name(copied), &self.0, name(child), AtFlags::empty())
    }

    /// Sets the metadata that a link, device, fifo or socket can have. Returns what could not be
    /// set.
    pub fn keep_at(&self, child: &[u8], meta: &Meta, owners: Owners) -> Vec<Lost> {
        let mut lost = Vec::new();
        let owned = chown(&mut lost, meta, owners, |uid, gid| {
            rustix::fs::chownat(&self.0, name(child), uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        });
        if meta.kind != FileType::Symlink {
            let mode = mode(meta, owned);
            note(
                &mut lost,
                Kept::Other,
                "mode",
                rustix::fs::chmodat(&self.0, name(child), mode, AtFlags::empty()),
            );
        }
        let set = rustix::fs::utimensat(&self.0, name(child), &times(meta), AtFlags::SYMLINK_NOFOLLOW);
        note(&mut lost, Kept::Other, "times", set);
        lost
    }

    /// Sets this folder's metadata, once its contents are complete. Returns what could not be set.
    pub fn keep(
        &self,
        meta: &Meta,
        owners: Owners,
        xattrs: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Vec<Lost> {
        keep(&self.0, meta, owners, xattrs)
    }
}

/// Sets an open file's or folder's owner, mode, extended attributes (with ACLs) and times.
///
/// Returns what could not be set.
pub fn keep(
    fd: impl AsFd,
    meta: &Meta,
    owners: Owners,
    xattrs: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> Vec<Lost> {
    let mut lost = Vec::new();
    let owned = chown(&mut lost, meta, owners, |uid, gid| rustix::fs::fchown(&fd, uid, gid));
    note(&mut lost, Kept::Other, "mode", rustix::fs::fchmod(&fd, mode(meta, owned)));
    for (key, value) in xattrs {
        let Ok(c) = CString::new(key.as_slice()) else { continue };
        let set = rustix::fs::fsetxattr(&fd, &c, &value, XattrFlags::empty());
        let what = format!("extended attribute {}", String::from_utf8_lossy(&key));
        note(&mut lost, Kept::Xattr, &what, set);
    }
    note(&mut lost, Kept::Other, "times", rustix::fs::futimens(&fd, &times(meta)));
    lost
}

/// Sets the owner, if it is to be kept. Returns whether the owner is now right.
fn chown(
    lost: &mut Vec<Lost>,
    meta: &Meta,
    owners: Owners,
    set: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> bool {
    if owners == Owners::No {
        return false;
    }
    let done = set(Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)));
    note(lost, Kept::Owner, "owner", done);
    done.is_ok()
}

/// The permissions. Without the set-id bits if the owner is another one.
fn mode(meta: &Meta, owned: bool) -> Mode {
    Mode::from_raw_mode(meta.mode & if owned { 0o7777 } else { 0o777 })
}

fn times(meta: &Meta) -> Timestamps {
    let spec = |(secs, nanos): (i64, u32)| Timespec { tv_sec: secs, tv_nsec: nanos.into() };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

fn note(lost: &mut Vec<Lost>, kept: Kept, what: &str, result: Result<(), Errno>) {
    if let Err(why) = result {
        lost.push(Lost { kept, what: what.to_owned(), why });
    }
}
