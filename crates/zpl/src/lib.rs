//! The POSIX file system on an object set (the ZPL): names, attributes, contents, extended attributes, ACLs.
//!
//! # Theory
//! A [`FileSystem`] is an object set with a master node; everything in it is addressed by object number, as a front
//! door that keeps inodes needs it. A [`Node`] is one file with its attributes decoded once: the fixed structure
//! of ZPL 1 to 4 and the system attributes of ZPL 5 look alike from there on. What is shown is what OpenZFS's Linux port
//! shows, to the number of blocks.
//!
//! # Locks
//! A file system keeps the last directories it looked into behind a mutex, held for a search of a short list, never
//! across a read.
//!
//! # Absent
//! Permission checks: the kernel makes them at a mount, with modes and POSIX ACLs from here. The `.zfs` directory, and what
//! properties say (`atime`, `acltype`, `snapdir`): the doors know those.

mod acl;
mod attr;
mod compare;
mod create;
mod dir;
mod error;
mod fs;
mod fuid;
mod node;
mod path;
mod space;
mod write;
mod xattr;

pub use acl::Acl;
pub use attr::{Attr, Time};
pub use compare::{Differences, compare};
pub use create::NewFileSystem;
pub use dir::{DirCookie, DirEntry, ReadDir};
pub use error::Error;
pub use fs::{CaseSensitivity, FileSystem, WeakFileSystem};
pub use fuid::Domains;
pub use node::Node;
pub use ondisk::dirent::FileType;
pub use ondisk::fuid::Fuid;
pub use ondisk::znode::Pflags;
pub use path::Paths;
pub use space::{Space, SpaceKind};
pub use write::{
    AclInherit, AclMode, Atime, CloneRange, Kind, NewFile, Orphans, Policies, Policy, Purpose, Rename,
    SetAttr, SetXattr, Txs, replay,
};

pub use zil::{LogPolicy, SyncMode, Zilog};

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// Longest name of a directory entry in bytes, with the `longname` feature (`ZAP_MAXNAMELEN_NEW - 1`).
pub const NAME_MAX: usize = 1023;
/// Largest extended attribute that is returned, Linux's limit (`XATTR_SIZE_MAX`).
pub const XATTR_SIZE_MAX: u64 = 65536;
/// Most bytes of names of extended attributes, each with its NUL, that Linux passes (`XATTR_LIST_MAX`).
pub const XATTR_LIST_MAX: usize = 65536;
/// Most bytes of extended attributes, names and values, that [`Node::xattrs`] returns.
pub const XATTRS_MAX: usize = 64 << 20;
