//! The integration tests of this crate, as one program.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

mod manifests;
#[path = "common/memory.rs"]
mod memory;
#[path = "../../../zpl/tests/it/common/pool.rs"]
mod pool;
mod posix;
mod privileges;
mod protocol;
mod stand;
mod write;
