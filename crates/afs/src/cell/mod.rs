//! The cell that a server belongs to, as its database servers know it.
//!
//! * [`protection`]: users and groups. [`ptserver`] asks the cell's protection servers for them.
//! * [`location`]: registers the server, so that clients find its volumes.
//! * [`databases`]: calls to the servers of a cell.

mod cache;
pub mod databases;
pub mod location;
pub mod protection;
pub mod ptserver;
#[cfg(test)]
mod tests;

pub use databases::Databases;
pub use location::{Registration, Status};
pub use protection::{Protection, User};
pub use ptserver::PtServer;

/// The port of protection servers.
pub const PR_PORT: u16 = 7002;
/// The service of protection servers.
pub const PR_SERVICE: u16 = 73;
/// The port of volume location servers.
pub const VL_PORT: u16 = 7003;
/// The service of volume location servers.
pub const VL_SERVICE: u16 = 52;
