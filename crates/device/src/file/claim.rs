//! The claim of an image file.
//!
//! # Theory
//! Any lock that a reader can take lets that reader refuse the owner: `flock` asks for no access at
//! all, and a read lock of `fcntl` keeps every write lock out. So a lock counts against an owner
//! only if its holder may write. Two facts come from the kernel alone:
//!
//! - A write lock (`F_OFD_SETLK`, `F_WRLCK`) needs a descriptor that is open for writing. A reader
//!   can't have one.
//! - A read lease (`F_SETLEASE`, `F_RDLCK`) is refused exactly while the file is open for writing.
//!
//! An owner takes the write lock of the whole file, and `flock` too: daemons of before and other
//! programs know only that. A write lock of another description refuses the owner. What else is in
//! the way is a reader's, or an older owner's. The lease tells which: it refuses as long as anybody
//! has the file open for writing. Where the kernel can't tell, as on some network file systems, or
//! for a user who is neither root nor the file's owner, the lock counts.
//!
//! An owner that readers kept from a lock owes it, and takes it as soon as it is free: before each
//! write. If another owner was faster, the write fails.
//!
//! An owner that only reads, and a reader that wants no owner beside it, hold their locks by a
//! descriptor that is open for writing, so that they count. Where they may not write, they hold
//! them as readers do: they find an owner, and keep none out.
//!
//! # Absent
//! Two owners that begin within the same microseconds, while a reader holds both locks, are not
//! told apart until that reader is gone.
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

/// The write lock of `fcntl`.
const WRITE_LOCK: u8 = 1;
/// The exclusive lock of `flock`.
const FLOCK: u8 = 2;
/// `F_SETSIG`, the same on every architecture.
const F_SETSIG: i32 = 10;

/// What is held of an image.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// The description that holds the locks, if it is not the device's own.
    holder: Option<File>,
    /// Locks that readers have kept from the owner so far.
    owed: AtomicU8,
}

impl Claim {
    /// Claims the image that is open as `file`, which may be opened anew for that.
    ///
    /// # Errors
    /// `EWOULDBLOCK` when it is claimed; otherwise what the system says.
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
                // Without /proc, by which it is opened again, it is as if it could only be read.
                Err(e) if is_closed_to_us(&e) || e.kind() == io::ErrorKind::NotFound => {
                    Ok((share(file, Mode::Peek)?, Claim::default()))
                }
                Err(e) => Err(e),
            },
        }
    }

    /// Takes the locks that are owed, as far as they are free now. `file` is the device's own.
    ///
    /// # Errors
    /// `EWOULDBLOCK` when there is another owner.
    pub(super) fn settle(&self, file: &File) -> io::Result<()> {
        let owed = self.owed.load(Relaxed);
        if owed == 0 {
            return Ok(());
        }
        let still = locked_out(self.holder.as_ref().unwrap_or(file), owed)?;
        self.owed.fetch_and(still | !owed, Relaxed);
        Ok(())
    }

    /// Releases the locks, and owes them.
    pub(super) fn give_way(&self, file: &File) {
        self.release(file);
        // Then: what is owed before that, a write would take back, and it would be released all the
        // same.
        self.owed.fetch_or(WRITE_LOCK | FLOCK, Relaxed);
    }

    /// Releases the locks. Closing alone would not do: a child that this process is just starting
    /// has the descriptor too until it runs its own program, and with it the locks.
    pub(super) fn release(&self, file: &File) {
        let holder = self.holder.as_ref().unwrap_or(file);
        // Best effort: what has no lock has none to lose.
        let _ = flock(holder, FlockOperation::Unlock);
        let _ = record_lock(holder, libc::F_OFD_SETLK, libc::F_UNLCK);
    }
}

/// The path of an open file itself, which may have lost its name to another.
fn same(file: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// Whether opening for writing failed since this user, or the file system, lets nobody write here.
fn is_closed_to_us(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY))
}

fn refused() -> io::Error {
    Errno::WOULDBLOCK.into()
}

/// Takes an owner's locks for a description that is open for writing. The second value is what
/// readers hold of them.
fn own(file: File) -> io::Result<(File, u8)> {
    if locked_out(&file, WRITE_LOCK | FLOCK)? == 0 {
        return Ok((file, 0));
    }
    // The kernel says whether anybody else writes only as long as we don't.
    let anchor = open_as(&same(&file), Mode::Peek, false)?;
    drop(file);
    check_unwritten(&anchor)?;
    let file = open_as(&same(&anchor), Mode::Write, false)?;
    let owed = locked_out(&file, WRITE_LOCK | FLOCK)?;
    Ok((file, owed))
}

/// Takes those of an owner's locks that are free; the others, which may be readers'.
///
/// # Errors
/// `EWOULDBLOCK` when somebody who may write has the write lock, or where there is no write lock to
/// tell by.
fn locked_out(file: &File, wanted: u8) -> io::Result<u8> {
    let mut out = 0;
    let mut no_write_lock = false;
    if wanted & WRITE_LOCK != 0 {
        match record_lock(file, libc::F_OFD_SETLK, libc::F_WRLCK) {
            Ok(_) => {}
            Err(e) if is_refusal(&e) => {
                // Of all locks, only a write lock is in the way of a read lock.
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

/// Takes a reader's locks for a description that was opened with this mode.
///
/// # Errors
/// `EWOULDBLOCK` when the image has an owner.
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
    // An owner of before, or a reader's doing.
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

/// Whether a file system has no such locks.
fn is_unknown(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INVAL | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Asks for a lock of a whole file, or about it; the type that the kernel answers with.
#[allow(unsafe_code)]
fn record_lock(file: &File, command: i32, kind: i32) -> io::Result<i32> {
    let narrow = |n: i32| i16::try_from(n).expect("the system's constants are small");
    let mut lock = libc::flock {
        l_type: narrow(kind),
        l_whence: narrow(libc::SEEK_SET),
        l_start: 0,
        // To the end, wherever that is.
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the system reads and writes one `struct flock`, and keeps no reference to it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type.into()) }
}

/// Passes if the kernel says that nobody has the file open for writing. `file` is open for reading.
///
/// # Errors
/// `EWOULDBLOCK` when somebody has, and where the kernel can't say.
#[allow(unsafe_code)]
fn check_unwritten(file: &File) -> io::Result<()> {
    // Who opens the file for writing meanwhile waits, and has the kernel send a signal to the
    // holder of the lease: one that does nothing. SAFETY: the system takes a number.
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
