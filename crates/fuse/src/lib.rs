//! The FUSE front end: file systems mounted through `/dev/fuse`.
//!
//! # Theory
//! A front end is thin: it turns requests of the kernel into calls of a [`tree::FileTree`], and the
//! results into bytes. It holds no file-system rules.
//!
//! | module | task |
//! |---|---|
//! | [`abi`] | the kernel's structures |
//! | [`message`] | decodes requests and encodes answers |
//! | [`dispatch`] | answers each request from a tree |
//! | [`tree`] | the interface to a file system |
//! | [`dataset`] | a dataset as a tree, through `zpl` |
//! | [`ctldir`] | adds `.zfs/snapshot` to a tree |
//! | [`nested`] | file systems inside the mount of another |
//! | [`workers`] | a fixed number of threads that serve all mounts |
//! | [`system`] | mounts and unmounts |
//!
//! This crate implements the protocol itself. The libraries for it need a thread and a 16 MiB
//! buffer per mount, and thousands of mounts must share a few of each.
//!
//! # Locks
//! A worker holds one lock across a call of a tree: the gate of the mount, for reading. A suspended
//! mount holds it for writing ([`Mount::suspended`]). A tree takes its own locks.
//!
//! # Absent
//! What a file system is, which datasets exist and where they are mounted: `zpl` and `server` know
//! that.

pub mod abi;
pub mod caller;
pub mod ctldir;
pub mod dataset;
pub mod dispatch;
mod error;
mod hearing;
pub mod message;
mod mount;
pub mod nested;
mod place;
pub mod reserve;
mod served;
pub mod system;
pub mod tree;
mod users;
pub mod why;
pub mod workers;

pub use error::{Error, Words};
pub use hearing::Hearing;
pub use mount::Mount;
pub use nested::{Content, Nested};
pub use served::{Nesting, Served};
pub use system::{Detach, Options};
pub use workers::Workers;
