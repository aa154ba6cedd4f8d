//! The volume location server (VL, service 52 on port 7003).

use crate::wire::{List, Uuid};

/// Most addresses of a server.
pub const MAX_ADDRESSES: usize = 500;

super::calls! {
    /// Registers the addresses of a file server.
    RegisterAddrs = 532 { server: Uuid, spare: i32, addresses: List<u32, MAX_ADDRESSES> } -> (),
}
