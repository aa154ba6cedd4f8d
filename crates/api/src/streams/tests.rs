//! What travels to the daemon for a receive.

#![allow(clippy::unwrap_used)]

use super::*;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::fs::File;
use std::io::{Cursor, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

/// Reads the whole message with its file descriptor, as a daemon does.
fn message(stream: &mut UnixStream) -> (Vec<u8>, OwnedFd) {
    let mut bytes = vec![0; 8 << 10];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(&*stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).unwrap();
    let found = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    bytes.truncate(got.bytes);
    (bytes, found.unwrap())
}

/// Goal: the daemon gets the request, the bytes of BEGIN, and the descriptor at the command's place
/// in the file. The command gets what the daemon answers.
#[test]
fn a_stream_is_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let place = RunDir::at(dir.path());
    let listener = UnixListener::bind(place.files()).unwrap();
    let request = ReceiveRequest { target: "tank/fs@s".to_owned(), force: true, ..ReceiveRequest::default() };
    let mut rest =
        File::options().read(true).write(true).create_new(true).open(dir.path().join("s")).unwrap();
    rest.write_all(b"head and rest").unwrap();
    rest.seek(io::SeekFrom::Start(9)).unwrap();
    let expected = Received { bytes: 13, ..Received::default() };
    let answers = expected.clone();
    let asked = request.clone();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut bytes, descriptor) = message(&mut stream);
        let whole = |bytes: &[u8]| {
            let mut raw = Vec::new();
            let ask = receive::<Ask>(&mut Cursor::new(bytes), ANSWER_MAX, &mut raw).ok()??;
            Some((ask, raw))
        };
        // The raw bytes come in a second write.
        while whole(&bytes).is_none() {
            let mut more = [0; 64];
            let n = stream.read(&mut more).unwrap();
            bytes.extend_from_slice(&more[..n]);
        }
        let (ask, raw) = whole(&bytes).unwrap();
        assert!(matches!(ask, Ask::Receive(got) if got == asked));
        assert_eq!(raw, b"BEGIN");
        let mut text = String::new();
        File::from(descriptor).read_to_string(&mut text).unwrap();
        assert_eq!(text, "rest");
        send(&mut stream, &Answer::Received(answers), &[]).unwrap();
    });
    assert_eq!(deliver(&place, &request, b"BEGIN", rest.as_fd()).unwrap(), expected);
    daemon.join().unwrap();
}

/// Goal: a BEGIN that no frame has is refused before anything is sent.
#[test]
fn a_begin_has_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let null = File::open("/dev/null").unwrap();
    let begin = vec![0; BEGIN_MAX + 1];
    let denied = deliver(&RunDir::at(dir.path()), &ReceiveRequest::default(), &begin, null.as_fd());
    let Err(Denied::Socket { source, .. }) = denied else { panic!("{denied:?}") };
    assert_eq!(source.kind(), io::ErrorKind::InvalidInput);
}
