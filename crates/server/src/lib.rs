//! The daemon: imported pools, mounts, the control API.
//!
//! # Theory
//! A process imports pools, mounts their file systems and answers the commands on a Unix socket.
//! The crate [`api`] has the requests and replies, their client, and the folder where a daemon
//! lives ([`api::place`]). [`daemon`] is its life; `http` carries requests, [`peer`] says who may
//! make them, and `grants` what `zfs allow` adds. [`house`] answers: it holds [`pools`] with their
//! [`mounts`], which [`api::plan`] reads off properties and [`forest`] makes in parallel; [`view`]
//! says what a pool looks like. `visits` gives commands the files of a pool, with no mount
//! ([`api::files`]). `events` remembers what happened to pools, and `zedlets` runs the user's
//! programs then.

mod attach;
mod cachefile;
mod callers;
pub mod change;
pub mod daemon;
mod device_life;
mod events;
mod exports;
mod faults;
pub mod forest;
mod grants;
pub mod house;
mod http;
pub mod inherited;
mod inject;
mod journal;
pub mod kstats;
mod leaf_work;
mod leases;
mod logging;
mod looks;
mod memory;
pub mod metrics;
pub mod mounts;
mod notify;
pub mod peer;
pub mod pools;
mod scan;
mod shape;
mod spl;
mod split;
mod syncs;
pub mod tree;
mod tunables;
mod vdev_settings;
pub mod view;
mod visits;
pub mod work;
mod zedlets;

pub use zedlets::{Terms, ZedletError};
