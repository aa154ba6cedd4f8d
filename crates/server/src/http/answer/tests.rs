//! Answers of a thread that makes them, as a connection gets them.

use super::*;
use http_body_util::BodyExt;

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

/// Goal: a short answer has its length; a long one arrives whole, in its order.
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

/// Goal: an answer whose maker dies is none, and its begin is not taken for the whole.
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
