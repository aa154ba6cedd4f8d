//! The identity of a mount, and where it is now.
//!
//! # Theory
//! A path does not identify a mount: a folder above the mountpoint may be renamed, and another
//! mount may cover it. But the kernel numbers mounts. [`MountId`] has the numbers of a new mount:
//!
//! * the number of the device;
//! * the mount ID in the table of mounts, which a later mount may reuse;
//! * from Linux 6.8 on, an ID that no other mount ever gets.
//!
//! Before each change of a mount, [`MountId::find`] searches for it: first where it was, then where
//! the table has its ID. It opens the folder that holds the mountpoint, so that a rename no longer
//! matters. Then it checks the ID of what is mounted there. It must not open a file of the mount
//! itself, since that would keep the mount busy.
//!
//! # Locks
//! Each mountpoint has one [`Turn`] at a time. Without it, two threads that unmount mounts stacked
//! on one mountpoint could both check first, and then unmount both. Mounts that other processes
//! make at that moment are not noticed.
//!
//! # Absent
//! Mount IDs before Linux 5.8. There the device and the path identify a mount.

use crate::error::Error;
use crate::system::{by_number, table};
use observe::lock::{Condvar, Mutex};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// `STATX_MNT_ID_UNIQUE`.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The numbers that identify a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountId {
    /// `st_dev` of its files, as major and minor number.
    device: (u32, u32),
    /// Its ID in the table of mounts.
    row: Option<u64>,
    /// Its ID that is never reused.
    unique: Option<u64>,
}

/// Where a mount is.
#[derive(Debug)]
pub(crate) enum Found {
    /// At this place.
    At(MountPoint),
    /// Another mount covers it, or covers a folder above it.
    Hidden,
    /// Nowhere that this process sees.
    Gone,
}

/// A mountpoint, kept by the open folder that holds it.
#[derive(Debug)]
pub(crate) struct MountPoint {
    /// Its path now, for messages and for programs that need a path.
    pub(crate) path: PathBuf,
    /// `None` for `/`.
    parent: Option<(OwnedFd, OsString)>,
    _turn: Turn,
}

impl MountPoint {
    /// A path that leads there even after folders were renamed.
    pub(crate) fn by_number(&self) -> PathBuf {
        match &self.parent {
            Some((parent, name)) => by_number(parent).join(name),
            None => self.path.clone(),
        }
    }
}

/// The identity of a mountpoint: device and inode of the folder that holds it, and its name.
type Key = ((u32, u32), u64, OsString);

static TURNS: (Mutex<BTreeSet<Key>>, Condvar) = (Mutex::new(BTreeSet::new()), Condvar::new());

/// The exclusive right to change what is mounted at a mountpoint.
#[derive(Debug)]
struct Turn(Key);

impl Turn {
    /// Waits for the right.
    fn take(key: Key) -> Self {
        let (taken, changed) = &TURNS;
        let mut taken = taken.lock();
        while taken.contains(&key) {
            changed.wait(&mut taken);
        }
        taken.insert(key.clone());
        Self(key)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURNS.0.lock().remove(&self.0);
        TURNS.1.notify_all();
    }
}

/// How often the table is read before a mount counts as hidden.
const FINDS: usize = 3;

/// Reads the inode number of a path, and the ID of the mount through which it is reached.
///
/// Follows links. Sends no request to the daemon that serves the file.
pub(crate) fn look_through(path: &Path) -> Result<Statx, Errno> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(CWD, path, flags, StatxFlags::INO | StatxFlags::MNT_ID)
}

/// Reads attributes of a path without a request to the daemon that serves it.
fn look(dir: impl AsFd, path: &Path, what: StatxFlags) -> Result<Statx, Errno> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::statx(dir, path, flags, what)
}

impl MountId {
    /// The numbers of the mount at a path.
    ///
    /// # Errors
    /// Any errno of statx(2).
    pub(crate) fn at(path: &Path) -> Result<Self, Errno> {
        let stat = look(CWD, path, StatxFlags::MNT_ID)?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let has = |stat: &Statx, what: StatxFlags| stat.stx_mask & what.bits() != 0;
        let row = has(&stat, StatxFlags::MNT_ID).then_some(stat.stx_mnt_id);
        let again = look(CWD, path, UNIQUE)?;
        let unique = has(&again, UNIQUE).then_some(again.stx_mnt_id);
        Ok(Self { device, row, unique })
    }

