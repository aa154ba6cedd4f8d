//! Whole pools under faults that the library must survive.
//!
//! # Theory
//! What the rooms promise one by one is tried here on the whole: a real pool is given a fault, and opened and walked through the library
//! as the doors would. Read-only, the faults are wrong blocks under right checksums ([`open`]); before a replay, wrong records ([`logs`]). A pool that is written is left at any
//! moment, and opened again ([`crash`]), has its devices fail in every way that redundancy makes up for, and in one more ([`faults`]), or lives long under all kinds of operations ([`soak`]).
//!
//! # Absent
//! Anything that ships.

pub mod crash;
pub mod faults;
pub mod logs;
pub mod open;
pub mod soak;

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut out = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        out = format!("{out}: {e}");
        source = e.source();
    }
    out
}
