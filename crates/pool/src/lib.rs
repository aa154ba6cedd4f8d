//! Pool-wide state: configuration, space maps, DDT, BRT, history.
//!
//! # Theory
//! A pool keeps its own books in objects of the meta object set (MOS). [`Mos`] reads its directory and tables; the
//! modules here turn each kind of object into values: [`spacemap`] and [`metaslab`] what is allocated, [`space`]
//! how much room a pool has, [`ddt`] and [`brt`] which blocks are shared, [`history`] what was done, [`errlog`] what
//! is damaged, [`state`] scans, checkpoints and removals, [`indirect`] where removed devices' blocks went.
//! Everything is read on demand and bounded by what the objects really hold.
//!
//! # Locks
//! None: these are values, read from an immutable transaction group.
//!
//! # Absent
//! No dataset, no key, no device: deflation ratios and keys are handed in.

pub mod alloc;
pub mod bpobj;
pub mod brt;
pub mod config;
pub mod ddt;
mod deadlist;
pub mod errlog;
mod error;
pub mod feature;
pub mod history;
pub mod indirect;
pub mod metaslab;
mod mos;
pub mod range;
pub mod space;
pub mod spacemap;
pub mod state;

pub use error::Error;
pub use mos::{Entry, Mos, ZapValue, string_of};

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;