    /// `st_dev` of its files, as major and minor number.
    pub(crate) fn device(&self) -> (u32, u32) {
        self.device
    }

    /// The same as `major:minor`, as in the table of mounts.
    pub(crate) fn device_text(&self) -> String {
        format!("{}:{}", self.device.0, self.device.1)
    }

    /// Its ID in the table of mounts, if the kernel told it.
    pub(crate) fn row(&self) -> Option<u64> {
        self.row
    }

    /// Whether a name in a folder leads to its root.
    fn is_at(&self, dir: impl AsFd, path: &Path) -> bool {
        let dir = dir.as_fd();
        let what = if self.unique.is_some() { UNIQUE } else { StatxFlags::MNT_ID };
        let Ok(stat) = look(dir, path, what) else { return false };
        let same = match (self.unique, self.row) {
            (Some(own), _) => stat.stx_mask & UNIQUE.bits() != 0 && stat.stx_mnt_id == own,
            (None, Some(own)) => stat.stx_mnt_id == own,
            (None, None) => true,
        };
        let device = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor);
        let root = if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
            stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        } else {
            // Before Linux 5.8: a root is recognised by another device above it.
            let above = look(dir, &path.join(".."), StatxFlags::empty());
            path == Path::new("/") || above.is_ok_and(|above| device(&above) != self.device)
        };
        same && root && device(&stat) == self.device
    }

    /// Whether a path leads to its root.
    pub(crate) fn leads(&self, path: &Path) -> bool {
        self.is_at(CWD, path)
    }

    /// Finds where it is now. `usual` is where it was.
    ///
    /// # Errors
    /// * [`Error::Descriptors`]: too many open files.
    /// * [`Error::Table`]: it is not where it was, and the table of mounts can't be read.
    pub(crate) fn find(&self, usual: &Path) -> Result<Found, Error> {
        if let Some(place) = self.hold(usual)? {
            return Ok(Found::At(place));
        }
        let device = self.device_text();
        // The table may be out of date when the mountpoint is checked.
        for _ in 0..FINDS {
            let own = table()?.into_iter().find(|mount| {
                mount.device == device && self.row.map_or(mount.target == usual, |row| mount.id == row)
            });
            let Some(own) = own else { return Ok(Found::Gone) };
            if let Some(place) = self.hold(&own.target)? {
                return Ok(Found::At(place));
            }
            // The kernel gives the numbers of a mount that is gone to a new one. That one is
            // visible, and a hidden mount is not.
            let visible = look(CWD, &own.target, StatxFlags::MNT_ID).ok().map(|stat| stat.stx_mnt_id);
            if self.row.is_some() && visible == self.row {
                return Ok(Found::Gone);
            }
        }
        Ok(Found::Hidden)
    }

    /// Opens the folder that holds a mountpoint, if this mount is there.
    ///
    /// # Errors
    /// [`Error::Descriptors`]: too many open files.
    fn hold(&self, path: &Path) -> Result<Option<MountPoint>, Error> {
        let path = path.to_owned();
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            let turn = Turn::take(((0, 0), 0, OsString::new()));
            return Ok(self.leads(&path).then(|| MountPoint { path, parent: None, _turn: turn }));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = match rustix::fs::open(above, flags, Mode::empty()) {
            Ok(parent) => parent,
            Err(source @ (Errno::MFILE | Errno::NFILE)) => return Err(Error::Descriptors { source }),
            Err(_) => return Ok(None),
        };
        let stat = rustix::fs::statx(
            &parent,
            "",
            AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC,
            StatxFlags::INO,
        );
        let Ok(stat) = stat else { return Ok(None) };
        let name = name.to_owned();
        let turn = Turn::take(((stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino, name.clone()));
        let here = self.is_at(&parent, Path::new(&name));
        Ok(here.then(|| MountPoint { path, parent: Some((parent, name)), _turn: turn }))
    }
}
