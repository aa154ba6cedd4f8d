//! The vdev tree: leaves, mirrors, RAID-Z, dRAID, indirect vdevs, labels, reconstruction.
//!
//! # Theory
//! A pool's space is a row of *top-level* vdevs; a block's address is (top-level vdev, offset). Below each
//! stands a small tree that turns that address into bytes on devices, with redundancy: a mirror holds the
//! same bytes several times, RAID-Z and dRAID spread a block over columns with parity, an indirect vdev
//! stands for a removed one and says where its blocks went.
//!
//! The vdevs know no checksum: whether bytes are right is decided above. So a read is a conversation that
//! goes down by value and up by result. [`Tree::attempts`] gives an [`Attempts`]; each of its candidates is
//! one more guess at the block, in order of cost: the cheapest read first, then other copies, then what
//! parity gives when each set of columns is taken for wrong. The caller verifies a candidate, takes the next
//! if it is bad, and says at the end which bytes were right ([`Attempts::settle`]); from this follows
//! exactly which devices returned wrong bytes, and those are charged with a checksum error.
//!
//! The shape of a tree never changes; when a device is attached or replaced, a new tree is built from the
//! new configuration ([`Tree::reshape`]). So a read walks it without a lock. What changes in place is atomic (states, counters)
//! or behind a lock of its own that is held for a look-up only (DTLs, indirect mappings).
//!
//! # On disk
//! Each leaf holds two labels of 256 KiB and 3.5 MiB of reserved space in front and two labels behind
//! ([`label`]). Offsets within a vdev count from the end of the front part. The configuration comes as a
//! [`VdevConfig`]; it is hostile input and is checked when a tree is built, so that geometry can be computed
//! later without a check: widths, parities, shifts and depths are in range.
//!
//! # Locks
//! No lock is held across device I/O.
//!
//! # Absent
//! Block pointers, checksums, compression, allocation and the intent log are not known here; nor how a
//! device is found (`spa`), nor when a repair is written (`zio`).
//!
//! # Writing
//! See [`Tree::lay_out`]: a block becomes pieces of leaves, and pieces that touch are written together.
//!
//! # See
//! OpenZFS `vdev.c`, `vdev_mirror.c`, `vdev_raidz.c`, `vdev_draid.c`, `vdev_indirect.c`.

mod alarm;
mod attempts;
mod columns;
mod cordon;
mod draid;
mod dtl;
mod error;
mod hung;
mod indirect;
pub mod inject;
mod kind;
pub mod label;
mod pace;
mod parity;
mod raidz;
mod read;
mod report;
mod request;
mod state;
mod stats;
mod translate;
mod tree;
mod write;

pub use alarm::{Bell, Limit, Symptom};
pub use attempts::{Attempts, Failure};
pub use cordon::{Closed, Cordon, Pass, VdevRange};
pub use dtl::TxgRanges;
pub use error::VdevError;
pub use hung::Hung;
pub use indirect::Route;
pub use ondisk::config::{AllocBias, VdevConfig, VdevKind};
pub use pace::Pace;
pub use raidz::Reflow;
pub use report::{CHECKSUM_EVENTS, DEADMAN_EVENTS, Report, SLOW_EVENTS, Trouble};
pub use request::{Priority, Request};
pub use state::{VdevAux, VdevState};
pub use stats::{Moved, SLOW_MS, StatsSnapshot, VdevStats};
pub use tree::{Devices, Opener, Tree, TreeCell, VdevInfo};
pub use write::{
    Ahead, Examined, Extent, Fetched, FlushError, Laid, Mended, PieceAt, Refused, Repaired, Run,
    StretchError, WipeError, WriteError, Written, by_device, join, takes_writes,
};

/// A result of this room.
pub type Result<T> = std::result::Result<T, VdevError>;

#[cfg(test)]
mod tests;

/// All tunables of this crate.
pub static TUNABLES: &[&observe::Tunable] = &[&CHECKSUM_EVENTS, &DEADMAN_EVENTS, &SLOW_EVENTS, &SLOW_MS];
