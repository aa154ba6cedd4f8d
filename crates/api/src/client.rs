//! The commands' side of the control socket.
//!
//! # Theory
//! An absent daemon is one with nothing imported. So a question to a daemon that does not run is answered here, by the
//! same code over no pools, and only a method that must leave something behind (an import) starts a daemon.
//!
//! A user who has a daemon asks it, and it alone: what a command means is not to depend on what else root happens to hold. One who has none sees root's pools, and does there what
//! root has allowed. [`ENV_DIR`](crate::place::ENV_DIR) names the daemon that is meant, where there are several. Without that, a user's daemon is looked for in
//! all folders that it may be in ([`choice`]).
//!
//! A daemon that ends may do so between our connecting and its accepting; then the connection closes without a byte of
//! an answer, and the question is asked once more, of a new one if need be.

use crate::files::{Denied, Opened, Opening, Visit};
use crate::place::{Place, PlaceError, choice};
use crate::start::start;
use crate::{ANSWER_MAX, Caller, Client, Service, Transport, TransportError, dispatch};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Methods after which a daemon must be there.
const STARTS: [&str; 2] = ["import", "create_pool"];
/// Methods about this user's own pools and devices, which another's daemon is not asked.
const OWN: [&str; 3] = ["import", "scan", "create_pool"];

/// The daemon's socket as a [`Transport`].
pub struct Socket {
    /// The folder that is meant, if one is named.
    place: Option<Place>,
    program: Option<PathBuf>,
    absent: Box<dyn Service>,
}

impl Socket {
    /// This user's daemon, or root's for a user who has none. `absent` answers when no daemon runs.
    pub fn new(absent: Box<dyn Service>) -> Self {
        Self { place: Place::named(), program: None, absent }
    }

    /// The daemon that lives in `place`, started from `program` when needed.
    pub fn at(place: Place, program: PathBuf, absent: Box<dyn Service>) -> Self {
        Self { place: Some(place), program: Some(program), absent }
    }

    /// A client over this socket.
    pub fn client(self) -> Client<Self> {
        Client::new(self)
    }

    /// Posts to a daemon that lives where this says; no answer if it went away before a byte of it.
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
                // No daemon runs, so that this process answers its own question.
                dispatch(&*self.absent, &Caller::this_process(), method, body, &mut answer)?;
                return Ok(Some(answer));
            }
        };
        named(&place, post(stream, method, body))
    }
}

/// Connects to a daemon that runs, in the folder that is named if one is, and says where it lives.
/// With `own` that is this user's own daemon.
fn connect(named: Option<&Place>, own: bool) -> Result<Option<(UnixStream, Place)>, TransportError> {
    let connected = match named {
        // A folder that is named and can't be a daemon's is a mistake: what it was to hold is
        // not nothing.
        Some(place) => match place.connect() {
            Ok(None) => place.could_have_daemon().map(|()| None),
            connected => connected.map(|stream| Some((stream?, place.clone()))),
        },
        None => choice::running(),
    };
    match connected.map_err(of_place)? {
        // Somebody without a daemon sees root's pools, as anybody does those of the kernel module.
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

fn of_place(error: PlaceError) -> TransportError {
    TransportError::Socket(std::io::Error::other(crate::chain(&error)))
}

/// Opens a dataset by way of the daemon that commands ask.
///
/// # Errors
/// [`Denied`].
pub fn visit(opening: &Opening) -> Result<(Visit, Opened), Denied> {
    let no_daemon = |source: std::io::Error| Denied::Socket { socket: "the daemon's socket".into(), source };
    let place = match connect(Place::named().as_ref(), false) {
        Ok(Some((_, place))) => place,
        Ok(None) => return Err(no_daemon(ErrorKind::NotFound.into())),
        Err(error) => return Err(no_daemon(std::io::Error::other(crate::chain(&error)))),
    };
    Visit::open(&place, opening)
}

/// A failure with the name of the socket where it happened: whose socket it is says whose daemon.
fn named<T>(place: &Place, result: Result<T, TransportError>) -> Result<T, TransportError> {
    result.map_err(|error| match error {
        TransportError::Socket(error) => {
            let text = format!("{}: {error}", place.socket().display());
            TransportError::Socket(std::io::Error::new(error.kind(), text))
        }
        TransportError::Malformed => TransportError::Malformed,
    })
}

/// The sockets of this user's own daemon and of root's, if both answer: then commands go to the first, and nothing of what root's holds is seen.
pub fn own_before_roots() -> Option<[PathBuf; 2]> {
    if Place::named().is_some() {
        return None;
    }
    let (_, own) = choice::running().ok()??;
    let (_, system) = choice::roots_running().ok()??;
    (own != system).then(|| [own.socket(), system.socket()])
}

/// Posts a request and reads the answer's body. `None` if the daemon went away before a byte of it.
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
    // A daemon that turns a connection away answers without reading. What it did not read breaks
    // the connection after that answer.
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

/// The body of an HTTP answer that was read to its end; `None` if the connection broke before that.
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

/// The text in chunks of HTTP; `None` if the last one is missing.
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
