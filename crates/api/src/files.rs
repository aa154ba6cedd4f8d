//! The files of a dataset for commands that use no mount: `poolhouse ls` and `poolhouse cp`.
//!
//! # Theory
//! [`Files`] is what these commands need of a dataset. [`Engine`] answers it from an open dataset.
//! A command that reads devices has an `Engine` of its own. For a pool that the daemon holds, the
//! `Engine` is in the daemon, and the command has a [`Visit`]: a connection to the daemon's socket
//! `files.sock`, over which each call is one question and one answer (`wire`).
//!
//! The command opens, writes and prints everything outside the pool itself. So its output, its
//! permissions, its limits and its end by a signal are those of the same command on devices, and
//! the daemon does nothing but bounded steps on its pool.
//!
//! # Life
//! A visit holds one dataset open from its first question to the end of its connection. It
//! uses the file system of the mount where there is one, and so sees what isn't on disk yet.
//! Otherwise it opens the dataset as a mount would. Until the end of the visit the dataset is busy,
//! and so is the pool; the messages name the command and its process.
//!
//! A visit ends with the command, with `zpool export -f`, and with the daemon.
//!
//! # Absent
//! Other users: the socket is the owner's alone. What a command prints, and where it writes.

mod engine;
mod visit;
pub mod wire;

pub use engine::{Change, Engine, Kernel};
pub use visit::{Denied, Visit};
pub use wire::{Bytes, Opened, Opening};

use ondisk::ObjNum;
use serde::{Deserialize, Serialize};
use zpl::{DirCookie, FileType, NewFile, SetAttr};

/// Most bytes of one read or write.
pub const PART_MAX: usize = 1 << 20;
/// Most bytes of the names of a file's extended attributes, each with its NUL, that a visit gives.
const XATTR_NAMES_MAX: usize = 1 << 20;
/// Most entries of one page of a folder, and about how many bytes of names.
const PAGE_MAX: (usize, usize) = (1024, 256 << 10);

/// What a command asks of the files of one dataset.
pub trait Files {
    /// The file at a path; the last part may be a link, which is followed if `follow` says so.
    ///
    /// # Errors
    /// [`Kind::NoEntry`], [`Kind::NotFolder`], or reading failed.
    fn resolve(&mut self, path: &[u8], follow: bool) -> Result<Meta, Fault>;

    /// The attributes of a file.
    ///
    /// # Errors
    /// There is no such file, or reading failed.
    fn meta(&mut self, object: ObjNum) -> Result<Meta, Fault>;

    /// Some entries of a folder, from a position on; `.` and `..` are not among them.
    ///
    /// # Errors
    /// It is no folder, or its first block can't be read.
    fn page(&mut self, folder: ObjNum, from: DirCookie) -> Result<Page, Fault>;

    /// What a symbolic link leads to.
    ///
    /// # Errors
    /// It is no link, or reading failed.
    fn readlink(&mut self, link: ObjNum) -> Result<Vec<u8>, Fault>;

    /// Names of a file's extended attributes, as Linux shows them.
    ///
    /// # Errors
    /// They are too many, or reading failed.
    fn xattr_names(&mut self, object: ObjNum) -> Result<Vec<Vec<u8>>, Fault>;

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// It is too large, or reading failed.
    fn xattr(&mut self, object: ObjNum, name: &[u8]) -> Result<Vec<u8>, Fault>;

    /// Begins to read the contents of an object from front to back. Those that were begun before
    /// end.
    ///
    /// # Errors
    /// There is no such object, or reading failed.
    fn begin(&mut self, object: ObjNum) -> Result<(), Fault>;

    /// The first byte of data, or of a hole, at or after `at`; `None` if there is no more data.
    ///
    /// # Errors
    /// [`Gap`] that lies before it.
    fn next(&mut self, at: u64, data: bool) -> Result<Option<u64>, Gap>;

    /// Fills `buf`, of at most [`PART_MAX`] bytes, from byte `at` on. Where not all of it can be
    /// read, the count ends before the first bad block.
    ///
    /// # Errors
    /// [`Gap`] that begins at `at`.
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<usize, Gap>;

    /// The object that a name in a folder means.
    ///
    /// # Errors
    /// [`Kind::NoEntry`], or reading failed.
    fn lookup(&mut self, folder: ObjNum, name: &[u8]) -> Result<ObjNum, Fault>;

