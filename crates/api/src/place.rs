//! Where a daemon lives: its folder, socket and locks.
//!
//! # Theory
//! Each user has one daemon of their own, and the system has root's. A daemon's folder holds three files: `control.sock`;
//! `daemon.lock`, locked for as long as the daemon lives, by which a socket without a daemon is told from one with;
//! and `start.lock`, locked for the moments in which a daemon begins or ends, so that two commands that start one at
//! the same time end up with one, and none reaches a daemon that is on its way out.
//!
//! Which folder that is, of several that it may be, is chosen in [`choice`].

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub mod choice;
mod trial;

/// Names another folder for the daemon, so that several can live side by side.
pub const ENV_DIR: &str = "POOLHOUSE_RUN_DIR";
/// Longest name of a socket, bytes (`sun_path`, less the zero at its end).
const SOCKET_MAX: usize = 107;

/// A daemon's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
    /// Whether everybody may knock (root's daemon).
    shared: bool,
}

/// A folder that can't be a daemon's.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// It can't be made, read or locked.
    #[error("cannot use the daemon's folder {}", dir.display())]
    Io {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no folder.
    #[error("the daemon's folder {} is no folder", dir.display())]
    NoFolder {
        /// What is there.
        dir: PathBuf,
    },
    /// It is somebody else's.
    #[error("the daemon's folder {} belongs to user {owner}, and not to user {wanted}", dir.display())]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        wanted: u32,
    },
    /// It is root's, who never had a daemon there.
    #[error("{} is a folder of root's, and no daemon has ever lived there", dir.display())]
    Roots {
        /// The folder.
        dir: PathBuf,
    },
    /// Another file system is mounted there, whose owner may say what it likes.
    #[error("the daemon's folder {} is a mount in a folder where everybody may make things", dir.display())]
    Mount {
        /// The folder.
        dir: PathBuf,
    },
    /// Everybody may rename what is in the folder around it.
    #[error("everybody may rename what is in {}: its mode is {mode:04o}, without the sticky bit", parent.display())]
    Loose {
        /// That folder.
        parent: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its sockets would have names that are too long for the system.
    #[error("the name of the daemon's folder is too long for a socket in it: {}", dir.display())]
    Long {
        /// The folder.
        dir: PathBuf,
    },
    /// None of the folders that it may be can be used.
    #[error("there is no folder for a daemon: {why}; set {ENV_DIR} to a folder of yours that can be written")]
    Nowhere {
        /// Each of them, and why not.
        why: String,
    },
    /// Others may enter it, or write in it.
    #[error("others may use the daemon's folder {0}: its mode is {mode:04o}; `chmod {wanted:o} {0}`", dir.display())]
    Open {
        /// The folder.
        dir: PathBuf,
        /// Its mode.
        mode: u32,
        /// What it should be.
        wanted: u32,
    },
}

