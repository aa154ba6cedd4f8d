//! Who a caller is: users, their groups, and the groups of hosts.
//!
//! # Theory
//! Access lists name users and groups by number. The cell's protection server knows the numbers
//! and the groups. A server asks for a user with the first call of that user, and keeps the answer
//! for two hours.
//!
//! A name that the protection server does not know is an anonymous caller: it has the groups of
//! [`PrincipalId::ANONYMOUS`], without `system:authuser`.
//!
//! # See
//! OpenAFS: `src/viced/host.c` (`MapName_r`, `h_FindClient_r`), `src/ptserver/ptprocs.c`.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::errors::ubik;
use crate::types::PrincipalId;

/// The error while no protection server answers and the answer is not cached (`UNOQUORUM`).
pub const AWAY: i32 = ubik::UNOQUORUM;

/// A user with all groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub id: PrincipalId,
    /// The user, all groups, `system:anyuser`, and for known users `system:authuser`, in ascending
    /// order.
    pub groups: Arc<[PrincipalId]>,
    /// Whether `system:administrators` is among the groups.
    pub is_administrator: bool,
}

impl User {
    /// A user with these groups, in any order. The user's own number is added.
    pub fn new(id: PrincipalId, mut groups: Vec<PrincipalId>) -> Self {
        groups.push(id);
        groups.sort_unstable();
        groups.dedup();
        let is_administrator = groups.binary_search(&PrincipalId::ADMINISTRATORS).is_ok();
        Self { id, groups: groups.into(), is_administrator }
    }

    /// A caller without a ticket, as every cell has it.
    pub fn anonymous() -> Self {
        Self::new(PrincipalId::ANONYMOUS, vec![PrincipalId::ANYUSER])
    }
}

/// What knows users and groups.
///
/// All methods may wait for a server. Their error is the server's code, or [`AWAY`].
pub trait Protection: Send + Sync {
    /// The user with this name: `user`, `user.instance`, or `user@cell` of another cell.
    ///
    /// An unknown name is the anonymous user.
    ///
    /// # Errors
    /// See [`Protection`].
    fn user(&self, name: &str) -> Result<Arc<User>, i32>;

    /// The groups that a host is a member of. Most hosts are in none.
    ///
    /// # Errors
    /// See [`Protection`].
    fn host(&self, address: Ipv4Addr) -> Result<Arc<[PrincipalId]>, i32>;

    /// The names of users and groups, in the order of `ids`. An unknown number has its digits.
    ///
    /// # Errors
    /// See [`Protection`].
    fn names(&self, ids: &[PrincipalId]) -> Result<Vec<Vec<u8>>, i32>;

    /// The numbers of users and groups, in the order of `names`.
    ///
    /// An unknown name has [`PrincipalId::ANONYMOUS`].
    ///
    /// # Errors
    /// See [`Protection`].
    fn ids(&self, names: &[Vec<u8>]) -> Result<Vec<PrincipalId>, i32>;

    /// The caller without a ticket.
    ///
    /// # Errors
    /// See [`Protection`].
    fn anonymous(&self) -> Result<Arc<User>, i32>;

    /// Has these users and IPv4 addresses asked for again with their next calls (FlushCPS).
    fn flush(&self, users: &[PrincipalId], addresses: &[u32]);
}
