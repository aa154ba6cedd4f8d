//! Volumes in pools.

#![allow(clippy::unwrap_used)]

mod server;
mod volume;
