//! The daemon: imported pools, mounts, the control API.
