//! Operations on datasets: each is a sync task in its own module.

pub mod bookmark;
pub mod clone;
pub mod create;
pub mod deleg;
pub mod destroy;
pub mod free;
pub mod hold;
pub mod key;
pub mod pool;
pub mod promote;
pub mod props;
pub mod receive;
mod receive_redacted;
pub mod redact;
pub mod rename;
pub mod replace;
pub mod rollback;
mod room;
pub mod snapshot;
pub mod together;
mod upgrade;
