//! The cell that a server belongs to, as its database servers know it.
//!
//! * [`protection`]: users and groups.

pub mod protection;
