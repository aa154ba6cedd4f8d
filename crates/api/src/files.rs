//! The files of a dataset for commands that use no mount: `poolhouse ls` and `poolhouse cp`.
//!
//! # Theory
//! [`Files`] is what these commands need of a dataset. [`Engine`] implements it over an open
//! dataset. A command that reads devices has an `Engine` of its own. For a pool that the daemon
//! holds, the daemon has the `Engine` and the command has a [`Visit`]. A visit is a connection to
//! the daemon's socket `files.sock`, on which each call is one request and one answer (`wire`).
//!
//! The command itself opens, writes and prints everything outside the pool. So its output, its
//! permissions, its limits and its end by a signal are those of the same command on devices. The
//! daemon does nothing but bounded steps on its pool.
//!
//! # Life
//! A visit holds one dataset open from its first request to the end of its connection. It uses the
//! file system of the mount where there is one, and so sees what isn't on disk yet. Otherwise it
//! opens the dataset as a mount does. Until the end of the visit the dataset and the pool are busy.
//! Error messages about that name the command and its process.
//!
//! A visit ends with the command, with `zpool export -f`, and with the daemon.
//!
//! # Absent
//! * Other users: the socket is the owner's alone.
//! * What a command prints, and where it writes.

mod engine;
mod visit;
pub mod wire;

pub use engine::{Change, Engine, Kernel};
pub use visit::{Denied, Visit};
pub use wire::{Bytes, Opened, Opening};

use ondisk::blkptr::Body;
use ondisk::{Blkptr, ObjNum};
use serde::{Deserialize, Serialize};
use zpl::{DirCookie, FileType, NewFile, SetAttr};

/// Most bytes of one read or write.
pub const PART_MAX: usize = 1 << 20;
/// Most bytes of the names of a file's extended attributes in one answer, each with its NUL.
const XATTR_NAMES_MAX: usize = 1 << 20;
/// Most entries of one page of a directory, and about how many bytes of names.
const PAGE_MAX: (usize, usize) = (1024, 256 << 10);

/// What a command needs of the files of one dataset.
///
/// # Errors
/// Each method can fail with these besides those that it lists. [`Gap::fault`] has the same kinds.
///
/// * [`Kind::Gone`]: the daemon ended the visit or disappeared. Only a [`Visit`] has this kind.
/// * [`Kind::Other`]: a block could not be read, or what was read is damaged.
/// * [`Kind::Other`]: the dataset has no files, such as a volume. [`Files::begin`],
///   [`Files::next`] and [`Files::read`] don't need files.
///
/// The methods that change something also fail with [`Kind::Other`] in these cases:
///
/// * the file system is read-only;
/// * a quota or the free space is exceeded;
/// * flags of the file or its directory forbid it, such as immutable;
/// * the pool accepts no writes.
pub trait Files {
    /// The file at a path. If the last part is a symbolic link, `follow` says whether to follow it.
    ///
    /// # Errors
    /// * [`Kind::NoEntry`]: a part of the path does not exist.
    /// * [`Kind::NotFolder`]: a part of the path is not a directory.
    /// * [`Kind::Other`]: there are more than 40 symbolic links, one is absolute, or a name is too
    ///   long. Otherwise see [`Files`].
    fn resolve(&mut self, path: &[u8], follow: bool) -> Result<Meta, Fault>;

    /// The attributes of a file.
    ///
    /// # Errors
    /// * [`Kind::Other`]: the object is not a file, or see [`Files`].
    fn meta(&mut self, object: ObjNum) -> Result<Meta, Fault>;

    /// Some entries of a directory, from a position on, without `.` and `..`.
    ///
    /// # Errors
    /// * [`Kind::NotFolder`]: it is not a directory.
    /// * [`Kind::Other`]: its first block can't be read, or see [`Files`]. Damage behind that is in
    ///   [`Page::fault`].
    fn page(&mut self, folder: ObjNum, from: DirCookie) -> Result<Page, Fault>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// * [`Kind::Other`]: it is not a symbolic link, or see [`Files`].
    fn readlink(&mut self, link: ObjNum) -> Result<Vec<u8>, Fault>;

