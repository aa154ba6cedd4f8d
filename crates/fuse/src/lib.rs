//! The FUSE door: file systems mounted through `/dev/fuse`.
//!
//! # Theory
//! A door is thin: it turns the kernel's questions into calls of a [`tree::Tree`] and the results into bytes, and
//! holds no rule of the file system. [`abi`] has the kernel's structures, [`message`] takes requests apart, [`dispatch`]
//! gives them their meaning, [`dataset`] answers for `zpl`, [`workers`] runs them on a fixed number of threads, [`system`] mounts and unmounts, and
//! [`ctldir`] adds `.zfs/snapshot`, and [`nested`] file systems inside the mount of another.
//!
//! The protocol is spoken here rather than by a library: those at hand want a thread and a 16 MiB buffer for each
//! mount, and thousands of mounts must share a few of both.
//!
//! # Locks
//! None is held across a call of a tree, except those that a tree takes itself.
//!
//! # Absent
//! What a file system is, which datasets exist, where they belong: `zpl` and `server` know.

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
