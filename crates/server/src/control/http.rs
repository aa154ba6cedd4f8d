//! HTTP on the control socket.
//!
//! # Theory
//! This module and its parent are the only asynchronous code for requests. One thread reads
//! requests and writes answers. Each request has a thread of its own while the engine works on it,
//! so a request about one pool never waits for another's.
//!
//! `crate::control::turns` limits the number of concurrent requests. Requests that make a pool with
//! failed devices continue, and the end of the daemon, never wait for that.
//!
//! # Absent
//! * What a method means: see [`api`].
//! * Which callers may use it: see [`crate::control::peer`].

mod answer;

use crate::control::peer::{may, of_cred};
use crate::control::turns::{Callers, Crowd, Seat};
use crate::daemon::service::DaemonService;
use answer::{Paced, Sending, Text, answer};
use api::{Answer, Budget, Caller, Error, METHODS, Peer, PoolChange, Reason, clipped, dispatch};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use observe::clients;
use observe::ops::{Ended, Op};
use observe::work::{self, Job, Task};
use serde::Deserialize;
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{Notify, oneshot};

/// Most bytes of a request.
const REQUEST_MAX: usize = 16 << 20;
/// Most bytes of a request from a user that does not own the daemon.
const REQUEST_MAX_OTHERS: usize = 1 << 20;
/// Most parts of such a request. More parts than meaningful names fit into it.
const ELEMENTS_MAX_OTHERS: usize = 32 << 10;
/// Most bytes of the head of a request.
const HEAD_MAX: usize = 16 << 10;
/// The method that ends the daemon. Only its owners may use it.
const SHUTDOWN: &str = "shutdown";
/// How long a caller may take to send the head of a request, and again for its body. Also how long
/// a request waits for its turn.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection to its end.
///
/// A value of `busy` lives while a request is in progress. The method `shutdown`, which ends the
/// daemon, notifies `stop`.
pub(crate) async fn connection<B: Clone + Send + 'static>(
    stream: UnixStream,
    service: Arc<dyn DaemonService>,
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

/// Refuses a connection beyond the limits, without reading from it.
async fn turn_away(stream: &UnixStream, crowd: Crowd) {
    let error = Error::new("poolhouse", Reason::Daemon { what: crowd.to_string() });
    let body = body_of(&error);
    let head = format!(
        "HTTP/1.1 {} Turned away\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        error.http_status(),
        body.len()
    );
    // A new connection accepts this much at once, unless its caller is gone.
    if stream.writable().await.is_ok() {
        drop(stream.try_write(&[head.into_bytes(), body].concat()));
    }
}

/// The method that a request names. Text from an unknown client must not reach a log or an answer,
/// so only the name of a known method is passed on.
fn method_of(request: &Request<Incoming>) -> Result<&'static str, Error> {
    let path = request.uri().path();
    let asked = path.strip_prefix("/v1/");
    let known = |asked| METHODS.iter().chain(&[SHUTDOWN]).find(|name| **name == asked);
    let Some(method) = asked.and_then(known).copied() else {
        return Err(Error::new(clipped(asked.unwrap_or(path)), Reason::NoSuchMethod));
    };
    if !matches!(*request.method(), Method::POST | Method::GET) {
        return Err(Error::new(method, Reason::BadRequest { what: "neither POST nor GET".to_owned() }));
    }
    Ok(method)
}

async fn respond(
    request: Request<Incoming>,
    (peer, owner, seat): (Peer, u32, &Seat),
    service: Arc<dyn DaemonService>,
    stop: &Notify,
) -> Response<Text> {
    let method = match method_of(&request) {
        Ok(method) => method,
        Err(error) => return refuse(&error.about, error.reason),
    };
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
    let (sending, receiving) = answer(Arc::clone(caller.budget()));
    let make = move || {
        let _turn = turn;
        let allowed = if open { Ok(()) } else { service.allows(&caller, method, &body) };
        send(&*service, &caller, (method, &body), allowed, sending);
    };
    if urgent {
        // Without a thread there is no answer.
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

/// Sends the answer to a request that is allowed, or else why it is not.
fn send(
    service: &dyn DaemonService,
    caller: &Caller,
    (method, body): (&str, &[u8]),
    allowed: Result<(), Error>,
    mut sending: Sending,
) {
    let uid = caller.peer().uid;
    let number = METHODS.iter().position(|known| *known == method);
    let job = Job::task(Task::Command, number.unwrap_or(METHODS.len()) as u64);
    let began = job.began;
    let _running = work::begin(Job { pid: caller.peer().pid.unwrap_or(0), uid, ..job });
    let made = match allowed {
        Ok(()) => dispatch(service, caller, method, body, &mut sending),
        Err(error) => {
            tracing::info!(uid, method, "refused");
            sending.begin(error.http_status());
            sending.write_all(&body_of(&error))
        }
    };
    // It comes before the end, so that the caller finds it counted.
    let failed = (made.is_err() || sending.is_error()).then_some(0);
    clients::count_of_user(uid, &Ended::now(Op::Unknown, began, 0, failed));
    match made {
        Ok(()) => sending.end(),
        Err(error) => tracing::debug!(uid, method, %error, "the caller does not take its answer"),
    }
}

/// The least number of parts of a request. Each comma in a list, object or text counts as one.
fn elements(body: &[u8]) -> usize {
    body.iter().filter(|byte| **byte == b',').count()
}

/// Whether a request makes a suspended pool continue, which other requests may wait for.
fn is_urgent(method: &str, body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Asked {
        change: PoolChange,
    }
    let asked = || serde_json::from_slice::<Asked>(body).ok();
    method == "change_pool" && asked().is_some_and(|asked| matches!(asked.change, PoolChange::Clear { .. }))
}

/// Runs `work` in a thread of its own, which no limit delays. `None` if there is no thread, or if
/// it panicked.
pub(crate) async fn alone<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, wait) = oneshot::channel();
    // The receiver may be gone.
    let run = move || drop(done.send(work()));
    std::thread::Builder::new().name("urgent".to_owned()).spawn(run).ok()?;
    wait.await.ok()
}

/// The text of a request. It holds its caller's memory as long as it lives.
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

/// Reads a request of at most `most` bytes.
///
/// The announced length is taken from the budget before a byte is read. Anything beyond that is
/// taken as it arrives.
///
/// # Errors
/// * [`Reason::TooMuch`]: the caller's other requests and answers leave no memory for it.
/// * [`Reason::BadRequest`]: it is too long, breaks off, or takes longer than [`TIMEOUT`].
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

/// The body of an answer with an error.
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
