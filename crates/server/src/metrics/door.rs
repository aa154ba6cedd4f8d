//! Where Prometheus asks: `GET /metrics` at an address.
//!
//! Whoever reaches the address reads the page; nothing else is answered there. How many ask at once is bounded, so that a pool that hangs takes no more than that.

use super::{CONTENT_TYPE, page};
use crate::daemon::House;
use crate::http::alone;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE as TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at a time.
const CONNECTIONS: usize = 32;
/// Pages that are made at a time.
const PAGES: usize = 4;
/// How long a caller may take for its question.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Answers for ever.
pub(crate) async fn open(listener: TcpListener, house: Arc<dyn House>) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS));
    let pages = Arc::new(Semaphore::new(PAGES));
    loop {
        // Never closed.
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (house, pages) = (Arc::clone(&house), Arc::clone(&pages));
                tokio::spawn(async move {
                    connection(stream, house, pages).await;
                    drop(seat);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "nobody can ask for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, house: Arc<dyn House>, pages: Arc<Semaphore>) {
    let answer = hyper::service::service_fn(move |request| {
        let (house, pages) = (Arc::clone(&house), Arc::clone(&pages));
        async move { Ok::<_, Infallible>(respond(&request, house, &pages).await) }
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
) -> Response<Full<Bytes>> {
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

fn plain(status: StatusCode, what: &str) -> Response<Full<Bytes>> {
    with(status, what.to_owned(), "text/plain; charset=utf-8")
}

fn with(status: StatusCode, text: String, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(TYPE, HeaderValue::from_static(kind));
    response
}
