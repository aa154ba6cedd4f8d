//! What the tests of this room share.

#![allow(dead_code)]
pub mod pool;
