//! Answers of a worker thread, as a connection receives them.

use crate::control::http::answer::*;
use http_body_util::BodyExt;
use std::io::Read;

/// A status, the length if it is known, and the text.
type Sent = (u16, Option<u64>, Result<Vec<u8>, io::ErrorKind>);

fn sent(make: impl FnOnce(Sending) + Send + 'static) -> Option<Sent> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (sending, receiving) = answer(Budget::of_owner());
        let maker = std::thread::spawn(move || make(sending));
        let begun = receiving.begin().await;
        let whole = match begun {
            Some((status, text)) => {
                let exact = text.size_hint().exact();
                let body = text.collect().await.map(|body| body.to_bytes().to_vec());
                Some((status, exact, body.map_err(|error| error.kind())))
            }
            None => None,
        };
        drop(maker.join());
        whole
    })
}

/// Goal: a short answer has its length. A long one arrives whole and in order.
#[test]
fn whole() {
    let short = sent(|mut sending| {
        sending.begin(403);
        sending.write_all(b"no").expect("it is read");
        sending.end();
    });
    assert_eq!(short, Some((403, Some(2), Ok(b"no".to_vec()))));
    let text: Vec<u8> = (0..CHUNK * (AHEAD + 3)).map(|at| (at / 997) as u8).collect();
    let long = text.clone();
    let long = sent(move |mut sending| {
        long.chunks(1000).for_each(|part| sending.write_all(part).expect("it is read"));
        sending.end();
    });
    assert_eq!(long, Some((200, None, Ok(text))));
}

/// Goal: a dead worker thread leaves no answer, and its start is not taken for the whole.
#[test]
fn broken() {
    assert_eq!(sent(drop), None);
    let broken = sent(|mut sending| sending.write_all(&vec![b'a'; CHUNK * 2]).expect("it is read"));
    assert_eq!(broken, Some((200, None, Err(io::ErrorKind::UnexpectedEof))));
}

/// Goal: a caller that does not read until its time is over is cut off, and holds no thread.
#[test]
fn unread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (mut sending, receiving) = answer(Budget::new(Vec::new(), Some(Instant::now())));
        let maker = std::thread::spawn(move || {
            loop {
                if let Err(error) = sending.write_all(&[b'a'; 1000]) {
                    return error.kind();
                }
            }
        });
        let begun = receiving.begin().await;
        let ended = tokio::task::spawn_blocking(|| maker.join().expect("it does not panic")).await;
        assert_eq!(ended.expect("it ends"), io::ErrorKind::TimedOut);
        drop(begun);
    });
}

/// Goal: a connection fails if its caller takes nothing of an answer for a while, even without more
/// chunks. It lives if its caller takes a part each time just before that.
#[test]
fn stalled() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    for slow in [0, 5] {
        let (mut caller, stream) = std::os::unix::net::UnixStream::pair().expect("sockets");
        caller.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it fits");
        caller.set_nonblocking(true).expect("it can be");
        stream.set_nonblocking(true).expect("it can be");
        let took = runtime.block_on(async {
            let stream = tokio::net::UnixStream::from_std(stream).expect("a socket");
            let answer = hyper::service::service_fn(|_| async {
                Ok::<_, io::Error>(hyper::Response::new(Text::whole(vec![b'a'; 64 << 20])))
            });
            let stream = hyper_util::rt::TokioIo::new(Paced::new(stream));
            let served = hyper::server::conn::http1::Builder::new().serve_connection(stream, answer);
            let reads = async {
                for _ in 0..slow {
                    tokio::time::sleep(STALL * 9 / 10).await;
                    let mut all = [0; 4096];
                    while caller.read(&mut all).is_ok_and(|read| read > 0) {}
                }
                std::future::pending::<()>().await
            };
            let begin = tokio::time::Instant::now();
            tokio::select! {
                served = served => assert!(served.is_err(), "it was not all sent"),
                () = reads => {}
            }
            begin.elapsed()
        });
        assert_eq!(took.as_secs() / 10, (STALL * 9 / 10 * slow + STALL).as_secs() / 10, "{took:?}");
    }
}
