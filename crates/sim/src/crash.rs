//! Crashes: a pool is opened after every way in which the power could have failed.
//!
//! # Theory
//! A workload runs on devices that remember, in one common order, every write and flush. A *crash point* is a place in that order: what was
//! flushed before it is on the devices; of each write that was not, a seed decides whether it is kept, dropped, or torn at a sector. The pool
//! that such devices hold must open, and show exactly the state after some step of the workload: not before the last one that was
//! acknowledged, not after the last one that was begun, and never anything between.
//!
//! A pool that is split must be one pool or two after any crash ([`split`]). And what a commit said to be durable before its group is must be found there, or in the log ([`promise`]).
//!
//! Devices come and go, and whatever is done to them is done, not begun, or ends by itself ([`life`]).
//!
//! # Absent
//! Writes that the device reorders across a flush, or that it tears inside a sector: no file system survives these.

mod dice;
mod life;
mod model;
mod promise;
mod split;
mod tape;
mod work;

pub use dice::SplitMix;
pub use life::{Life, Tale, live};
pub use promise::{Promises, promise};
pub use split::{Split, split};
pub use tape::{Point, Tape};
pub use work::{Outcome, Script, record};
