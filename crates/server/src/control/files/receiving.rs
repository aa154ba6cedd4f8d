//! The daemon's side of `zfs receive` ([`api::streams`]).
//!
//! # Theory
//! The command sends the bytes of BEGIN, and the descriptor that the rest of the stream comes from.
//! The daemon reads that descriptor itself. It waits for it and for the command's connection at the
//! same time. So a receive ends as soon as its command is gone, even if the sender sends nothing.
//!
//! Nothing behind the stream's END is read. The next command on the same pipe or file finds the
//! next stream there, as with the kernel module. So of a pipe, each read takes what the engine
//! needs and no more. A regular file is read in large blocks, and set back at the end. Payloads of
//! some size are read without a block in between.
//!
//! From other users it takes no descriptor: their commands copy the stream into the connection. So
//! no read waits for something that they hold elsewhere.
//!
//! # Absent
//! Other readers of the same pipe. A read may then wait although the pipe was readable, so the
//! daemon notices the end of the command late.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use api::files::wire::{Answer, Refusal, send};
use api::streams::Received;
use api::{Caller, Error, Reason, ReceiveRequest};
use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags};

use super::descriptor::{self, Command};
use super::visits::Visits;
use super::{Daemon, denied, library, take, visitor};
use crate::control::grants::streams::may_receive;

/// Receives a stream for a caller: the bytes of BEGIN, and what follows.
pub(super) type Receive =
    dyn Fn(&Caller, &ReceiveRequest, &[u8], &mut dyn Read) -> Result<Received, Error> + Send + Sync;

/// Bytes of a block of a regular file.
const BLOCK: usize = 1 << 20;
/// A read of a regular file of this many bytes needs no block.
const LARGE: usize = 16 << 10;

/// Serves one receive to its end: the bytes of BEGIN, and the descriptor of the rest. Without one
/// the rest follows on the connection.
pub(super) fn serve(
    daemon: &Daemon,
    mut connection: UnixStream,
    request: &ReceiveRequest,
    (begin, rest): (&[u8], Option<OwnedFd>),
    caller: &Caller,
) -> io::Result<()> {
    let may = may_receive(&daemon.pools, caller, request, None).map_err(Refusal::Api);
    let (visits, receive) = (&daemon.visits, &*daemon.receive);
    let run = |()| run((visits, receive), &connection, request, (begin, rest), caller);
    let answer = match may.and_then(run) {
        Ok(received) => Answer::Received(received),
        Err(refusal) => Answer::Denied(refusal),
    };
    send(&mut connection, &answer, &[])
}

/// About the most memory of a receive.
fn memory() -> u64 {
    use stream::receive::{RECV_QUEUE_LENGTH, RECV_WRITE_BATCH_SIZE};
    RECV_QUEUE_LENGTH.get() + RECV_WRITE_BATCH_SIZE.get() + ondisk::SPA_MAXBLOCKSIZE
}

/// Receives a stream, as a visit in the table.
fn run(
    (visits, receive): (&Arc<Visits>, &Receive),
    connection: &UnixStream,
    request: &ReceiveRequest,
    (begin, rest): (&[u8], Option<OwnedFd>),
    caller: &Caller,
) -> Result<Received, Refusal> {
    let name = request.target.as_str();
    let parsed = dsl::Name::parse(name).map_err(|_| denied(name, Reason::InvalidName))?;
    let again = connection.try_clone().map_err(|error| library(name, &error))?;
    take(caller, name, memory())?;
    let user = visitor("receive", caller.peer().pid);
    // It stays in the table until everything of the receive has ended.
    let _seat = visits.enter(again, parsed.pool(), (caller, &user)).map_err(Refusal::Api)?;
    let mut rest = Rest::new(rest, connection).map_err(|error| library(name, &error))?;
    tracing::debug!(snapshot = name, user, "a receive begins");
    receive(caller, request, begin, &mut rest).map_err(|error| {
        tracing::warn!(snapshot = name, %error, "not received");
        Refusal::Api(error)
    })
}

/// The rest of a stream, as long as its command is there.
struct Rest<'a> {
    source: Source,
    command: Command<'a>,
    /// What was read of a regular file and not used yet. Absent for others.
    block: Option<Block>,
}

/// What the rest of a stream is read from.
enum Source {
    /// Its reads may wait, so the daemon waits before each of them.
    Waiting(File),
    /// A pipe whose reads don't wait.
    Pipe(File),
}

/// A block of a regular file.
struct Block {
    bytes: Vec<u8>,
    /// The used part of `bytes`.
    used: usize,
}

impl Source {
    fn file(&mut self) -> &mut File {
        match self {
            Self::Waiting(file) | Self::Pipe(file) => file,
        }
    }
}

impl<'a> Rest<'a> {
    /// Reads from a descriptor while `command` is connected.
    ///
    /// # Errors
    /// The error of querying the descriptor.
    fn new(source: Option<OwnedFd>, command: &'a UnixStream) -> io::Result<Self> {
        let Some(source) = source else {
            let source = Source::Waiting(OwnedFd::from(command.try_clone()?).into());
            return Ok(Self { source, command: Command::itself(), block: None });
        };
        let kind = descriptor::kind(&source)?;
        let again = match kind {
            FileType::Fifo => descriptor::reopen(&source, OFlags::RDONLY),
            _ => None,
        };
        let source = again.map_or_else(|| Source::Waiting(source.into()), Source::Pipe);
        let block = (kind == FileType::RegularFile).then(|| Block { bytes: Vec::new(), used: 0 });
        Ok(Self { source, command: Command::new(command), block })
    }

    /// Reads once, at most `parts`.
    fn once(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            if let Source::Waiting(file) = &self.source {
                self.command.wait(file, PollFlags::IN)?;
            }
            match self.source.file().read_vectored(parts) {
                // Another reader of the descriptor was faster, or there is nothing yet.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.command.wait(self.source.file(), PollFlags::IN)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    self.command.count(*done.as_ref().unwrap_or(&0))?;
                    return done;
                }
            }
        }
    }

    /// Fills the block of a regular file with the next bytes.
    fn fill(&mut self, block: &mut Block) -> io::Result<()> {
        block.bytes.resize(BLOCK, 0);
        block.used = 0;
        let read = self.once(&mut [IoSliceMut::new(&mut block.bytes)]);
        block.bytes.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop)
    }
}

impl Read for Rest<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        let Some(mut block) = self.block.take() else { return self.once(parts) };
        let empty = block.used == block.bytes.len();
        let read = match empty {
            // As much as this is read without a copy.
            true if wanted >= LARGE => self.once(parts),
            true => self.fill(&mut block).map(|()| block.take(parts)),
            false => Ok(block.take(parts)),
        };
        self.block = Some(block);
        read
    }
}

impl Block {
    /// Moves bytes to `parts`.
    fn take(&mut self, parts: &mut [IoSliceMut<'_>]) -> usize {
        let taken = (&self.bytes[self.used..]).read_vectored(parts).unwrap_or(0);
        self.used += taken;
        taken
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        let unused = self.block.as_ref().map_or(0, |block| block.bytes.len() - block.used);
        let Some(back) = i64::try_from(unused).ok().filter(|back| *back > 0) else { return };
        if let Err(error) = self.source.file().seek(SeekFrom::Current(-back)) {
            tracing::debug!(%error, "the file of a stream stays behind its end");
        }
    }
}

#[cfg(test)]
mod tests;
