//! The claim of an image file.
//!
//! # Theory
//! Any lock that a reader can take lets that reader refuse the owner. `flock` needs no access
//! right, and a read lock of `fcntl` keeps all write locks out. So a lock counts against an owner
//! only if its holder may write. Only the kernel can tell that, by two facts:
//!
//! - A write lock (`F_OFD_SETLK`, `F_WRLCK`) needs a descriptor that is open for writing. A reader
//!   has none.
//! - A read lease (`F_SETLEASE`, `F_RDLCK`) is refused exactly while the file is open for writing.
//!
//! An owner takes the write lock of the whole file. It takes `flock` too, because older daemons and
//! other programs know only that. A write lock of another file description refuses the owner. Any
//! other lock in the way belongs to a reader or to an older owner. The lease tells which: it is
//! refused as long as the file is open for writing anywhere.
//!
//! The kernel can't tell this on some network file systems, nor to a user that is neither root nor
//! the file's owner. Then the lock counts.
//!
//! An owner *owes* a lock that readers kept from it. Before each write, it takes owed locks that
//! are free. If another owner was faster, the write fails.
//!
//! An owner that only reads, and a reader that wants no owner beside it, open the file for writing
//! to hold their locks. So these locks count. If they may not write, they lock as readers do: they
//! detect an owner, but keep none out.
//!
//! # Absent
//! Two owners that start within the same microseconds, while a reader holds both locks, are not
//! told apart until the reader closes the file.
//!
//! # See
//! `docs/decisions/0024-claims.md`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Mode, open_as};

/// Bit for the write lock of `fcntl`.
const WRITE_LOCK: u8 = 1;
/// Bit for the exclusive lock of `flock`.
const FLOCK: u8 = 2;
/// `F_SETSIG`, the same on every architecture.
const F_SETSIG: i32 = 10;

/// The locks that this process holds on an image.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// The file description that holds the locks, if it is not the device's own.
    holder: Option<File>,
    /// Locks that readers have kept from the owner so far.
    owed: AtomicU8,
}

impl Claim {
    /// Claims the image that is open as `file`, which this may open again.
    ///
    /// # Errors
    /// `EWOULDBLOCK` if the image is claimed, otherwise the error of a system call.
    pub(super) fn take(file: File, mode: Mode) -> io::Result<(File, Claim)> {
        match mode {
            Mode::Peek => Ok((file, Claim::default())),
            Mode::Write => {
                let (file, owed) = own(file)?;
                Ok((file, Claim { holder: None, owed: owed.into() }))
            }
            Mode::Own | Mode::Share => match open_as(&same(&file), Mode::Write, false) {
                Ok(holder) if mode == Mode::Own => {
                    let (holder, owed) = own(holder)?;
                    Ok((file, Claim { holder: Some(holder), owed: owed.into() }))
                }
                Ok(holder) => {
                    let holder = share(holder, Mode::Write)?;
                    Ok((file, Claim { holder: Some(holder), owed: 0.into() }))
                }
                // Without /proc the file can't be opened again, so it counts as one that this
                // process may only read.
                Err(e) if is_closed_to_us(&e) || e.kind() == io::ErrorKind::NotFound => {
                    Ok((share(file, Mode::Peek)?, Claim::default()))
                }
                Err(e) => Err(e),
            },
        }
    }

    /// Takes owed locks that are free now. `file` is the device's own.
    ///
    /// # Errors
    /// `EWOULDBLOCK` if there is another owner, otherwise the error of a system call.
    pub(super) fn settle(&self, file: &File) -> io::Result<()> {
        let owed = self.owed.load(Relaxed);
        if owed == 0 {
            return Ok(());
        }
        let still = locked_out(self.holder.as_ref().unwrap_or(file), owed)?;
        self.owed.fetch_and(still | !owed, Relaxed);
        Ok(())
    }

    /// Releases the locks, which are then owed.
    pub(super) fn give_way(&self, file: &File) {
        self.release(file);
        // In this order: if the locks were owed first, a write could take them again before their
        // release.
        self.owed.fetch_or(WRITE_LOCK | FLOCK, Relaxed);
    }

    /// Releases the locks.
    ///
    /// Closing the file is not enough. A child process that is just starting has the descriptor
    /// too, and with it the locks, until it runs its own program.
    pub(super) fn release(&self, file: &File) {
        let holder = self.holder.as_ref().unwrap_or(file);
        // Best effort: a file without locks has none to lose.
        let _ = flock(holder, FlockOperation::Unlock);
        let _ = record_lock(holder, libc::F_OFD_SETLK, libc::F_UNLCK);
    }
}

