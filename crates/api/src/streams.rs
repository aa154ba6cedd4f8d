//! Send streams of a daemon's pools: `zfs send` and `zfs receive`.
//!
//! # Theory
//! The command asks once ([`SendRequest`]), at the socket of the daemon that also serves files
//! (`files.sock`). With the request travels the file descriptor of its output, which the daemon
//! writes to, as the kernel module does. Every second it answers how much it has written. If the
//! daemon can't write to that file, or gets none, it answers with parts of the stream. At last it
//! answers with the end, or with the error that ended the stream. So a command learns why a stream
//! is not whole.
//!
//! To receive one, the command reads its BEGIN and decides on the names, as libzfs does. Then it
//! gives the daemon the bytes of BEGIN, and the file descriptor that the rest comes from
//! ([`deliver`]). The daemon reads that itself, as the kernel module does.
//!
//! # Life
//! The snapshot is busy while it is sent, and those of a package up to its end ([`keep`]). A send
//! or receive ends with its command, with `zpool export -f`, and with the daemon.
//!
//! The dump of an AFS volume that the daemon adopts comes by the same socket ([`adopt`]). The
//! command writes it into the connection.
//!
//! # Other users
//! Root's daemon serves those that have the permissions (`zfs allow`). It takes no descriptors from
//! them, since a read of a descriptor, or its end, may wait for another process for ever. So their
//! commands copy the stream into the connection ([`deliver_by`]).

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use crate::files::wire::{ANSWER_MAX, Answer, Ask, receive, send, send_with};
use crate::files::{Denied, PART_MAX};
use crate::run_dir::RunDir;
use crate::{AfsAdopt, KeyMaterial, MountFailure, Settings};

/// Most bytes of a BEGIN with its list, for a stream that a daemon receives.
pub const BEGIN_MAX: usize = PART_MAX;

/// What a stream is to contain (`zfs send`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SendRequest {
    /// The snapshot, or a file system or volume that does not change meanwhile.
    pub dataset: String,
    /// The full name of the snapshot or bookmark on which the stream builds.
    pub from: Option<String>,
    /// Blocks may be larger than 128 KiB (`-L`).
    pub large_blocks: bool,
    /// Small blocks may be embedded as in the pool (`-e`).
    pub embedded: bool,
    /// Blocks are compressed as in the pool (`-c`).
    pub compressed: bool,
    /// Blocks are encrypted as in the pool (`-w`).
    pub raw: bool,
    /// Where it continues an interrupted stream: an object, an offset in it, and the bytes that
    /// were received before (`-t`).
    pub resume: Option<(u64, u64, u64)>,
    /// The redaction bookmark whose blocks are left out, by its name after the `#` (`--redact`).
    pub redact: Option<String>,
    /// It has what an interrupted receive into `dataset` has left, and no END (`--saved`).
    pub saved: bool,
}

/// What is to be redacted (`zfs redact`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RedactRequest {
    /// The full name of the snapshot.
    pub snapshot: String,
    /// The name of the new bookmark, after the `#`.
    pub bookmark: String,
    /// The full names of the redaction snapshots.
    pub by: Vec<String>,
}

/// Where a stream is received (`zfs receive`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReceiveRequest {
    /// The full name of the new snapshot.
    pub target: String,
    /// The full name of the snapshot of which the new dataset becomes a clone.
    pub origin: Option<String>,
    /// Changes since the latest snapshot may be discarded, and a dataset replaced (`-F`).
    pub force: bool,
    /// What came before a failure is kept (`-s`).
    pub resumable: bool,
    /// The snapshot exists, and its damaged blocks are written again (`-c`). All else but `target`
    /// has no effect.
    pub corrective: bool,
    /// A new file system is not mounted, nor is one that a whole stream replaced (`-u`).
    pub unmounted: bool,
    /// The properties that came with a package. They replace all that were received before.
    pub received: Option<Settings>,
    /// Properties that are set locally (`-o`).
    pub local: Settings,
    /// Properties whose inherited values hold, whatever was received (`-x`).
    pub inherited: Vec<String>,
    /// The properties of the snapshot that came with a package.
    pub snapshot: Settings,
    /// The encryption of a new dataset: `encryption`, `keyformat`, `keylocation`, `pbkdf2iters`.
    /// Without them it is the parent's.
    pub encryption: Settings,
    /// The key of a new encryption root.
    pub key: Option<KeyMaterial>,
}

