//! How long a visitor is waited for, and who it is.

#![allow(clippy::unwrap_used)]

use super::*;
use std::io::ErrorKind;

/// Goal: a question that comes byte by byte is waited for until its time is over, not for as long
/// as bytes come.
#[test]
fn slow_questions() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};
    let (mut client, stream) = UnixStream::pair().unwrap();
    let mut first = Until { stream: &stream, end: Instant::now() + Duration::from_millis(50) };
    // A byte is there at each read.
    let error = loop {
        client.write_all(b" ").unwrap();
        match first.read(&mut [0]) {
            Ok(n) => assert_eq!(n, 1),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// Goal: the kernel says who is at the other end; one without a number here is no process 0.
#[test]
fn visitors() {
    let (client, stream) = std::os::unix::net::UnixStream::pair().unwrap();
    let peer = crate::peer::of_stream(&stream).unwrap();
    assert_eq!(peer, api::Peer::own());
    // The stream blocks as before.
    assert!(!rustix::fs::fcntl_getfl(&stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    assert_eq!(visitor("cp", peer.pid), format!("poolhouse cp (process {})", std::process::id()));
    assert_eq!(visitor("ls", None), "poolhouse ls (a process of another PID namespace)");
    drop(client);
}
