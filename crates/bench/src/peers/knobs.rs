//! What a command line may set of a workload.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// Settings by name, as `NAME=VALUE` sets them.
#[derive(Debug, Clone, Default)]
pub struct Knobs(BTreeMap<String, String>);

impl Knobs {
    /// Reads settings.
    ///
    /// # Errors
    /// If one is none.
    pub fn parse(args: &[String]) -> Result<Knobs> {
        let pairs =
            args.iter().map(|arg| arg.split_once('=').with_context(|| format!("{arg} is not NAME=VALUE")));
        pairs.map(|p| p.map(|(n, v)| (n.to_owned(), v.to_owned()))).collect::<Result<_>>().map(Knobs)
    }

    /// A number, or what it is if nobody set it.
    pub(super) fn number(&self, name: &str, otherwise: u64) -> Result<u64> {
        let Some(text) = self.0.get(name) else { return Ok(otherwise) };
        text.parse().with_context(|| format!("{name} is a number, not {text}"))
    }

    /// A word, or what it is if nobody set it.
    pub(super) fn word(&self, name: &str, otherwise: &str) -> String {
        self.0.get(name).map_or(otherwise, String::as_str).to_owned()
    }

    /// How many threads work, one measurement after another.
    pub(super) fn threads(&self) -> Result<Vec<usize>> {
        let words = self.word("threads", "1");
        let all: Vec<usize> =
            words.split(',').map(str::parse).collect::<Result<_, _>>().context("threads are numbers")?;
        if all.iter().any(|n| !(1..=1024).contains(n)) {
            bail!("{words}: threads are 1 to 1024");
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings are read by name, what is not set is as it was, and nonsense is refused.
    #[test]
    fn settings() {
        let args = ["count=5", "threads=1,8"].map(str::to_owned);
        let knobs = Knobs::parse(&args).unwrap();
        assert_eq!((knobs.number("count", 1).unwrap(), knobs.number("rs", 7).unwrap()), (5, 7));
        assert_eq!(knobs.threads().unwrap(), [1, 8]);
        assert!(Knobs::parse(&["count".to_owned()]).is_err());
        assert!(Knobs::parse(&["count=x".to_owned()]).unwrap().number("count", 1).is_err());
        assert!(Knobs::parse(&["threads=0".to_owned()]).unwrap().threads().is_err());
    }
}