/// A stream that was received.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Received {
    /// Its bytes, with BEGIN and END.
    pub bytes: u64,
    /// File systems that should be mounted now and are not.
    pub unmounted: Vec<MountFailure>,
    /// Properties that could not be set, with the reasons.
    pub failures: Vec<MountFailure>,
}

/// What comes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// Bytes that the command writes to its output.
    Bytes(&'a [u8]),
    /// The number of bytes that the daemon has written there so far.
    Written(u64),
}

/// Parts of a stream, in order.
pub trait Parts {
    /// The next part; `None` after the last.
    ///
    /// # Errors
    /// * [`Denied::Socket`]: the daemon disappeared, or its answer makes no sense.
    /// * All others: the daemon can't make the stream, or not go on. See [`Denied`].
    fn next(&mut self) -> Result<Option<Part<'_>>, Denied>;
}

/// A stream that arrives from the daemon.
pub struct Incoming {
    stream: UnixStream,
    place: RunDir,
    bytes: Vec<u8>,
}

impl Incoming {
    /// Asks the daemon in a folder for a stream, which it may write to the file `output`.
    ///
    /// # Errors
    /// * [`Denied::Theirs`]: the socket belongs to another user's daemon.
    /// * [`Denied::Socket`]: the socket can't be used.
    pub fn open(
        place: &RunDir,
        request: &SendRequest,
        output: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Denied> {
        let failed = |source| failure(place, source);
        let mut stream = UnixStream::connect(place.files()).map_err(failed)?;
        let ask = Ask::Send(request.clone());
        let sent = match output {
            Some(output) => send_with(&mut stream, &ask, &[], output),
            None => send(&mut stream, &ask, &[]),
        };
        sent.map_err(failed)?;
        Ok(Self { stream, place: place.clone(), bytes: Vec::new() })
    }
}

impl Parts for Incoming {
    fn next(&mut self) -> Result<Option<Part<'_>>, Denied> {
        let failed = |source| Denied::Socket { socket: self.place.files(), source };
        let gone = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let answer = receive(&mut self.stream, ANSWER_MAX, &mut self.bytes).map_err(failed)?;
        match answer.ok_or_else(|| failed(gone()))? {
            Answer::Bytes => Ok(Some(Part::Bytes(&self.bytes))),
            Answer::Written(bytes) => Ok(Some(Part::Written(bytes))),
            Answer::Done => Ok(None),
            Answer::Denied(refusal) => Err(refusal.into()),
            _ => Err(failed(std::io::ErrorKind::InvalidData.into())),
        }
    }
}

/// Snapshots that the daemon keeps from being destroyed while this lives.
#[derive(Debug)]
pub struct Kept {
    #[allow(dead_code, reason = "the daemon keeps them while the connections are open")]
    connections: Vec<UnixStream>,
}

/// Has the daemon in a folder keep snapshots of one pool, for a command that sends one after the
/// other. `raw` says whether they will be sent raw.
///
/// # Errors
/// * [`Denied::Theirs`]: the socket belongs to another user's daemon.
/// * [`Denied::Socket`]: the socket can't be used, or the daemon disappeared.
/// * [`Denied::Api`]: a snapshot does not exist or may not be sent by this user, or too many
///   commands use the pool.
pub fn keep(place: &RunDir, raw: bool, snapshots: &[&str]) -> Result<Kept, Denied> {
    let failed = |source| failure(place, source);
    let mut connections = Vec::new();
    let mut left = snapshots;
    while !left.is_empty() {
        let mut names = String::new();
        while let Some((first, rest)) =
            left.split_first().filter(|(first, _)| names.len() + first.len() < PART_MAX)
        {
            (names, left) = (names + first + "\n", rest);
        }
        let mut stream = UnixStream::connect(place.files()).map_err(failed)?;
        send(&mut stream, &Ask::Keep { raw }, names.as_bytes()).map_err(failed)?;
        match receive(&mut stream, ANSWER_MAX, &mut Vec::new()).map_err(failed)? {
            Some(Answer::Done) => connections.push(stream),
            Some(Answer::Denied(refusal)) => return Err(refusal.into()),
            Some(_) => return Err(failed(io::ErrorKind::InvalidData.into())),
            None => return Err(failed(io::ErrorKind::ConnectionReset.into())),
        }
    }
    Ok(Kept { connections })
}

/// A failure of the daemon's socket.
fn failure(place: &RunDir, source: io::Error) -> Denied {
    match source.kind() {
        io::ErrorKind::PermissionDenied => Denied::Theirs,
        _ => Denied::Socket { socket: place.files(), source },
    }
}

