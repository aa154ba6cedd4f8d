//! Counting for all crates: counters, histograms, locks with wait statistics, and tunables.
//!
//! # Theory
//! Counting must cost nothing while no statistics are read. Each update is one relaxed atomic
//! addition, without allocation. In a snapshot, counters can be of different moments, but each is
//! whole. A counter that many cores update at once is a [`Sharded`] one, whose shards are on cache
//! lines of their own. A [`Mutex`] counts only threads that wait for it. Layers note what a thread
//! works on and waits for ([`work`]) where time is lost anyway.
//!
//! Counters have OpenZFS's names where it has one (`evict_not_enough`, `vs_checksum_errors`). So
//! scripts and people find what they know.
//!
//! # Absent
//! This crate uses no other layer, formats nothing for a terminal and exports nothing. `server`
//! exports the statistics.

#[macro_use]
mod named;

pub mod clients;
mod codes;
mod counter;
pub mod event;
mod histogram;
mod latency;
pub mod lock;
mod op;
pub mod ops;
pub mod slow;
pub mod trace;
mod tunable;
pub mod work;

pub use codes::{Codes, CodesSnapshot};
pub use counter::{Counter, Sharded};
pub use histogram::{Histogram, HistogramSnapshot};
pub use latency::{Latency, LatencySnapshot};
pub use lock::{LockStat, Mutex, Site, lock_stats, site_name};
pub use tunable::{OutOfRange, Parameter, Tunable, Unit};
