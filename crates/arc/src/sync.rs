//! The locks of what is modelled: the same code runs on those of a model checker in `tests/models.rs`, which has a module of this name of its own.

pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
