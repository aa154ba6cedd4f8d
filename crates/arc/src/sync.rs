//! The locks of modelled code. The same code runs on those of a model checker in `tests/models.rs`,
//! which has its own module of this name.

pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
