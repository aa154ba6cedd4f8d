//! The engine's pools and datasets in the shapes of the control protocol.
//!
//! # Theory
//! Each function reads what one answer needs from an imported pool, and changes nothing. OpenZFS's
//! kernel module and library derive some values on the way to the command: states, sums, sources,
//! the most severe problem. These are derived here, once. What the commands do with them is theirs.
//!
//! # Absent
//! Mounts, sockets, and permissions. The caller says whether a file system is mounted.

pub(crate) mod candidate;
mod damage;
mod datasets;
mod ddt;
mod diff;
mod history;
mod iostat;
mod nameless;
mod pool;
mod props;
mod reclaim;
mod send;
pub(crate) mod space;
mod states;
mod status;
mod vdev_props;
mod vdevs;

pub use candidate::candidate;
pub use datasets::{MountedAs, datasets, grants, holds, key_error};
pub use ddt::prefetch;
pub use diff::{Compared, compared, diff};
pub use history::{HISTORY_PART, history};
pub use nameless::nameless;
pub use pool::{pool, refresh};
pub use props::PoolFacts;
pub use reclaim::reclaimed;
pub use send::{HeldSendable, send_size};
pub use space::{space, unlinked};
pub use status::status;

use crate::replies::{of_dsl, of_engine};
use api::Error;

/// The protocol's error for a failure of the engine.
fn engine(about: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::new(about, of_engine(error))
}

/// The protocol's error for a dataset that can't be found or read.
fn dataset(name: &str, error: &dsl::Error) -> Error {
    Error::new(name, of_dsl(error))
}
