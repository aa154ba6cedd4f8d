//! The daemon: imported pools, mounts, the control API.

pub mod api;
