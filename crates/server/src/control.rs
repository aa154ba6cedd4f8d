//! The control socket: HTTP, the rights of callers, and their limits.

pub(crate) mod files;
pub(crate) mod grants;
pub(crate) mod http;
pub mod peer;
pub(crate) mod service_manager;
pub(crate) mod turns;
