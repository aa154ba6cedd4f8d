//! Benchmarks that print JSON.
//!
//! # Theory
//! A benchmark is a [`Work`] done to a pool, always by a process of its own that opens the pool anew, so that no cache of ours
//! is warm. Beside it stands what OpenZFS's own user-space code needs for the same pool: its `zdb`, and whatever peer command
//! the caller brings. Both are asked in turns, several rounds, since a machine's pace changes; what is reported is the
//! median of each and the ratio of the medians. CPU time is measured besides wall time: it says more on a busy machine.
//!
//! # Absent
//! Pools that are read are made by others; `docs/results/engine.md` says how those in its tables
//! came about. The page cache is left as it is. So devices are as fast as memory from the second
//! round on: these are figures of our code, not of disks.

pub mod drive;
pub mod help;
mod images;
pub mod making;
pub mod measure;
pub mod mounts;
pub mod null;
pub mod peers;
pub mod plan;
pub mod work;

pub use work::Work;
