//! Descriptors that came from a command: its standard input or output, which the daemon reads or
//! writes as long as the command is there.
//!
//! # Theory
//! A pipe is opened once more, so that the daemon's reads and writes of it don't wait, whatever the
//! command's do. The daemon waits for the pipe and for the command's connection at the same time.
//! So a command that ends, or `zpool export -f`, ends the wait. While there is no wait, the
//! connection is checked from time to time.
//!
//! A pipe gets [`PIPE`] bytes, if that is allowed. With the usual 64 KiB the two sides wake each
//! other for each block.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Bytes of a pipe.
const PIPE: usize = 1 << 20;
/// Bytes that are read or written without a check of the connection.
const UNCHECKED: usize = 4 << 20;

/// The kind of a descriptor's file.
///
/// # Errors
/// The error of querying the descriptor.
pub(super) fn kind(file: &impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode))
}

/// Whether a FUSE file system has the file, perhaps one of this daemon. Its own end would then wait
/// for itself.
pub(super) fn is_fuse(file: &impl AsFd) -> bool {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == FUSE_SUPER_MAGIC)
}

/// Opens a pipe once more, for the access `access` that the descriptor itself has. The new
/// descriptor does not wait. `None` if the system does not allow it.
pub(super) fn reopen(pipe: &impl AsFd, access: OFlags) -> Option<File> {
    // The daemon may be allowed more than its command.
    let has = rustix::fs::fcntl_getfl(pipe).ok()? & OFlags::RWMODE;
    if has != access && has != OFlags::RDWR {
        return None;
    }
    let path = PathBuf::from(format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd()));
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let again = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
    if rustix::pipe::fcntl_getpipe_size(&again).is_ok_and(|size| size < PIPE) {
        // A user may have many pipes, and no larger ones.
        let _ = rustix::pipe::fcntl_setpipe_size(&again, PIPE);
    }
    Some(again.into())
}

/// The command, which is connected as long as it waits for an answer.
pub(super) struct Command<'a> {
    /// Absent if the file is this connection.
    connection: Option<&'a UnixStream>,
    /// Bytes since the last check.
    unchecked: usize,
}

impl<'a> Command<'a> {
    pub(super) fn new(connection: &'a UnixStream) -> Self {
        Self { connection: Some(connection), unchecked: 0 }
    }

    /// A command whose connection itself is read, so that a read ends with it.
    pub(super) fn itself() -> Self {
        Self { connection: None, unchecked: 0 }
    }

    /// Waits until a file is ready for `events`.
    ///
    /// # Errors
    /// * `ConnectionAborted`: the command is gone, or `zpool export -f` ends its visit.
    /// * Others: the error of waiting.
    pub(super) fn wait(&mut self, file: &impl AsFd, events: PollFlags) -> io::Result<()> {
        self.unchecked = 0;
        self.poll(&mut [PollFd::new(file, events)], None)
    }

    /// Notes that bytes were read or written without a wait. Checks the connection from time to
    /// time.
    ///
    /// # Errors
    /// Those of [`Command::wait`].
    pub(super) fn count(&mut self, bytes: usize) -> io::Result<()> {
        self.unchecked += bytes;
        if self.unchecked < UNCHECKED {
            return Ok(());
        }
        self.unchecked = 0;
        self.poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn poll(&self, file: &mut [PollFd<'_>], patience: Option<&Timespec>) -> io::Result<()> {
        let Some(connection) = self.connection else { return Ok(()) };
        // The command sends nothing more, so any event is its end.
        let command = PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN | PollFlags::RDHUP);
        let mut each = vec![command];
        each.extend(file.iter().cloned());
        loop {
            match poll(&mut each, patience) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if !each[0].revents().is_empty() {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the command has ended"));
            }
            if patience.is_some() || each.iter().skip(1).any(|file| !file.revents().is_empty()) {
                return Ok(());
            }
        }
    }
}
