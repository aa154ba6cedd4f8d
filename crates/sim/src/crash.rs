//! Crashes: a pool is opened after every possible result of a power failure.
//!
//! # Theory
//! A workload runs on devices that record every write and flush in one common order. A *crash
//! point* is a place in that order. The devices then have everything that was flushed before it.
//! For each other write, a seed decides whether it is kept, dropped, or torn at a sector.
//!
//! The pool on these devices must open, and show exactly the state after some step of the workload.
//! The step is not before the last acknowledged one, and not after the last one that had begun. A
//! state between two steps is never right.
//!
//! The functions of this module differ in their workloads:
//!
//! * [`record()`]: operations on datasets.
//! * [`promise()`]: commits. What a commit made durable before its transaction group must be in the
//!   group or in the log.
//! * [`split()`]: splitting a pool. After any crash there must be one pool or two.
//! * [`receive()`]: receives that break off. What came can be resumed, and becomes what was sent.
//! * [`serve()`]: calls of AFS clients. No client keeps data that the server has lost.
//! * [`live()`]: devices that are added, replaced and removed. Each operation is done, not begun,
//!   or ends by itself.
//!
//! # Absent
//! Writes that the device reorders across a flush, or tears inside a sector: no file system
//! survives these.

mod cell;
mod dice;
mod life;
mod model;
mod promise;
mod receiving;
mod split;
mod tape;
mod work;

pub use cell::{Served, serve};
pub use dice::SplitMix;
pub use life::{Life, Tale, live};
pub use promise::{Promises, promise};
pub use receiving::{Received, receive};
pub use split::{Split, split};
pub use tape::{Point, Tape};
pub(crate) use work::begin;
pub use work::{Outcome, Script, record};
