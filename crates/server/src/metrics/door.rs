//! Where Prometheus asks: `GET /metrics` at an address.
//!
//! Whoever reaches the address reads the page; nothing else is answered there. How many ask at once
//! is bounded, so that a pool that hangs takes no more than that. A connection gets one answer, and
//! ends [`TIMEOUT`] after the answer began, read or not. When all places are taken, a new
//! connection takes the place of the oldest that is idle, or else of the oldest. So a stranger who
//! holds connections, and asks nothing or reads nothing, keeps nobody else out.

use super::{CONTENT_TYPE, page};
use crate::daemon::House;
use crate::http::alone;
use api::InProcess;
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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

/// Connections at a time.
const CONNECTIONS: usize = 32;
/// Pages that are made at a time.
const PAGES: usize = 4;
/// How long a caller may take for its question, and again to read the answer.
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
    /// Makes room for one more.
    fn make_room(&mut self) {
        self.0.retain(|connection| !connection.task.is_finished());
        if self.0.len() < CONNECTIONS {
            return;
        }
        let idle = self.0.iter().position(|connection| !connection.busy.load(Ordering::Relaxed));
        if let Some(oldest) = self.0.remove(idle.unwrap_or(0)) {
            oldest.task.abort();
        }
    }
}

/// Answers for ever.
pub(crate) async fn open(listener: TcpListener, house: Arc<dyn House>) {
    let pages = Arc::new(Semaphore::new(PAGES));
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.make_room();
                let busy = Arc::new(AtomicBool::new(false));
                let (house, pages) = (Arc::clone(&house), Arc::clone(&pages));
                let asked = move |request: Request<Incoming>| {
                    let (house, pages) = (Arc::clone(&house), Arc::clone(&pages));
                    async move { respond(&request, house, &pages).await }
                };
                let task = connection(stream, Arc::clone(&busy), asked);
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

/// Serves one request of a connection, which is `busy` from then on.
async fn connection<A: Future<Output = Response<String>>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    busy: Arc<AtomicBool>,
    asked: impl Fn(Request<Incoming>) -> A,
) {
    let begun = Notify::new();
    let answer = hyper::service::service_fn(|request| {
        busy.store(true, Ordering::Relaxed);
        let response = asked(request);
        async {
            let response = response.await;
            begun.notify_one();
            Ok::<_, Infallible>(response.map(|text| Full::new(Bytes::from(text))))
        }
    });
    // A connection that asks nothing for that long ends.
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    let late = async {
        begun.notified().await;
        tokio::time::sleep(TIMEOUT).await;
    };
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::debug!(%error, "a connection for metrics ended badly");
        },
        () = late => tracing::debug!("a caller does not read its metrics in time"),
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
        // Nothing says who is at the other end, and a page holds no more than all may know: the
        // daemon answers its own question.
        let page = page(&InProcess::new(&*house));
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
