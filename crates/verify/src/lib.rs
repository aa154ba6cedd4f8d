//! Walks over everything that a pool holds: statistics of blocks, and the search for leaks.
//!
//! # Theory
//! A [traversal](dsl::traverse) visits each block pointer once. [`block_stats`] counts what it
//! meets, and reads what it is asked to verify. [`leaks`] compares the space that blocks use with
//! the space that is allocated.
//!
//! # Absent
//! This crate writes nothing, and repairs nothing.
//!
//! # See
//! OpenZFS `cmd/zdb/zdb.c` (`zdb -b`, `zdb -c`).

pub mod block_stats;
pub mod leaks;