    /// Names of a file's extended attributes, as Linux shows them.
    ///
    /// # Errors
    /// * [`Kind::Other`]: the names have more than 1 MiB, or see [`Files`].
    fn xattr_names(&mut self, object: ObjNum) -> Result<Vec<Vec<u8>>, Fault>;

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// * [`Kind::Other`]: there is no such attribute, its value is too large, or see [`Files`].
    fn xattr(&mut self, object: ObjNum, name: &[u8]) -> Result<Vec<u8>, Fault>;

    /// Begins to read the contents of an object from front to back. This ends the previous one.
    ///
    /// # Errors
    /// * [`Kind::Other`]: there is no such object, or see [`Files`].
    fn begin(&mut self, object: ObjNum) -> Result<(), Fault>;

    /// The first byte of data, or of a hole, at or after `at`. `None` if there is no more data.
    ///
    /// # Errors
    /// * [`Gap`]: a range before that byte can't be read, or no object was begun.
    fn next(&mut self, at: u64, data: bool) -> Result<Option<u64>, Gap>;

    /// Fills `buf`, of at most [`PART_MAX`] bytes, from byte `at` on. The count is less than its
    /// length where a later block can't be read.
    ///
    /// # Errors
    /// * [`Gap`] that begins at `at`: its block can't be read, or no object was begun.
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<usize, Gap>;

    /// The object that a name in a directory refers to.
    ///
    /// # Errors
    /// * [`Kind::NoEntry`]: there is no such name.
    /// * [`Kind::NotFolder`]: `folder` is not a directory.
    /// * [`Kind::Other`]: see [`Files`].
    fn lookup(&mut self, folder: ObjNum, name: &[u8]) -> Result<ObjNum, Fault>;

    /// Removes a name that is not a directory's. Returns the object if that was its last name.
    ///
    /// # Errors
    /// * [`Kind::NoEntry`]: there is no such name.
    /// * [`Kind::NotFolder`]: `folder` is not a directory.
    /// * [`Kind::Other`]: the name is a directory's, or see [`Files`].
    fn remove(&mut self, folder: ObjNum, name: &[u8]) -> Result<Option<ObjNum>, Fault>;

    /// Adds a name to a file.
    ///
    /// # Errors
    /// * [`Kind::NoEntry`]: the directory was removed.
    /// * [`Kind::NotFolder`]: `folder` is not a directory.
    /// * [`Kind::Other`]: the name exists or is not valid.
    /// * [`Kind::Other`]: the file is a directory or has no name left, or the directory passes on
    ///   another project. Otherwise see [`Files`].
    fn link(&mut self, file: ObjNum, folder: ObjNum, name: &[u8]) -> Result<(), Fault>;

    /// Creates a file and returns its object.
    ///
    /// # Errors
    /// * [`Kind::NoEntry`]: the directory was removed.
    /// * [`Kind::NotFolder`]: `folder` is not a directory.
    /// * [`Kind::Other`]: the name exists or is not valid, or see [`Files`].
    fn create(&mut self, folder: ObjNum, name: &[u8], new: &NewFile) -> Result<ObjNum, Fault>;

    /// Writes at most [`PART_MAX`] bytes of a file.
    ///
    /// # Errors
    /// * [`Kind::Other`]: it is not a regular file, it would be too large, or see [`Files`].
    fn write(&mut self, object: ObjNum, at: u64, data: &[u8]) -> Result<(), Fault>;

    /// Makes a file at least `size` bytes long.
    ///
    /// # Errors
    /// * [`Kind::Other`]: it is not a regular file, it would be too large, or see [`Files`].
    fn extend(&mut self, object: ObjNum, size: u64) -> Result<(), Fault>;

