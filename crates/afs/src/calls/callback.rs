//! The clients' side of promises (RXAFSCB, service 1 on a client's own port).

use super::fileserver::{CallBacks, Capabilities, Fids};
use crate::wire::{Uuid, wire_struct};

/// Most addresses of a client (`AFS_MAX_INTERFACE_ADDR`).
pub const MAX_ADDRESSES: usize = 32;

/// The bit of a client's capabilities for unified errors (`CLIENT_CAPABILITY_ERRORTRANS`).
pub const ERROR_TRANSLATION: u32 = 1;

wire_struct! {
    /// Who a client is (`interfaceAddr`).
    pub struct Interface {
        /// How many of the addresses count.
        pub count: i32,
        /// The client's own number.
        pub uuid: Uuid,
        /// IPv4 addresses.
        pub addresses: [u32; MAX_ADDRESSES],
        /// Their net masks.
        pub masks: [u32; MAX_ADDRESSES],
        /// The largest packets of their nets.
        pub mtus: [u32; MAX_ADDRESSES],
    }

    /// Who a client is, and what it can do.
    pub struct AboutReply {
        /// Who it is.
        pub interface: Interface,
        /// What it can do.
        pub capabilities: Capabilities,
    }
}

impl Interface {
    /// The addresses that count, 32 at most.
    pub fn known_addresses(&self) -> &[u32] {
        let count = usize::try_from(self.count).unwrap_or(0);
        &self.addresses[..count.min(MAX_ADDRESSES)]
    }
}

super::calls! {
    /// Ends promises. A fid of vnode 0 means the whole volume.
    CallBack = 204 { fids: Fids, callbacks: CallBacks } -> (),
    /// Ends all promises of the server, for clients without a UUID.
    InitCallBackState = 205 {} -> (),
    /// Checks that the client is there.
    Probe = 206 {} -> (),
    /// Asks a client without capabilities who it is.
    WhoAreYou = 212 {} -> Interface,
    /// Ends all promises of the server.
    InitCallBackState3 = 213 { server: Uuid } -> (),
    /// Checks that the client is there and has this UUID.
    ProbeUuid = 214 { client: Uuid } -> (),
    /// Asks a client who it is.
    TellMeAboutYourself = 65_538 {} -> AboutReply,
}
