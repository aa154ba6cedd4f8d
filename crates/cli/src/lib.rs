//! The commands: `zpool` and `zfs` with OpenZFS's grammar, output and exit codes.
//!
//! # Theory
//! A command reads its line as OpenZFS's does, requests data through [`api::Requests`], and renders
//! it. It does not know whether the service is a daemon's socket or the library in its own process.
//!
//! A command holds no rule of the engine. The layers below decide what a property's value is, which
//! vdev is degraded and whether a pool may be imported.
//!
//! Scripts parse what is printed here, so texts, widths and codes are OpenZFS 2.3's, to the byte.
//! Manual pages ([`manual`]) are our own.
//!
//! # Absent
//! * The daemon, and with it any async runtime: the program passes in what commands need of it
//!   ([`daemon`]).
//! * Sockets, processes and mounts: they are the server's.
//! * Commands that OpenZFS has and this release lacks: each reports that.

pub mod afs;
pub mod arc_summary;
pub mod arcstat;
pub mod completion;
pub mod cost;
mod counts;
pub mod cx;
pub mod daemon;
pub mod doctor;
pub mod estimate;
pub mod exports;
pub mod getprint;
pub mod histogram;
pub mod https;
pub mod ids_to_path;
pub mod json;
pub mod lockstat;
pub mod manual;
pub mod mount_zfs;
pub mod names;
pub mod ops;
pub mod profile;
pub mod proplist;
pub mod props;
#[cfg(test)]
mod sink;
pub mod slower;
pub mod stats;
pub mod status;
mod stream_copy;
pub mod sysfs;
pub mod terminal;
pub mod title;
pub mod top;
pub mod trace;
pub mod txgs;
pub mod vdev_name;
pub mod version;
pub mod zfs;
pub mod zinject;
pub mod zpool;
