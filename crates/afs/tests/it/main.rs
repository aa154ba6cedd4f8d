//! Volumes in pools, and on partitions of OpenAFS.

#![allow(clippy::unwrap_used)]

mod server;
mod vicep;
mod volume;
