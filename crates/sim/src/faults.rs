//! Every kind of vdev under every set of faults that it makes up for, and under one more.
//!
//! # Theory
//! A pool is made once for each [`Kind`], with files that are known, and an older state of its devices is kept. A *trial* takes a copy, gives some devices faults, and imports
//! it. As long as no vdev has more faults than its parity or copies make up for, nobody notices: all files read right, a scrub puts everything right and
//! finds nothing wrong the second time, and `zdb` agrees. A device that was away meanwhile is brought up to date when it is back.
//!
//! One fault more is given to the pieces of a single block of a single file. Then that block can't be read, and nothing else is different: the error and the pool's
//! log name the file, no read gives other bytes than were written, and when the file is removed the pool is whole.
//!
//! # Absent
//! Devices that fail while groups are written: `crates/spa/tests/faults.rs`. Distributed spares that stand in for a device.

mod base;
mod beyond;
mod table;
mod within;

pub use base::Base;
pub(crate) use table::draid_shape;
pub use table::{Fault, Kind, Outcome, Trial};

/// What went wrong, in words for people.
pub type Failure = Box<dyn std::error::Error>;
