//! The settings of workloads.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// The name of the setting.
    pub name: &'static str,
    /// Its default value.
    pub otherwise: &'static str,
    /// Its meaning.
    pub what: &'static str,
}

const fn knob(name: &'static str, otherwise: &'static str, what: &'static str) -> Knob {
    Knob { name, otherwise, what }
}

pub(super) const TITLE: Knob = knob("title", "work", "what the figures are called");
pub(super) const THREADS: Knob =
    knob("threads", "1", "how many threads work, one measurement after another: 1,8,64");
pub(super) const MSECS: Knob = knob("msecs", "1000", "milliseconds of a measurement");
pub(super) const BS: Knob = knob("bs", "8192", "bytes read or written at a time");
pub(super) const RS: Knob = knob("rs", "8192", "bytes of a block");
pub(super) const COUNT: Knob = knob("count", "100000", "blocks, or writes");
pub(super) const STRIDE: Knob = knob("stride", "1", "one block in so many is written");
pub(super) const OBJS: Knob = knob("objs", "32", "objects");
pub(super) const OBJ_MB: Knob = knob("obj_mb", "16", "MiB of an object");
pub(super) const FILE_MB: Knob = knob("obj_mb", "8", "MiB of the file");
pub(super) const LOG: Knob = knob("log", "0", "1: the pool has a log device");
pub(super) const IMAGE: Knob = knob("image", "image", "what the images are called");
pub(super) const DISKS: Knob = knob("disks", "1", "images: more than one are a raidz2");
pub(super) const FORM: Knob = knob("form", "plain", "the form of the stream: plain, compressed, raw");
/// The settings of the pool that a workload creates: this one and those below.
pub(super) const SIZE_MB: Knob = knob("size_mb", "4096", "MiB of the image");
pub(super) const PREFILL: Knob =
    knob("prefill", "0", "1: the image is written before, so that its file system has given it room");
pub(super) const ASHIFT: Knob = knob("ashift", "12", "the logarithm of the device's sector");
pub(super) const CACHE_MB: Knob = knob("cache_mb", "8192", "MiB that the cache may hold");
pub(super) const DELAY_US: Knob = knob("delay_us", "0", "microseconds that a flush of the device takes");

/// The settings of one workload, from arguments `NAME=VALUE`.
#[derive(Debug, Clone)]
pub struct Knobs {
    known: Vec<Knob>,
    set: BTreeMap<String, String>,
}

impl Knobs {
    /// Parses the settings of a workload. `known` has the settings that it takes.
    ///
    /// # Errors
    /// An argument is not `NAME=VALUE`, or `known` lacks its name. The error lists the known names.
    pub fn parse(known: Vec<Knob>, args: &[String]) -> Result<Knobs> {
        let mut set = BTreeMap::new();
        for arg in args {
            let (name, value) = arg.split_once('=').with_context(|| format!("{arg} is not NAME=VALUE"))?;
            if !known.iter().any(|k| k.name == name) {
                let names: Vec<&str> = known.iter().map(|k| k.name).collect();
                bail!("{name} can't be set here, but {}", names.join(", "));
            }
            set.insert(name.to_owned(), value.to_owned());
        }
        Ok(Knobs { known, set })
    }

    /// The value of a setting as text.
    ///
    /// # Errors
    /// The workload does not list this setting.
    pub(super) fn word(&self, knob: Knob) -> Result<&str> {
        if !self.known.contains(&knob) {
            bail!("the workload has no {} in its list", knob.name);
        }
        Ok(self.set.get(knob.name).map_or(knob.otherwise, String::as_str))
    }

    /// The value of a setting as a number.
    ///
    /// # Errors
    /// The workload does not list this setting, or the value is no number.
    pub(super) fn number(&self, knob: Knob) -> Result<u64> {
        let text = self.word(knob)?;
        text.parse().with_context(|| format!("{} is a number, not {text}", knob.name))
    }

    /// The numbers of threads, one for each measurement.
    pub(super) fn threads(&self) -> Result<Vec<usize>> {
        let words = self.word(THREADS)?;
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

    /// Goal: settings are found by name, unset ones have their defaults, and unknown or malformed
    /// ones are refused.
    #[test]
    fn settings() {
        let known = || vec![COUNT, THREADS, RS];
        let parse =
            |args: &[&str]| Knobs::parse(known(), &args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
        let knobs = parse(&["count=5", "threads=1,8"]).unwrap();
        assert_eq!((knobs.number(COUNT).unwrap(), knobs.number(RS).unwrap()), (5, 8192));
        assert_eq!(knobs.threads().unwrap(), [1, 8]);
        assert!(parse(&["count"]).is_err() && knobs.number(BS).is_err());
        assert_eq!(parse(&["bs=1"]).unwrap_err().to_string(), "bs can't be set here, but count, threads, rs");
        assert!(parse(&["count=x"]).unwrap().number(COUNT).is_err());
        assert!(parse(&["threads=0"]).unwrap().threads().is_err());
    }
}