/// Has the daemon in a folder receive a stream, and waits for the end.
///
/// `begin` has the bytes of BEGIN and its list, at most [`BEGIN_MAX`]. The daemon reads what
/// follows from `rest`, up to the end of the stream.
///
/// # Errors
/// * [`Denied::Theirs`]: the socket belongs to another user's daemon.
/// * [`Denied::Socket`]: the socket can't be used, `begin` is too long, or the daemon disappeared.
/// * All others: the daemon did not receive the stream. See [`Denied`].
pub fn deliver(
    place: &RunDir,
    request: &ReceiveRequest,
    begin: &[u8],
    rest: BorrowedFd<'_>,
) -> Result<Received, Denied> {
    let failed = |source| failure(place, source);
    if begin.len() > BEGIN_MAX {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let mut stream = UnixStream::connect(place.files()).map_err(failed)?;
    send_with(&mut stream, &Ask::Receive(request.clone()), begin, rest).map_err(failed)?;
    received(&mut stream, failed)
}

/// Has another user's daemon in a folder receive a stream. `copy` writes what follows `begin`.
///
/// # Errors
/// Those of [`deliver`], but for the reads of the stream, which are the caller's.
pub fn deliver_by(
    place: &RunDir,
    request: &ReceiveRequest,
    begin: &[u8],
    copy: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
) -> Result<Received, Denied> {
    let failed = |source| failure(place, source);
    if begin.len() > BEGIN_MAX {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let mut stream = UnixStream::connect(place.files()).map_err(failed)?;
    send(&mut stream, &Ask::Receive(request.clone()), begin).map_err(failed)?;
    // If the daemon takes no more of it, its answer says why.
    let copied = copy(&mut stream);
    // Also after a failure: the daemon waits for the end.
    let ended = stream.shutdown(std::net::Shutdown::Write);
    let copied = copied.and(ended);
    let gone = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
    };
    match (received(&mut stream, failed), copied) {
        // What came of a part says less than why there is no more.
        (Err(_), Err(error)) if !gone(&error) => Err(failed(error)),
        (answer, _) => answer,
    }
}

/// Has the daemon in a folder make a volume of AFS from a dump, which `write` writes.
///
/// # Errors
/// * [`Denied::Theirs`]: the socket belongs to another user's daemon.
/// * [`Denied::Socket`]: the socket can't be used, `write` failed, or the daemon disappeared.
/// * [`Denied::Api`]: the daemon did not make the volume.
pub fn adopt(
    place: &RunDir,
    request: &AfsAdopt,
    write: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
) -> Result<(), Denied> {
    let failed = |source| failure(place, source);
    let mut stream = UnixStream::connect(place.files()).map_err(failed)?;
    send(&mut stream, &Ask::Adopt(request.clone()), &[]).map_err(failed)?;
    match answer_to(&mut stream, write).map_err(failed)? {
        Answer::Done => Ok(()),
        Answer::Denied(refusal) => Err(refusal.into()),
        _ => Err(failed(io::ErrorKind::InvalidData.into())),
    }
}

/// Writes what follows a request, and waits for the answer.
///
/// # Errors
/// There is no answer, or what follows is not whole.
fn answer_to(
    stream: &mut UnixStream,
    write: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<Answer> {
    let gone = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
    };
    // If the daemon takes no more of it, its answer says why.
    let written = write(stream);
    // Also after a failure: the daemon waits for the end.
    let ended = stream.shutdown(std::net::Shutdown::Write);
    let answer = receive(stream, ANSWER_MAX, &mut Vec::new());
    match written.and(ended) {
        Err(error) if !gone(&error) => Err(error),
        _ => answer?.ok_or_else(|| io::ErrorKind::ConnectionReset.into()),
    }
}

/// The daemon's answer to a request to receive.
fn received(stream: &mut UnixStream, failed: impl Fn(io::Error) -> Denied) -> Result<Received, Denied> {
    let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
    let answer = receive(stream, ANSWER_MAX, &mut Vec::new()).map_err(&failed)?;
    match answer.ok_or_else(|| failed(gone()))? {
        Answer::Received(received) => Ok(received),
        Answer::Denied(refusal) => Err(refusal.into()),
        _ => Err(failed(io::ErrorKind::InvalidData.into())),
    }
}

#[cfg(test)]
mod tests;
