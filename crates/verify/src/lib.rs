//! Walks over a whole pool: block statistics, and the search for leaks.
//!
//! # Theory
//! A [traversal](dsl::traverse) visits each block pointer once. [`block_stats`] counts the blocks,
//! and reads those to verify. [`leaks`] compares the space that blocks use with the allocated
//! space.
//!
//! # Absent
//! This crate writes nothing, and repairs nothing.
//!
//! # See
//! OpenZFS `cmd/zdb/zdb.c` (`zdb -b`, `zdb -c`).

pub mod block_stats;
pub mod leaks;
