//! The protection server (PR, service 73 on port 7002): users and their groups.

use crate::types::PrincipalId;
use crate::wire::{Chars, List, wire_struct};

/// Most groups of a user (`PR_MAXGROUPS`).
pub const MAX_GROUPS: usize = 5000;
/// Most names of a call. The server allows more, and an access list has 20.
pub const MAX_NAMES: usize = 256;

/// The name of a user or group.
pub type PrincipalName = Chars<64>;

wire_struct! {
    /// A user with all groups.
    pub struct CpsReply {
        /// The numbers in ascending order.
        pub principals: List<PrincipalId, MAX_GROUPS>,
        /// 1: the user has more groups than the answer.
        pub over: i32,
    }
}

super::calls! {
    /// Looks up numbers. Unknown names have the number of an anonymous user.
    NameToId = 504 { names: List<PrincipalName, MAX_NAMES> } -> List<PrincipalId, MAX_NAMES>,
    /// Looks up names. Unknown numbers have their digits as names.
    IdToName = 505 { ids: List<PrincipalId, MAX_NAMES> } -> List<PrincipalName, MAX_NAMES>,
    /// Lists a user with all groups.
    GetCps = 508 { id: PrincipalId } -> CpsReply,
    /// Lists the groups of an IPv4 address.
    GetHostCps = 519 { host: u32 } -> CpsReply,
}