    /// Removes a name that is no folder's; the object, if that was its last name.
    ///
    /// # Errors
    /// Reading or writing failed.
    fn remove(&mut self, folder: ObjNum, name: &[u8]) -> Result<Option<ObjNum>, Fault>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// Reading or writing failed.
    fn link(&mut self, file: ObjNum, folder: ObjNum, name: &[u8]) -> Result<(), Fault>;

    /// Makes a file; its object.
    ///
    /// # Errors
    /// Reading or writing failed.
    fn create(&mut self, folder: ObjNum, name: &[u8], new: &NewFile) -> Result<ObjNum, Fault>;

    /// Writes at most [`PART_MAX`] bytes of a file.
    ///
    /// # Errors
    /// Writing failed.
    fn write(&mut self, object: ObjNum, at: u64, data: &[u8]) -> Result<(), Fault>;

    /// Makes a file at least so many bytes long.
    ///
    /// # Errors
    /// Writing failed.
    fn extend(&mut self, object: ObjNum, size: u64) -> Result<(), Fault>;

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Writing failed.
    fn set_xattr(&mut self, object: ObjNum, name: &[u8], value: &[u8]) -> Result<(), Fault>;

    /// Sets attributes; the last thing that is done to a file.
    ///
    /// # Errors
    /// Writing failed.
    fn set_attr(&mut self, object: ObjNum, set: &SetAttr) -> Result<(), Fault>;

    /// Waits until all that was written is on disk.
    ///
    /// # Errors
    /// The pool takes no more writes.
    fn sync(&mut self) -> Result<(), Fault>;
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Its number.
    #[serde(with = "wire::object")]
    pub object: ObjNum,
    /// What it is.
    #[serde(with = "wire::kind")]
    pub kind: FileType,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Major and minor number of a device.
    pub rdev: Option<(u32, u32)>,
    /// Last access: seconds since the epoch, and nanoseconds.
    pub atime: (i64, u32),
    /// Last change of the contents.
    pub mtime: (i64, u32),
}

impl From<&zpl::Attr> for Meta {
    fn from(attr: &zpl::Attr) -> Self {
        Self {
            object: attr.object,
            kind: attr.kind,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid.rid(),
            gid: attr.gid.rid(),
            size: attr.size,
            rdev: attr.rdev,
            atime: (attr.atime.secs, attr.atime.nanos),
            mtime: (attr.mtime.secs, attr.mtime.nanos),
        }
    }
}

/// Some entries of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Page {
    /// Names, and the files that they mean.
    pub entries: Vec<Item>,
    /// Why there are no more, if the folder is damaged behind them.
    pub fault: Option<Fault>,
    /// Whether more follow.
    pub more: bool,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its name.
    pub name: Bytes,
    /// The file.
    #[serde(with = "wire::object")]
    pub object: ObjNum,
    /// The position behind it.
    pub next: u64,
}

/// A question that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{text}")]
pub struct Fault {
    /// What a caller may go by.
    pub kind: Kind,
    /// Why, with its causes.
    pub text: String,
}

/// Kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// There is no such name.
    NoEntry,
    /// A part of the path is no folder.
    NotFolder,
    /// The daemon is gone, or ended the visit: nothing that follows can succeed.
    Gone,
    /// Anything else.
    Other,
}

impl Fault {
    /// Any other failure, with its causes.
    pub fn other(error: &dyn std::error::Error) -> Self {
        Self { kind: Kind::Other, text: crate::chain(error) }
    }
}

impl From<zpl::Error> for Fault {
    fn from(error: zpl::Error) -> Self {
        // Callers name the path, which the engine doesn't know.
        let (kind, text) = match &error {
            zpl::Error::NoEntry { .. } => (Kind::NoEntry, "no such file or directory"),
            zpl::Error::NotDirectory { .. } => (Kind::NotFolder, "a part of the path is no folder"),
            _ => return Self::other(&error),
        };
        Self { kind, text: text.to_owned() }
    }
}

/// Bytes that can't be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first of them.
    pub from: u64,
    /// The first behind them.
    pub to: u64,
    /// Why.
    pub fault: Fault,
}

impl Gap {
    /// All that follows `from`: the way to the file is lost.
    fn rest(from: u64, fault: Fault) -> Self {
        Self { from, to: u64::MAX, fault }
    }
}

#[cfg(test)]
mod tests;
