//! The daemon's side of `zfs send` ([`api::streams`]).
//!
//! # Theory
//! With the request comes the command's output. The daemon writes to it itself, since each copy
//! from process to process costs as much as to make the stream. It does so only if it can stop when
//! the command is gone, and if no file system of its own has the file. Otherwise the command gets
//! the stream in parts, and writes it.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use api::files::PART_MAX;
use api::files::wire::{Answer, Refusal, send};
use api::{Caller, Error, Reason, SendRequest};
use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use stream::SendError;

use super::descriptor::{self, Command};
use super::{Daemon, Seat, check_key, denied, library, take, visitor};
use crate::control::grants::streams::may_send;
use crate::replies::of_send;
use crate::view::HeldSendable;

/// Serves one send to its end.
pub(super) fn serve(
    daemon: &Daemon,
    mut stream: UnixStream,
    request: &SendRequest,
    output: Option<OwnedFd>,
    caller: &Caller,
) -> io::Result<()> {
    let sending = Sending::new(daemon, &stream, request, caller);
    let sent = sending.and_then(|sending| match output.and_then(|output| Direct::new(output, &stream)) {
        Some(mut direct) => sending.run(&mut direct),
        None => sending.run(&mut Outgoing { stream: &stream, part: Vec::with_capacity(PART_MAX) }),
    });
    let answer = match sent {
        Ok(()) => Answer::Done,
        Err(refusal) => Answer::Denied(refusal),
    };
    send(&mut stream, &answer, &[])
}

/// A dataset that is being sent. It is released before the entry in the table is removed.
struct Sending {
    what: HeldSendable,
    #[allow(dead_code, reason = "is in the table by living")]
    seat: Seat,
}

impl Sending {
    fn new(
        daemon: &Daemon,
        stream: &UnixStream,
        request: &SendRequest,
        caller: &Caller,
    ) -> Result<Self, Refusal> {
        let name = request.dataset.as_str();
        let parsed = dsl::Name::parse(name).map_err(|_| denied(name, Reason::InvalidName))?;
        let again = stream.try_clone().map_err(|error| library(name, &error))?;
        may_send(&daemon.pools, caller, request).map_err(Refusal::Api)?;
        take(caller, name, stream::send::SEND_QUEUE_LENGTH.get())?;
        let user = visitor("send", caller.peer().pid);
        let seat = daemon.visits.enter(again, parsed.pool(), (caller, &user)).map_err(Refusal::Api)?;
        let imported = daemon.pools.pool_of(name).map_err(Refusal::Api)?;
        let what = HeldSendable::new(&imported, request).map_err(Refusal::Api)?;
        daemon.visits.set_dataset(seat.number, Some(what.dataset.object().0));
        if !request.raw {
            check_key(&what.dataset)?;
        }
        Ok(Self { what, seat })
    }

    fn run(&self, sink: &mut dyn Write) -> Result<(), Refusal> {
        let what = &self.what;
        let sent = stream::send(&what.dataset, &what.options, &mut *sink);
        // What was read before a failure is good.
        let flushed = sink.flush().map_err(SendError::Write);
        sent.and(flushed).map_err(|error| {
            tracing::warn!(dataset = what.dataset.name(), error = api::chain(&error), "not sent whole");
            Refusal::Api(Error::new(what.dataset.name(), of_send(&error)))
        })
    }
}

/// Collects parts of a stream for the command.
struct Outgoing<'a> {
    stream: &'a UnixStream,
    part: Vec<u8>,
}

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PART_MAX - self.part.len();
        let taken = bytes.len().min(room);
        self.part.extend_from_slice(&bytes[..taken]);
        if taken == room {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.part.is_empty() {
            send(&mut self.stream, &Answer::Bytes, &self.part)?;
            self.part.clear();
        }
        Ok(())
    }
}

/// How often the command learns how much was written.
const PROGRESS: Duration = Duration::from_secs(1);
/// Records that are shorter are collected.
const SMALL: usize = 16 << 10;
/// Bytes of records that are collected.
const PART: usize = 64 << 10;

/// The output of a command, which the daemon writes to.
struct Direct<'a> {
    file: Output,
    command: Command<'a>,
    connection: &'a UnixStream,
    /// Records that are not written yet.
    part: Vec<u8>,
    written: u64,
    shown: Instant,
}

/// A file that can be written to without a wait that the end of the command does not end.
enum Output {
    /// A pipe whose writes don't wait.
    Pipe(File),
    Socket(OwnedFd),
    /// A file, whose writes wait for nothing but its device.
    File(File),
}

impl<'a> Direct<'a> {
    /// `None` if the daemon can't write to such a file.
    fn new(output: OwnedFd, connection: &'a UnixStream) -> Option<Self> {
        let file = match descriptor::kind(&output).ok()? {
            FileType::Fifo => Output::Pipe(descriptor::reopen(&output, OFlags::WRONLY)?),
            FileType::Socket => Output::Socket(output),
            FileType::RegularFile if descriptor::is_fuse(&output) => return None,
            FileType::RegularFile => Output::File(output.into()),
            // A device may wait for this daemon itself, whose volume it is.
            _ => return None,
        };
        let (command, part) = (Command::new(connection), Vec::with_capacity(PART));
        Some(Self { file, command, connection, part, written: 0, shown: Instant::now() })
    }

    /// Writes the collected records and `bytes`.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let part = std::mem::take(&mut self.part);
        let mut both = [IoSlice::new(&part), IoSlice::new(bytes)];
        let mut left = &mut both[..];
        IoSlice::advance_slices(&mut left, 0);
        let mut put = Ok(());
        while !left.is_empty() && put.is_ok() {
            put = self.once(left).map(|written| IoSlice::advance_slices(&mut left, written));
        }
        self.part = part;
        self.part.clear();
        put?;
        if self.shown.elapsed() >= PROGRESS {
            self.shown = Instant::now();
            send(&mut self.connection, &Answer::Written(self.written), &[])?;
        }
        Ok(())
    }

    /// Writes once, at least one byte.
    fn once(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let written = match &self.file {
                Output::Pipe(file) | Output::File(file) => (&*file).write_vectored(bytes),
                Output::Socket(socket) => {
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    let sent =
                        rustix::net::sendmsg(socket, bytes, &mut SendAncillaryBuffer::default(), flags);
                    sent.map_err(io::Error::from)
                }
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.command.count(written)?;
                    self.written += written as u64;
                    return Ok(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match &self.file {
                    Output::Pipe(file) | Output::File(file) => self.command.wait(file, PollFlags::OUT)?,
                    Output::Socket(socket) => self.command.wait(socket, PollFlags::OUT)?,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Write for Direct<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() < SMALL && self.part.len() + bytes.len() <= PART {
            self.part.extend_from_slice(bytes);
        } else {
            self.put(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.put(&[])
    }
}

#[cfg(test)]
mod tests;
