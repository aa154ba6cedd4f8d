//! Statistics, and parameters that can be set while the daemon runs.

use serde::{Deserialize, Serialize};

/// A numeric parameter, by the name of OpenZFS's module parameter (`ZFS_MODULE_PARAM`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunable {
    /// Its name.
    pub name: String,
    /// Its present value.
    pub value: u64,
    /// Its default value.
    pub default: u64,
    /// A description.
    pub what: String,
    /// The words for its values from 0 on, if it is shown and set as words.
    #[serde(default)]
    pub words: Vec<String>,
    /// It steers nothing here: it is kept for scripts that set it.
    #[serde(default)]
    pub no_effect: bool,
    /// It can't be set.
    #[serde(default)]
    pub read_only: bool,
    /// Its values have a sign: they are numbers of 64 bits in two's complement.
    #[serde(default)]
    pub signed: bool,
}

impl Tunable {
    /// How `value` is shown: as its word, if it has words.
    pub fn told(&self, value: u64) -> String {
        if self.signed {
            return value.cast_signed().to_string();
        }
        let word = usize::try_from(value).ok().and_then(|at| self.words.get(at));
        word.cloned().unwrap_or_else(|| value.to_string())
    }

    /// The value of a text, whose digits `number` reads. `None` if this tunable has no such value.
    pub fn value_of(&self, text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<u64> {
        match text.strip_prefix('-') {
            _ if !self.words.is_empty() => self.word(text),
            Some(digits) if self.signed && !digits.starts_with(['+', '-']) => {
                Some(0i64.checked_sub_unsigned(number(digits)?)?.cast_unsigned())
            }
            _ => number(text),
        }
    }

    /// The value of a word; `None` if there is no such word.
    pub fn word(&self, word: &str) -> Option<u64> {
        self.words.iter().position(|known| known == word).map(|at| at as u64)
    }
}

/// A parameter of the module `spl`, as its file would show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplParameter {
    /// Its name.
    pub name: String,
    /// Its present value.
    pub value: String,
    /// A description.
    pub what: String,
}

/// A value of a kstat (`kstat_named_t`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KstatValue {
    /// A number (`KSTAT_DATA_UINT64`).
    Number(u64),
    /// A number that may be negative (`KSTAT_DATA_INT64`).
    Signed(i64),
    /// Text (`KSTAT_DATA_STRING`).
    Text(String),
}

/// A set of statistics, by the name of OpenZFS's kstat (`kstat_t`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kstat {
    /// The pool that it belongs to, if any.
    pub pool: Option<String>,
    /// Its name.
    pub name: String,
    /// Named values, in order.
    pub values: Vec<(String, KstatValue)>,
    /// Its text, if it has no named values.
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
