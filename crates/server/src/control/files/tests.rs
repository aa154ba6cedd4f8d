//! The time limits of visits, and their credentials.

#![allow(clippy::unwrap_used)]

use crate::control::files::*;
use std::io::ErrorKind;

/// Goal: a request that arrives byte by byte has a fixed time, and not as long as bytes arrive.
#[test]
fn slow_questions() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};
    let (mut client, stream) = UnixStream::pair().unwrap();
    let mut first = Until { stream: &stream, end: Instant::now() + Duration::from_millis(50) };
    // Each read finds one byte.
    let error = loop {
        client.write_all(b" ").unwrap();
        match first.read(&mut [0]) {
            Ok(n) => assert_eq!(n, 1),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// Goal: the kernel reports the peer. A peer without a number here is not process 0.
#[test]
fn visitors() {
    let (client, stream) = std::os::unix::net::UnixStream::pair().unwrap();
    let peer = crate::control::peer::of_stream(&stream).unwrap();
    assert_eq!(peer, api::Peer::own());
    // The stream still blocks.
    assert!(!rustix::fs::fcntl_getfl(&stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    assert_eq!(visitor("cp", peer.pid), format!("poolhouse cp (process {})", std::process::id()));
    assert_eq!(visitor("ls", None), "poolhouse ls (a process of another PID namespace)");
    drop(client);
}
