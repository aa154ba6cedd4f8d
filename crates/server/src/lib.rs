//! The daemon: imported pools, mounts, the control API.
//!
//! # Theory
//! A process imports pools, mounts their file systems and answers the commands on a Unix socket. [`api`] has the
//! questions and answers; [`client`] asks them, and [`start`] runs a daemon when one is needed; [`daemon`] is its life,
//! in a folder that [`place`] finds; [`http`] carries requests, [`peer`] says who may make them; [`forest`] mounts in
//! parallel.

pub mod api;
pub mod client;
pub mod daemon;
mod faults;
pub mod forest;
mod http;
pub mod mounts;
pub mod peer;
pub mod place;
pub mod plan;
pub mod pools;
pub mod start;
pub mod view;
