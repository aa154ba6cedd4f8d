//! Counters of the daemon by OpenZFS's names, and values that both `arcstat` and `arc_summary`
//! compute from them.

use api::{Kstat, KstatValue};
use std::collections::BTreeMap;

/// The sizes of the cache's states. Both programs take their sum as the whole.
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
/// The whole that the balance's shares are fractions of: 32-bit fixed point (`arc_meta`, `arc_pd`,
/// `arc_pm`).
pub(crate) const WHOLE: f64 = 4_294_967_296.0;

/// Numbers by name. An unknown name is an error that names it, so that no program shows a number
/// that was not counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(BTreeMap<String, i128>);

impl Counts {
    /// Adds the numbers of a kstat that belongs to no pool, with `prefix` before their names.
    ///
    /// # Errors
    /// A text that names the kstat: the daemon has no such kstat.
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

    /// The same names, each with the value `n`.
    #[cfg(test)]
    pub(crate) fn all(&self, n: i128) -> Self {
        Self(self.0.keys().map(|name| (name.clone(), n)).collect())
    }

    /// Sets a number.
    #[cfg(test)]
    pub(crate) fn set(&mut self, name: &str, n: i128) {
        self.0.insert(name.to_owned(), n);
    }

    /// A number by its name.
    ///
    /// # Errors
    /// A text with the name: no such number was added.
    pub(crate) fn get(&self, name: &str) -> Result<i128, String> {
        self.0.get(name).copied().ok_or_else(|| format!("nothing is counted as '{name}'"))
    }

    /// The sum of several numbers.
    ///
    /// # Errors
    /// A text with the first name that was not added.
    pub(crate) fn sum(&self, names: &[&str]) -> Result<i128, String> {
        names.iter().map(|name| self.get(name)).sum()
    }

    /// The share of the caches that the balance gives to a list, as a fraction of [`WHOLE`].
    ///
    /// # Errors
    /// A text that names `meta`, `pm` or `pd`: it was not added.
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

    /// The share of the caches that the balance gives to a list, in bytes.
    ///
    /// # Errors
    /// A text with the first name that was not added: a share ([`Counts::target`]) or one of
    /// [`CACHES`].
    pub(crate) fn target_bytes(&self, list: List) -> Result<f64, String> {
        Ok(self.target(list)? / WHOLE * self.sum(CACHES)? as f64)
    }
}

/// One of the lists that share the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct List {
    /// Blocks that were used again (MFU), or else used once (MRU).
    pub(crate) frequent: bool,
    /// Metadata, or else data.
    pub(crate) metadata: bool,
}

#[cfg(test)]
pub(crate) mod tests;
