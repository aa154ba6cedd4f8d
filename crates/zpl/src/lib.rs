//! The POSIX file system on an object set (the ZPL): names, attributes, contents, extended
//! attributes, ACLs.
//!
//! # Theory
//! A [`FileSystem`] is an object set with a master node. Everything in it is addressed by object
//! number, because front ends that keep inodes need that. A [`Node`] is one file with its
//! attributes decoded once. After that, the fixed structure of ZPL 1 to 4 and the system attributes
//! of ZPL 5 look alike. The attributes are those of OpenZFS's Linux port, including the number of
//! blocks.
//!
//! # Locks
//! A file system keeps recently used directories behind a mutex. The mutex is held while a short
//! list is searched, never across a read.
//!
//! # Absent
//! * Permission checks: the kernel makes them at a mount, with modes and POSIX ACLs from here.
//! * The `.zfs` directory and the properties `atime`, `acltype` and `snapdir`: the front ends apply
//!   those.

mod acl;
mod afs;
mod afs_briefs;
mod attr;
mod create;
mod dir;
mod error;
mod fs;
mod fuid;
mod node;
mod path;
mod rollback_diff;
mod space;
mod write;
mod xattr;

pub use acl::Acl;
pub use afs::{AfsRoot, AfsStatus, AfsUser};
pub use afs_briefs::{AfsBrief, AfsBriefs};
pub use attr::{Attr, Time};
pub use create::{AFS_DNODES, NewFileSystem};
pub use dir::{DirCookie, DirEntry, ReadDir};
pub use error::Error;
pub use fs::{CaseSensitivity, FileSystem, WeakFileSystem};
pub use fuid::Domains;
pub use node::{Node, Part};
pub use ondisk::dirent::FileType;
pub use ondisk::fuid::Fuid;
pub use ondisk::znode::Pflags;
pub use path::Paths;
pub use rollback_diff::{RollbackDiff, compare};
pub use space::{Space, SpaceKind};
pub use write::{
    AFS_HEADER_MAX, AclInherit, AclMode, Atime, CloneRange, Kind, NewFile, Orphans, Place, Plant,
    PlantedEntry, Policies, Policy, Rename, SetAttr, SetXattr, Unlinked, replay,
};

pub use zil::{LogPolicy, SyncMode, Zilog};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Longest name of a directory entry in bytes, with the feature `longname`
/// (`ZAP_MAXNAMELEN_NEW - 1`).
pub const NAME_MAX: usize = 1023;
/// Largest extended attribute that is returned, in bytes: Linux's limit (`XATTR_SIZE_MAX`).
pub const XATTR_SIZE_MAX: u64 = 65536;
/// Most bytes of extended attributes' names that Linux passes, each with its NUL
/// (`XATTR_LIST_MAX`).
pub const XATTR_LIST_MAX: usize = 65536;
/// Most bytes of extended attributes, names and values, that [`Node::xattrs`] returns.
pub const XATTRS_MAX: usize = 64 << 20;
