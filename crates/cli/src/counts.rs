//! Counters of the daemon by OpenZFS's names, and what `arcstat` and `arc_summary` reckon from them alike.

use api::{Kstat, KstatValue};
use std::collections::BTreeMap;

/// What the cache's states hold, whose sum both measure parts by.
pub(crate) const CACHES: &[&str] = &[
    "anon_data",
    "anon_metadata",
    "mfu_data",
    "mfu_metadata",
    "mru_data",
    "mru_metadata",
    "uncached_data",
    "uncached_metadata",
];
/// What the shares of the balance (`meta`, `pd`, `pm`) are parts of: a fixed point of 32 bits (`arc_balance`).
pub(crate) const WHOLE: f64 = 4_294_967_296.0;

/// Numbers by name. One that isn't there is an error that names it: nothing is told that nobody counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(BTreeMap<String, i128>);

impl Counts {
    /// Takes the numbers of a kstat of no pool, with something before their names.
    ///
    /// # Errors
    /// If there is no such kstat.
    pub(crate) fn add(&mut self, all: &[Kstat], name: &str, prefix: &str) -> Result<(), String> {
        let found = all.iter().find(|k| k.pool.is_none() && k.name == name);
        let found = found.ok_or_else(|| format!("nothing is counted as '{name}'"))?;
        for (name, value) in &found.values {
            let n = match value {
                KstatValue::Number(n) => i128::from(*n),
                KstatValue::Signed(n) => i128::from(*n),
                KstatValue::Text(_) => continue,
            };
            self.0.insert(format!("{prefix}{name}"), n);
        }
        Ok(())
    }

    /// As many of each, of the same names.
    #[cfg(test)]
    pub(crate) fn all(&self, n: i128) -> Self {
        Self(self.0.keys().map(|name| (name.clone(), n)).collect())
    }

    /// Sets one.
    #[cfg(test)]
    pub(crate) fn set(&mut self, name: &str, n: i128) {
        self.0.insert(name.to_owned(), n);
    }

    /// One of them.
    ///
    /// # Errors
    /// If it is not counted.
    pub(crate) fn get(&self, name: &str) -> Result<i128, String> {
        self.0.get(name).copied().ok_or_else(|| format!("nothing is counted as '{name}'"))
    }

    /// What these are together.
    ///
    /// # Errors
    /// If one is not counted.
    pub(crate) fn sum(&self, names: &[&str]) -> Result<i128, String> {
        names.iter().map(|name| self.get(name)).sum()
    }

    /// What part of the caches the balance gives to a list, of [`WHOLE`].
    ///
    /// # Errors
    /// If a share is not counted.
    pub(crate) fn target(&self, list: List) -> Result<f64, String> {
        let whole = WHOLE as i128;
        let meta = self.get("meta")?;
        let (of, recent) = match list.metadata {
            true => (meta, self.get("pm")?),
            false => (whole - meta, self.get("pd")?),
        };
        let part = if list.frequent { whole - recent } else { recent };
        Ok((part * of) as f64 / WHOLE)
    }

    /// The same in bytes.
    ///
    /// # Errors
    /// As [`Counts::target`].
    pub(crate) fn target_bytes(&self, list: List) -> Result<f64, String> {
        Ok(self.target(list)? / WHOLE * self.sum(CACHES)? as f64)
    }
}

/// One of the lists that share the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct List {
    /// That of blocks used again (MFU), or used once (MRU).
    pub(crate) frequent: bool,
    /// Of metadata, or of data.
    pub(crate) metadata: bool,
}

#[cfg(test)]
pub(crate) mod tests;
