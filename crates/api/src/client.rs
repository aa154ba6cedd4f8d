//! The commands' side of the control socket.
//!
//! # Theory
//! An absent daemon is one with nothing imported. So this process answers a request to it, by the
//! same code over no pools. Only a method that must leave something behind (an import) starts a
//! daemon.
//!
//! A user who has a daemon uses that daemon alone. What a command means must not depend on what
//! else root's daemon holds. A user without a daemon sees root's pools, and may do there what root
//! has allowed. [`ENV_DIR`](crate::run_dir::ENV_DIR) selects one of several daemons. Without it,
//! this module looks for a user's daemon in all folders where it may live ([`choice`]).
//!
//! A daemon may end between the client's connect and its own accept. Then the connection closes
//! without a byte of an answer. The client sends the request once more, to a new daemon if needed.

use crate::files::{Denied, Opened, Opening, Visit};
use crate::run_dir::{RunDir, RunDirError, choice};
use crate::start::start;
use crate::streams::{Incoming, Kept, Received, deliver, deliver_by};
use crate::{
    ANSWER_MAX, AfsAdopt, Caller, Client, ReceiveRequest, SendRequest, Service, Transport, TransportError,
    dispatch,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Methods that start a daemon if none runs.
const STARTS: [&str; 2] = ["import", "create_pool"];
/// Methods about this user's own pools and devices. They never go to another user's daemon.
const OWN: [&str; 3] = ["import", "scan", "create_pool"];

/// The daemon's socket as a [`Transport`].
pub struct Socket {
    /// The daemon's folder, if one is named.
    place: Option<RunDir>,
    program: Option<PathBuf>,
    absent: Box<dyn Service>,
}

impl Socket {
    /// The socket of this user's daemon, or of root's for a user who has none.
    ///
    /// `absent` answers when no daemon runs.
    pub fn new(absent: Box<dyn Service>) -> Self {
        Self { place: RunDir::named(), program: None, absent }
    }

    /// The socket of the daemon in `place`, which starts from `program` when needed.
    pub fn at(place: RunDir, program: PathBuf, absent: Box<dyn Service>) -> Self {
        Self { place: Some(place), program: Some(program), absent }
    }

    /// A client over this socket.
    pub fn client(self) -> Client<Self> {
        Client::new(self)
    }

    /// Sends a request to the daemon. `None` if the daemon closed the connection without a byte of
    /// an answer.
    fn exchange(&self, method: &str, body: &[u8]) -> Result<Option<Vec<u8>>, TransportError> {
        let starts = STARTS.contains(&method);
        let (stream, place) = match connect(self.place.as_ref(), OWN.contains(&method))? {
            Some(connected) => connected,
            None if starts => {
                start(self.place.as_ref(), self.program.as_deref())
                    .map_err(|error| TransportError::Socket(std::io::Error::other(crate::chain(&error))))?;
                match connect(self.place.as_ref(), true)? {
                    Some(connected) => connected,
                    None => return Ok(None),
                }
            }
            None => {
                let mut answer = Vec::new();
                // No daemon runs, so this process answers its own request.
                dispatch(&*self.absent, &Caller::this_process(), method, body, &mut answer)?;
                return Ok(Some(answer));
            }
        };
        named(&place, post(stream, method, body))
    }
}

/// Connects to a running daemon, and returns the folder where it lives.
///
/// A `named` folder is the only one that is tried. With `own`, root's daemon is no substitute for
/// this user's.
fn connect(named: Option<&RunDir>, own: bool) -> Result<Option<(UnixStream, RunDir)>, TransportError> {
    let connected = match named {
        // A named folder that can't be a daemon's is a mistake. It must not look like a daemon with
        // nothing imported.
        Some(place) => match place.connect() {
            Ok(None) => place.could_have_daemon().map(|()| None),
            connected => connected.map(|stream| Some((stream?, place.clone()))),
        },
        None => choice::running(),
    };
    match connected.map_err(of_place)? {
        // A user without a daemon sees root's pools, as all users see those of the kernel module.
        None if !own && named.is_none() => choice::roots_running().map_err(of_place),
        connected => Ok(connected),
    }
}

impl Transport for Socket {
    fn post(&self, method: &str, body: &[u8]) -> Result<Vec<u8>, TransportError> {
        if let Some(answer) = self.exchange(method, body)? {
            return Ok(answer);
        }
        let gone = || TransportError::Socket(ErrorKind::ConnectionReset.into());
        self.exchange(method, body)?.ok_or_else(gone)
    }
}

fn of_place(error: RunDirError) -> TransportError {
    TransportError::Socket(std::io::Error::other(crate::chain(&error)))
}

/// Opens a dataset through the daemon that commands use.
///
/// # Errors
/// * [`Denied::Socket`]: no daemon runs, its folder can't be used, or its socket failed.
/// * All others: see [`Visit::open`].
pub fn visit(opening: &Opening) -> Result<(Visit, Opened), Denied> {
    Visit::open(&daemons_place()?, opening)
}

/// Asks the daemon that commands use for a send stream.
///
/// # Errors
/// * [`Denied::Socket`]: no daemon runs, its folder can't be used, or its socket failed.
/// * All others: see [`Incoming::open`].
pub fn stream(request: &SendRequest, output: Option<BorrowedFd<'_>>) -> Result<Incoming, Denied> {
    let place = daemons_place()?;
    Incoming::open(&place, request, output.filter(|_| !is_others(&place)))
}

/// Has the daemon that commands use keep snapshots, for a command that sends one after the other.
///
/// # Errors
/// * [`Denied::Socket`]: no daemon runs, its folder can't be used, or its socket failed.
/// * All others: see [`keep`](crate::streams::keep).
pub fn keep(raw: bool, snapshots: &[&str]) -> Result<Kept, Denied> {
    crate::streams::keep(&daemons_place()?, raw, snapshots)
}

/// Has the daemon that commands use receive a stream.
///
/// The daemon reads `rest` itself. If it belongs to another user, `copy` writes the rest of the
/// stream, and nothing behind it.
///
/// # Errors
/// * [`Denied::Socket`]: no daemon runs, its folder can't be used, or its socket failed.
/// * All others: see [`deliver`] and [`deliver_by`].
pub fn receive(
    request: &ReceiveRequest,
    begin: &[u8],
    rest: BorrowedFd<'_>,
    copy: &mut dyn FnMut(&mut dyn Write) -> std::io::Result<()>,
) -> Result<Received, Denied> {
    let place = daemons_place()?;
    match is_others(&place) {
        true => deliver_by(&place, request, begin, copy),
        false => deliver(&place, request, begin, rest),
    }
}

/// Has the daemon that commands use make a volume of AFS from a dump, which `write` writes.
///
/// # Errors
/// * [`Denied::Socket`]: no daemon runs, its folder can't be used, or its socket failed.
/// * All others: see [`adopt`](crate::streams::adopt).
pub fn adopt(
    request: &AfsAdopt,
    write: &mut dyn FnMut(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Denied> {
    crate::streams::adopt(&daemons_place()?, request, write)
}

/// Whether a daemon is root's, and this user another one.
fn is_others(place: &RunDir) -> bool {
    place.is_shared() && !rustix::process::geteuid().is_root()
}

/// The folder of the daemon that commands use.
fn daemons_place() -> Result<RunDir, Denied> {
    let no_daemon = |source: std::io::Error| Denied::Socket { socket: "the daemon's socket".into(), source };
    match connect(RunDir::named().as_ref(), false) {
        Ok(Some((_, place))) => Ok(place),
        Ok(None) => Err(no_daemon(ErrorKind::NotFound.into())),
        Err(error) => Err(no_daemon(std::io::Error::other(crate::chain(&error)))),
    }
}

/// Adds the socket's name to a failure, since it shows whose daemon it is.
fn named<T>(place: &RunDir, result: Result<T, TransportError>) -> Result<T, TransportError> {
    result.map_err(|error| match error {
        TransportError::Socket(error) => {
            let text = format!("{}: {error}", place.socket().display());
            TransportError::Socket(std::io::Error::new(error.kind(), text))
        }
        TransportError::Malformed => TransportError::Malformed,
    })
}

/// The sockets of this user's own daemon and of root's, if both answer.
///
/// Then commands use the first, and see nothing of what root's daemon holds.
pub fn own_before_roots() -> Option<[PathBuf; 2]> {
    if RunDir::named().is_some() {
        return None;
    }
    let (_, own) = choice::running().ok()??;
    let (_, system) = choice::roots_running().ok()??;
    (own != system).then(|| [own.socket(), system.socket()])
}

/// Posts a request and reads the answer's body. `None` if the daemon disappeared before a byte of
/// it.
///
/// # Errors
/// * [`TransportError::Socket`]: writing the request or reading the answer failed.
/// * [`TransportError::Malformed`]: the answer is not HTTP, or longer than [`ANSWER_MAX`] bytes.
pub fn post(mut stream: UnixStream, method: &str, body: &[u8]) -> Result<Option<Vec<u8>>, TransportError> {
    let head = format!(
        "POST /v1/{method} HTTP/1.1\r\nHost: poolhouse\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let gone = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
    };
    let mut answer = Vec::new();
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    // A daemon that turns a connection away answers without reading. The unread request breaks the
    // connection after that answer, so a broken connection is no failure yet.
    if let Err(error) = sent
        && !gone(&error)
    {
        return Err(error.into());
    }
    let read = stream.take(ANSWER_MAX + 1).read_to_end(&mut answer);
    let broken = match read {
        Err(error) if !gone(&error) => return Err(error.into()),
        _ if answer.is_empty() => return Ok(None),
        read => read.err(),
    };
    match (body_of(answer), broken) {
        (Some(body), _) => Ok(Some(body)),
        (None, Some(error)) => Err(error.into()),
        (None, None) => Err(TransportError::Malformed),
    }
}

/// The body of a complete HTTP answer. `None` if the connection broke before its end.
fn body_of(mut answer: Vec<u8>) -> Option<Vec<u8>> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    if !lines.next()?.starts_with("HTTP/1.1 ") || answer.len() as u64 > ANSWER_MAX {
        return None;
    }
    let fields: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
    let field = |wanted: &str| fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    if field("transfer-encoding").is_some_and(|(_, value)| value.trim().eq_ignore_ascii_case("chunked")) {
        return chunks(&answer[end + 4..]);
    }
    let length = field("content-length")?.1.trim().parse::<usize>().ok()?;
    answer.drain(..end + 4);
    (length == answer.len()).then_some(answer)
}

/// The text of a body in HTTP chunks. `None` if the last chunk is missing.
fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(text);
        }
        let (chunk, after) = rest.split_at_checked(size)?;
        text.extend_from_slice(chunk);
        rest = after.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests;
