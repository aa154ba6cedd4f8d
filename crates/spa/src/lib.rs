//! The whole pool alive: discovery, import, traversal.
//!
//! # Theory
//! A pool is found by its labels, never by the paths that it remembers: [`scan`] reads the labels of whatever it is
//! given, groups them by pool, and knows each device by guid from then on, so that renamed, moved and partitioned
//! devices are found. What labels say of the tree is a guess good enough to read one thing, the pool's own config in the
//! MOS; that one is trusted, and the tree is built again from it: [`import()`] takes these steps and makes all checks between.
//!
//! # Absent
//! Datasets, files and volumes are not known here. Nothing is written.
//!
//! # See
//! OpenZFS `module/zfs/spa.c` (`spa_load_impl`), `lib/libzutil/zutil_import.c`, `lib/libzfs/libzfs_status.c`.

mod aside;
mod ask;
pub mod create;
mod damaged;
pub mod engine;
pub mod error;
mod events;
pub mod host;
pub mod import;
pub mod label;
pub mod place;
pub mod scan;
mod spa;
pub mod space;
pub mod status;
pub mod tunables;
pub mod txg;

pub use ask::{each as ask_each, one as ask, silent};
pub use error::{Failure, RewindInfo, SpaError, UnsupportedFeature};
pub use host::Host;
pub use import::{Clock, Options, Report, Rewind, SystemClock, examine, import, list_txgs};
pub use label::{FoundUberblock, Labels};
pub use place::{Partition, Place};
pub use scan::{Candidate, Member, Scan, scan};
pub use spa::Spa;
pub use status::{Errata, PoolStatus};
