//! The daemon: imported pools, mounts, the control protocol.
//!
//! # Theory
//! A process imports pools, mounts their file systems and answers the commands on a Unix socket.
//! The crate [`api`] has the requests and replies, their client, and the daemon's folder
//! ([`api::run_dir`]).
//!
//! | module | content |
//! |---|---|
//! | [`daemon`] | the daemon's life |
//! | [`control`] | HTTP on the control socket, the rights of callers, their limits |
//! | [`service`] | the methods of the control protocol |
//! | [`commands`] | what requests change: pools, vdevs, datasets |
//! | [`pools`] | the imported pools |
//! | [`mounts`] | their mounts, planned by properties ([`mount_rules`]) and made in parallel |
//! | `afs` | the AFS server, and partitions of pools |
//! | [`volumes`] | volumes over NBD, and as block devices of this machine |
//! | [`view`] | what a pool looks like |
//! | `events` | events, and the user's programs at them (`events::zedlets`) |
//! | [`telemetry`] | kstats, tunables, metrics, the tree of files, the log |
//! | `replies` | the reply for each failure of the engine |

mod afs;
pub mod commands;
pub mod control;
pub(crate) mod query;
pub(crate) mod replies;
pub mod service;
pub(crate) mod sync_all;
pub mod telemetry;
pub(crate) mod temporary_snapshots;
pub mod volumes;

pub mod daemon;
mod events;
pub mod inherited;
pub mod mounts;
pub mod pools;
pub mod view;

pub use events::zedlets::{Terms, ZedletError};