    /// Sets an extended attribute, whether it exists or not.
    ///
    /// # Errors
    /// * [`Kind::Other`]: its name or value is too long, or see [`Files`].
    fn set_xattr(&mut self, object: ObjNum, name: &[u8], value: &[u8]) -> Result<(), Fault>;

    /// Sets attributes. This is the last step of a copied file.
    ///
    /// # Errors
    /// * [`Kind::Other`]: see [`Files`].
    fn set_attr(&mut self, object: ObjNum, set: &SetAttr) -> Result<(), Fault>;

    /// Waits until everything written is on disk.
    ///
    /// # Errors
    /// * [`Kind::Other`]: the pool accepts no more writes.
    /// * [`Kind::Gone`]: see [`Files`].
    fn sync(&mut self) -> Result<(), Fault>;
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Its object number.
    #[serde(with = "wire::object")]
    pub object: ObjNum,
    /// Its type.
    #[serde(with = "wire::kind")]
    pub kind: FileType,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// The number of its links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its size in bytes.
    pub size: u64,
    /// Major and minor number of a device.
    pub rdev: Option<(u32, u32)>,
    /// Last access: seconds since the epoch, and nanoseconds.
    pub atime: (i64, u32),
    /// Last change of the contents, in the same units.
    pub mtime: (i64, u32),
    /// The txg of its creation, which tells it from earlier files of its number.
    #[serde(default)]
    pub generation: u64,
    /// Whether it has holes, or blocks that are not written yet.
    #[serde(default)]
    pub sparse: bool,
}

impl From<&zpl::Node> for Meta {
    fn from(node: &zpl::Node) -> Self {
        let attr = node.attr();
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
            generation: attr.generation,
            sparse: is_sparse(node.dnode(), attr.size),
        }
    }
}

/// Whether a file of `size` bytes has fewer blocks than that takes.
fn is_sparse(dnode: &dmu::Dnode, size: u64) -> bool {
    let filled = |bp: &Blkptr| match &bp.body {
        Body::Stored(stored) => stored.fill,
        Body::Embedded(_) => 1,
        Body::Hole | Body::Redacted => 0,
    };
    let blocks: u64 = dnode.phys().blkptrs.iter().map(filled).fold(0, u64::saturating_add);
    blocks < size.div_ceil(dnode.block_size().max(1))
}

/// Some entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Item>,
    /// Why there are no more, if the directory is damaged behind them.
    pub fault: Option<Fault>,
    /// Whether more follow.
    pub more: bool,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its name.
    pub name: Bytes,
    /// The object number of the file.
    #[serde(with = "wire::object")]
    pub object: ObjNum,
    /// The position behind it.
    pub next: u64,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{text}")]
pub struct Fault {
    /// The kind of the failure, for decisions.
    pub kind: Kind,
    /// The message, with its causes.
    pub text: String,
}

/// Kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// There is no such name.
    NoEntry,
    /// A part of the path is not a directory.
    NotFolder,
    /// The daemon disappeared or ended the visit: no later call can succeed.
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
        // The engine doesn't know the path. Callers add it.
        let (kind, text) = match &error {
            zpl::Error::NoEntry { .. } => (Kind::NoEntry, "no such file or directory"),
            zpl::Error::NotDirectory { .. } => (Kind::NotFolder, "a part of the path is no folder"),
            _ => return Self::other(&error),
        };
        Self { kind, text: text.to_owned() }
    }
}

/// A range of bytes that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Its first byte.
    pub from: u64,
    /// The first byte behind it.
    pub to: u64,
    /// Why.
    pub fault: Fault,
}

impl Gap {
    /// Everything from `from` on, since the way to the file is lost.
    fn rest(from: u64, fault: Fault) -> Self {
        Self { from, to: u64::MAX, fault }
    }
}

#[cfg(test)]
mod tests;
