//! Numbers that an administrator can set while a program runs (OpenZFS: module parameters).
//!
//! # Theory
//! A [`Tunable`] is a static beside the code that it steers, and holds for all pools of a process.
//! It declares its name, default, range, unit and text there, once: what lists and sets tunables
//! reads these. A [`Parameter`] is the same declaration without a value, for numbers that each pool
//! or cache keeps for itself.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the number of a tunable counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things that the text names.
    Count,
    /// A part of something: that, divided by the number.
    Divisor,
    /// 0 or 1.
    Flag,
    /// Thousandths of a second.
    Milliseconds,
    /// Billionths of a second.
    Nanoseconds,
    /// Bits that are written as they are.
    Pattern,
    /// Hundredths.
    Percent,
    /// Seconds.
    Seconds,
    /// The binary logarithm of a size, or of a divisor.
    Shift,
    /// One of several words, counted from 0.
    Words,
}

/// A value outside a parameter's range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfRange {
    /// The value.
    pub value: u64,
    /// What is accepted.
    pub range: RangeInclusive<u64>,
}

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}' is not between {} and {}", self.value, self.range.start(), self.range.end())
    }
}

impl std::error::Error for OutOfRange {}

/// The declaration of a number that can be set.
#[derive(Debug)]
pub struct Parameter {
    /// Its name: that of OpenZFS's module parameter, where OpenZFS has it.
    pub name: &'static str,
    /// The least and the largest value.
    pub range: RangeInclusive<u64>,
    /// What its values count.
    pub unit: Unit,
    /// What it does, in one line.
    pub text: &'static str,
}

impl Parameter {
    /// Whether a value can be set.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn check(&self, value: u64) -> Result<(), OutOfRange> {
        if self.range.contains(&value) {
            Ok(())
        } else {
            Err(OutOfRange { value, range: self.range.clone() })
        }
    }
}

/// A number that holds for all pools of a process.
#[derive(Debug)]
pub struct Tunable {
    parameter: Parameter,
    words: &'static [&'static str],
    default: u64,
    value: AtomicU64,
}

impl Tunable {
    /// One that nothing has set yet.
    pub const fn new(
        name: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
        unit: Unit,
        text: &'static str,
    ) -> Self {
        let parameter = Parameter { name, range, unit, text };
        Self { parameter, words: &[], default, value: AtomicU64::new(default) }
    }

    /// One whose values have names: `words`, counted from 0.
    pub const fn in_words(
        name: &'static str,
        default: u64,
        words: &'static [&'static str],
        text: &'static str,
    ) -> Self {
        let parameter = Parameter { name, range: 0..=words.len() as u64 - 1, unit: Unit::Words, text };
        Self { parameter, words, default, value: AtomicU64::new(default) }
    }

    /// Its declaration.
    pub const fn parameter(&self) -> &Parameter {
        &self.parameter
    }

    /// The names of its values, if it has such.
    pub const fn words(&self) -> &'static [&'static str] {
        self.words
    }

    /// The value in force.
    pub fn get(&self) -> u64 {
        self.value.load(Relaxed)
    }

    /// Sets a value that an administrator chose.
    ///
    /// # Errors
    /// [`OutOfRange`]; the value stays what it was.
    pub fn assign(&self, value: u64) -> Result<(), OutOfRange> {
        self.parameter.check(value)?;
        self.set(value);
        Ok(())
    }

    /// Sets a value that the program chose: it need not be in the range.
    pub fn set(&self, value: u64) {
        self.value.store(value, Relaxed);
    }

    /// The value that holds if nothing sets another.
    pub const fn default(&self) -> u64 {
        self.default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what an administrator sets stays within the range, and a refusal changes nothing.
    #[test]
    fn a_range_is_kept() {
        static SHIFT: Tunable = Tunable::new("shift", 12, 9..=16, Unit::Shift, "a shift");
        assert_eq!(SHIFT.assign(16), Ok(()));
        let refused = SHIFT.assign(17).unwrap_err();
        assert_eq!((refused.to_string().as_str(), SHIFT.get()), ("'17' is not between 9 and 16", 16));
        SHIFT.set(SHIFT.default());
        assert_eq!(SHIFT.get(), 12);
        static MODE: Tunable = Tunable::in_words("mode", 0, &["wait", "go"], "a mode");
        assert!(MODE.assign(1).is_ok() && MODE.assign(2).is_err());
    }
}
