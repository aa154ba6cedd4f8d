//! The commands: `zpool` and `zfs` with OpenZFS's grammar, output and exit codes.
//!
//! # Theory
//! A command reads its line as OpenZFS's does, asks a [`api::Requests`] for data, and renders it. It does not know
//! whether the service is a daemon's socket or the library in its own process, and it holds no rule of the engine: what a
//! property is worth, which vdev is degraded or whether a pool may be imported is decided below. Scripts parse what is
//! printed here, so the texts, widths and codes are OpenZFS 2.3's, to the byte. Manual pages ([`manual`]) are our own.
//!
//! # Absent
//! Sockets, processes and mounts: the server's. Commands that OpenZFS has and this release lacks say so.

pub mod arc_summary;
pub mod arcstat;
pub mod bench;
pub mod completion;
mod counts;
pub mod cx;
pub mod doctor;
pub mod exports;
pub mod getprint;
pub mod https;
pub mod ids_to_path;
pub mod json;
pub mod manual;
pub mod mount_zfs;
pub mod names;
pub mod proplist;
pub mod props;
pub mod rescue;
pub mod stats;
pub mod sysfs;
pub mod terminal;
pub mod vdev_name;
pub mod version;
pub mod words;
pub mod zfs;
pub mod zinject;
pub mod zpool;
