//! The integration tests of this crate, as one program.

mod compat;
mod hostile_mos;
