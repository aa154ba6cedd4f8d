//! The integration tests of this crate, as one program.

mod graft;
mod smoke;
