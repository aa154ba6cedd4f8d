//! What the rooms count with: counters, log2 histograms, and locks that know who waited for them; and the numbers that steer them.
//!
//! # Theory
//! Counting must be free when nobody looks: every update is one relaxed atomic addition, nothing allocates,
//! and readers take a snapshot that may tear between counters but never within one. A counter that many
//! cores bump at once is a [`Sharded`] one, whose shards sit on cache lines of their own. A [`Mutex`] counts only who has to wait for it.
//!
//! Names are OpenZFS's where it has one (`evict_not_enough`, `vs_checksum_errors`), so that scripts and
//! people find what they know.
//!
//! # Absent
//! This room knows no other room, formats nothing for a terminal and exports nothing; `server` does that.

mod counter;
mod histogram;
mod lock;
mod tunable;

pub use counter::{Counter, Sharded};
pub use histogram::{Histogram, HistogramSnapshot};
pub use lock::{LockStat, Mutex, Site, lock_stats};
pub use tunable::{OutOfRange, Parameter, Tunable, Unit};
