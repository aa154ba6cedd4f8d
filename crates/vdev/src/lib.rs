//! The vdev tree: leaves, mirrors, RAID-Z, dRAID, indirect vdevs, labels, reconstruction.
//!
//! # Theory
//! A pool's space is a row of *top-level* vdevs. A block's address is a top-level vdev and an
//! offset. Below each top-level vdev stands a small tree. It turns that address into bytes on
//! devices, with redundancy:
//!
//! * A mirror holds the same bytes several times.
//! * RAID-Z and dRAID spread a block over columns with parity.
//! * An indirect vdev stands for a removed one, and its mapping says where the blocks went.
//!
//! The vdevs know no checksum: a higher layer decides whether bytes are right. So a read goes in
//! steps. [`Tree::attempts`] gives an [`Attempts`]. Each of its candidates is one more guess at the
//! block, in order of cost:
//!
//! 1. the cheapest read;
//! 2. other copies;
//! 3. what parity gives when each set of columns is taken for wrong.
//!
//! The caller verifies a candidate, and takes the next if it is wrong. At the end it says which
//! bytes were right ([`Attempts::settle`]). That shows exactly which devices returned wrong bytes,
//! and these count a checksum error.
//!
//! The shape of a tree never changes. When a device is attached or replaced, a new tree is built
//! from the new configuration ([`Tree::reshape`]). So a read walks the tree without a lock. What
//! changes in place is atomic (states, counters), or has a lock of its own that is held for a
//! look-up only (DTLs, indirect mappings).
//!
//! # On disk
//! Each leaf holds two labels of 256 KiB and 3.5 MiB of reserved space in front, and two labels
//! behind ([`label`]). Offsets within a vdev count from the end of the front part.
//!
//! The configuration comes as a [`VdevConfig`]. It is hostile input and is checked when a tree is
//! built. Widths, parities, shifts and depths are then in range, so that geometry is later computed
//! without checks.
//!
//! # Locks
//! No lock is held across device I/O.
//!
//! # Absent
//! Block pointers, checksums, compression, allocation and the intent log are not known here. `spa`
//! finds devices, and `zio` decides when a repair is written.
//!
//! # Writing
//! See [`Tree::lay_out`]: a block becomes ranges of leaves, and ranges that touch are written
//! together.
//!
//! # See
//! OpenZFS `vdev.c`, `vdev_mirror.c`, `vdev_raidz.c`, `vdev_draid.c`, `vdev_indirect.c`.

mod alarm;
mod attempts;
mod closed_ranges;
mod columns;
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

pub use alarm::{AlarmQueue, Limit, Symptom};
pub use attempts::{Attempts, Failure};
pub use closed_ranges::{ClosedRange, ClosedRanges, VdevRange, WriterPass};
pub use draid::{REFLOW_RESERVE as DRAID_RESERVE, ROW_HEIGHT as DRAID_ROW_HEIGHT};
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
pub use stats::{ByClass, ClassSnapshot, IoType, Moved, SLOW_MS, StatsSnapshot, VdevStats};
pub use tree::{Devices, Opener, Tree, TreeCell, VdevInfo};
pub use write::{
    BatchReader, Examined, Extent, Fetched, FlushError, Laid, PieceAt, Refused, RepairOutcome, Repaired, Run,
    StretchError, WipeError, WriteError, Written, by_device, join, takes_writes,
};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, VdevError>;

#[cfg(test)]
mod tests;

/// All tunables of this crate.
pub static TUNABLES: &[&observe::Tunable] = &[&CHECKSUM_EVENTS, &DEADMAN_EVENTS, &SLOW_EVENTS, &SLOW_MS];
