//! What all commands share: options, output, local time, numbers in readable form.
//!
//! # Theory
//! Scripts parse what `zpool`, `zfs` and `zdb` print, so all of it equals OpenZFS's to the byte.
//!
//! | item | task |
//! |---|---|
//! | [`getopt`] | the grammar of options |
//! | [`Out`] | output, and what a terminal may get |
//! | [`Clock`] | the forms of dates |
//! | [`numbers`] | the forms of sizes and counts |
//!
//! # Absent
//! This crate knows no command, no pool and no daemon.

mod clock;
pub mod getopt;
pub mod numbers;
mod out;
pub mod words;

pub use clock::Clock;
pub use out::{Out, escaped};
