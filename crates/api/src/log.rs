//! Statistics of intent logs.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the intent log of a dataset has done since the dataset was opened for writing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStats {
    /// The dataset.
    pub dataset: String,
    /// Its counters, by OpenZFS's names (`zil_commit_count`) where it has them.
    pub counters: BTreeMap<String, u64>,
}
