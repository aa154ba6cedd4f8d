//! Numbers that can be set while a program runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that holds for all pools of a process, as a module parameter of OpenZFS does: a static beside the code that it steers.
#[derive(Debug)]
pub struct Tunable {
    value: AtomicU64,
    default: u64,
}

impl Tunable {
    /// One that nobody has set.
    pub const fn new(default: u64) -> Self {
        Self { value: AtomicU64::new(default), default }
    }

    /// What holds now.
    pub fn get(&self) -> u64 {
        self.value.load(Relaxed)
    }

    /// What holds from now on.
    pub fn set(&self, value: u64) {
        self.value.store(value, Relaxed);
    }

    /// What holds if nobody sets it.
    pub const fn default(&self) -> u64 {
        self.default
    }
}
