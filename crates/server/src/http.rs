//! HTTP on the control socket.
//!
//! # Theory
//! The one place with `async`: it reads requests and writes answers on one thread, and gives each request to a thread of
//! its own for as long as the engine works on it, so that a request of one pool never waits for another's. How many there are at once is
//! [`crate::callers`]'; what makes a pool go on whose devices failed, and the end of the daemon, are never kept waiting.
//!
//! # Absent
//! What a method means ([`api`]) and who may call it ([`crate::peer`]).

mod answer;

use crate::callers::{Callers, Crowd, Seat};
use crate::daemon::House;
use crate::peer::{may, of_cred};
use answer::{Paced, Text, answer};
use api::{Answer, Budget, Caller, Error, METHODS, Peer, PoolChange, Reason, clipped, dispatch};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{Notify, oneshot};

/// The largest request that is read, bytes.
const REQUEST_MAX: usize = 16 << 20;
/// The largest one of who does not own the daemon.
const REQUEST_MAX_OTHERS: usize = 1 << 20;
/// Most parts of such a request: more than fit into it with names that mean something.
const ELEMENTS_MAX_OTHERS: usize = 32 << 10;
/// Most bytes of the head of a request.
const HEAD_MAX: usize = 16 << 10;
/// The method that ends the daemon, which its owner alone may call.
const SHUTDOWN: &str = "shutdown";
/// How long a caller may take to send the head of a request, and again for its body, and how long it waits for its turn.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection to its end. A value of `busy` lives while a request is under way; `stop` is notified by the
/// method `shutdown`, which ends the daemon.
pub(crate) async fn connection<B: Clone + Send + 'static>(
    stream: UnixStream,
    service: Arc<dyn House>,
    stop: Arc<Notify>,
    callers: &Arc<Callers>,
    busy: impl Fn() -> B + Clone + Send + 'static,
) {
    let owner = rustix::process::geteuid().as_raw();
    let peer = match stream.peer_cred() {
        Ok(cred) => of_cred(&cred),
        Err(error) => {
            tracing::warn!(%error, "a caller without credentials is turned away");
            return;
        }
    };
    let seat = match callers.seat(peer.uid, peer.owns(owner)) {
        Ok(seat) => Arc::new(seat),
        Err(crowd) => {
            tracing::info!(uid = peer.uid, %crowd, "a connection is turned away");
            turn_away(&stream, crowd).await;
            return;
        }
    };
    let answers = hyper::service::service_fn(move |request| {
        let (service, stop, held) = (Arc::clone(&service), Arc::clone(&stop), busy());
        let seat = Arc::clone(&seat);
        async move {
            let response = respond(request, (peer, owner, &seat), service, &stop).await;
            drop(held);
            Ok::<_, Infallible>(response)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .max_buf_size(HEAD_MAX)
        .keep_alive(peer.owns(owner))
        .serve_connection(TokioIo::new(Paced::new(stream)), answers)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// Answers a connection that has no place, without reading from it.
async fn turn_away(stream: &UnixStream, crowd: Crowd) {
    let error = Error::new("poolhouse", Reason::Daemon { what: crowd.to_string() });
    let body = body_of(&error);
    let head = format!(
        "HTTP/1.1 {} Turned away\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        error.http_status(),
        body.len()
    );
    // A new connection takes so much at once, unless its caller is gone.
    if stream.writable().await.is_ok() {
        drop(stream.try_write(&[head.into_bytes(), body].concat()));
    }
}

async fn respond(
    request: Request<Incoming>,
    (peer, owner, seat): (Peer, u32, &Seat),
    service: Arc<dyn House>,
    stop: &Notify,
) -> Response<Text> {
    // From here on a method is one of ours: what a stranger wrote there goes into no log and no
    // answer.
    let path = request.uri().path();
    let asked = path.strip_prefix("/v1/");
    let known = |asked| METHODS.iter().chain(&[SHUTDOWN]).find(|name| **name == asked);
    let Some(method) = asked.and_then(known).copied() else {
        return refuse(&clipped(asked.unwrap_or(path)), Reason::NoSuchMethod);
    };
    if !matches!(*request.method(), Method::POST | Method::GET) {
        return refuse(method, Reason::BadRequest { what: "neither POST nor GET".to_owned() });
    }
    let open = may(peer, owner, method);
    if !open && owner != 0 {
        tracing::info!(uid = peer.uid, method, "refused");
        return refuse(method, Reason::Permission);
    }
    let most = if peer.owns(owner) { REQUEST_MAX } else { REQUEST_MAX_OTHERS };
    let body = match whole_body(request.into_body(), most, seat.budget()).await {
        Ok(body) => body,
        Err(reason) => return refuse(method, reason),
    };
    tracing::debug!(uid = peer.uid, method, "asked");
    if method == SHUTDOWN && open {
        stop.notify_one();
        return response(200, Text::whole(br#"{"ok":null}"#.to_vec()));
    }
    if !peer.owns(owner) && elements(&body) > ELEMENTS_MAX_OTHERS {
        return refuse(method, Reason::TooMuch);
    }
    let urgent = open && is_urgent(method, &body);
    let turn = if urgent { None } else { seat.turn(TIMEOUT).await };
    if !urgent && turn.is_none() {
        tracing::warn!(uid = peer.uid, method, "refused: its other requests don't end");
        return refuse(method, Reason::Daemon { what: "too many other requests don't end".to_owned() });
    }
    let caller = Caller::of_connection(peer, owner, seat.budget());
    let (mut sending, receiving) = answer(Arc::clone(caller.budget()));
    let make = move || {
        let _turn = turn;
        let allowed = if open { Ok(()) } else { service.allows(&caller, method, &body) };
        let made = match allowed {
            Ok(()) => dispatch(&*service, &caller, method, &body, &mut sending),
            Err(error) => {
                tracing::info!(uid = peer.uid, method, "refused");
                sending.begin(error.http_status());
                sending.write_all(&body_of(&error))
            }
        };
        match made {
            Ok(()) => sending.end(),
            Err(error) => {
                tracing::debug!(uid = peer.uid, method, %error, "the caller does not take its answer")
            }
        }
    };
    if urgent {
        // Without a thread it is not answered.
        std::thread::Builder::new().name("urgent".to_owned()).spawn(make).map_or_else(drop, drop);
    } else {
        drop(tokio::task::spawn_blocking(make));
    }
    match receiving.begin().await {
        Some((status, text)) => response(status, text),
        None => {
            tracing::error!(method, "a request died");
            refuse(
                method,
                Reason::Daemon { what: "the request died; the daemon's log says where".to_owned() },
            )
        }
    }
}

/// How many parts a request has at least: what follows a comma, in a list, an object or a text.
fn elements(body: &[u8]) -> usize {
    body.iter().filter(|byte| **byte == b',').count()
}

/// Whether a request makes a pool go on for which others may wait.
fn is_urgent(method: &str, body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Asked {
        change: PoolChange,
    }
    let asked = || serde_json::from_slice::<Asked>(body).ok();
    method == "change_pool" && asked().is_some_and(|asked| matches!(asked.change, PoolChange::Clear { .. }))
}

/// Does something in a thread that nothing else waits for; `None` if it died, or there is no thread.
pub(crate) async fn alone<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, wait) = oneshot::channel();
    // Who waited may be gone.
    let run = move || drop(done.send(work()));
    std::thread::Builder::new().name("urgent".to_owned()).spawn(run).ok()?;
    wait.await.ok()
}

/// The text of a request, which takes from its caller's memory for as long as it lives.
struct Asked {
    text: Vec<u8>,
    #[allow(dead_code, reason = "holds memory by living")]
    budget: Arc<Budget>,
}

impl AsRef<[u8]> for Asked {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Reads a request of at most `most` bytes. What it announces is taken from the budget before a
/// byte is read, and what it did not announce as it comes.
///
/// # Errors
/// [`Reason::TooMuch`] if the caller's other requests and answers leave no memory for it;
/// [`Reason::BadRequest`] if it is too long, breaks off, or takes longer than [`TIMEOUT`].
async fn whole_body<B>(body: B, most: usize, budget: Arc<Budget>) -> Result<Bytes, Reason>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let read = tokio::time::timeout(TIMEOUT, read_body(body, most, &budget)).await;
    let late = |_| Err(bad("it did not arrive in time"));
    let text = read.unwrap_or_else(late)?;
    Ok(Bytes::from_owner(Asked { text, budget }))
}

async fn read_body<B>(mut body: B, most: usize, budget: &Budget) -> Result<Vec<u8>, Reason>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut taken = 0;
    let mut take = |whole: usize| {
        if whole > most {
            return Err(bad("too long"));
        }
        let more = whole.saturating_sub(taken);
        budget.take("", more as u64).map_err(|error| error.reason)?;
        taken += more;
        Ok(())
    };
    take(announced)?;
    let mut text = Vec::with_capacity(announced);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| bad(&error.to_string()))?;
        if let Some(data) = frame.data_ref() {
            take(text.len() + data.len())?;
            text.extend_from_slice(data);
        }
    }
    Ok(text)
}

fn bad(what: &str) -> Reason {
    Reason::BadRequest { what: what.to_owned() }
}

fn refuse(about: &str, reason: Reason) -> Response<Text> {
    let error = Error::new(about, reason);
    response(error.http_status(), Text::whole(body_of(&error)))
}

/// The body of an answer that is an error.
fn body_of(error: &Error) -> Vec<u8> {
    serde_json::json!({ "error": error }).to_string().into_bytes()
}

fn response(status: u16, body: Text) -> Response<Text> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests;
