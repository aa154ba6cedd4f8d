//! The daemon's folder, with its socket and locks.
//!
//! # Theory
//! Each user has one daemon, and the system has root's. A daemon's folder holds three files:
//!
//! | file | purpose |
//! |---|---|
//! | `control.sock` | the control socket |
//! | `daemon.lock` | locked while the daemon lives, so a stale socket can be recognised |
//! | `start.lock` | locked while a daemon begins or ends |
//!
//! Because of `start.lock`, two commands that start a daemon at the same time end up with one. No
//! command reaches a daemon that is about to end.
//!
//! [`choice`] selects one of the folders that are possible.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub mod choice;
mod trial;

/// The environment variable that names another folder for the daemon. With it, several daemons can
/// run side by side.
pub const ENV_DIR: &str = "POOLHOUSE_RUN_DIR";
/// Most bytes in the path of a socket (`sun_path`, less the NUL at its end).
const SOCKET_MAX: usize = 107;

/// A daemon's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    dir: PathBuf,
    /// Whether all users may connect (root's daemon).
    shared: bool,
}

/// Why a folder can't be a daemon's.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// It can't be created, read, written or locked.
    #[error("cannot use the daemon's folder {}", dir.display())]
    Io {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not a directory.
    #[error("the daemon's folder {} is no folder", dir.display())]
    NoFolder {
        /// The path.
        dir: PathBuf,
    },
    /// It belongs to another user.
    #[error("the daemon's folder {} belongs to user {owner}, and not to user {wanted}", dir.display())]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// Its owner.
        owner: u32,
        /// The expected owner.
        wanted: u32,
    },
    /// It is root's, and never had a daemon.
    #[error("{} is a folder of root's, and no daemon has ever lived there", dir.display())]
    Roots {
        /// The folder.
        dir: PathBuf,
    },
    /// It is a mount in a folder where all users may create files. The owner of that file system
    /// may claim anything.
    #[error("the daemon's folder {} is a mount in a folder where everybody may make things", dir.display())]
    Mount {
        /// The folder.
        dir: PathBuf,
    },
    /// All users may rename what is in its parent folder.
    #[error("everybody may rename what is in {}: its mode is {mode:04o}, without the sticky bit", parent.display())]
    Loose {
        /// The parent folder.
        parent: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The paths of its sockets would be too long for the system.
    #[error("the name of the daemon's folder is too long for a socket in it: {}", dir.display())]
    Long {
        /// The folder.
        dir: PathBuf,
    },
    /// None of the possible folders can be used.
    #[error("there is no folder for a daemon: {why}; set {ENV_DIR} to a folder of yours that can be written")]
    Nowhere {
        /// Each of them, and why it can't be used.
        why: String,
    },
    /// Other users may enter it or write in it.
    #[error("others may use the daemon's folder {0}: its mode is {mode:04o}; `chmod {wanted:o} {0}`", dir.display())]
    Open {
        /// The folder.
        dir: PathBuf,
        /// Its mode.
        mode: u32,
        /// The mode it should have.
        wanted: u32,
    },
}

