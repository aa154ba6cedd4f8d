//! HTTP, and its limits.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::access::{self, METHODS, Token};
use crate::assets::{self, Asset};

/// Passes a method and its arguments, which are JSON, to the daemon. Returns the answer, or the
/// reason why there is none.
pub type Forward = Arc<dyn Fn(&str, &[u8]) -> Result<Vec<u8>, String> + Send + Sync>;

/// Most connections.
const CONNECTIONS: usize = 32;
/// Most requests that the daemon works on.
const AT_WORK: usize = 4;
/// Most bytes of a request's arguments.
const REQUEST_MAX: usize = 64 << 10;
/// Most bytes of the head of a request.
const HEAD_MAX: usize = 16 << 10;
/// How long the head of a request may take, its arguments, and its wait for those before it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What all connections share.
struct Shared {
    token: Token,
    forward: Forward,
    at_work: Semaphore,
    timeout: Duration,
}

/// Serves the page until the process ends.
///
/// # Errors
/// The system has no more threads or sockets.
pub fn serve(listener: std::net::TcpListener, token: Token, forward: Forward) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shared = Shared { token, forward, at_work: Semaphore::new(AT_WORK), timeout: TIMEOUT };
    runtime.block_on(accept(listener, shared, std::future::pending()))
}

/// Serves connections until `end`.
async fn accept(
    listener: std::net::TcpListener,
    shared: Shared,
    end: impl Future<Output = ()>,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let (shared, seats) = (Arc::new(shared), Arc::new(Semaphore::new(CONNECTIONS)));
    tokio::pin!(end);
    loop {
        let (stream, _) = tokio::select! {
            () = &mut end => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                // The caller has gone already, or the process has no more files.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
        };
        // A connection beyond the limit is closed at once.
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else { continue };
        let shared = Arc::clone(&shared);
        drop(tokio::spawn(async move {
            let timeout = shared.timeout;
            let answers = hyper::service::service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(respond(request, &shared).await) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(timeout)
                .max_buf_size(HEAD_MAX)
                .serve_connection(TokioIo::new(stream), answers)
                .await;
            // A browser that breaks a connection is no event.
            drop((served, seat));
        }));
    }
}

async fn respond(request: Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    if let Err(foreign) = access::check(request.headers()) {
        return refuse(StatusCode::FORBIDDEN, &format!("the request is not of this page: {foreign:?}"));
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match assets::find(request.uri().path()) {
        Some(asset) if is_read => return send(asset, *request.method() == Method::HEAD),
        Some(_) => return refuse(StatusCode::METHOD_NOT_ALLOWED, "files can only be read"),
        None => {}
    }
    // Everything else is behind the token, also which methods there are.
    if !shared.token.allows(request.headers()) {
        return refuse(
            StatusCode::UNAUTHORIZED,
            "the token is missing or old: open the URL that poolhouse web prints",
        );
    }
    let method = request.uri().path().strip_prefix("/v1/");
    let Some(method) = method.and_then(|name| METHODS.iter().find(|known| **known == name)) else {
        return refuse(StatusCode::NOT_FOUND, "the page has no such method");
    };
    if *request.method() != Method::POST {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "methods want POST");
    }
    if request.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "arguments must be application/json");
    }
    let read = Limited::new(request.into_body(), REQUEST_MAX).collect();
    let arguments = match tokio::time::timeout(shared.timeout, read).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the arguments are too long");
        }
        _ => return refuse(StatusCode::BAD_REQUEST, "the arguments did not arrive"),
    };
    pass_on(method, arguments, shared).await
}

/// Has the daemon answer.
async fn pass_on(method: &'static str, arguments: Bytes, shared: &Shared) -> Response<Full<Bytes>> {
    let Ok(Ok(_turn)) = tokio::time::timeout(shared.timeout, shared.at_work.acquire()).await else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "earlier requests don't end");
    };
    let forward = Arc::clone(&shared.forward);
    match tokio::task::spawn_blocking(move || forward(method, &arguments)).await {
        Ok(Ok(answer)) => response(StatusCode::OK, "application/json", answer.into()),
        Ok(Err(why)) => refuse(StatusCode::BAD_GATEWAY, &why),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the request died"),
    }
}

fn send(asset: Asset, is_head: bool) -> Response<Full<Bytes>> {
    let text = if is_head { "" } else { asset.text };
    response(StatusCode::OK, asset.kind, Bytes::from_static(text.as_bytes()))
}

fn refuse(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", why.to_owned().into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, assets::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests;