impl Place {
    /// The folder that the environment names, if it does: then no other is used.
    pub fn named() -> Option<Self> {
        let dir = std::env::var_os(ENV_DIR).filter(|value| !value.is_empty())?;
        // A daemon leaves the folder in which it is started.
        let dir = std::path::absolute(&dir).unwrap_or_else(|_| dir.into());
        // One of root's that others may enter is for everybody, as root's own is.
        let shared = std::fs::metadata(&dir).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o055 != 0);
        Some(Self { dir, shared })
    }

    /// A folder of the caller's choice.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), shared: false }
    }

    /// The same folder, open to everybody who wants to knock.
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

    /// The socket of the files of its pools, for commands that use no mount.
    pub fn files(&self) -> PathBuf {
        self.dir.join("files.sock")
    }

    /// What a daemon in the background has to say.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Whether everybody may connect.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether it is or could be a daemon's folder, where none runs now.
    ///
    /// # Errors
    /// [`PlaceError`]: what is wrong with it.
    pub fn could_have_daemon(&self) -> Result<(), PlaceError> {
        if !self.shared || rustix::process::geteuid().is_root() {
            self.try_out()
        } else if self.dir.join("daemon.lock").exists() {
            Ok(())
        } else {
            Err(PlaceError::Roots { dir: self.dir.clone() })
        }
    }

    /// Makes the folder if need be, and checks that it can be trusted and used.
    ///
    /// # Errors
    /// [`PlaceError`]: what is wrong with it.
    pub fn prepare(&self) -> Result<(), PlaceError> {
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

    /// Whether it can be made, trusted and used; makes nothing that stays.
    ///
    /// # Errors
    /// [`PlaceError`]: what is wrong with it.
    pub fn try_out(&self) -> Result<(), PlaceError> {
        self.check_sockets()?;
        match self.check() {
            Err(PlaceError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                // What is above it is made with it.
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

    /// Whether its sockets can have their names.
    fn check_sockets(&self) -> Result<(), PlaceError> {
        let longest = self.socket().as_os_str().len().max(self.volumes().as_os_str().len());
        if longest > SOCKET_MAX { Err(PlaceError::Long { dir: self.dir.clone() }) } else { Ok(()) }
    }

    /// The mode that it has.
    fn mode(&self) -> u32 {
        if self.shared { 0o755 } else { 0o700 }
    }

    /// Whether the folder is this user's (or, the system's, root's) and nobody else may write in it.
    pub fn check(&self) -> Result<(), PlaceError> {
        let meta = std::fs::symlink_metadata(&self.dir).map_err(|e| self.failed(e))?;
        let wanted = if self.shared { 0 } else { rustix::process::geteuid().as_raw() };
        let forbidden = if self.shared { 0o022 } else { 0o077 };
        let (dir, mode) = (|| self.dir.clone(), meta.mode() & 0o7777);
        if !meta.is_dir() {
            Err(PlaceError::NoFolder { dir: dir() })
        } else if meta.uid() != wanted {
            Err(PlaceError::Foreign { dir: dir(), owner: meta.uid(), wanted })
        } else if mode & forbidden != 0 {
            Err(PlaceError::Open { dir: dir(), mode, wanted: self.mode() })
        } else {
            Ok(())
        }
    }

    /// Waits for its turn to begin or end a daemon. Held until dropped.
    pub fn lock_start(&self) -> Result<OwnedFd, PlaceError> {
        let lock = self.open("start.lock")?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))
            .map_err(|e| self.failed(e.into()))?;
        Ok(lock)
    }

    /// The same, in a folder in which no daemon is to begin: `None` if none can have begun there either.
    fn lock_start_of_other(&self) -> Result<Option<OwnedFd>, PlaceError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = match rustix::fs::open(self.dir.join("start.lock"), flags, Mode::empty()) {
            // Who begins there from now on makes it, and looks at the other folders after that.
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(|e| self.failed(e.into()))?,
        };
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))
            .map_err(|e| self.failed(e.into()))?;
        Ok(Some(lock))
    }

    /// Becomes the daemon of this folder, until dropped. `None` when there is one.
    pub fn lock_daemon(&self) -> Result<Option<OwnedFd>, PlaceError> {
        self.locked(self.open("daemon.lock")?)
    }

    /// Whether a daemon lives here. Its turn to begin must be held.
    fn has_daemon(&self) -> Result<bool, PlaceError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(self.dir.join("daemon.lock"), flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed(errno.into())),
            Ok(lock) => Ok(self.locked(lock)?.is_none()),
        }
    }

    fn locked(&self, lock: OwnedFd) -> Result<Option<OwnedFd>, PlaceError> {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(self.failed(errno.into())),
        }
    }

    /// Connects, if a daemon listens here.
    ///
    /// # Errors
    /// [`PlaceError`] if the folder can't be trusted, or the socket can't be used.
    pub fn connect(&self) -> Result<Option<UnixStream>, PlaceError> {
        match self.check() {
            Err(PlaceError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
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

    fn open(&self, name: &str) -> Result<OwnedFd, PlaceError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(self.dir.join(name), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| self.failed(e.into()))
    }

    fn failed(&self, source: std::io::Error) -> PlaceError {
        PlaceError::Io { dir: self.dir.clone(), source }
    }
}

#[cfg(test)]
mod tests;
