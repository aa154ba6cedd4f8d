//! Where Prometheus asks: `GET /metrics` at an address.
//!
//! Whoever reaches the address reads the page; nothing else is answered there. How many ask at once
//! is bounded, so that a pool that hangs takes no more than that. A new connection takes the place
//! of the one that has been idle longest: a stranger who holds connections and asks nothing keeps
//! nobody waiting.

use super::{CONTENT_TYPE, page};
use crate::daemon::House;
use crate::http::alone;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE as TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Connections at a time.
const CONNECTIONS: usize = 32;
/// Pages that are made at a time.
const PAGES: usize = 4;
/// How long a caller may take for its question.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that was let in.
struct Connection {
    task: AbortHandle,
    /// A request of it is being answered.
    busy: Arc<AtomicBool>,
}

/// The connections that there are, the oldest first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

impl Connections {
    /// Makes room for one more; false if all are busy.
    fn make_room(&mut self) -> bool {
        self.0.retain(|connection| !connection.task.is_finished());
        if self.0.len() < CONNECTIONS {
            return true;
        }
        let idle = self.0.iter().position(|connection| !connection.busy.load(Ordering::Relaxed));
        let Some(idle) = idle.and_then(|idle| self.0.remove(idle)) else { return false };
        idle.task.abort();
        true
    }
}

/// Answers for ever.
pub(crate) async fn open(listener: TcpListener, house: Arc<dyn House>) {
    let pages = Arc::new(Semaphore::new(PAGES));
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if !connections.make_room() {
                    continue;
                }
                let busy = Arc::new(AtomicBool::new(false));
                let task = connection(stream, Arc::clone(&house), Arc::clone(&pages), Arc::clone(&busy));
                let task = tokio::spawn(task).abort_handle();
                connections.0.push_back(Connection { task, busy });
            }
            Err(error) => {
                tracing::warn!(%error, "nobody can ask for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, house: Arc<dyn House>, pages: Arc<Semaphore>, busy: Arc<AtomicBool>) {
    let answer = hyper::service::service_fn(move |request| {
        let (house, pages, busy) = (Arc::clone(&house), Arc::clone(&pages), Arc::clone(&busy));
        async move {
            busy.store(true, Ordering::Relaxed);
            let response = respond(&request, house, &pages).await;
            Ok::<_, Infallible>(response.map(|text| Full::new(Bytes::from_owner(Sent { text, busy }))))
        }
    });
    // A connection that asks nothing more for that long ends.
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection for metrics ended badly");
    }
}

async fn respond(
    request: &Request<Incoming>,
    house: Arc<dyn House>,
    pages: &Arc<Semaphore>,
) -> Response<String> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let Ok(turn) = Arc::clone(pages).try_acquire_owned() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "others ask already\n");
    };
    let made = alone(move || {
        let page = page(&*house);
        drop(turn);
        page
    });
    match made.await {
        Some(Ok(text)) => with(StatusCode::OK, text, CONTENT_TYPE),
        Some(Err(error)) => {
            tracing::warn!(?error, "no metrics");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "the daemon's log says why there are none\n")
        }
        None => plain(StatusCode::INTERNAL_SERVER_ERROR, "the request died; the daemon's log says where\n"),
    }
}

/// A page on its way; its connection is busy until all of it is sent.
struct Sent {
    text: String,
    busy: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.busy.store(false, Ordering::Relaxed);
    }
}

fn plain(status: StatusCode, what: &str) -> Response<String> {
    with(status, what.to_owned(), "text/plain; charset=utf-8")
}

fn with(status: StatusCode, text: String, kind: &'static str) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests;