/// Path of the open file itself, whose name may belong to another file now.
fn same(file: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// True if opening for writing failed because this user may not, or the file system allows no
/// writing.
fn is_closed_to_us(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY))
}

fn refused() -> io::Error {
    Errno::WOULDBLOCK.into()
}

/// Takes an owner's locks for a file description that is open for writing. The second value is the
/// locks that readers hold.
fn own(file: File) -> io::Result<(File, u8)> {
    if locked_out(&file, WRITE_LOCK | FLOCK)? == 0 {
        return Ok((file, 0));
    }
    // The kernel tells whether another process writes only while this one doesn't.
    let anchor = open_as(&same(&file), Mode::Peek, false)?;
    drop(file);
    check_unwritten(&anchor)?;
    let file = open_as(&same(&anchor), Mode::Write, false)?;
    let owed = locked_out(&file, WRITE_LOCK | FLOCK)?;
    Ok((file, owed))
}

/// Takes those of an owner's locks that are free. Returns the others, which may belong to readers.
///
/// # Errors
/// `EWOULDBLOCK` if a process that may write has the write lock, or there is no write lock to tell
/// by.
fn locked_out(file: &File, wanted: u8) -> io::Result<u8> {
    let mut out = 0;
    let mut no_write_lock = false;
    if wanted & WRITE_LOCK != 0 {
        match record_lock(file, libc::F_OFD_SETLK, libc::F_WRLCK) {
            Ok(_) => {}
            Err(e) if is_refusal(&e) => {
                // Among all locks, only a write lock is in the way of a read lock.
                if record_lock(file, libc::F_OFD_GETLK, libc::F_RDLCK)? != libc::F_UNLCK {
                    return Err(refused());
                }
                out |= WRITE_LOCK;
            }
            Err(e) if is_unknown(&e) => no_write_lock = true,
            Err(e) => return Err(e),
        }
    }
    if wanted & FLOCK != 0 {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) if !no_write_lock => out |= FLOCK,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(out)
}

/// Takes a reader's locks for a file description that was opened with this mode.
///
/// # Errors
/// `EWOULDBLOCK` if the image has an owner, otherwise the error of a system call.
fn share(file: File, mode: Mode) -> io::Result<File> {
    let no_write_lock = match record_lock(&file, libc::F_OFD_SETLK, libc::F_RDLCK) {
        Ok(_) => false,
        Err(e) if is_unknown(&e) => true,
        Err(e) => return Err(if is_refusal(&e) { refused() } else { e }),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => return Ok(file),
        Err(Errno::WOULDBLOCK) if !no_write_lock => {}
        Err(e) => return Err(e.into()),
    }
    // The `flock` belongs to an older owner or to a reader.
    let anchor = open_as(&same(&file), Mode::Peek, false)?;
    drop(file);
    check_unwritten(&anchor)?;
    let file = open_as(&same(&anchor), mode, false)?;
    record_lock(&file, libc::F_OFD_SETLK, libc::F_RDLCK).map_err(|_| refused())?;
    Ok(file)
}

fn is_refusal(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::WOULDBLOCK | Errno::ACCESS))
}

/// True if a file system has no such locks.
fn is_unknown(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INVAL | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Requests a lock of a whole file, or asks about it. Returns the lock type in the kernel's answer.
#[allow(unsafe_code)]
fn record_lock(file: &File, command: i32, kind: i32) -> io::Result<i32> {
    let narrow = |n: i32| i16::try_from(n).expect("the system's constants are small");
    let mut lock = libc::flock {
        l_type: narrow(kind),
        l_whence: narrow(libc::SEEK_SET),
        l_start: 0,
        // To the end of the file, wherever that is.
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the system reads and writes one `struct flock`, and keeps no reference to it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type.into()) }
}

/// Succeeds if the kernel says that the file is open for writing nowhere. `file` is open for
/// reading.
///
/// # Errors
/// `EWOULDBLOCK` if the file is open for writing, or the kernel can't tell.
#[allow(unsafe_code)]
fn check_unwritten(file: &File) -> io::Result<()> {
    // A process that opens the file for writing meanwhile waits, and the kernel sends a signal to
    // the lease's holder. SIGURG does nothing by default. SAFETY: the system takes a number.
    let signal = unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) };
    if signal < 0 {
        return Err(refused());
    }
    // SAFETY: the system takes a number.
    let leased = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    if leased < 0 {
        return Err(refused());
    }
    // SAFETY: the system takes a number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    Ok(())
}

#[cfg(test)]
mod tests;
