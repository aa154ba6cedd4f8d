//! Pool metadata: configuration, space maps, DDT, BRT, history.
//!
//! # Theory
//! A pool keeps its metadata in objects of the meta object set (MOS). [`Mos`] reads and changes its
//! directory and its ZAPs. Each module handles one kind of object:
//!
//! | module | content |
//! |---|---|
//! | [`config`], [`feature`] | the pool's configuration, properties and features |
//! | [`spacemap`], [`metaslab`] | what is allocated |
//! | [`alloc`] | where new blocks go, and what becomes free |
//! | [`space`] | how much space the pool has |
//! | [`bpobj`] | lists of blocks, and deadlists |
//! | [`ddt`], [`brt`] | which blocks are shared |
//! | [`history`], [`errlog`] | what was done, and what is damaged |
//! | [`state`] | scans, checkpoints and removals |
//! | [`indirect`] | where the blocks of removed devices went |
//!
//! Everything is read on demand. Its size is bounded by what the objects really hold.
//!
//! # Locks
//! A [`Mos`] has none of its own. The allocator ([`alloc`]) and the tables of a pool that is
//! written ([`ddt`], [`brt`]) have one each, which their modules describe.
//!
//! # Absent
//! This crate knows no dataset, no key and no device. Callers pass deflation ratios and keys.

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

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
