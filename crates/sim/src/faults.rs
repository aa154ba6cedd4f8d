//! Every kind of vdev under every set of faults that its redundancy makes up for, and under one
//! more.
//!
//! # Theory
//! A pool is created once for each [`Kind`], with known files. An older state of its devices is
//! kept. A *trial* takes a copy, adds faults to some devices, and imports the copy.
//!
//! As long as no vdev has more faults than its parity or copies make up for:
//!
//! * All files read right.
//! * A scrub repairs everything, and the second scrub finds no error.
//! * `zdb` agrees.
//! * A device that was away meanwhile is brought up to date when it is back.
//!
//! One fault more hits the parts of a single block of a single file. Then only that block can't be
//! read:
//!
//! * The error and the pool's error log name the file.
//! * No read returns other bytes than were written.
//! * After the removal of the file the pool has no damage.
//!
//! # Absent
//! * Devices that fail while a transaction group is written: `crates/spa/tests/faults.rs`.
//! * Distributed spares that stand in for a device.

mod base;
mod beyond;
mod table;
mod within;

pub use base::Base;
pub(crate) use table::draid_shape;
pub use table::{Fault, Kind, Outcome, Trial};

/// The cause of a failure, in words for people.
pub type Failure = Box<dyn std::error::Error>;