impl RunDir {
    /// The folder that the environment variable [`ENV_DIR`] names. If it names one, no other is
    /// used.
    pub fn named() -> Option<Self> {
        let dir = std::env::var_os(ENV_DIR).filter(|value| !value.is_empty())?;
        // The daemon changes its working directory, so the path must be absolute.
        let dir = std::path::absolute(&dir).unwrap_or_else(|_| dir.into());
        // A folder of root's that others may enter is for all users, as root's default folder is.
        let shared = std::fs::metadata(&dir).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o055 != 0);
        Some(Self { dir, shared })
    }

    /// A folder that the caller names, private to this user.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), shared: false }
    }

    /// The same folder, to which all users may connect.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Where the files of volumes are mounted that are attached as block devices.
    pub fn attached(&self) -> PathBuf {
        self.dir.join("zvol")
    }

    /// The socket of its volumes, which speaks NBD.
    pub fn volumes(&self) -> PathBuf {
        self.dir.join("nbd.sock")
    }

    /// The socket for the files of its pools, for commands that use no mount.
    pub fn files(&self) -> PathBuf {
        self.dir.join("files.sock")
    }

    /// The log of a daemon in the background.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Whether all users may connect.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Checks whether this is or could be a daemon's folder. No daemon runs there now.
    ///
    /// # Errors
    /// * [`RunDirError::Roots`]: the folder is root's, another user calls this, and it never had a
    ///   daemon.
    /// * All others: see [`RunDir::try_out`].
    pub fn could_have_daemon(&self) -> Result<(), RunDirError> {
        if !self.shared || rustix::process::geteuid().is_root() {
            self.try_out()
        } else if self.dir.join("daemon.lock").exists() {
            Ok(())
        } else {
            Err(RunDirError::Roots { dir: self.dir.clone() })
        }
    }

    /// Creates the folder if it does not exist, and checks that it can be trusted and used.
    ///
    /// # Errors
    /// * [`RunDirError::Io`]: the folder can't be created, or a trial in it failed.
    /// * [`RunDirError::Long`]: the paths of its sockets are too long.
    /// * All others: see [`RunDir::check`].
    pub fn prepare(&self) -> Result<(), RunDirError> {
        let mode = self.mode();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&self.dir)
            .map_err(|e| self.failed(e))?;
        self.check()?;
        self.check_sockets()?;
        trial::in_folder(&self.dir).map_err(|e| self.failed(e))
    }

    /// Checks whether the folder could be created, trusted and used. Leaves nothing behind.
    ///
    /// # Errors
    /// * [`RunDirError::Io`]: a trial in the folder, or in a new one beside it, failed.
    /// * [`RunDirError::Long`]: the paths of its sockets are too long.
    /// * All others: see [`RunDir::check`].
    pub fn try_out(&self) -> Result<(), RunDirError> {
        self.check_sockets()?;
        match self.check() {
            Err(RunDirError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                // Its missing parents are created with it.
                let there = self.dir.ancestors().skip(1).find(|parent| parent.exists());
                trial::in_new_folder(there.unwrap_or(Path::new("/")))
            }
            checked => {
                checked?;
                trial::in_folder(&self.dir)
            }
        }
        .map_err(|e| self.failed(e))
    }

    /// Checks whether its sockets' paths are short enough.
    fn check_sockets(&self) -> Result<(), RunDirError> {
        let longest = self.socket().as_os_str().len().max(self.volumes().as_os_str().len());
        if longest > SOCKET_MAX { Err(RunDirError::Long { dir: self.dir.clone() }) } else { Ok(()) }
    }

    /// The mode for the folder.
    fn mode(&self) -> u32 {
        if self.shared { 0o755 } else { 0o700 }
    }

    /// Checks that the folder has the right owner, and that no other user may write in it.
    ///
    /// The owner must be this user, or root for a shared folder.
    ///
    /// # Errors
    /// * [`RunDirError::Io`]: its attributes can't be read; with `NotFound`, it does not exist.
    /// * [`RunDirError::NoFolder`]: it is not a directory.
    /// * [`RunDirError::Foreign`]: it belongs to another user.
    /// * [`RunDirError::Open`]: other users may write in it or, if it is private, enter it.
    pub fn check(&self) -> Result<(), RunDirError> {
        let meta = std::fs::symlink_metadata(&self.dir).map_err(|e| self.failed(e))?;
        let wanted = if self.shared { 0 } else { rustix::process::geteuid().as_raw() };
        let forbidden = if self.shared { 0o022 } else { 0o077 };
        let (dir, mode) = (|| self.dir.clone(), meta.mode() & 0o7777);
        if !meta.is_dir() {
            Err(RunDirError::NoFolder { dir: dir() })
        } else if meta.uid() != wanted {
            Err(RunDirError::Foreign { dir: dir(), owner: meta.uid(), wanted })
        } else if mode & forbidden != 0 {
            Err(RunDirError::Open { dir: dir(), mode, wanted: self.mode() })
        } else {
            Ok(())
        }
    }

    /// Waits until this process may begin or end a daemon here. Dropping the result ends that.
    ///
    /// # Errors
    /// * [`RunDirError::Io`]: the lock file can't be opened or locked.
    pub fn lock_start(&self) -> Result<OwnedFd, RunDirError> {
        let lock = self.open("start.lock")?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))
            .map_err(|e| self.failed(e.into()))?;
        Ok(lock)
    }

    /// The same in a folder where no daemon is to begin. `None` if no daemon can have begun there
    /// either.
    fn lock_start_of_other(&self) -> Result<Option<OwnedFd>, RunDirError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = match rustix::fs::open(self.dir.join("start.lock"), flags, Mode::empty()) {
            // A daemon that begins there later creates this file first, and then looks at the other
            // folders.
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(|e| self.failed(e.into()))?,
        };
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))
            .map_err(|e| self.failed(e.into()))?;
        Ok(Some(lock))
    }

    /// Becomes the daemon of this folder until the result is dropped. `None` if there is one
    /// already.
    ///
    /// # Errors
    /// * [`RunDirError::Io`]: the lock file can't be opened or locked.
    pub fn lock_daemon(&self) -> Result<Option<OwnedFd>, RunDirError> {
        self.locked(self.open("daemon.lock")?)
    }

    /// Whether a daemon lives here. The caller must hold [`RunDir::lock_start`].
    fn has_daemon(&self) -> Result<bool, RunDirError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(self.dir.join("daemon.lock"), flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed(errno.into())),
            Ok(lock) => Ok(self.locked(lock)?.is_none()),
        }
    }

    fn locked(&self, lock: OwnedFd) -> Result<Option<OwnedFd>, RunDirError> {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(self.failed(errno.into())),
        }
    }

    /// Connects to the daemon, if one listens here.
    ///
    /// # Errors
    /// * [`RunDirError::Io`]: the socket can't be used.
    /// * [`RunDirError::NoFolder`], [`RunDirError::Foreign`], [`RunDirError::Open`]: the folder
    ///   can't be trusted. See [`RunDir::check`].
    pub fn connect(&self) -> Result<Option<UnixStream>, RunDirError> {
        match self.check() {
            Err(RunDirError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
            checked => checked?,
        }
        match UnixStream::connect(self.socket()) {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn open(&self, name: &str) -> Result<OwnedFd, RunDirError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(self.dir.join(name), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| self.failed(e.into()))
    }

    fn failed(&self, source: std::io::Error) -> RunDirError {
        RunDirError::Io { dir: self.dir.clone(), source }
    }
}

#[cfg(test)]
mod tests;
