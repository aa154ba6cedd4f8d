//! Volumes in pools.

#![allow(clippy::unwrap_used)]

mod volume;
