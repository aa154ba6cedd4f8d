//! The server for Prometheus: `GET /metrics` at an address.
//!
//! Each client that reaches the address may read the page, and nothing else. The number of
//! concurrent answers is limited, so a pool that hangs takes no more threads than that.
//!
//! A connection gets one answer, and ends [`TIMEOUT`] after the answer began, read or not. When all
//! places are taken, a new connection replaces the oldest idle one, or else the oldest. So a client
//! that holds connections, and sends or reads nothing, keeps no other client out.

use crate::control::http::alone;
use crate::daemon::service::DaemonService;
use crate::telemetry::metrics::{CONTENT_TYPE, page};
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

/// Most connections at a time.
const CONNECTIONS: usize = 32;
/// Most pages in preparation at a time.
const PAGES: usize = 4;
/// How long a client may take for its request, and again to read the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An accepted connection.
struct Connection {
    task: AbortHandle,
    /// Whether its request is being answered.
    busy: Arc<AtomicBool>,
}

/// The present connections, the oldest first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

impl Connections {
    /// Frees a place for one more connection.
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

/// Accepts connections without end.
pub(crate) async fn open(listener: TcpListener, service: Arc<dyn DaemonService>) {
    let pages = Arc::new(Semaphore::new(PAGES));
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.make_room();
                let busy = Arc::new(AtomicBool::new(false));
                let (service, pages) = (Arc::clone(&service), Arc::clone(&pages));
                let asked = move |request: Request<Incoming>| {
                    let (service, pages) = (Arc::clone(&service), Arc::clone(&pages));
                    async move { respond(&request, service, &pages).await }
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
    // A connection without a request for that long ends.
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
    service: Arc<dyn DaemonService>,
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
        // There is no identity of the client, and a page has only what all users may know. So the
        // daemon answers its own request.
        let page = page(&InProcess::new(&*service));
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
