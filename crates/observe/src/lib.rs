//! What the rooms count with: counters and log2 histograms; and the numbers that steer them.
//!
//! # Theory
//! Counting must be free when nobody looks: every update is one relaxed atomic addition, nothing allocates,
//! and readers take a snapshot that may tear between counters but never within one. A counter that many
//! cores bump at once is a [`Sharded`] one, whose shards sit on cache lines of their own.
//!
//! Names are OpenZFS's where it has one (`evict_not_enough`, `vs_checksum_errors`), so that scripts and
//! people find what they know.
//!
//! # Absent
//! This room knows no other room, formats nothing for a terminal and exports nothing; `server` does that.

mod counter;
mod histogram;
mod tunable;

pub use counter::{Counter, Sharded};
pub use histogram::{Histogram, HistogramSnapshot};
pub use tunable::Tunable;
