//! What the daemon shows of itself: kstats, tunables, metrics, the tree of files, what it does, its
//! log.

mod clients;
mod errnos;
pub mod kstats;
pub(crate) mod logging;
pub(crate) mod memory;
pub mod metrics;
mod ops;
pub(crate) mod spl;
mod times;
pub(crate) mod top;
pub(crate) mod trace;
pub mod tree;
pub(crate) mod tunables;
pub(crate) mod txgs;
pub(crate) mod work;
