//! Reports the daemon's state to a service manager (`sd_notify`).
//!
//! # Absent
//! A watchdog, and passing sockets or files to the next daemon.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state to the service manager, if there is one.
pub fn tell(state: &str) {
    let Some(to) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&to, state) {
        tracing::warn!(%error, "the service manager can't be told");
    }
}

fn send(to: &OsString, state: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match to.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.send_to_addr(state.as_bytes(), &SocketAddr::from_abstract_name(name)?)?,
        None => socket.send_to(state.as_bytes(), to)?,
    };
    Ok(())
}

/// Whether standard error is the journal, which adds its own times.
pub fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let meta = std::fs::metadata("/proc/self/fd/2");
    meta.is_ok_and(|meta| stream == format!("{}:{}", meta.dev(), meta.ino()))
}
