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
    /// What its values are called, from 0 on, if it is told and set in words.
    #[serde(default)]
    pub words: Vec<String>,
}

impl Tunable {
    /// This value of it as it is told: in its word, if it has words.
    pub fn told(&self, value: u64) -> String {
        let word = usize::try_from(value).ok().and_then(|at| self.words.get(at));
        word.cloned().unwrap_or_else(|| value.to_string())
    }

    /// The value that a word stands for; none, if it has no such word.
    pub fn word(&self, word: &str) -> Option<u64> {
        self.words.iter().position(|known| known == word).map(|at| at as u64)
    }
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

impl Kstat {
    /// A kstat as its file shows it (`kstat_seq_show`).
    pub fn file(&self) -> String {
        if let Some(text) = &self.text {
            return format!("{text}\n");
        }
        let rows = self.values.len();
        let mut s = format!("1 1 0x01 {rows} {} 0 0\n{:<31} {:<4} data\n", rows * 48, "name", "type");
        for (name, value) in &self.values {
            match value {
                KstatValue::Number(n) => s += &format!("{name:<31} {:<4} {n}\n", 4),
                KstatValue::Signed(n) => s += &format!("{name:<31} {:<4} {n}\n", 3),
                KstatValue::Text(text) => s += &format!("{name:<31} {:<4} {text}\n", 7),
            }
        }
        s
    }
}
