//! Partitions of OpenAFS's file server (`/vicepX`): the volumes that lie on them, for reading.
//!
//! # Theory
//! OpenAFS keeps each vnode's data in a file of the host, and what it knows of a volume in a few
//! special files ("namei"). This module reads them while no server uses them. It makes the dump of
//! a volume, which [`crate::volume::restore`] takes.
//!
//! A dump must be whole. So [`Volume::check`] looks at everything first, and reports each part
//! that is missing or contradicts another. The vnodes must be a tree, as a restore demands.
//! OpenAFS's salvager fixes most such volumes ([`Damage::advice`]); this module does not.
//!
//! # On disk
//! | path in the partition | content |
//! | --- | --- |
//! | `VNNNNNNNNNN.vol` | the head of a volume: its special files ([`Head`]) |
//! | `AFSIDat/A/B/` | the files of a group: a read-write volume and its clones |
//! | `AFSIDat/A/B/special/F` | a special file: the volume's information, or an index |
//! | `AFSIDat/A/B/C/D/F` | the data of a vnode |
//!
//! A to F are numbers in digits of their own ([`names`]): A is the low byte of the group's number,
//! B the group's number, C and D are bits of the vnode's number, and F is the number of the file.
//! All numbers in files are little-endian: those of a big-endian host are refused.
//!
//! # Security
//! The partition is hostile input. No path is made of a name: only of numbers. Each step opens one
//! name in a folder that is open already, and follows no link. Only regular files are read.
//!
//! # Absent
//! * Partitions of servers that name inodes of the host, not files ("inode" servers).
//! * The link table: whether a file is shared with a clone does not matter to a reader.
//! * Anything that writes: nothing on the partition changes.
//!
//! # See
//! OpenAFS: `src/vol/namei_ops.c`, `src/vol/volume.h`, `src/vol/vnode.h`, `src/vol/viceinode.h`.

mod index;
mod layout;
pub mod names;
#[cfg(test)]
mod tests;
mod volume;

pub use layout::{DiskVnode, Head, Info, LARGE_SIZE, Obstacle, SMALL_SIZE};
pub use volume::{DumpError, Survey, Volume};

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::types::{Vnode, VolumeId};

/// The folder with the files of all volumes (`INODEDIR`).
const FILES: &str = "AFSIDat";
/// The file that OpenAFS's programs lock the numbers of volumes in while they use them.
const LOCKS: &str = ".volume.lock";

/// A part of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The file `VNNNNNNNNNN.vol`.
    Head,
    /// The file with what the server knows of the volume.
    Info,
    /// The index of files and links.
    SmallIndex,
    /// The index of directories.
    LargeIndex,
    /// A vnode.
    Vnode(Vnode),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => f.write_str("the volume's .vol file"),
            Self::Info => f.write_str("the volume information file"),
            Self::SmallIndex => f.write_str("the index of files"),
            Self::LargeIndex => f.write_str("the index of directories"),
            Self::Vnode(vnode) => write!(f, "vnode {vnode}"),
        }
    }
}

/// What is wrong with a part.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It can't be opened or read.
    #[error("{file} can't be read")]
    File {
        /// Its path in the partition.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// A path leads to something that is no regular file.
    #[error("{file} is no regular file")]
    NoFile {
        /// Its path in the partition.
        file: String,
    },
    /// It changed while it was read.
    #[error("{file} changed meanwhile: a server uses the volume")]
    Changed {
        /// Its path in the partition.
        file: String,
    },
    /// It is shorter or longer than it should be.
    #[error("it has {found} bytes, not {wanted}")]
    Length {
        /// Its length.
        found: u64,
        /// The length that it should have.
        wanted: u64,
    },
    /// It does not begin with its magic number, or a vnode does not have it.
    #[error("{found:#010x} is not its magic number {wanted:#010x}")]
    Magic {
        /// The number found.
        found: u32,
        /// The number that it should have.
        wanted: u32,
    },
    /// A big-endian host wrote it.
    #[error("a host with the other order of bytes wrote it")]
    ByteOrder,
    /// A field has a value that is not allowed there.
    #[error("{field} is {value}")]
    Field {
        /// The field, in OpenAFS's words.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The vnodes of the volume are no tree.
    #[error("{why}")]
    Tree {
        /// What is wrong with a vnode.
        why: &'static str,
    },
    /// A directory or access list is damaged.
    #[error(transparent)]
    Format(#[from] crate::Error),
}

/// A damaged part.
#[derive(Debug, thiserror::Error)]
#[error("{part}")]
pub struct Error {
    /// The part.
    pub part: Part,
    /// What is wrong.
    #[source]
    pub damage: Damage,
}

/// The result of reading a volume.
pub type Result<T> = std::result::Result<T, Error>;

impl Damage {
    /// What the user can do. Only some damage is for OpenAFS's salvager: it deletes what a host
    /// with the other order of bytes wrote.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::File { source, .. } if source.kind() != io::ErrorKind::NotFound => {
                "check the disk and the permissions"
            }
            Self::NoFile { .. } => "OpenAFS makes no such file: find out what it is",
            Self::Changed { .. } => "stop OpenAFS's servers first",
            Self::ByteOrder => "use `vos dump` or `vos move` on a server of that kind",
            Self::Tree { .. } => "run OpenAFS's salvager on it with -orphans attach",
            Self::File { .. }
            | Self::Length { .. }
            | Self::Magic { .. }
            | Self::Field { .. }
            | Self::Format(_) => "run OpenAFS's salvager on it",
        }
    }

    fn of(self, part: Part) -> Error {
        Error { part, damage: self }
    }
}

