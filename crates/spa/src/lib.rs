//! The whole pool: discovery, import, transaction groups, scans and vdev operations.
//!
//! | module | what it does |
//! |---|---|
//! | [`import`](mod@import) | opens a pool that was found |
//! | [`create`] | creates a pool |
//! | `split` | splits a pool of mirrors |
//! | [`engine`] | puts the parts of a pool that is open for writing together |
//! | `sync` | the contents of a transaction group: what the sync thread writes |
//! | `device_monitor` | reacts to faulty, missing and returning devices |
//! | `vdev_ops` | attach, add, remove, replace, online and offline of vdevs |
//! | `scan` | scrub, resilver, sequential rebuild |
//! | `initialize_trim` | initialize and TRIM |
//! | `checkpoint`, `intent_logs`, `error_log` | the checkpoint, and logs |
//! | `pool_core` | what these parts share: cache, allocator, MOS, datasets, config |
//! | [`txg`] | the transaction groups and the sync thread |
//! | [`discovery`] | finds pools by their labels |
//!
//! A module uses those below it in this table. No cycle of imports has more than two files (the
//! test `modules` of the crate `testkit`).
//!
//! # Theory
//! A pool is found by its labels, never by recorded paths. [`discover()`] reads the labels of the
//! given devices and groups them by pool. From then on each device is known by its guid. So
//! renamed, moved and partitioned devices are found.
//!
//! The labels' description of the tree suffices to read one thing: the pool's own config in the
//! MOS. That config is trusted, and the tree is built again from it. [`import()`] takes these
//! steps, with all checks between.
//!
//! # See
//! OpenZFS `module/zfs/spa.c` (`spa_load_impl`), `lib/libzutil/zutil_import.c`,
//! `lib/libzfs/libzfs_status.c`.

mod aux_devices;
mod checkpoint;
pub mod create;
mod damaged;
mod damaged_objects;
mod device_monitor;
pub mod discovery;
pub mod engine;
pub mod error;
mod error_log;
mod head;
pub mod import;
mod initialize_trim;
mod intent_logs;
mod multihost;
mod new_vdevs;
mod pool_core;
mod scan;
mod spa;
pub mod space;
mod split;
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
pub use head::{HeadError, OpenHead};
pub use import::{Clock, Options, Report, Rewind, SystemClock, examine, import, list_txgs};
pub use spa::Spa;
pub use split::{SplitError, SplitTerms};
pub use status::{Errata, PoolStatus};
pub use unwritable::unwritable;
pub use vdev_ops::split::Unfit;
