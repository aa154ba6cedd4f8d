//! What a file server and a volume server do.

pub mod callbacks;
pub mod clients;
pub mod hosts;
