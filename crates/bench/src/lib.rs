//! Benchmarks that print JSON.
//!
//! # Theory
//! A benchmark is a [`Work`] on a pool. It always runs in a process of its own, which opens the
//! pool anew, so no cache of ours is warm. Beside it the report has OpenZFS's own user-space code
//! on the same pool: its `zdb`, and any peer program that the caller names.
//!
//! All of them run in turns, for several rounds, since the speed of a machine changes. The report
//! has the median of each, and the ratio of the medians. It has CPU time beside wall time, as CPU
//! time says more on a busy machine.
//!
//! # Absent
//! Creation of the pools that are read: `docs/results/engine.md` says how the pools in its tables
//! were made. The page cache is not dropped. So from the second round on, devices are as fast as
//! memory, and the figures show our code, not disks.

pub mod drive;
pub mod help;
mod images;
pub mod making;
pub mod measure;
pub mod mounts;
pub mod null;
pub mod observe;
pub mod peers;
pub mod plan;
pub mod streams;
pub mod work;

pub use work::Work;
