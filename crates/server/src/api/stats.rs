//! What is counted, and what can be set while the daemon runs.

use serde::{Deserialize, Serialize};

/// A number that can be set, by the name of OpenZFS's module parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunable {
    /// Its name.
    pub name: String,
    /// What it is now.
    pub value: u64,
    /// What it is if nobody sets it.
    pub default: u64,
    /// What it does.
    pub what: String,
}

/// A parameter of the module `spl`, as its file would tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplParameter {
    /// Its name.
    pub name: String,
    /// What it is now.
    pub value: String,
    /// What it means.
    pub what: String,
}

/// A value of a kstat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KstatValue {
    /// A number (`KSTAT_DATA_UINT64`).
    Number(u64),
    /// A number that may be less than none (`KSTAT_DATA_INT64`).
    Signed(i64),
    /// Text (`KSTAT_DATA_STRING`).
    Text(String),
}

/// Something that counts, by the name of OpenZFS's kstat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kstat {
    /// The pool that it is of, if it is of one.
    pub pool: Option<String>,
    /// Its name.
    pub name: String,
    /// Named values, in order.
    pub values: Vec<(String, KstatValue)>,
    /// What it says instead, where it has no named values.
    pub text: Option<String>,
}