/// A partition, open for reading.
#[derive(Debug)]
pub struct Partition {
    root: OwnedFd,
}

/// The flags for a folder. None is entered through a link.
fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// A folder in a folder.
fn folder_in(folder: impl AsFd, name: &str, path: &str) -> std::result::Result<OwnedFd, Damage> {
    let opened = rustix::fs::openat(folder, name, folder_flags(), Mode::empty());
    opened.map_err(|error| Damage::File { file: path.to_owned(), source: error.into() })
}

/// A regular file in a folder, and its length. Nothing else is opened: the open of a device may
/// do something. It waits for nothing, even if the name leads elsewhere meanwhile.
fn file_in(folder: impl AsFd, name: &str, path: &str) -> std::result::Result<(File, u64), Damage> {
    let failed = |error: rustix::io::Errno| Damage::File { file: path.to_owned(), source: error.into() };
    let regular = |stat: rustix::fs::Stat| match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(Damage::NoFile { file: path.to_owned() }),
    };
    regular(rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(failed)?;
    let stat = regular(rustix::fs::fstat(&file).map_err(failed)?)?;
    Ok((file.into(), u64::try_from(stat.st_size).unwrap_or(0)))
}

/// A folder that was opened. `None`: nothing, or something else, has its name.
fn if_folder(opened: rustix::io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    use rustix::io::Errno;
    match opened {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Calls `each` with the folders in a folder.
fn each_in(folder: &OwnedFd, each: &mut dyn FnMut(OwnedFd) -> io::Result<()>) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            let opened = rustix::fs::openat(folder, entry.file_name(), folder_flags(), Mode::empty());
            if_folder(opened)?.map_or(Ok(()), &mut *each)?;
        }
    }
    Ok(())
}

impl Partition {
    /// Opens the partition at a path.
    ///
    /// # Errors
    /// The system's error. `NotFound` also if it has no folder `AFSIDat`, so is no partition.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        rustix::fs::openat(&root, FILES, folder_flags(), Mode::empty())?;
        Ok(Self { root })
    }

    /// Whether a program of OpenAFS has volumes of the partition locked right now, for reading or
    /// writing. Servers without such locks have [`Obstacle::InUse`] alone.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_locked(&self) -> io::Result<bool> {
        let file = match file_in(&self.root, LOCKS, LOCKS) {
            Ok((file, _)) => file,
            Err(Damage::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(Damage::File { source, .. }) => return Err(source),
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        // Of the whole file. Volumes that only clients' reads need are locked for reading. This
        // only asks: a lock of our own would stop a server.
        Ok(fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))?.is_some())
    }

    /// The numbers of the partition's volumes, in ascending order.
    ///
    /// # Errors
    /// The system's error.
    pub fn volumes(&self) -> io::Result<Vec<VolumeId>> {
        let mut all = Vec::new();
        for entry in Dir::read_from(&self.root)? {
            all.extend(names::volume_of(entry?.file_name().to_bytes()));
        }
        all.sort_unstable();
        Ok(all)
    }

    /// The numbers of volumes that have their information, but no head, in ascending order.
    /// OpenAFS's salvager makes the heads of such volumes anew.
    ///
    /// # Errors
    /// A folder can't be read.
    pub fn headless(&self) -> io::Result<Vec<VolumeId>> {
        let (known, mut all) = (self.volumes()?, Vec::new());
        each_in(&rustix::fs::openat(&self.root, FILES, folder_flags(), Mode::empty())?, &mut |one| {
            each_in(&one, &mut |group| {
                let special = rustix::fs::openat(group, "special", folder_flags(), Mode::empty());
                let Some(special) = if_folder(special)? else { return Ok(()) };
                for entry in Dir::read_from(special)? {
                    let id = names::special_of(entry?.file_name().to_bytes(), layout::VI_INFO);
                    all.extend(id.filter(|id| known.binary_search(id).is_err()));
                }
                Ok(())
            })
        })?;
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Opens a volume: its head, its information and the heads of its indexes.
    ///
    /// # Errors
    /// The first part that is missing or damaged.
    pub fn volume(&self, id: VolumeId) -> Result<Volume> {
        Volume::open(self, id)
    }
}
