//! Send streams of a daemon's pools: `zfs send`.
//!
//! # Theory
//! A stream travels over the socket of the daemon that also serves files (`files.sock`). The
//! command asks once ([`SendRequest`]). The daemon answers with parts of the stream, and at last
//! with its end, or with the error that ended it. So a command learns why a stream is not whole.
//!
//! # Life
//! The snapshot is busy while it is sent. A send ends with its command, with `zpool export -f`, and
//! with the daemon.
//!
//! # Absent
//! Other users: the socket is the owner's alone, so that `zfs allow` of `send` has no effect yet.

use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use crate::files::Denied;
use crate::files::wire::{ANSWER_MAX, Answer, Ask, receive, send};
use crate::run_dir::RunDir;

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
}

/// Parts of a stream, in order.
pub trait Parts {
    /// The next part; `None` after the last.
    ///
    /// # Errors
    /// * [`Denied::Socket`]: the daemon disappeared, or its answer makes no sense.
    /// * All others: the daemon can't make the stream, or not go on. See [`Denied`].
    fn next(&mut self) -> Result<Option<&[u8]>, Denied>;
}

/// A stream that arrives from the daemon.
pub struct Incoming {
    stream: UnixStream,
    place: RunDir,
    bytes: Vec<u8>,
}

impl Incoming {
    /// Asks the daemon in a folder for a stream.
    ///
    /// # Errors
    /// * [`Denied::Theirs`]: the socket belongs to another user's daemon.
    /// * [`Denied::Socket`]: the socket can't be used.
    pub fn open(place: &RunDir, request: &SendRequest) -> Result<Self, Denied> {
        let socket = place.files();
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::PermissionDenied => Denied::Theirs,
            _ => Denied::Socket { socket: socket.clone(), source },
        };
        let mut stream = UnixStream::connect(&socket).map_err(failed)?;
        send(&mut stream, &Ask::Send(request.clone()), &[]).map_err(failed)?;
        Ok(Self { stream, place: place.clone(), bytes: Vec::new() })
    }
}

impl Parts for Incoming {
    fn next(&mut self) -> Result<Option<&[u8]>, Denied> {
        let failed = |source| Denied::Socket { socket: self.place.files(), source };
        let gone = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let answer = receive(&mut self.stream, ANSWER_MAX, &mut self.bytes).map_err(failed)?;
        match answer.ok_or_else(|| failed(gone()))? {
            Answer::Bytes => Ok(Some(&self.bytes)),
            Answer::Done => Ok(None),
            Answer::Denied(refusal) => Err(refusal.into()),
            _ => Err(failed(std::io::ErrorKind::InvalidData.into())),
        }
    }
}
