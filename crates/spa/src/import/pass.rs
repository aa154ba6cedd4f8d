//! The pass over all datasets during an import.

/// The options of the one pass over all datasets in which a writable import finds their logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// Number of threads, at least one. Reading is mostly waiting.
    pub threads: usize,
}

impl Default for Pass {
    fn default() -> Self {
        Pass { threads: 64 }
    }
}
