//! Requests as they are read.

use crate::control::http::*;
use api::Share;
use http_body_util::Full;
use hyper::body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body of frames, without an announced length.
struct Frames(Vec<&'static [u8]>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        Poll::Ready(next.map(|next| Ok(Frame::data(Bytes::from_static(next)))))
    }
}

/// A body that announces this many bytes, and sends none.
struct Announced(u64);

impl Body for Announced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0)
    }
}

/// Goal: a request takes its caller's memory while it is read and until it is answered. Without
/// enough memory it is refused at once.
#[test]
fn bodies_take_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let share = Share::of(100);
        let budget = || Budget::new(vec![Arc::clone(&share)], None);
        let begin = tokio::time::Instant::now();
        let first = whole_body(Full::from(vec![b'a'; 60]), 80, budget()).await.expect("there is as much");
        assert_eq!(first, [b'a'; 60][..]);
        assert_eq!(whole_body(Announced(41), 80, budget()).await, Err(Reason::TooMuch));
        let frames = Frames(vec![b"0123456789"; 5]);
        assert_eq!(whole_body(frames, 80, budget()).await, Err(Reason::TooMuch));
        let frames = Frames(vec![b"0123456789"; 4]);
        let second = whole_body(frames, 80, budget()).await.expect("what failed took nothing");
        assert_eq!(second, b"0123456789".repeat(4));
        assert_eq!(whole_body(Full::from("a"), 80, budget()).await, Err(Reason::TooMuch));
        drop((first, second));
        let frames = Frames(vec![b"0123456789"; 9]);
        assert_eq!(whole_body(frames, 80, budget()).await, Err(bad("too long")));
        assert_eq!(whole_body(Announced(81), 80, budget()).await, Err(bad("too long")));
        assert_eq!(begin.elapsed(), Duration::ZERO, "nothing waited");
        assert_eq!(whole_body(Announced(80), 80, budget()).await, Err(bad("it did not arrive in time")));
        whole_body(Full::from(vec![b'a'; 80]), 80, budget()).await.expect("everything is back");
    });
}

/// Goal: a caller that is turned away reads why, even if its unread request was too long for the
/// connection.
#[test]
fn turned_away() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    for length in [2, 8 << 20] {
        let (caller, stream) = std::os::unix::net::UnixStream::pair().expect("sockets");
        stream.set_nonblocking(true).expect("it can be");
        runtime.block_on(async {
            let stream = UnixStream::from_std(stream).expect("a socket");
            turn_away(&stream, Crowd::AllUsers).await;
        });
        let body = api::client::post(caller, "pools", &vec![b' '; length]).expect("it is read");
        let text = String::from_utf8(body.expect("there is an answer")).expect("it is text");
        assert!(text.contains(&Crowd::AllUsers.to_string()), "{text}");
    }
}
