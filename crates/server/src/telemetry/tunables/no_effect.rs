//! OpenZFS's module parameters that steer nothing here.
//!
//! # Theory
//! Scripts set parameters before they do something else, and fail if a name is missing. So each
//! name is listed, with OpenZFS's type and default. A value is kept until the daemon ends, and
//! nothing reads it. What OpenZFS's module takes only when it is loaded can't be set here at all.
//!
//! # Absent
//! * Parameters that exist only in some builds: those of QAT, of debugging builds, of old kernels.
//!
//! # See
//! OpenZFS `man/man4/zfs.4`; docs/reference/tunables-without-effect.md, which a test holds to this.

use observe::{Tunable, Unit};
use std::ops::RangeInclusive;

mod table;

/// Parameters with one subject.
#[cfg_attr(not(test), expect(dead_code, reason = "the page of the reference has title and why"))]
pub(super) struct Group {
    /// The subject.
    pub(super) title: &'static str,
    /// Why nothing reads them, in Markdown.
    pub(super) why: &'static str,
    /// The parameters.
    pub(super) rows: &'static [NoEffect],
}

/// The type of OpenZFS's variable, which limits the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A signed number of 32 bits, kept in two's complement of 64.
    Int,
    /// A number of 32 bits.
    Uint,
    /// A number of 64 bits.
    Big,
    /// A word.
    Words,
}

/// A parameter that steers nothing.
pub(super) struct NoEffect {
    /// Its name, default, range and present value.
    pub(super) tunable: Tunable,
    /// The type in OpenZFS.
    pub(super) kind: Kind,
    /// OpenZFS takes it only when the module is loaded.
    pub(super) read_only: bool,
}

impl NoEffect {
    /// Keeps a value, if OpenZFS's type can have it. Otherwise returns why not.
    pub(super) fn keep(&self, value: u64) -> Result<(), String> {
        if self.read_only {
            return Err("OpenZFS takes it only when its module is loaded".to_owned());
        }
        if self.kind != Kind::Int {
            return self.tunable.assign(value).map_err(|error| error.to_string());
        }
        let signed = value.cast_signed();
        if i32::try_from(signed).is_err() {
            return Err(format!("'{signed}' is not between {} and {}", i32::MIN, i32::MAX));
        }
        self.tunable.set(value);
        Ok(())
    }
}

/// All of them, by subject.
pub(super) static GROUPS: [&Group; 17] = [
    &table::SPACE,
    &table::LOG_SPACE_MAPS_AND_LIVELISTS,
    &table::REMOVAL_AND_EXPANSION_OF_VDEVS,
    &table::CACHE,
    &table::DEDUP_AND_CLONED_BLOCKS,
    &table::REQUESTS_TO_DEVICES,
    &table::SCRUB_AND_RESILVER,
    &table::SEND_AND_RECEIVE,
    &table::TRANSACTION_GROUPS_AND_FREEING,
    &table::INTENT_LOG,
    &table::OBJECTS,
    &table::FILE_SYSTEMS,
    &table::VOLUMES,
    &table::IMPORT_MULTIHOST,
    &table::COMMANDS_AND_EVENTS,
    &table::PROCESSORS_THREADS_MEMORY,
    &table::DEBUGGING,
];

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static NoEffect> {
    GROUPS.iter().flat_map(|group| group.rows)
}

const fn number(
    name: &'static str,
    default: u64,
    range: RangeInclusive<u64>,
    (unit, text): (Unit, &'static str),
    kind: Kind,
) -> NoEffect {
    NoEffect { tunable: Tunable::new(name, default, range, unit, text), kind, read_only: false }
}

const fn int(name: &'static str, default: u64, unit: Unit, text: &'static str) -> NoEffect {
    number(name, default, 0..=(1 << 31) - 1, (unit, text), Kind::Int)
}

const fn uint(name: &'static str, default: u64, unit: Unit, text: &'static str) -> NoEffect {
    number(name, default, 0..=(1 << 32) - 1, (unit, text), Kind::Uint)
}

/// One that OpenZFS keeps within a range.
const fn uint_within(
    name: &'static str,
    (default, range): (u64, RangeInclusive<u64>),
    unit: Unit,
    text: &'static str,
) -> NoEffect {
    number(name, default, range, (unit, text), Kind::Uint)
}

const fn big(name: &'static str, default: u64, unit: Unit, text: &'static str) -> NoEffect {
    number(name, default, 0..=u64::MAX, (unit, text), Kind::Big)
}

/// One whose values are words. The first word is the default.
const fn words(
    name: &'static str,
    words: &'static [&'static str],
    unit: Unit,
    text: &'static str,
) -> NoEffect {
    assert!(matches!(unit, Unit::Words));
    NoEffect { tunable: Tunable::in_words(name, 0, words, text), kind: Kind::Words, read_only: false }
}

/// One that OpenZFS takes only when its module is loaded.
const fn read_only(row: NoEffect) -> NoEffect {
    NoEffect { read_only: true, ..row }
}

const fn uint_read(name: &'static str, default: u64, unit: Unit, text: &'static str) -> NoEffect {
    read_only(uint(name, default, unit, text))
}

const fn big_read(name: &'static str, default: u64, unit: Unit, text: &'static str) -> NoEffect {
    read_only(big(name, default, unit, text))
}

const fn words_read(
    name: &'static str,
    all: &'static [&'static str],
    unit: Unit,
    text: &'static str,
) -> NoEffect {
    read_only(words(name, all, unit, text))
}

#[cfg(test)]
mod tests;
