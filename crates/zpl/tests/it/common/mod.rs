//! Helpers that the tests of this crate share.

#![allow(dead_code)]
pub mod pool;
