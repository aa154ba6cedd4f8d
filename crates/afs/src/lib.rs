//! AFS: volumes in pools, and what file servers, volume servers and their clients exchange.
//!
//! # Theory
//! Each format is a module that turns bytes into checked types and back. Its input comes from
//! strangers: a dump of another cell, a directory inside it, an argument of a call. So each decoder
//! checks every length and number, takes memory only as bytes arrive, and never panics. An
//! [`Error`] names the record and the offset.
//!
//! * [`acl`] has access lists in all their forms, and evaluates them.
//! * [`dir`] makes and reads directories as clients fetch them.
//! * [`dump`] reads and writes volume dumps, as streams.
//! * [`calls`] has the calls of each service, with their arguments and replies.
//! * [`errors`] has the numbers by which calls fail.
//! * [`config`], [`partition`] and [`volume_name`] are what administrators write.
//! * [`volume`] maps volumes on file systems of a pool, and restores and makes their dumps.
//! * [`vicep`] reads volumes as OpenAFS's servers store them on a partition.
//! * [`cell`] asks the cell's database servers, and registers with them.
//! * [`server`] is what serves clients: who they are, and what they were promised.
//! * [`types`] has identifiers and structures of several formats. [`wire`] lays them out in calls.
//!
//! # See
//! OpenAFS: `src/volser`, `src/dir`, `src/libacl`, `src/fsint`.

pub mod acl;
pub mod calls;
pub mod cell;
pub mod config;
pub mod dir;
pub mod dump;
mod error;
pub mod errors;
pub mod partition;
pub mod server;
pub mod types;
pub mod vicep;
pub mod volume;
pub mod volume_name;
pub mod wire;

pub use error::{Error, Place, Record};

/// The result of a decoder or an encoder.
pub type Result<T> = std::result::Result<T, Error>;
