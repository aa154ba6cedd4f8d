//! What commands read and write: options, output, local time, numbers for people.
//!
//! # Theory
//! `zpool`, `zfs`, `zdb` and their kin share the grammar of their options ([`getopt`]), the rules
//! of what a terminal may be sent ([`Out`]), and the form of dates ([`Clock`]) and sizes
//! ([`numbers`]). Scripts parse these, so they are OpenZFS's, to the byte.
//!
//! # Absent
//! This crate knows no command, no pool and no daemon.

mod clock;
pub mod getopt;
pub mod numbers;
mod out;

pub use clock::Clock;
pub use out::Out;
