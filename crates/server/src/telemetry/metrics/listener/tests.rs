//! The places for connections.

use crate::telemetry::metrics::listener::*;
use std::io::{Read, Write};
use std::sync::atomic::AtomicUsize;

/// Goal: idle connections give way to new ones, the oldest first. Busy connections do so only when
/// there are no others.
#[test]
fn idle_connections_make_room() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut connections = Connections::default();
        let add = |connections: &mut Connections, busy: bool| {
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            connections.0.push_back(Connection { task, busy: Arc::new(AtomicBool::new(busy)) });
        };
        add(&mut connections, true);
        for _ in 1..CONNECTIONS {
            connections.make_room();
            add(&mut connections, false);
        }
        let ids = |connections: &Connections| -> Vec<_> {
            connections.0.iter().map(|connection| connection.task.id()).collect()
        };
        let before = ids(&connections);
        connections.make_room();
        assert_eq!(ids(&connections), [&before[..1], &before[2..]].concat(), "the oldest idle one went");
        add(&mut connections, true);
        connections.0.iter().for_each(|connection| connection.busy.store(true, Ordering::Relaxed));
        connections.0[5].task.abort();
        tokio::task::yield_now().await;
        let before = ids(&connections);
        connections.make_room();
        let after_end = [&before[..5], &before[6..]].concat();
        assert_eq!(ids(&connections), after_end, "one has ended, so no other goes");
        add(&mut connections, true);
        let before = ids(&connections);
        connections.make_room();
        assert_eq!(ids(&connections), before[1..], "all are answered: the oldest goes");
    });
}

/// Goal: a client that pipelines requests gets one answer. One that reads nothing of it loses its
/// connection when its time is over.
#[test]
fn unread() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    for long in [false, true] {
        let (mut caller, stream) = std::os::unix::net::UnixStream::pair().expect("sockets");
        caller.write_all(&b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)).expect("it fits");
        let answers = AtomicUsize::new(0);
        let text = if long { "a".repeat(8 << 20) } else { "end".to_owned() };
        let took = runtime.block_on(async {
            stream.set_nonblocking(true).expect("it can be");
            let stream = tokio::net::UnixStream::from_std(stream).expect("a socket");
            let asked = |_| {
                answers.fetch_add(1, Ordering::Relaxed);
                std::future::ready(with(StatusCode::OK, text.clone(), CONTENT_TYPE))
            };
            let begin = tokio::time::Instant::now();
            connection(stream, Arc::default(), asked).await;
            begin.elapsed()
        });
        assert_eq!(answers.into_inner(), 1);
        assert_eq!(took >= TIMEOUT, long, "the clock of the test stands still unless all wait");
        let mut got = Vec::new();
        // The unread requests break the connection, after what was sent.
        drop(caller.read_to_end(&mut got));
        assert_eq!(got.ends_with(b"\r\n\r\nend"), !long);
        assert!(got.len() < text.len() || !long, "{}", got.len());
    }
}
