//! How the rest of a stream is read.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::control::files::{First, OPENING, Until};
use api::files::wire::{self, ASK_MAX, Ask, send_with};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Instant;

/// Goal: a receive that waits for its sender ends when the command does.
#[test]
fn the_end_of_the_command_ends_a_read() {
    let (reads, _writes) = std::io::pipe().unwrap();
    let (command, connection) = UnixStream::pair().unwrap();
    let mut rest = Rest::new(Some(reads.into()), &connection).unwrap();
    drop(command);
    assert_eq!(rest.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
}

/// Goal: `zpool export -f`, which shuts the connection down, ends a read too.
#[test]
fn a_shut_down_connection_ends_a_read() {
    let (reads, _writes) = std::io::pipe().unwrap();
    let (_command, connection) = UnixStream::pair().unwrap();
    connection.shutdown(std::net::Shutdown::Both).unwrap();
    let mut rest = Rest::new(Some(reads.into()), &connection).unwrap();
    assert_eq!(rest.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
}

/// Goal: of another user, the stream comes on the connection itself. Its end, or `zpool export -f`,
/// is the end of the stream.
#[test]
fn a_stream_on_the_connection() {
    for shut in [false, true] {
        let (mut command, connection) = UnixStream::pair().unwrap();
        let mut rest = Rest::new(None, &connection).unwrap();
        command.write_all(b"abcd").unwrap();
        let mut part = [0; 3];
        rest.read_exact(&mut part).unwrap();
        assert_eq!(&part, b"abc");
        match shut {
            true => connection.shutdown(std::net::Shutdown::Both).unwrap(),
            false => drop(command),
        }
        let mut left = Vec::new();
        rest.read_to_end(&mut left).unwrap();
        assert_eq!(left, b"d");
    }
}

/// Goal: of a pipe, only the requested bytes are read, and its end is the end.
#[test]
fn a_pipe_keeps_what_follows() {
    let (reads, mut writes) = std::io::pipe().unwrap();
    let (_command, connection) = UnixStream::pair().unwrap();
    writes.write_all(b"this and that").unwrap();
    drop(writes);
    let mut after = reads.try_clone().unwrap();
    let mut rest = Rest::new(Some(reads.into()), &connection).unwrap();
    let mut part = [0; 4];
    rest.read_exact(&mut part).unwrap();
    assert_eq!(&part, b"this");
    drop(rest);
    let mut left = String::new();
    after.read_to_string(&mut left).unwrap();
    assert_eq!(left, " and that");
    assert_eq!(Rest::new(Some(after.into()), &connection).unwrap().read(&mut part).unwrap(), 0);
}

/// Goal: a regular file is read in blocks, and stays at the end of the stream.
#[test]
fn a_file_is_set_back() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"this and that").unwrap();
    file.seek(SeekFrom::Start(5)).unwrap();
    let (_command, connection) = UnixStream::pair().unwrap();
    let mut rest = Rest::new(Some(file.try_clone().unwrap().into()), &connection).unwrap();
    let mut part = [0; 3];
    rest.read_exact(&mut part).unwrap();
    assert_eq!(&part, b"and");
    drop(rest);
    assert_eq!(file.stream_position().unwrap(), 8);
}

/// Goal: a connection's first message brings the descriptor, and the pool's side gets BEGIN, the
/// rest and the request. The command gets the answer.
#[test]
fn a_command_is_served() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"head and rest, and more").unwrap();
    file.seek(SeekFrom::Start(9)).unwrap();
    let receive: &Receive = &|caller, request, begin, rest| {
        assert!(caller.owns());
        assert_eq!((request.target.as_str(), begin), ("tank/fs@s", b"BEGIN".as_slice()));
        let mut part = [0; 4];
        rest.read_exact(&mut part).unwrap();
        assert_eq!(&part, b"rest");
        Ok(Received { bytes: 9, ..Received::default() })
    };
    let received = served(receive, "tank/fs@s", Some(&file)).unwrap();
    assert!(matches!(received, Answer::Received(Received { bytes: 9, .. })));
    assert_eq!(file.stream_position().unwrap(), 13);
    let refusing: &Receive = &|_, request, _, _| Err(Error::new(&request.target, Reason::Suspended));
    let refused = served(refusing, "tank/fs@s", Some(&file)).unwrap();
    let Answer::Denied(Refusal::Api(error)) = refused else { panic!("{refused:?}") };
    assert_eq!((error.about.as_str(), error.reason), ("tank/fs@s", Reason::Suspended));
}

/// Goal: a request without a descriptor, or about no dataset, reaches no pool.
#[test]
fn bad_requests() {
    let never: &Receive = &|_, _, _, _| panic!("no such request");
    assert!(served(never, "tank/fs@s", None).is_none());
    let null = File::open("/dev/null").unwrap();
    let refused = served(never, "//", Some(&null)).unwrap();
    let Answer::Denied(Refusal::Api(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.reason, Reason::InvalidName);
}

/// The answer to a request to receive, if there is one.
fn served(receive: &Receive, target: &str, rest: Option<&File>) -> Option<Answer> {
    let (mut command, connection) = UnixStream::pair().unwrap();
    let request = ReceiveRequest { target: target.to_owned(), ..ReceiveRequest::default() };
    let ask = Ask::Receive(request);
    match rest {
        Some(rest) => send_with(&mut command, &ask, b"BEGIN", rest.as_fd()).unwrap(),
        None => send(&mut command, &ask, b"BEGIN").unwrap(),
    }
    let mut bytes = Vec::new();
    let mut first =
        First { until: Until { stream: &connection, end: Instant::now() + OPENING }, descriptor: None };
    let Some(Ask::Receive(request)) = wire::receive(&mut first, ASK_MAX, &mut bytes).unwrap() else {
        panic!("another request")
    };
    let descriptor = Some(first.descriptor.take()?);
    let visits = Arc::default();
    let caller = Caller::this_process();
    let answer = match run((&visits, receive), &connection, &request, (&bytes, descriptor), &caller) {
        Ok(received) => Answer::Received(received),
        Err(refusal) => Answer::Denied(refusal),
    };
    Some(answer)
}
