//! HTTP on the control socket.
//!
//! # Theory
//! The one place with `async`: it reads requests and writes answers on one thread, and gives each request to a thread of
//! its own for as long as the engine works on it, so that a request of one pool never waits for another's.
//!
//! # Absent
//! What a method means ([`crate::api`]) and who may call it ([`crate::peer`]).

use crate::api::{Error, Reason, dispatch};
use crate::daemon::House;
use crate::peer::{Peer, asking, may};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Notify;

/// The largest request that is read, bytes.
const REQUEST_MAX: usize = 16 << 20;
/// How long a caller may take to send the head of a request, and again for its body.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection to its end. A value of `busy` lives while a request is under way; `stop` is notified by the
/// method `shutdown`, which ends the daemon.
pub(crate) async fn connection<B: Clone + Send + 'static>(
    stream: UnixStream,
    service: Arc<dyn House>,
    stop: Arc<Notify>,
    busy: impl Fn() -> B + Clone + Send + 'static,
) {
    let owner = rustix::process::geteuid().as_raw();
    let peer = match stream.peer_cred() {
        Ok(cred) => Peer { uid: cred.uid(), gid: cred.gid() },
        Err(error) => {
            tracing::warn!(%error, "a caller without credentials is turned away");
            return;
        }
    };
    let answer = hyper::service::service_fn(move |request| {
        let (service, stop, held) = (Arc::clone(&service), Arc::clone(&stop), busy());
        async move {
            let response = respond(request, peer, owner, service, &stop).await;
            drop(held);
            Ok::<_, Infallible>(response)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended badly");
    }
}

async fn respond(
    request: Request<Incoming>,
    peer: Peer,
    owner: u32,
    service: Arc<dyn House>,
    stop: &Notify,
) -> Response<Full<Bytes>> {
    let Some(method) = request.uri().path().strip_prefix("/v1/").map(str::to_owned) else {
        return refuse(request.uri().path(), Reason::NoSuchMethod);
    };
    if !matches!(*request.method(), Method::POST | Method::GET) {
        return refuse(&method, Reason::BadRequest { what: "neither POST nor GET".to_owned() });
    }
    let open = may(peer, owner, &method);
    if !open && owner != 0 {
        tracing::info!(uid = peer.uid, method, "refused");
        return refuse(&method, Reason::Permission);
    }
    let body = match whole_body(request).await {
        Ok(body) => body,
        Err(what) => return refuse(&method, Reason::BadRequest { what }),
    };
    tracing::debug!(uid = peer.uid, method, "asked");
    if method == "shutdown" && open {
        stop.notify_one();
        return response(200, br#"{"ok":null}"#.to_vec());
    }
    let name = method.clone();
    let answer = move || {
        let allowed = if open { Ok(()) } else { service.allows(peer, &method, &body) };
        if let Err(error) = allowed {
            tracing::info!(uid = peer.uid, method, "refused");
            let body = serde_json::json!({ "error": &error }).to_string().into_bytes();
            return (error.http_status(), body);
        }
        asking(peer, || dispatch(&*service, &method, &body))
    };
    match tokio::task::spawn_blocking(answer).await {
        Ok((status, body)) => response(status, body),
        Err(error) => {
            tracing::error!(method = name, %error, "a request died");
            refuse(&name, Reason::Daemon { what: "the request died; the daemon's log says where".to_owned() })
        }
    }
}

async fn whole_body(request: Request<Incoming>) -> Result<Bytes, String> {
    if request.body().size_hint().lower() > REQUEST_MAX as u64 {
        return Err("too long".to_owned());
    }
    let body = Limited::new(request.into_body(), REQUEST_MAX).collect();
    match tokio::time::timeout(TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it did not arrive in time".to_owned()),
    }
}

fn refuse(about: &str, reason: Reason) -> Response<Full<Bytes>> {
    let error = Error::new(about, reason);
    let body = serde_json::json!({ "error": &error }).to_string().into_bytes();
    response(error.http_status(), body)
}

fn response(status: u16, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}
