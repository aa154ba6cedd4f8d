//! The daemon: imported pools, mounts, the control API.
//!
//! # Theory
//! A process imports pools, mounts their file systems and answers the commands on a Unix socket. [`api`] has the
//! questions and answers; [`client`] asks them, and [`start`] runs a daemon when one is needed; [`daemon`] is its life,
//! in a folder that [`place`] finds; `http` carries requests, [`peer`] says who may make them, and `grants` what `zfs allow` adds. [`house`] answers: it
//! holds [`pools`] with their [`mounts`], which [`plan`] reads off properties and [`forest`] makes in parallel; [`view`]
//! says what a pool looks like. [`files`] gives commands the files of a pool, with no mount.
//! `events` remembers what happened to pools, and `zedlets` runs the user's programs then.

pub mod accounts;
pub mod api;
mod attach;
pub mod budget;
mod cachefile;
mod callers;
pub mod change;
pub mod client;
pub mod daemon;
mod device_life;
mod events;
mod exports;
mod faults;
pub mod files;
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
pub mod place;
pub mod plan;
pub mod pools;
mod scan;
pub mod settings;
mod shape;
mod spl;
mod split;
pub mod start;
mod syncs;
pub mod tree;
mod tunables;
pub mod view;
pub mod work;
mod zedlets;

pub use zedlets::{Terms, ZedletError};
