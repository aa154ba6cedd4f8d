//! The pass over all datasets that an import makes.

use std::fmt;
use std::sync::Arc;

use dsl::Dataset;

/// What is done for a dataset, by several threads.
pub type Each = dyn Fn(&Dataset) + Send + Sync;

/// How an import for writing passes over all datasets, which it does once, to find their logs.
#[derive(Clone)]
pub struct Pass {
    /// Threads: reading is waiting (at least one).
    pub threads: usize,
    /// What else is done for each dataset: what it reads is in the cache for who comes next.
    pub also: Option<Arc<Each>>,
}

impl Default for Pass {
    fn default() -> Self {
        Pass { threads: 64, also: None }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("threads", &self.threads).field("also", &self.also.is_some()).finish()
    }
}

impl PartialEq for Pass {
    /// Whether they do the same with as many threads.
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.also, &other.also) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.threads == other.threads && same
    }
}

impl Eq for Pass {}
