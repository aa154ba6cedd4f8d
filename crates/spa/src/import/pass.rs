//! The pass over all datasets that an import makes.

/// How an import for writing passes over all datasets, which it does once, to find their logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// Threads: reading is waiting (at least one).
    pub threads: usize,
}

impl Default for Pass {
    fn default() -> Self {
        Pass { threads: 64 }
    }
}
