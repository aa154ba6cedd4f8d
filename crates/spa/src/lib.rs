//! The whole pool alive: discovery, import, traversal.
//!
//! # Theory
//! A pool is found by its labels, never by the paths that it remembers: [`discover`] reads the labels of whatever it is
//! given, groups them by pool, and knows each device by guid from then on, so that renamed, moved and partitioned
//! devices are found. What labels say of the tree is a guess good enough to read one thing, the pool's own config in the
//! MOS; that one is trusted, and the tree is built again from it: [`import()`] takes these steps and makes all checks between.
//!
//! # Absent
//! Datasets, files and volumes are not known here. Nothing is written.
//!
//! # See
//! OpenZFS `module/zfs/spa.c` (`spa_load_impl`), `lib/libzutil/zutil_import.c`, `lib/libzfs/libzfs_status.c`.

mod aux_devices;
pub mod create;
mod damaged;
mod device_monitor;
pub mod discovery;
pub mod engine;
pub mod error;
mod events;
pub mod import;
mod initialize_trim;
mod scan;
mod spa;
pub mod space;
pub mod status;
mod sync;
pub mod tunables;
pub mod txg;
mod unwritable;
mod vdev_ops;

pub use discovery::host::Host;
pub use discovery::label::{FoundUberblock, Labels};
pub use discovery::location::{DeviceLocation, Partition};
pub use discovery::probe::{each as ask_each, one as ask, silent};
pub use discovery::{Candidate, Discovery, Member, discover};
pub use error::{Failure, RewindInfo, SpaError, UnsupportedFeature};
pub use import::{Clock, Options, Report, Rewind, SystemClock, examine, import, list_txgs};
pub use spa::Spa;
pub use status::{Errata, PoolStatus};
pub use unwritable::unwritable;
