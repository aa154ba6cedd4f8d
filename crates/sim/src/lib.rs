//! Whole pools under faults that the library must survive.
//!
//! # Theory
//! Other crates test their promises one by one. This crate tests a whole pool: it adds a fault,
//! then opens and walks the pool through the library, as a front end would.
//!
//! | module | state of the pool | faults |
//! |---|---|---|
//! | [`open`] | read-only | wrong blocks with right checksums |
//! | [`logs`] | before a replay | wrong records in intent logs |
//! | [`receives`] | written | wrong records in streams with right checksums |
//! | [`restores`] | written | dumps of AFS volumes with any bytes |
//! | [`crash`] | written | a crash at any moment, then a new import |
//! | [`faults`] | written | device failures up to the redundancy, and one more |
//! | [`soak`] | written | a long life of all kinds of operations |
//!
//! # Absent
//! Code that ships to users.

pub mod crash;
pub mod faults;
pub mod logs;
pub mod open;
pub mod receives;
pub mod restores;
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
